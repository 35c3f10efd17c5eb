//! The examples, in Rust and in C, run as their headers say.

mod harness;

use std::path::Path;
use std::process::Command;

use harness::{Listening, Pair, Place, Stage, Tool, Turn, bin_dir, stage_with};

fn pass(stage: &Stage, pair: &Pair, words: &str) {
    let _turn = Turn::take().expect("turn");
    let report = pair.clone().run(stage).expect("start");
    assert!(report.succeeded(), "\n{report}");
    assert!(report.client.stdout.contains(words), "'{words}' is missing\n{report}");
}

fn rust_pair(stage: &Stage, example: &str, flags: &str) -> Pair {
    let place = Place::new();
    let program = stage.path(example).display().to_string();
    let side = |role: &str| {
        let meeting = format!("{role} --host {} --port {} {flags}", place.addr, place.port);
        Tool::new(&program).args(&meeting).addr(place.addr)
    };
    Pair::new(side("server"), side("client"), Listening::Tcp(place.port))
}

/// Compiles a C example and stages it.
fn compile(name: &str) -> (tempfile::TempDir, Stage) {
    let directory = tempfile::tempdir().expect("directory");
    let program = directory.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/c")
        .join(name)
        .with_extension("c");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .args(["-lrdmacm", "-libverbs"])
        .status()
        .expect("cc; run `make setup`");
    assert!(status.success(), "{} does not compile", source.display());
    let stage = Stage::new(&bin_dir(), &[program]).expect("stage");
    (directory, stage)
}

fn c_pair(stage: &Stage, example: &str) -> Pair {
    let place = Place::new();
    let program = stage.path(example).display().to_string();
    let side = |role: &str| {
        Tool::new(&program)
            .args(&format!("{role} {} {}", place.addr, place.port))
            .addr(place.addr)
    };
    Pair::new(side("server"), side("client"), Listening::ConnectionManager)
}

#[test]
fn rc_pingpong_in_rust() {
    let stage = stage_with("rc_pingpong");
    pass(
        &stage,
        &rust_pair(&stage, "rc_pingpong", "--iterations 500"),
        "500 messages",
    );
}

#[test]
fn write_bw_in_rust() {
    let stage = stage_with("write_bw");
    pass(&stage, &rust_pair(&stage, "write_bw", "--iterations 2000"), "Gbit/s");
}

#[test]
fn atomic_count_in_rust() {
    let stage = stage_with("atomic_count");
    pass(&stage, &rust_pair(&stage, "atomic_count", "--count 5000"), "");
}

#[test]
fn rc_pingpong_in_c() {
    let (_directory, stage) = compile("rc_pingpong");
    pass(&stage, &c_pair(&stage, "rc_pingpong"), "round trips");
}

#[test]
fn write_bw_in_c() {
    let (_directory, stage) = compile("write_bw");
    pass(&stage, &c_pair(&stage, "write_bw"), "Gbit/s");
}
