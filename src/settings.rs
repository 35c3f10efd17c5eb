//! The settings of `adverb run`: each is a flag and an environment variable, and the flag wins.
//!
//! Values are checked here, before the command starts, so that a typing mistake is one line on the terminal and not a
//! surprise in the middle of a run. What passes is handed on as `ADVERB_*`, which is all that the NIC in the program's
//! process reads. Every [`Setting`] remembers under which name the user wrote it, for the message.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use crate::errors::{Failure, Result};

/// Smallest receive buffer worth having: a few full packets at PMTU 4096.
const RCVBUF_MIN: usize = 16 * 1024;
/// Largest receive buffer: the kernel keeps twice the number in an `int`.
const RCVBUF_MAX: usize = (1 << 30) - 1;

/// The flags of `adverb run`, as typed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Offer this network interface as the only device [env: ADVERB_NETDEV]
    #[arg(long, value_name = "IF")]
    pub netdev: Option<OsString>,
    /// Make this local address the device's, GID 0 and source address [env: ADVERB_ADDR]
    #[arg(long, value_name = "A")]
    pub addr: Option<OsString>,
    /// Spoil sent packets: drop=P,reorder=P,dup=P,corrupt=P,seed=N, each optional [env: ADVERB_FAULTS]
    #[arg(long, value_name = "SPEC")]
    pub faults: Option<OsString>,
    /// Write every packet to FILE: classic pcap for a name in .pcap, pcapng otherwise [env: ADVERB_PCAP]
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<OsString>,
    /// Receive buffer of the sockets in bytes [env: ADVERB_RCVBUF]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub rcvbuf: Option<OsString>,
    /// Log on stderr: off, error, warn, info, debug, trace, or TARGET=LEVEL,… [env: ADVERB_LOG]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<OsString>,
    /// Log to FILE instead [env: ADVERB_LOG_FILE]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<OsString>,
}

/// A value and the name under which the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// `--addr` or `ADVERB_ADDR`.
    pub name: &'static str,
    /// The value.
    pub value: T,
}

impl<T> Setting<T> {
    /// A one-line complaint about it.
    pub fn refuse(&self, written: impl std::fmt::Display, allowed: &str) -> Failure {
        Failure::Usage(format!("{}: '{written}' is not allowed; allowed: {allowed}", self.name))
    }
}

/// Settings that have passed their checks.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The only device offered.
    pub netdev: Option<Setting<String>>,
    /// The device's address.
    pub addr: Option<Setting<IpAddr>>,
    /// Faults to inject, as written.
    pub faults: Option<Setting<String>>,
    /// Capture file, absolute.
    pub pcap: Option<Setting<PathBuf>>,
    /// Receive buffer in bytes.
    pub rcvbuf: Option<Setting<usize>>,
    /// Log filter, as written.
    pub log: Option<Setting<String>>,
    /// Log file, absolute.
    pub log_file: Option<Setting<PathBuf>>,
}

impl Settings {
    /// Resolves flags against the environment (`var`) and checks every value.
    pub fn resolve(flags: &Flags, var: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let pick = |flag: &Option<OsString>, flag_name, variable| pick(flag.as_ref(), flag_name, variable, &var);
        Ok(Self {
            netdev: pick(&flags.netdev, "--netdev", "ADVERB_NETDEV")?,
            addr: pick(&flags.addr, "--addr", "ADVERB_ADDR")?.map(address).transpose()?,
            faults: pick(&flags.faults, "--faults", "ADVERB_FAULTS")?
                .map(faults)
                .transpose()?,
            pcap: pick(&flags.pcap, "--pcap", "ADVERB_PCAP")?.map(file).transpose()?,
            rcvbuf: pick(&flags.rcvbuf, "--rcvbuf", "ADVERB_RCVBUF")?
                .map(receive_buffer)
                .transpose()?,
            log: pick(&flags.log, "--log", "ADVERB_LOG")?.map(log_filter).transpose()?,
            log_file: pick(&flags.log_file, "--log-file", "ADVERB_LOG_FILE")?
                .map(file)
                .transpose()?,
        })
    }

    /// The environment that carries them into the command.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = Vec::new();
        let mut set = |name, value: Option<OsString>| variables.extend(value.map(|value| (name, value)));
        set(
            "ADVERB_NETDEV",
            self.netdev.as_ref().map(|setting| (&setting.value).into()),
        );
        set(
            "ADVERB_ADDR",
            self.addr.as_ref().map(|setting| setting.value.to_string().into()),
        );
        set(
            "ADVERB_FAULTS",
            self.faults.as_ref().map(|setting| (&setting.value).into()),
        );
        set(
            "ADVERB_PCAP",
            self.pcap.as_ref().map(|setting| setting.value.clone().into_os_string()),
        );
        set(
            "ADVERB_RCVBUF",
            self.rcvbuf.as_ref().map(|setting| setting.value.to_string().into()),
        );
        set("ADVERB_LOG", self.log.as_ref().map(|setting| (&setting.value).into()));
        set(
            "ADVERB_LOG_FILE",
            self.log_file
                .as_ref()
                .map(|setting| setting.value.clone().into_os_string()),
        );
        variables
    }
}

/// The flag if given, else the variable if set and not empty.
fn pick(
    flag: Option<&OsString>,
    flag_name: &'static str,
    variable: &'static str,
    var: &impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Setting<String>>> {
    let (name, value) = match flag {
        Some(value) => (flag_name, value.clone()),
        None => match var(variable) {
            Some(value) if !value.is_empty() => (variable, value),
            _ => return Ok(None),
        },
    };
    match value.into_string() {
        Ok(value) => Ok(Some(Setting { name, value })),
        Err(value) => Err(Failure::Usage(format!(
            "{name}: '{}' is not allowed; allowed: UTF-8 text",
            value.to_string_lossy()
        ))),
    }
}

fn address(setting: Setting<String>) -> Result<Setting<IpAddr>> {
    let allowed = "an IPv4 or IPv6 address of this machine, such as 127.0.0.7";
    match setting.value.parse::<IpAddr>() {
        Ok(value) if !value.is_unspecified() && !value.is_multicast() => Ok(Setting {
            name: setting.name,
            value,
        }),
        _ => Err(setting.refuse(&setting.value, allowed)),
    }
}

fn faults(setting: Setting<String>) -> Result<Setting<String>> {
    match crate::host::check_faults(&setting.value) {
        Ok(()) => Ok(setting),
        Err(reason) => Err(Failure::Usage(format!("{}: {reason}", setting.name))),
    }
}

fn file(setting: Setting<String>) -> Result<Setting<PathBuf>> {
    let allowed = "a file name in a directory that exists";
    let Ok(path) = std::path::absolute(&setting.value) else {
        return Err(setting.refuse(&setting.value, allowed));
    };
    let in_directory = path.parent().is_some_and(std::path::Path::is_dir);
    if !in_directory || path.is_dir() || setting.value.ends_with('/') {
        return Err(setting.refuse(&setting.value, allowed));
    }
    Ok(Setting {
        name: setting.name,
        value: path,
    })
}

fn receive_buffer(setting: Setting<String>) -> Result<Setting<usize>> {
    match setting.value.parse::<usize>() {
        Ok(value) if (RCVBUF_MIN..=RCVBUF_MAX).contains(&value) => Ok(Setting {
            name: setting.name,
            value,
        }),
        _ => Err(setting.refuse(&setting.value, &format!("bytes from {RCVBUF_MIN} to {RCVBUF_MAX}"))),
    }
}

fn log_filter(setting: Setting<String>) -> Result<Setting<String>> {
    let allowed = "off, error, warn, info, debug, trace, or TARGET=LEVEL separated by commas";
    // A bare word that is no level would be taken for a target, enable everything below it, and hide the mistake.
    let bare_word = !setting.value.contains(['=', ',', '[', ':']);
    let is_level = setting.value.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    if (bare_word && !is_level) || EnvFilter::try_new(&setting.value).is_err() {
        return Err(setting.refuse(&setting.value, allowed));
    }
    Ok(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Settings> {
        let flag = |name| {
            flags
                .iter()
                .find(|(flag, _)| *flag == name)
                .map(|(_, value)| value.into())
        };
        let flags = Flags {
            netdev: flag("netdev"),
            addr: flag("addr"),
            faults: flag("faults"),
            pcap: flag("pcap"),
            rcvbuf: flag("rcvbuf"),
            log: flag("log"),
            log_file: flag("log_file"),
        };
        Settings::resolve(&flags, |name| {
            variables
                .iter()
                .find(|(variable, _)| *variable == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_flag_wins_over_the_variable() {
        let settings = resolve(&[("addr", "127.0.0.7")], &[("ADVERB_ADDR", "127.0.0.8")]).unwrap();
        assert_eq!(settings.environment(), [("ADVERB_ADDR", "127.0.0.7".into())]);
    }

    #[test]
    fn an_empty_variable_is_no_variable() {
        assert!(resolve(&[], &[("ADVERB_RCVBUF", "")]).unwrap().environment().is_empty());
    }

    #[test]
    fn a_wrong_value_is_named_after_where_it_was_written() {
        let flag = resolve(&[("rcvbuf", "lots")], &[]).unwrap_err();
        assert_eq!(flag.status(), 2);
        assert!(
            flag.to_string()
                .starts_with("--rcvbuf: 'lots' is not allowed; allowed: bytes from "),
            "{flag}"
        );
        let variable = resolve(&[], &[("ADVERB_RCVBUF", "12")]).unwrap_err();
        assert!(variable.to_string().starts_with("ADVERB_RCVBUF: '12'"), "{variable}");
    }

    #[test]
    fn wrong_values_of_every_kind_are_refused_in_one_line() {
        let wrong = [
            ("addr", "localhost"),
            ("addr", "0.0.0.0"),
            ("addr", "224.0.0.1"),
            ("pcap", "/no/such/directory/x.pcap"),
            ("pcap", "/tmp"),
            ("rcvbuf", "-1"),
            ("log", "loud"),
            ("log", "adverb=loud"),
        ];
        for (flag, value) in wrong {
            let failure = resolve(&[(flag, value)], &[]).unwrap_err();
            assert_eq!(failure.status(), 2, "{flag} {value}");
            assert_eq!(failure.to_string().lines().count(), 1, "{failure}");
            assert!(failure.to_string().contains(&format!("--{flag}")), "{failure}");
        }
    }

    #[test]
    fn the_capture_file_becomes_absolute() {
        let settings = resolve(&[("pcap", "x.pcap")], &[]).unwrap();
        assert!(settings.pcap.unwrap().value.is_absolute());
    }

    #[test]
    fn log_filters_pass() {
        for filter in [
            "debug",
            "TRACE",
            "off",
            "verbs_provider=debug,info",
            "nic_model::device[qp]=trace",
        ] {
            resolve(&[("log", filter)], &[]).unwrap();
        }
    }
}
