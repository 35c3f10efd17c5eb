//! rping: the connection manager, SEND/RECV, RDMA READ and WRITE, every byte verified by the client.

mod harness;

use std::net::Ipv6Addr;
use std::time::Duration;

use harness::{Pair, Place, Report, Status, Turn, pass, pass_together, rping, stage};

fn pings(text: &str) -> usize {
    text.lines().filter(|line| line.contains("ping data")).count()
}

fn pass_with_pings(pair: Pair, count: usize) -> Report {
    let report = pass(pair);
    assert_eq!(pings(&report.client.stdout), count, "\n{report}");
    assert_eq!(pings(&report.server.stdout), count, "\n{report}");
    report
}

#[test]
fn a_hundred_pings_of_4096_bytes() {
    pass_with_pings(rping(Place::new(), "-v -V -C 100 -S 4096"), 100);
}

#[test]
fn on_the_plain_loopback_address_without_any_flag() {
    let place = Place::at([127, 0, 0, 1].into());
    let line = |role: &str| {
        harness::Tool::new(&format!(
            "rping {role} -a 127.0.0.1 -p {} -v -V -C 100 -S 4096",
            place.port
        ))
    };
    pass_with_pings(
        Pair::new(line("-s"), line("-c"), harness::Listening::ConnectionManager),
        100,
    );
}

#[test]
fn pings_larger_than_a_packet() {
    pass_with_pings(rping(Place::new(), "-v -V -C 20 -S 65000"), 20);
}

#[test]
fn over_ipv6() {
    pass_with_pings(
        rping(Place::at(Ipv6Addr::LOCALHOST.into()), "-v -V -C 100 -S 4096"),
        100,
    );
}

#[test]
fn with_a_queue_pair_that_the_tool_moves_itself() {
    pass_with_pings(rping(Place::new(), "-q -v -V -C 20 -S 1000"), 20);
}

#[test]
fn a_client_without_a_server_is_rejected_at_once() {
    let place = Place::new();
    let outcome = harness::alone(&rping(place, "-C 1").client, 20);
    assert!(matches!(outcome.status, Status::Code(code) if code != 0), "{outcome}");
    assert!(outcome.elapsed < Duration::from_secs(10), "{outcome}");
}

#[test]
fn a_persistent_server_serves_fifty_clients_one_after_another() {
    let _turn = Turn::take().expect("turn");
    let mut pair = rping(Place::new(), "-v -V -C 5 -S 512").stopping_server();
    pair.server = pair.server.arg("-P");
    let serving = pair.serve(stage()).expect("start");
    let mut last = None;
    for _ in 0..50 {
        let outcome = serving.client(stage()).expect("start").wait(Duration::from_secs(30));
        assert!(outcome.succeeded(), "{outcome}");
        last = Some(outcome);
    }
    let report = serving.close(last.expect("fifty"));
    assert!(report.succeeded(), "\n{report}");
}

#[test]
fn a_persistent_server_serves_eight_clients_at_once() {
    let _turn = Turn::take_all().expect("turn");
    let mut pair = rping(Place::new(), "-v -V -C 50 -S 4096").stopping_server();
    pair.server = pair.server.arg("-P");
    let serving = pair.serve(stage()).expect("start");
    let clients: Vec<_> = (0..8).map(|_| serving.client(stage()).expect("start")).collect();
    let mut outcomes: Vec<_> = clients
        .into_iter()
        .map(|client| client.wait(Duration::from_secs(60)))
        .collect();
    for outcome in &outcomes {
        assert!(outcome.succeeded() && pings(&outcome.stdout) == 50, "{outcome}");
    }
    let report = serving.close(outcomes.remove(0));
    assert!(report.succeeded(), "\n{report}");
}

#[test]
fn pairs_on_addresses_of_their_own_run_side_by_side() {
    pass_together((0..6).map(|_| rping(Place::new(), "-v -V -C 50 -S 4096")).collect());
}
