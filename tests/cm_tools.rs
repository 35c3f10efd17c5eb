//! The tools of rdmacm-utils: many connections, datagrams, the synchronous interface, sockets over RDMA.
//!
//! rstream and cmtime can print an error and still exit with 0, so their output is read as well.

mod harness;

use harness::{Listening, Pair, Place, Report, Tool, bound, pass, results};

/// Sides that say how they ended.
fn returned_zero(report: &Report, words: &str) {
    for side in [&report.server, &report.client] {
        assert!(side.stdout.contains(words), "'{words}' is missing\n{report}");
    }
}

fn no_complaint(report: &Report) {
    for side in [&report.server, &report.client] {
        let said = side.said().to_lowercase();
        let complaint = ["fail", "error", "verification"]
            .into_iter()
            .find(|word| said.contains(word));
        assert_eq!(complaint, None, "\n{report}");
    }
}

#[test]
fn ucmatose_connects_32_times() {
    let report = pass(bound(Place::new(), "ucmatose -c 32"));
    returned_zero(&report, "return status 0");
}

#[test]
fn ucmatose_transfers_on_each_connection() {
    let report = pass(bound(Place::new(), "ucmatose -c 8 -C 10 -S 2048"));
    returned_zero(&report, "return status 0");
}

#[test]
fn ucmatose_migrates_its_connections() {
    let report = pass(bound(Place::new(), "ucmatose -c 8 -C 10 -m"));
    returned_zero(&report, "return status 0");
}

#[test]
fn udaddy_resolves_and_sends_datagrams() {
    // Its -p is a port space: the port is fixed, the address is its own.
    let place = Place::new();
    let side = |role: &str| {
        Tool::new("udaddy")
            .args(&format!("{role} {}", place.addr))
            .addr(place.addr)
    };
    let report = pass(Pair::new(side("-b"), side("-s"), Listening::ConnectionManager));
    returned_zero(&report, "return status 0");
}

#[test]
fn rdma_client_and_server_meet() {
    let place = Place::new();
    let side = |line: &str| Tool::new(line).args(&format!("-p {}", place.port)).addr(place.addr);
    let client = side("rdma_client").args(&format!("-s {}", place.addr));
    let report = pass(Pair::new(side("rdma_server"), client, Listening::ConnectionManager));
    assert!(report.server.stdout.contains("rdma_server: end 0"), "\n{report}");
    assert!(report.client.stdout.contains("rdma_client: end 0"), "\n{report}");
}

#[test]
fn rstream_of_all_sizes() {
    let report = pass(bound(Place::new(), "rstream -S all").limit(180));
    no_complaint(&report);
    for side in [&report.server, &report.client] {
        let rows = results::rstream(&side.stdout);
        assert!(
            rows.iter().any(|(name, ..)| name == "6m_bw") && rows.len() > 50,
            "{} rows\n{report}",
            rows.len()
        );
    }
}

#[test]
fn rstream_with_its_data_verified() {
    let report = pass(bound(Place::new(), "rstream -T v -I 50 -C 10 -S 65536"));
    no_complaint(&report);
    for side in [&report.server, &report.client] {
        assert_eq!(results::rstream(&side.stdout).len(), 1, "\n{report}");
    }
}

#[test]
fn rstream_blocking_nonblocking_and_resolving() {
    for flags in ["-T b", "-T n", "-T a", "-T r"] {
        let report = pass(bound(Place::new(), &format!("rstream -I 50 -C 10 -S 4096 {flags}")));
        no_complaint(&report);
    }
}

#[test]
fn cmtime_makes_200_connections() {
    let report = pass(bound(Place::new(), "cmtime -c 200").stopping_server());
    no_complaint(&report);
    for step in [
        "create id",
        "resolve addr",
        "resolve route",
        "create qp",
        "connect",
        "disconnect",
        "destroy",
    ] {
        assert!(report.client.stdout.contains(step), "'{step}' is missing\n{report}");
    }
}
