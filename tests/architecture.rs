//! The rules that keep the parts apart, read from the sources: who may use whom, where `unsafe` and the operating
//! system may appear, and how long a file may get. ARCHITECTURE.md says why.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines, its tests included. Tables generated from elsewhere are data files, not Rust.
const MOST_LINES: usize = 800;

/// Where `unsafe` may appear: what talks to C, to the kernel, or moves an application's memory.
const UNSAFE_ALLOWED: [&str; 9] = [
    "nic-model/src/device/dma.rs",
    "nic-model/src/port/sys/",
    "nic-model/src/port/sys.rs",
    "nic-model/src/port/host/sys.rs",
    "nic-model/src/port/engine/sys.rs",
    // All of C's pointers end here.
    "verbs-provider/src/",
    "verbs-provider/tests/",
    // Clients of the C interface.
    "examples/verbs/",
    "examples/bench_table/",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

struct Source {
    /// Relative to the workspace.
    name: String,
    /// As written.
    text: String,
    /// Without comments and string literals, so that prose may name anything.
    code: String,
}

fn sources(under: &str) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root().join(under), &mut found);
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a source file");
            let name = path
                .strip_prefix(root())
                .expect("inside")
                .to_string_lossy()
                .into_owned();
            let code = strip(&text);
            Source { name, text, code }
        })
        .collect()
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                walk(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Blanks comments, and the insides of plain, byte and raw string literals; lines stay lines.
fn strip(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let blank =
        |out: &mut Vec<u8>, range: &[u8]| out.extend(range.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            rest.windows(2)
                .position(|pair| pair == b"*/")
                .map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest, at.checked_sub(1).map(|before| bytes[before])) {
            length
        } else if rest[0] == b'"' {
            string(rest)
        } else if rest.starts_with(b"'\"'") || rest.starts_with(b"'\\\"'") {
            rest.iter().skip(2).position(|b| *b == b'\'').map_or(1, |end| end + 3)
        } else {
            out.push(rest[0]);
            at += 1;
            continue;
        };
        blank(&mut out, &rest[..length]);
        at += length;
    }
    String::from_utf8(out).unwrap_or_default()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8], before: Option<u8>) -> Option<usize> {
    if rest[0] != b'r' || before.is_some_and(|byte| byte.is_ascii_alphanumeric() && byte != b'b' || byte == b'_') {
        return None;
    }
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = 2 + hashes;
    let length = rest[body..].windows(end.len()).position(|window| window == end)?;
    Some(body + length + end.len())
}

/// Whether `word` stands in the code as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    code.match_indices(word).any(|(at, _)| {
        let bytes = code.as_bytes();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !part(before) && !part(bytes.get(at + word.len()))
    })
}

/// The complaints of a rule, all at once.
fn none(rule: &str, broken: &BTreeSet<String>) {
    assert!(
        broken.is_empty(),
        "{rule}:\n  {}",
        broken.iter().cloned().collect::<Vec<_>>().join("\n  ")
    );
}

fn forbid(rule: &str, under: &[&str], words: &[&str]) {
    let mut broken = BTreeSet::new();
    for source in under.iter().flat_map(|directory| sources(directory)) {
        for word in words {
            if has_word(&source.code, word) {
                broken.insert(format!("{} names {word}", source.name));
            }
        }
    }
    none(rule, &broken);
}

#[test]
fn the_device_does_no_io_and_reads_no_clock() {
    forbid(
        "device, tonic, sim and host_if take time as a parameter and touch no operating system",
        &[
            "nic-model/src/device",
            "nic-model/src/tonic",
            "nic-model/src/sim",
            "nic-model/src/host_if",
        ],
        &[
            "crate::port",
            "super::port",
            "std::thread",
            "UdpSocket",
            "TcpStream",
            "Instant::now",
            "SystemTime",
            "libc",
        ],
    );
}

#[test]
fn the_device_never_iterates_in_an_order_of_chance() {
    forbid(
        "a replay must be a replay: ordered maps only",
        &["nic-model/src/device", "nic-model/src/tonic", "nic-model/src/sim"],
        &["HashMap", "HashSet"],
    );
}

#[test]
fn dependencies_point_one_way() {
    forbid(
        "roce-wire is at the bottom",
        &["roce-wire/src"],
        &["nic_model", "verbs_provider", "adverb"],
    );
    forbid(
        "nic-model knows of no verbs",
        &["nic-model/src"],
        &["verbs_provider", "adverb::"],
    );
    let manifest = |of: &str| fs::read_to_string(root().join(of).join("Cargo.toml")).expect("a manifest");
    let mut broken = BTreeSet::new();
    for (of, not) in [
        ("roce-wire", ["nic-model.", "verbs-provider."].as_slice()),
        ("nic-model", ["verbs-provider."].as_slice()),
    ] {
        let text = manifest(of);
        broken.extend(
            not.iter()
                .filter(|name| text.contains(*name))
                .map(|name| format!("{of} depends on {name}")),
        );
    }
    none("roce-wire ← nic-model ← verbs-provider ← adverb", &broken);
}

#[test]
fn the_driver_reaches_the_device_through_the_host_interface() {
    let mut broken = BTreeSet::new();
    for source in sources("verbs-provider/src/driver") {
        for (at, _) in source.code.match_indices("nic_model::") {
            let path: String = source.code[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || ":_".contains(*c))
                .collect();
            let allowed = ["nic_model::host_if", "nic_model::port::engine", "nic_model::time"];
            if !allowed.iter().any(|prefix| path.starts_with(prefix)) {
                broken.insert(format!("{} uses {path}", source.name));
            }
        }
    }
    none(
        "the driver half sees rings, doorbells, commands and the engine that drives them",
        &broken,
    );
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let mut broken = BTreeSet::new();
    for under in [
        "src",
        "roce-wire",
        "nic-model",
        "verbs-provider",
        "examples",
        "tests",
        "benches",
    ] {
        for source in sources(under) {
            let allowed = UNSAFE_ALLOWED.iter().any(|prefix| source.name.starts_with(prefix));
            if !allowed && has_word(&source.code, "unsafe") {
                broken.insert(source.name);
            }
        }
    }
    none("unsafe outside the list in this test", &broken);
}

#[test]
fn the_wire_formats_forbid_unsafe_code() {
    let crate_root = fs::read_to_string(root().join("roce-wire/src/lib.rs")).expect("lib.rs");
    assert!(crate_root.contains("#![forbid(unsafe_code"), "roce-wire/src/lib.rs");
}

#[test]
fn no_file_is_too_long() {
    let mut broken = BTreeSet::new();
    for under in [
        "src",
        "roce-wire",
        "nic-model",
        "verbs-provider",
        "examples",
        "tests",
        "benches",
    ] {
        for source in sources(under) {
            let lines = source.text.lines().count();
            if lines > MOST_LINES {
                broken.insert(format!("{} has {lines} lines", source.name));
            }
        }
    }
    none("split it: one operation, protocol or verb family a file", &broken);
}

#[test]
fn every_module_says_what_it_is() {
    let mut broken = BTreeSet::new();
    for under in [
        "src",
        "roce-wire",
        "nic-model",
        "verbs-provider",
        "examples",
        "tests",
        "benches",
    ] {
        broken.extend(
            sources(under)
                .into_iter()
                .filter(|source| !source.text.starts_with("//!"))
                .map(|source| source.name),
        );
    }
    none("the first line of a file is its //! header", &broken);
}

#[test]
fn libraries_print_nothing() {
    let mut broken = BTreeSet::new();
    for under in ["roce-wire/src", "nic-model/src", "verbs-provider/src"] {
        for source in sources(under)
            .into_iter()
            .filter(|source| !source.name.ends_with("tests.rs"))
        {
            for word in ["println!", "print!", "dbg!"] {
                if has_word(&source.code, word) {
                    broken.insert(format!("{} uses {word}", source.name));
                }
            }
        }
    }
    none("an application's stdout is its own", &broken);
}

#[test]
fn the_stripper_keeps_code_and_drops_prose() {
    let text = "let a = \"unsafe\"; // unsafe\nlet b = r#\"unsafe \" \"#; /* unsafe */ let c = '\"'; unsafe_fn();";
    let code = strip(text);
    assert!(
        !has_word(&code, "unsafe") && code.contains("unsafe_fn") && code.contains("let c"),
        "{code}"
    );
    assert!(has_word(&strip("fn f() { unsafe { g() } }"), "unsafe"));
    assert_eq!(code.lines().count(), text.lines().count());
}
