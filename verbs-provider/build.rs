//! Generates what gives the library its versioned symbols.
//!
//! `symbols.tsv` says which symbols exist, at which version nodes; the `exports!` table of `src/exports.rs` says which
//! of them are implemented and where. From the two come
//! * `trampolines.rs`: one assembly block with a labelled jump for every symbol, to its implementation or to the stub of
//!   its class, and the `.symver` lines that name it. A `.symver` must stand beside its label: on a name defined in
//!   another object it is an assembler error.
//! * `nodes.map`: the version nodes, without names. rustc passes a version script of its own, and a name that two
//!   scripts mention stays unversioned; nodes alone are accepted beside it (by lld, rustc's linker on this target).
//!
//! The two tables are checked against each other: an implemented symbol that does not exist fails the build.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const SYMBOLS: &str = "symbols.tsv";
const EXPORTS: &str = "src/exports.rs";

/// One symbol with all versions it is found under, the default one marked.
#[derive(Default)]
struct Symbol {
    versions: Vec<(String, bool)>,
    stub: String,
}

fn main() {
    println!("cargo:rerun-if-changed={SYMBOLS}");
    println!("cargo:rerun-if-changed={EXPORTS}");
    let symbols = read_symbols(&fs::read_to_string(SYMBOLS).expect("symbols.tsv is beside build.rs"));
    let exports = read_exports(&fs::read_to_string(EXPORTS).expect("src/exports.rs exists"));
    let unknown: Vec<_> = exports.iter().filter(|name| !symbols.contains_key(*name)).collect();
    assert!(
        unknown.is_empty(),
        "{EXPORTS} implements what {SYMBOLS} does not know: {unknown:?}"
    );

    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let map = Path::new(&out).join("nodes.map");
    fs::write(&map, nodes(&symbols)).expect("OUT_DIR is writable");
    fs::write(
        Path::new(&out).join("trampolines.rs"),
        trampolines(&symbols, &exports, &arch),
    )
    .expect("OUT_DIR is writable");

    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // The engine's thread runs our code until the process ends: unloading the library would pull it from under it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn read_symbols(table: &str) -> BTreeMap<String, Symbol> {
    let mut symbols = BTreeMap::<String, Symbol>::new();
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let fields: Vec<_> = line.split('\t').collect();
        let [name, version, default, stub] = fields[..] else {
            panic!("{SYMBOLS}: four columns expected: {line}")
        };
        let symbol = symbols.entry(name.to_owned()).or_default();
        let default = default == "1";
        assert!(
            symbol
                .versions
                .iter()
                .all(|(known, was_default)| known != version && !(default && *was_default)),
            "{SYMBOLS}: {name} has {version} or a default version twice"
        );
        assert!(
            symbol.stub.is_empty() || symbol.stub == stub,
            "{SYMBOLS}: {name} has two kinds of stub"
        );
        symbol.versions.push((version.to_owned(), default));
        stub.clone_into(&mut symbol.stub);
    }
    symbols
}

/// The names on the left of `=>` within `exports! { … }`.
fn read_exports(source: &str) -> BTreeSet<String> {
    let (_, table) = source
        .split_once("\nexports! {")
        .expect("src/exports.rs has an exports! table");
    let (table, _) = table
        .split_once("\n}")
        .expect("the exports! table ends with a brace at the margin");
    let mut names = BTreeSet::new();
    for line in table.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let Some((name, _)) = line.split_once("=>") else {
            continue;
        };
        assert!(
            names.insert(name.trim().to_owned()),
            "{EXPORTS} lists {} twice",
            name.trim()
        );
    }
    names
}

/// `IBVERBS_1.0 { }; IBVERBS_1.1 { } IBVERBS_1.0; …`: public nodes succeed one another, private ones stand alone.
fn nodes(symbols: &BTreeMap<String, Symbol>) -> String {
    let all: BTreeSet<_> = symbols
        .values()
        .flat_map(|symbol| &symbol.versions)
        .map(|(version, _)| version)
        .collect();
    let mut public: Vec<_> = all
        .iter()
        .filter_map(|version| Some((version.strip_prefix("IBVERBS_1.")?.parse::<u32>().ok()?, version)))
        .collect();
    public.sort_unstable();
    let mut text = String::new();
    let mut before = String::new();
    for (_, version) in &public {
        let _ = writeln!(text, "{version} {{ }}{before};");
        before = format!(" {version}");
    }
    for version in all
        .iter()
        .filter(|version| !public.iter().any(|(_, known)| *known == *version))
    {
        let _ = writeln!(text, "{version} {{ }};");
    }
    text
}

fn trampolines(symbols: &BTreeMap<String, Symbol>, exports: &BTreeSet<String>, arch: &str) -> String {
    let jump = match arch {
        "x86_64" => "jmp",
        "aarch64" => "b",
        other => return format!("compile_error!(\"no symbol trampolines for the {other} architecture\");\n"),
    };
    let mut text = String::from("std::arch::global_asm!(\n");
    let mut operands = BTreeSet::new();
    let mut line = |line: &str| writeln!(text, "    {line:?},").expect("writing to a string");
    line(".pushsection .text.adverb_exports,\"ax\",@progbits");
    for (name, symbol) in symbols {
        if symbol.stub == "data" {
            line(".pushsection .bss.adverb_exports,\"aw\",@nobits");
            line(&format!(
                ".globl adverb_{name}\n.type adverb_{name},@object\nadverb_{name}: .zero 1"
            ));
            line(&format!(".size adverb_{name},1\n.popsection"));
        } else {
            let target = if exports.contains(name) {
                operands.insert(format!("{name} = sym crate::exports::listed::{name}"));
                name.clone()
            } else {
                operands.insert(format!("stub_{0} = sym crate::entry::stubs::{0}", symbol.stub));
                format!("stub_{}", symbol.stub)
            };
            line(&format!(
                ".globl adverb_{name}\n.type adverb_{name},@function\n.p2align 4"
            ));
            line(&format!(
                "adverb_{name}: {jump} {{{target}}}\n.size adverb_{name}, . - adverb_{name}"
            ));
        }
        for (version, default) in &symbol.versions {
            line(&format!(
                ".symver adverb_{name}, {name}{}{version}",
                if *default { "@@" } else { "@" }
            ));
        }
    }
    line(".popsection");
    for operand in operands {
        let _ = writeln!(text, "    {operand},");
    }
    text.push_str(");\n");
    text
}
