//! What would go wrong inside the command, found before it starts and said in one line.
//!
//! Only what is cheap and certain is an error here; what depends on which device the program will open is a warning,
//! because the NIC itself reports it when it happens. Nothing here binds UDP port 4791: a socket that joins a running
//! process's port group, even for a moment, would be handed some of its packets.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, User, access};
use object::ReadCache;
use object::read::elf::ElfFile64;

use crate::errors::{Failure, Result};
use crate::netdev::{self, NetDev};
use crate::settings::{Setting, Settings};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// The real connection manager, which the NIC serves.
const RDMACM: &str = "librdmacm.so.1";
/// Where Debian, Fedora and a local build put it.
const LIBRARY_DIRS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// Finds the command as `execvp` will.
pub fn command(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf> {
    let shown = name.to_string_lossy();
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match access(&path, AccessFlags::X_OK) {
            Ok(()) if path.is_file() => Ok(path),
            _ if path.exists() => Err(Failure::NotExecutable(format!(
                "{shown}: not an executable file; chmod +x it?"
            ))),
            _ => Err(Failure::NotFound(format!("{shown}: no such file"))),
        };
    }
    let mut unusable = None;
    for directory in std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
        let candidate = directory.join(name);
        if !candidate.is_file() {
            continue;
        }
        if access(&candidate, AccessFlags::X_OK).is_ok() {
            return Ok(candidate);
        }
        unusable = Some(candidate);
    }
    match unusable {
        Some(path) => Err(Failure::NotExecutable(format!(
            "{}: not executable; chmod +x it?",
            path.display()
        ))),
        None => Err(Failure::NotFound(format!(
            "{shown}: command not found in PATH; is its package installed?"
        ))),
    }
}

/// A program linked to librdmacm on a machine without it.
pub fn connection_manager(program: &Path, library_path: Option<&OsStr>) -> Result<()> {
    if !needs(program, RDMACM) || installed(RDMACM, library_path) {
        return Ok(());
    }
    Err(Failure::Machine(format!(
        "{} needs {RDMACM}, which is not installed; on Debian: apt-get install librdmacm1",
        program.display()
    )))
}

/// Whether the ELF file names `library` as needed. A script or anything unreadable does not.
fn needs(program: &Path, library: &str) -> bool {
    let Ok(file) = fs::File::open(program) else {
        return false;
    };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<object::Endianness, _>::parse(&cache) else {
        return false;
    };
    needed_entries(&elf).iter().any(|name| name == library)
}

/// The NEEDED entries of the dynamic section.
fn needed_entries<'data, R: object::ReadRef<'data>>(elf: &ElfFile64<'data, object::Endianness, R>) -> Vec<String> {
    use object::read::elf::{Dyn, FileHeader};
    let (endian, data) = (elf.endian(), elf.data());
    let Ok(sections) = elf.elf_header().sections(endian, data) else {
        return Vec::new();
    };
    let Ok(Some((dynamic, strings))) = sections.dynamic(endian, data) else {
        return Vec::new();
    };
    let Ok(strings) = sections.strings(endian, data, strings) else {
        return Vec::new();
    };
    let needed = dynamic
        .iter()
        .filter(|entry| entry.tag32(endian) == Some(object::elf::DT_NEEDED));
    needed
        .filter_map(|entry| strings.get(entry.val32(endian)?).ok())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

/// Whether the loader would find it: library path, the usual directories, its cache.
fn installed(library: &str, library_path: Option<&OsStr>) -> bool {
    let on_path =
        library_path.is_some_and(|path| std::env::split_paths(path).any(|directory| directory.join(library).exists()));
    let in_cache = || {
        let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
        cache.windows(library.len()).any(|window| window == library.as_bytes())
    };
    on_path
        || LIBRARY_DIRS
            .iter()
            .any(|directory| Path::new(directory).join(library).exists())
        || in_cache()
}

/// A program the loader runs in secure mode ignores the preload; worth a warning.
pub fn secure_mode(program: &Path) -> Option<String> {
    let mode = fs::metadata(program).ok()?.permissions().mode();
    if mode & 0o6000 == 0 || Uid::effective().is_root() {
        return None;
    }
    let name = program.file_name()?.to_string_lossy().into_owned();
    Some(format!(
        "{name} is set-user-ID and drops the NIC from its environment; use `{name} adverb run -- …` instead"
    ))
}

/// The chosen interface and address against the interfaces there are.
pub fn place(settings: &Settings, devices: &[NetDev]) -> Result<()> {
    let device = settings
        .netdev
        .as_ref()
        .map(|setting| chosen_netdev(setting, devices))
        .transpose()?;
    if let Some(setting) = &settings.addr {
        let local = match device {
            Some(device) => device.has(setting.value),
            None => devices.iter().any(|device| device.up && device.has(setting.value)),
        };
        if !local {
            let allowed = match device {
                Some(device) => netdev::describe(std::slice::from_ref(device)),
                None => netdev::describe(devices),
            };
            return Err(setting.refuse(setting.value, &format!("an address of this machine: {allowed}")));
        }
    }
    Ok(())
}

fn chosen_netdev<'a>(setting: &Setting<String>, devices: &'a [NetDev]) -> Result<&'a NetDev> {
    let Some(device) = devices.iter().find(|device| device.name == setting.value) else {
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        return Err(setting.refuse(&setting.value, &names.join(", ")));
    };
    let name = &device.name;
    if !device.up {
        return Err(Failure::Machine(format!(
            "{}: {name} is down; bring it up: ip link set {name} up",
            setting.name
        )));
    }
    if device.addresses.is_empty() {
        return Err(Failure::Machine(format!(
            "{}: {name} has no address; give it one: ip addr add A/LEN dev {name}",
            setting.name
        )));
    }
    Ok(device)
}

/// Whether somebody else holds the RoCE port where the device would be. Certain when the address was chosen; a warning
/// on loopback, the default device, because the program may open another one.
pub fn contention(settings: &Settings) -> Result<Option<String>> {
    let chosen = settings.addr.as_ref().map(|setting| setting.value);
    let address = chosen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    if chosen.is_none() && settings.netdev.is_some() {
        return Ok(None);
    }
    let tables = fs::read_to_string("/proc/net/udp").unwrap_or_default()
        + &fs::read_to_string("/proc/net/udp6").unwrap_or_default();
    let own = Uid::effective().as_raw();
    let Some(holder) = holders(&tables, address).into_iter().find(|uid| *uid != own) else {
        return Ok(None);
    };
    let name = User::from_uid(Uid::from_raw(holder))
        .ok()
        .flatten()
        .map_or(format!("uid {holder}"), |user| user.name);
    let message = format!(
        "{address} UDP port {ROCE_PORT} is in use by user {name}, and one address serves one user; choose another with \
         --addr, for example --addr 127.0.0.2"
    );
    if chosen.is_some() {
        Err(Failure::Machine(message))
    } else {
        Ok(Some(message))
    }
}

/// Owners of sockets bound to (address or any, 4791), from the text of /proc/net/udp and udp6.
fn holders(tables: &str, address: IpAddr) -> Vec<u32> {
    let exact = hex_address(address);
    let any = if address.is_ipv4() {
        "00000000".to_owned()
    } else {
        "0".repeat(32)
    };
    let any_v6 = "0".repeat(32);
    let socket = |line: &str| {
        let mut fields = line.split_whitespace();
        let (local, port) = fields.nth(1)?.split_once(':')?;
        let uid = fields.nth(5)?.parse().ok()?;
        let here = local == exact || local == any || local == any_v6;
        (here && u16::from_str_radix(port, 16) == Ok(ROCE_PORT)).then_some(uid)
    };
    tables.lines().filter_map(socket).collect()
}

/// An address as the kernel prints it: 32-bit words in host order.
fn hex_address(address: IpAddr) -> String {
    let words = |octets: &[u8]| {
        let word = |four: &[u8]| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        octets
            .chunks_exact(4)
            .map(|four| format!("{:08X}", word(four)))
            .collect::<String>()
    };
    match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lo_and_down() -> Vec<NetDev> {
        let lo = NetDev {
            name: "lo".to_owned(),
            up: true,
            loopback: true,
            mtu: 65536,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
        };
        let down = NetDev {
            name: "eth9".to_owned(),
            up: false,
            loopback: false,
            mtu: 1500,
            addresses: Vec::new(),
        };
        vec![lo, down]
    }

    fn setting<T>(name: &'static str, value: T) -> Option<Setting<T>> {
        Some(Setting { name, value })
    }

    #[test]
    fn commands_are_found_as_execvp_finds_them() {
        assert!(command(OsStr::new("true"), Some(OsStr::new("/nowhere:/bin:/usr/bin"))).is_ok());
        assert_eq!(command(OsStr::new("no-such-tool"), None).unwrap_err().status(), 127);
        assert_eq!(command(OsStr::new("/no/such/tool"), None).unwrap_err().status(), 127);
        assert_eq!(command(OsStr::new("/etc/passwd"), None).unwrap_err().status(), 126);
        assert_eq!(command(OsStr::new("/"), None).unwrap_err().status(), 126);
    }

    #[test]
    fn needed_libraries_are_read_from_the_elf_file() {
        let own = std::env::current_exe().unwrap();
        assert!(needs(&own, "libc.so.6"));
        assert!(!needs(&own, RDMACM));
        assert!(!needs(Path::new("/etc/passwd"), RDMACM));
        assert!(installed("libc.so.6", None));
        assert!(!installed("libnothing-of-the-kind.so.7", None));
    }

    #[test]
    fn an_address_of_another_machine_lists_ours() {
        let settings = Settings {
            addr: setting("--addr", "10.9.8.7".parse().unwrap()),
            ..Settings::default()
        };
        let failure = place(&settings, &lo_and_down()).unwrap_err();
        assert_eq!(failure.status(), 2);
        assert!(failure.to_string().contains("lo 127.0.0.1"), "{failure}");
        let settings = Settings {
            addr: setting("--addr", "127.0.0.7".parse().unwrap()),
            ..Settings::default()
        };
        place(&settings, &lo_and_down()).unwrap();
    }

    #[test]
    fn interfaces_unknown_or_down_say_what_to_do() {
        let unknown = Settings {
            netdev: setting("ADVERB_NETDEV", "wlan7".to_owned()),
            ..Settings::default()
        };
        let failure = place(&unknown, &lo_and_down()).unwrap_err();
        assert_eq!(
            (failure.status(), failure.to_string().contains("allowed: lo, eth9")),
            (2, true),
            "{failure}"
        );
        let down = Settings {
            netdev: setting("--netdev", "eth9".to_owned()),
            ..Settings::default()
        };
        let failure = place(&down, &lo_and_down()).unwrap_err();
        assert_eq!(
            (failure.status(), failure.to_string().contains("ip link set eth9 up")),
            (125, true),
            "{failure}"
        );
    }

    #[test]
    fn the_holder_of_an_address_is_read_from_the_socket_table() {
        let line = |local: &str, uid| {
            format!("  9: {local} 00000000:0000 07 00000000:00000000 00:00000000 00000000  {uid}  0 77 2 0000 0\n")
        };
        let table = line("0700007F:12B7", 1001) + &line("0800007F:12B7", 1002) + &line("0700007F:0035", 1003);
        assert_eq!(holders(&table, "127.0.0.7".parse().unwrap()), [1001]);
        assert_eq!(holders(&table, "127.0.0.9".parse().unwrap()), [0; 0]);
        assert_eq!(holders(&line("00000000:12B7", 0), "127.0.0.7".parse().unwrap()), [0]);
        assert_eq!(hex_address("::1".parse().unwrap()), "00000000000000000000000001000000");
    }
}
