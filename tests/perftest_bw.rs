//! perftest's bandwidth tools, one option at a time.

mod harness;

use harness::{Pair, Place, over_cm, over_tcp, pass, results};

const TOOLS: [&str; 3] = ["ib_send_bw", "ib_write_bw", "ib_read_bw"];
const WITH_ATOMIC: [&str; 4] = ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"];

/// Runs a pair; the client must print `rows` lines of numbers, none of them zero.
fn pass_with_rows(pair: Pair, rows: usize) {
    let report = pass(pair);
    let printed = results::perftest_bandwidth(&report.client.stdout);
    assert_eq!(printed.len(), rows, "\n{report}");
    assert!(printed.iter().all(|row| row.mpps > 0.0), "\n{report}");
}

fn each(tools: &[&str], flags: &str) {
    for tool in tools {
        pass_with_rows(over_tcp(Place::new(), &format!("{tool} -F {flags}")).limit(120), 1);
    }
}

#[test]
fn with_defaults() {
    each(&WITH_ATOMIC, "");
}

#[test]
fn send_of_all_sizes() {
    pass_with_rows(over_tcp(Place::new(), "ib_send_bw -F -a").limit(180), 23);
}

#[test]
fn write_of_all_sizes() {
    pass_with_rows(over_tcp(Place::new(), "ib_write_bw -F -a -n 1000").limit(240), 23);
}

#[test]
fn read_of_all_sizes() {
    pass_with_rows(over_tcp(Place::new(), "ib_read_bw -F -a").limit(180), 23);
}

#[test]
fn on_eight_queue_pairs() {
    each(&WITH_ATOMIC, "-q 8");
}

#[test]
fn in_both_directions() {
    each(&WITH_ATOMIC, "-b");
}

#[test]
fn sleeping_on_events() {
    each(&["ib_send_bw", "ib_read_bw", "ib_atomic_bw"], "-e");
}

#[test]
fn connected_by_the_connection_manager() {
    for tool in WITH_ATOMIC {
        pass_with_rows(over_cm(Place::new(), &format!("{tool} -F -R")).limit(120), 1);
    }
}

#[test]
fn with_a_deep_queue() {
    each(&TOOLS, "-t 512 -s 65536 -n 20000");
    each(&["ib_atomic_bw"], "-t 512 -n 20000");
}

#[test]
fn for_three_seconds() {
    each(&WITH_ATOMIC, "-D 3");
}
