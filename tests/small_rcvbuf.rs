//! A stock kernel's receive buffer of 208 KiB, where a socket silently drops what does not fit: one run of each kind.
//!
//! All of the end-to-end tests run that way with `ADVERB_RCVBUF=212992 make test`.

mod harness;

use harness::{FAULTS, Pair, Place, bound, over_cm, over_tcp, pass, pass_together};

fn small(pair: Pair) -> Pair {
    pair.both(|tool| tool.flag("--rcvbuf", "212992")).limit(120)
}

#[test]
fn rping() {
    pass(small(harness::rping(Place::new(), "-v -V -C 100 -S 65000")));
}

#[test]
fn rc_and_ud_pingpong() {
    pass(small(over_tcp(
        Place::new(),
        "ibv_rc_pingpong -g 0 -c -s 1048576 -n 200",
    )));
    pass(small(over_tcp(Place::new(), "ibv_ud_pingpong -g 0 -c")));
}

#[test]
fn bandwidth_tools() {
    for tool in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        pass(small(over_tcp(Place::new(), &format!("{tool} -F"))));
    }
}

#[test]
fn bandwidth_tools_with_deep_queues_in_both_directions() {
    for tool in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        pass(small(over_tcp(Place::new(), &format!("{tool} -F -b -q 8"))));
        pass(small(over_tcp(
            Place::new(),
            &format!("{tool} -F -t 512 -s 65536 -n 5000"),
        )));
    }
}

#[test]
fn small_messages_in_a_deep_queue() {
    pass(small(over_tcp(Place::new(), "ib_send_bw -F -s 64 -t 512 -n 50000")));
    pass(small(over_tcp(Place::new(), "ib_atomic_bw -F")));
}

#[test]
fn latency_tools() {
    for tool in ["ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat"] {
        pass(small(over_tcp(Place::new(), &format!("{tool} -F"))));
    }
}

#[test]
fn the_connection_manager() {
    pass(small(over_cm(Place::new(), "ib_send_bw -F -R")));
    let report = pass(small(bound(Place::new(), "ucmatose -c 32")));
    assert!(report.client.stdout.contains("return status 0"), "\n{report}");
}

#[test]
fn rstream() {
    let report = pass(small(bound(Place::new(), "rstream -T v -I 50 -C 10 -S 65536")));
    assert!(!report.client.said().contains("verification failed"), "\n{report}");
}

#[test]
fn faults() {
    pass(small(harness::rping(Place::new(), "-V -C 200")).both(|tool| tool.faults(&format!("{FAULTS},seed=3"))));
}

#[test]
fn eight_pairs_on_one_address() {
    let place = Place::new();
    pass_together(
        (0..8)
            .map(|_| small(over_tcp(place.sibling(), "ib_write_bw -F -n 2000")))
            .collect(),
    );
}
