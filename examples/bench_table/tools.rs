//! perftest over Adverb.

use std::io;
use std::path::Path;

use adverb::pair::results::{self, Bandwidth};
use adverb::pair::{Listening, Pair, Place, Report, Stage, Tool};

/// The binaries under measurement.
pub(crate) struct Bench {
    stage: Stage,
}

impl Bench {
    /// Those beside the directory this example was built into.
    pub(crate) fn new() -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        let release = exe
            .parent()
            .and_then(Path::parent)
            .ok_or_else(|| io::Error::other("not in a build tree"))?;
        Ok(Self {
            stage: Stage::new(release, &[])?,
        })
    }

    /// The last row of a bandwidth tool.
    pub(crate) fn bandwidth(&self, line: &str) -> io::Result<Bandwidth> {
        let report = self.run(&format!("{line} -F --report_gbits"))?;
        results::perftest_bandwidth(&report.client.stdout)
            .pop()
            .ok_or_else(|| no_numbers(&report))
    }

    /// The median of a latency tool, in microseconds.
    pub(crate) fn latency(&self, line: &str) -> io::Result<f64> {
        let report = self.run(&format!("{line} -F"))?;
        results::perftest_latency(&report.client.stdout)
            .pop()
            .map(|row| row.typical)
            .ok_or_else(|| no_numbers(&report))
    }

    fn run(&self, line: &str) -> io::Result<Report> {
        let place = Place::new();
        let tool = || Tool::new(line).args(&format!("-p {}", place.port)).addr(place.addr);
        let pair = Pair::new(tool(), tool().arg(place.addr.to_string()), Listening::Tcp(place.port)).limit(120);
        let report = pair.run(&self.stage)?;
        if report.succeeded() {
            Ok(report)
        } else {
            Err(io::Error::other(format!("it failed\n{report}")))
        }
    }
}

fn no_numbers(report: &Report) -> io::Error {
    io::Error::other(format!("no numbers\n{report}"))
}
