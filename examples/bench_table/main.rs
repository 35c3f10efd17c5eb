//! Measures Adverb next to what the machine can do without it, in one run, and writes `BENCHMARKS.md`.
//!
//! Absolute numbers of a shared machine say little; the ratios to raw UDP, memcpy and TCP measured a minute earlier
//! say where the time goes. Run it with `make bench`.

mod memory;
mod tcp;
mod tools;
mod udp;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long each raw measurement runs.
const SPAN: Duration = Duration::from_secs(2);

/// A line of the table: what Adverb reaches next to the raw number it is compared with.
struct Row {
    what: &'static str,
    adverb: String,
    raw: String,
    ratio: f64,
    aim: &'static str,
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> io::Result<()> {
    let bench = tools::Bench::new()?;
    step("raw UDP, memcpy and TCP");
    let udp_4096 = udp::blast(4096 + udp::OVERHEAD, SPAN)?;
    let udp_1024 = udp::blast(1024 + udp::OVERHEAD, SPAN)?;
    let udp_small = udp::blast(64 + udp::OVERHEAD, SPAN)?;
    let udp_one_way = udp::ping_pong(8 + udp::OVERHEAD + udp::RETH, SPAN)?;
    let copy_hot = memory::copy(64 << 10, SPAN);
    let copy_cold = memory::copy(256 << 20, SPAN);
    let tcp = tcp::stream(128 << 10, SPAN)?;

    step("ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat");
    let write_4096 = bench.bandwidth("ib_write_bw -s 1048576 -n 4000 -m 4096")?;
    let write_1024 = bench.bandwidth("ib_write_bw -s 1048576 -n 2000 -m 1024")?;
    let read_4096 = bench.bandwidth("ib_read_bw -s 1048576 -n 4000 -m 4096")?;
    let send_64 = bench.bandwidth("ib_send_bw -s 64 -n 1000000 -t 1024 -r 1024 -Q 64")?;
    let latency = bench.latency("ib_write_lat -s 8 -n 50000")?;

    let gbits = |value: f64| format!("{value:.1} Gbit/s");
    let rate = |value: f64| format!("{value:.2} M/s");
    let usec = |value: f64| format!("{value:.2} µs");
    let rows = [
        Row {
            what: "WRITE of 1 MiB, PMTU 4096, against a GSO/GRO sender of the same packets",
            adverb: gbits(write_4096.gbits),
            raw: gbits(udp_4096.gbits),
            ratio: write_4096.gbits / udp_4096.gbits,
            aim: "≥ 0.60",
        },
        Row {
            what: "WRITE of 1 MiB, PMTU 1024, against the same",
            adverb: gbits(write_1024.gbits),
            raw: gbits(udp_1024.gbits),
            ratio: write_1024.gbits / udp_1024.gbits,
            aim: "≥ 0.60",
        },
        Row {
            what: "READ of 1 MiB, PMTU 4096, against the same",
            adverb: gbits(read_4096.gbits),
            raw: gbits(udp_4096.gbits),
            ratio: read_4096.gbits / udp_4096.gbits,
            aim: "",
        },
        Row {
            what: "SEND of 64 bytes, one QP, against datagrams of 80 bytes",
            adverb: rate(send_64.mpps),
            raw: rate(udp_small.mpps),
            ratio: send_64.mpps / udp_small.mpps,
            aim: "≥ 0.17",
        },
        Row {
            what: "WRITE of 8 bytes, one way, against half a UDP ping-pong",
            adverb: usec(latency),
            raw: usec(udp_one_way),
            ratio: latency / udp_one_way,
            aim: "≤ 1.5",
        },
        Row {
            what: "WRITE of 1 MiB, PMTU 4096, against memcpy of 256 MiB",
            adverb: gbits(write_4096.gbits),
            raw: gbits(copy_cold),
            ratio: write_4096.gbits / copy_cold,
            aim: "",
        },
        Row {
            what: "WRITE of 1 MiB, PMTU 4096, against one TCP connection",
            adverb: gbits(write_4096.gbits),
            raw: gbits(tcp),
            ratio: write_4096.gbits / tcp,
            aim: "",
        },
    ];
    let lost = [("4096", udp_4096.lost), ("1024", udp_1024.lost), ("64", udp_small.lost)];
    let text = document(&rows, copy_hot, &lost);
    print!("{text}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("BENCHMARKS.md");
    fs::write(&path, text)?;
    step(&format!("written to {}", path.display()));
    Ok(())
}

fn step(what: &str) {
    eprintln!("bench: {what}");
}

fn document(rows: &[Row], copy_hot: f64, lost: &[(&str, f64)]) -> String {
    let mut out = String::from(
        "# Benchmarks\n\nWritten by `make bench`: Adverb and the raw numbers beside it in one run on one machine, over the \
         loopback\ninterface, tools unmodified. Compare ratios, not numbers; see `examples/bench_table/` for what is \
         measured.\n\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}\n", machine());
    let _ = writeln!(out, "| what | Adverb | raw | ratio | aim |\n|---|---:|---:|---:|---:|");
    for Row {
        what,
        adverb,
        raw,
        ratio,
        aim,
    } in rows
    {
        let _ = writeln!(out, "| {what} | {adverb} | {raw} | {ratio:.2} | {aim} |");
    }
    let _ = writeln!(out, "\nmemcpy of 64 KiB (hot cache): {copy_hot:.1} Gbit/s.");
    let lost: Vec<String> = lost
        .iter()
        .map(|(size, lost)| format!("{:.1} % at {size}", lost * 100.0))
        .collect();
    let _ = writeln!(
        out,
        "The raw sender has no flow control; its rate is what arrived. Datagrams lost: {}.\nPer layer: `cargo bench`.",
        lost.join(", ")
    );
    out
}

/// Number of cores and kernel version, as far as ratios depend on them.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version: Vec<&str> = release.split(['.', '-']).take(2).collect();
    format!("{cores} cores, Linux {}", version.join("."))
}
