//! `adverb stat`: live counters of the processes running now.

use crate::errors::{Failure, Result};
use crate::host::{self, ProcessCounters};

/// Arguments of `adverb stat`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON: a list with one object a process
    #[arg(long)]
    pub json: bool,
}

/// Prints the counters.
pub fn main(args: &Args) -> Result<()> {
    let processes = host::counters()?;
    if args.json {
        let json = serde_json::to_string_pretty(&processes)
            .map_err(|error| Failure::Machine(format!("cannot write JSON: {error}")))?;
        println!("{json}");
    } else {
        print!("{}", text(&processes));
    }
    Ok(())
}

/// A heading for each process and its counters that are not zero.
fn text(processes: &[ProcessCounters]) -> String {
    if processes.is_empty() {
        return "no process has a device open\n".to_owned();
    }
    let mut out = String::new();
    for process in processes {
        let addresses: Vec<String> = process.addresses.iter().map(ToString::to_string).collect();
        let (pid, command, slot) = (process.pid, &process.command, process.slot);
        out += &format!(
            "{pid} {command} on {}, slot {slot}, {:.0} s\n",
            addresses.join(" "),
            process.seconds
        );
        for (name, value) in process.counters.iter().filter(|(_, value)| **value != 0) {
            out += &format!("  {name:<28} {value}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_counters_are_left_out_of_the_text() {
        let counters = [("sent_pkts", 12), ("rcvd_pkts", 0)]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        let process = ProcessCounters {
            pid: 7,
            command: "rping".to_owned(),
            slot: 1,
            addresses: vec!["127.0.0.1".parse().unwrap()],
            seconds: 2.0,
            counters,
        };
        assert_eq!(
            text(&[process]),
            "7 rping on 127.0.0.1, slot 1, 2 s\n  sent_pkts                    12\n"
        );
        assert_eq!(text(&[]), "no process has a device open\n");
    }
}
