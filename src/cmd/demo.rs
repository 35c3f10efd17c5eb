//! `adverb demo`: the distribution's own tools, each between two unprivileged processes over the emulated NIC.
//!
//! Nothing is special about these runs; every line can be typed by hand with `adverb run --` in front.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::checks;
use crate::errors::{Failure, Result};
use crate::pair::{Listening, Pair, Place, Report, Stage, Tool, results};

/// Arguments of `adverb demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what the tools printed as well
    #[arg(long)]
    pub verbose: bool,
}

/// One line of the table.
struct Entry {
    tool: &'static str,
    /// What it does, for the reader of the table.
    what: &'static str,
    flags: &'static str,
    style: Style,
    /// About how long it takes, in seconds.
    about: u64,
}

/// How a tool is given its address and port, and what it prints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Rping,
    Pingpong,
    Bandwidth,
    Latency,
    Rstream,
}

const ENTRIES: [Entry; 7] = [
    entry(
        "rping",
        "100 verified 4 KiB pings, READ and WRITE",
        "-v -V -C 100 -S 4096",
        Style::Rping,
        2,
    ),
    entry(
        "ibv_rc_pingpong",
        "SEND/RECV of 4 KiB, data checked",
        "-g 0 -c -n 5000",
        Style::Pingpong,
        2,
    ),
    entry(
        "ib_write_bw",
        "RDMA WRITE of 64 KiB",
        "-F --report_gbits",
        Style::Bandwidth,
        4,
    ),
    entry("ib_send_bw", "SEND of 64 KiB", "-F --report_gbits", Style::Bandwidth, 3),
    entry(
        "ib_read_bw",
        "RDMA READ of 64 KiB",
        "-F --report_gbits",
        Style::Bandwidth,
        3,
    ),
    entry(
        "ib_write_lat",
        "RDMA WRITE of 8 bytes",
        "-F -s 8 -n 10000",
        Style::Latency,
        2,
    ),
    entry(
        "rstream",
        "sockets over RDMA, 64 KiB, data checked",
        "-T v -S 65536 -I 50 -C 100",
        Style::Rstream,
        4,
    ),
];

const fn entry(tool: &'static str, what: &'static str, flags: &'static str, style: Style, about: u64) -> Entry {
    Entry {
        tool,
        what,
        flags,
        style,
        about,
    }
}

/// Runs everything and prints the table.
pub fn main(args: &Args) -> Result<()> {
    let path = env::var_os("PATH");
    for entry in &ENTRIES {
        if checks::command(OsStr::new(entry.tool), path.as_deref()).is_err() {
            return Err(Failure::NotFound(format!(
                "{} is not installed; run `make setup`",
                entry.tool
            )));
        }
    }
    let machine = |error: std::io::Error| Failure::Machine(error.to_string());
    let exe = env::current_exe().map_err(machine)?;
    let stage = Stage::new(exe.parent().unwrap_or(&exe), &[]).map_err(machine)?;

    let started = Instant::now();
    let mut rows = Vec::new();
    let mut failed = BTreeMap::new();
    for (index, entry) in ENTRIES.iter().enumerate() {
        let left: u64 = ENTRIES[index..].iter().map(|entry| entry.about).sum();
        progress(&format!(
            "[{}/{}] {:<16} about {left} s to go",
            index + 1,
            ENTRIES.len(),
            entry.tool
        ));
        let report = entry.pair().run(&stage).map_err(machine)?;
        let result = entry.result(&report);
        if args.verbose || result.is_none() {
            progress("");
            eprint!("{report}");
        }
        if result.is_none() {
            failed.insert(index, entry.tool);
        }
        rows.push((entry, result));
    }
    progress("");
    print!("{}", table(&rows));
    println!(
        "{} tools in {:.0?}, two processes each, no privileges, no RDMA hardware",
        rows.len(),
        started.elapsed()
    );
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Unsuccessful(format!(
        "failed: {}",
        failed.into_values().collect::<Vec<_>>().join(", ")
    )))
}

/// Overwrites the progress line; without a terminal each step is a line of its own.
fn progress(line: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        // A terminal that went away is no reason to stop.
        let _ = write!(err, "\r\x1b[K{line}");
    } else if !line.is_empty() {
        let _ = writeln!(err, "{line}");
    }
    let _ = err.flush();
}

/// (bandwidth, latency), as they stand in the table.
type Numbers = (String, String);

impl Entry {
    fn pair(&self) -> Pair {
        let place = Place::new();
        let (addr, port) = (place.addr, place.port);
        let tool = || {
            Tool::new(self.tool)
                .addr(addr)
                .args(self.flags)
                .args(&format!("-p {port}"))
        };
        let (server, client, listening) = match self.style {
            Style::Rping => {
                let side = |role: &str| tool().args(&format!("{role} -a {addr}"));
                (side("-s"), side("-c"), Listening::ConnectionManager)
            }
            Style::Rstream => {
                let side = |role: &str| tool().args(&format!("{role} {addr}"));
                (side("-b"), side("-s"), Listening::ConnectionManager)
            }
            Style::Pingpong | Style::Bandwidth | Style::Latency => {
                (tool(), tool().arg(addr.to_string()), Listening::Tcp(port))
            }
        };
        let mut pair = Pair::new(server, client, listening);
        pair.limit = Duration::from_secs(30);
        pair
    }

    /// The numbers, if both sides succeeded and the client printed some.
    fn result(&self, report: &Report) -> Option<Numbers> {
        if !report.succeeded() {
            return None;
        }
        let text = &report.client.stdout;
        let gbits = |value: f64| format!("{value:.2} Gbit/s");
        let usec = |value: f64| format!("{value:.2} µs");
        match self.style {
            Style::Rping => {
                let pings = text.lines().filter(|line| line.contains("ping data")).count();
                (pings == 100).then(|| (String::new(), String::new()))
            }
            Style::Pingpong => {
                let (mbits, round_trip) = results::pingpong(text)?;
                Some((gbits(mbits / 1000.0), usec(round_trip / 2.0)))
            }
            Style::Bandwidth => {
                let row = *results::perftest_bandwidth(text).last()?;
                Some((gbits(row.gbits), String::new()))
            }
            Style::Latency => {
                let row = *results::perftest_latency(text).last()?;
                Some((String::new(), usec(row.typical)))
            }
            Style::Rstream => {
                let (_, bandwidth, _) = results::rstream(text).pop()?;
                Some((gbits(bandwidth), String::new()))
            }
        }
    }
}

fn table(rows: &[(&Entry, Option<Numbers>)]) -> String {
    let line = |cells: [&str; 5]| {
        let [tool, what, result, bandwidth, latency] = cells;
        format!("{tool:<17}{what:<42}{result:<8}{bandwidth:>14}{latency:>11}")
            .trim_end()
            .to_owned()
            + "\n"
    };
    let mut out = line(["TOOL", "WHAT", "RESULT", "BANDWIDTH", "LATENCY"]);
    for (entry, numbers) in rows {
        out += &match numbers {
            Some((bandwidth, latency)) => line([entry.tool, entry.what, "ok", bandwidth, latency]),
            None => line([entry.tool, entry.what, "FAILED", "", ""]),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_failures() {
        let rows = [
            (&ENTRIES[0], None),
            (&ENTRIES[5], Some((String::new(), "3.10 µs".to_owned()))),
        ];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("FAILED") && lines[2].ends_with("3.10 µs"), "{text}");
    }

    #[test]
    fn the_demonstration_fits_its_two_minutes() {
        assert!(ENTRIES.iter().map(|entry| entry.about).sum::<u64>() < 60);
    }
}
