//! What the end-to-end tests share: the stage with the binaries under test, and assertions that show both sides.
//!
//! The binaries are those in `$ADVERB_TEST_BIN_DIR` (`make test` names the release build), else the ones cargo built
//! for these tests. A tool that is not installed fails its test: `make setup` installs them all. Only what needs root
//! is skipped without it, and says so.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every test file uses a part of it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use adverb::pair::{Listening, Outcome, Pair, Place, Report, Running, Stage, Status, Tool, Turn, results};

/// Packet faults of the acceptance runs; the seed is added.
pub const FAULTS: &str = "drop=0.02,reorder=0.02,dup=0.02,corrupt=0.005";

/// Directory of the launcher under test.
pub fn bin_dir() -> PathBuf {
    let chosen = std::env::var_os("ADVERB_TEST_BIN_DIR").map(PathBuf::from);
    chosen.unwrap_or_else(|| {
        Path::new(env!("CARGO_BIN_EXE_adverb"))
            .parent()
            .expect("a file has a directory")
            .into()
    })
}

/// The launcher and the library, where the tools' user can run them.
pub fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| Stage::new(&bin_dir(), &[]).expect("stage"))
}

/// A stage with an example program on it.
pub fn stage_with(example: &str) -> Stage {
    let built = Path::new(env!("CARGO_BIN_EXE_adverb"))
        .parent()
        .expect("a file has a directory");
    Stage::new(&bin_dir(), &[built.join("examples").join(example)]).expect("stage")
}

/// Runs one pair in its turn.
pub fn run(pair: Pair) -> Report {
    let _turn = Turn::take().expect("turn");
    pair.run(stage()).expect("start")
}

/// Runs one pair in its turn; both sides must exit with status 0.
pub fn pass(pair: Pair) -> Report {
    let report = run(pair);
    assert!(report.succeeded(), "\n{report}");
    report
}

/// Runs pairs at the same time, with the machine to themselves; all must pass.
pub fn pass_together(pairs: Vec<Pair>) -> Vec<Report> {
    let _turn = Turn::take_all().expect("turn");
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .into_iter()
            .map(|pair| scope.spawn(|| pair.run(stage()).expect("start")))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| !report.succeeded())
        .map(ToString::to_string)
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} pairs failed\n{}",
        failed.len(),
        reports.len(),
        failed.join("\n")
    );
    reports
}

/// One process under `adverb run` to its end.
pub fn alone(tool: &Tool, seconds: u64) -> Outcome {
    tool.spawn(stage())
        .expect("start")
        .wait(std::time::Duration::from_secs(seconds))
}

/// `rping` at a place, both sides with `flags`.
pub fn rping(place: Place, flags: &str) -> Pair {
    let side = |role: &str| {
        let tool = Tool::new("rping")
            .args(&format!("{role} -a {} -p {}", place.addr, place.port))
            .args(flags);
        tool.addr(place.addr)
    };
    Pair::new(side("-s"), side("-c"), Listening::ConnectionManager)
}

/// A tool that exchanges QP numbers over TCP and takes the server's host as its last argument: perftest, pingpong.
pub fn over_tcp(place: Place, line: &str) -> Pair {
    let tool = || Tool::new(line).args(&format!("-p {}", place.port)).addr(place.addr);
    Pair::new(tool(), tool().arg(place.addr.to_string()), Listening::Tcp(place.port))
}

/// perftest with `-R`: the port is one of the connection manager.
pub fn over_cm(place: Place, line: &str) -> Pair {
    Pair {
        listening: Listening::ConnectionManager,
        ..over_tcp(place, line)
    }
}

/// A tool that takes `-b` on the server, `-s` on the client, and `-p`.
pub fn bound(place: Place, line: &str) -> Pair {
    let side = |role: &str| {
        let tool = Tool::new(line).args(&format!("{role} {} -p {}", place.addr, place.port));
        tool.addr(place.addr)
    };
    Pair::new(side("-b"), side("-s"), Listening::ConnectionManager)
}

/// Whether we are root; otherwise says that the test is skipped.
pub fn root_or_skip(test: &str) -> bool {
    let root = nix_is_root();
    if !root {
        eprintln!("skipped: {test} makes a network namespace, which needs root");
    }
    root
}

fn nix_is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout.trim_ascii() == b"0"
}
