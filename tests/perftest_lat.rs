//! perftest's latency tools, one option at a time.

mod harness;

use harness::{Place, over_cm, over_tcp, pass};

const TOOLS: [&str; 3] = ["ib_send_lat", "ib_write_lat", "ib_read_lat"];
const WITH_ATOMIC: [&str; 4] = ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat"];

/// How many rows of numbers follow the heading. With `-D` perftest prints averages only, so columns are not read.
fn rows(text: &str) -> usize {
    let after = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"))
        .skip(1);
    after
        .filter(|line| {
            line.split_whitespace()
                .next()
                .is_some_and(|word| word.parse::<u64>().is_ok())
        })
        .count()
}

fn each(tools: &[&str], flags: &str, expected: usize) {
    for tool in tools {
        let report = pass(over_tcp(Place::new(), &format!("{tool} -F {flags}")).limit(120));
        assert_eq!(rows(&report.client.stdout), expected, "\n{report}");
    }
}

#[test]
fn with_defaults() {
    each(&WITH_ATOMIC, "", 1);
}

#[test]
fn of_all_sizes() {
    each(&TOOLS, "-a -n 200", 23);
}

#[test]
fn sleeping_on_events() {
    each(&["ib_send_lat", "ib_read_lat", "ib_atomic_lat"], "-e", 1);
}

#[test]
fn connected_by_the_connection_manager() {
    for tool in WITH_ATOMIC {
        let report = pass(over_cm(Place::new(), &format!("{tool} -F -R")).limit(120));
        assert_eq!(rows(&report.client.stdout), 1, "\n{report}");
    }
}

#[test]
fn for_three_seconds() {
    each(&WITH_ATOMIC, "-D 3", 1);
}
