//! The export table of the built library, as the loader sees it: against `symbols.tsv`, against what the installed
//! vendor libraries import, and by starting a program.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use object::read::SymbolIndex;
use object::read::elf::{ElfFile64, FileHeader, Sym};
use object::{Endianness, elf};

mod common;

/// A dynamic symbol: name, version, and whether the version is the default one (`@@`).
type Export = (String, Option<(String, bool)>);

/// The dynamic symbols of a file that are defined there, or the ones that are not.
fn dynamic_symbols(path: &Path, defined: bool) -> BTreeSet<Export> {
    let data = std::fs::read(path).expect("the file is readable");
    let file = ElfFile64::<Endianness>::parse(&*data).expect("the file is a shared object");
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*data).expect("it has sections");
    let versions = sections
        .versions(endian, &*data)
        .expect("its version tables are sound")
        .expect("it has versions");
    let symbols = sections
        .symbols(endian, &*data, elf::SHT_DYNSYM)
        .expect("it has dynamic symbols");
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(endian, symbols.strings()).expect("symbols have names");
        let absent = symbol.st_shndx(endian) == elf::SHN_UNDEF;
        if name.is_empty() || absent == defined || symbol.st_type() == elf::STT_SECTION {
            continue;
        }
        let index = versions.version_index(endian, SymbolIndex(index.0));
        let version = versions.version(index).expect("the index is within the table");
        let version = version.map(|version| (text(version.name()), !index.is_hidden()));
        let name = text(name);
        // The nodes themselves appear as absolute symbols in some linkers' output.
        if version.as_ref().is_none_or(|(version, _)| *version != name) {
            found.insert((name, version));
        }
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).expect("symbol names are ASCII")
}

fn expected() -> BTreeSet<Export> {
    include_str!("../symbols.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            (fields[0].to_owned(), Some((fields[1].to_owned(), fields[2] == "1")))
        })
        .collect()
}

#[test]
fn exports_are_exactly_the_table_and_the_hooks() {
    let found = dynamic_symbols(&common::ours(), true);
    let hooks = verbs_provider::exports::HOOKS
        .iter()
        .filter(|_| cfg!(target_arch = "x86_64"));
    let wanted: BTreeSet<Export> = expected()
        .into_iter()
        .chain(hooks.map(|name| ((*name).to_owned(), None)))
        .collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let surplus: Vec<_> = found.difference(&wanted).collect();
    assert!(surplus.is_empty(), "exported beyond the table: {surplus:?}");
}

#[test]
fn vendor_libraries_find_all_they_import() {
    let found = dynamic_symbols(&common::ours(), true);
    let available: BTreeSet<_> = found
        .iter()
        .filter_map(|(name, version)| Some((name, &version.as_ref()?.0)))
        .collect();
    for library in [
        "libmlx5.so.1",
        "libefa.so.1",
        "libmlx4.so.1",
        "libmana.so.1",
        "librdmacm.so.1",
    ] {
        let Some(path) = common::installed(library) else {
            eprintln!("skipped: {library} is not installed");
            continue;
        };
        let imports = dynamic_symbols(&path, false);
        let mut private = 0;
        for (name, version) in &imports {
            let Some((version, _)) = version else { continue };
            if version.starts_with("IBVERBS_PRIVATE_") && version != "IBVERBS_PRIVATE_34" {
                eprintln!("skipped: {library} is of another rdma-core release ({version})");
                break;
            }
            if version.starts_with("IBVERBS_") {
                assert!(available.contains(&(name, version)), "{library} needs {name}@{version}");
                private += usize::from(version.starts_with("IBVERBS_PRIVATE_"));
            }
        }
        eprintln!("{library}: {private} private imports, all exported");
    }
}

/// A directory that holds the library under the name programs look for.
fn library_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        std::os::unix::fs::symlink(common::ours(), directory.path().join(name)).expect("links can be made");
    }
    directory
}

#[test]
fn a_program_with_vendor_libraries_starts() {
    let program = "/usr/bin/ib_write_bw";
    if !Path::new(program).exists() {
        eprintln!("skipped: {program} is not installed");
        return;
    }
    let directory = library_directory();
    for (variable, value) in [
        ("LD_PRELOAD", directory.path().join("libibverbs.so.1")),
        ("LD_LIBRARY_PATH", directory.path().to_owned()),
    ] {
        let output = Command::new(program)
            .arg("--version")
            .env(variable, value)
            .output()
            .expect("it can be started");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains("Version"), "{variable}: {printed}{complaint}");
        assert!(complaint.is_empty(), "{variable}: {complaint}");
    }
}

/// The loader's own account of where a program's calls go.
#[test]
fn hooks_stand_before_the_c_library() {
    let hooks: BTreeSet<_> = dynamic_symbols(&common::ours(), true)
        .into_iter()
        .filter_map(|(name, version)| version.is_none().then_some(name))
        .collect();
    let program = Path::new("/bin/cat");
    let imports: BTreeSet<_> = dynamic_symbols(program, false)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let output = Command::new(program)
        .arg("/dev/null")
        .env("LD_BIND_NOW", "1")
        .env("LD_DEBUG", "bindings")
        .env("LD_PRELOAD", common::ours())
        .output()
        .expect("cat can be started");
    assert!(output.status.success());
    let bindings = String::from_utf8_lossy(&output.stderr);
    for hook in hooks.intersection(&imports) {
        let bound = bindings
            .lines()
            .find(|line| line.contains("binding file /bin/cat") && line.contains(&format!("normal symbol `{hook}'")));
        let bound = bound.unwrap_or_else(|| panic!("cat binds {hook}"));
        assert!(bound.contains("libverbs_provider.so"), "{bound}");
    }
}

/// The answers of the stubs behind rdma-core's private symbols, called by name as a vendor library would.
#[test]
fn stubs_answer_that_nothing_is_supported() {
    let name = std::ffi::CString::new(common::ours().into_os_string().into_encoded_bytes()).expect("no zeros in paths");
    // SAFETY: the name is a C string; the library has no constructors that do anything.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    let call = |symbol: &std::ffi::CStr| {
        // SAFETY: the handle is of a loaded library, and both names are C strings.
        let function = unsafe { libc::dlvsym(library, symbol.as_ptr(), c"IBVERBS_PRIVATE_34".as_ptr()) };
        assert!(!function.is_null(), "{symbol:?}");
        // SAFETY: the stubs take no arguments and return a value of at most a register.
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> usize>(function)() }
    };
    let low = |value: usize| i32::from_le_bytes(value.to_le_bytes()[..4].try_into().expect("four bytes"));
    let errno = || std::io::Error::last_os_error().raw_os_error();
    assert_eq!(low(call(c"ibv_cmd_create_qp")), libc::EOPNOTSUPP);
    assert_eq!((call(c"verbs_open_device"), errno()), (0, Some(libc::EOPNOTSUPP)));
    assert_eq!(
        (low(call(c"ibv_read_ibdev_sysfs_file")), errno()),
        (-1, Some(libc::EOPNOTSUPP))
    );
    call(c"verbs_register_driver_34");
}
