//! A veth address inside a network namespace of its own: another netdev, another MTU, nothing but local routes.

mod harness;

use std::net::IpAddr;
use std::process::Command;

use harness::{Pair, Place, Turn, over_tcp, results, root_or_skip, rping, stage};

/// A network namespace with a pair of veth interfaces, both up; gone when dropped.
struct Namespace {
    name: String,
    addr: IpAddr,
}

impl Namespace {
    fn new(label: &str) -> Self {
        let name = format!("adverb-{label}-{}", std::process::id());
        let namespace = Self {
            name,
            addr: [10, 81, 0, 1].into(),
        };
        ip(&format!("netns add {}", namespace.name));
        let inside = |line: &str| ip(&format!("-n {} {line}", namespace.name));
        inside("link set lo up");
        inside("link add veth0 type veth peer name veth1");
        inside("addr add 10.81.0.1/24 dev veth0");
        inside("addr add 10.81.0.2/24 dev veth1");
        inside("link set veth0 up");
        inside("link set veth1 up");
        namespace
    }

    fn enter(&self, pair: Pair) -> Pair {
        pair.both(|tool| tool.in_namespace(&self.name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(line: &str) {
    let status = Command::new("ip")
        .args(line.split_whitespace())
        .status()
        .expect("ip; run `make setup`");
    assert!(status.success(), "ip {line}");
}

#[test]
fn rping_on_a_veth_address() {
    if !root_or_skip("rping_on_a_veth_address") {
        return;
    }
    let _turn = Turn::take().expect("turn");
    let namespace = Namespace::new("rping");
    // By address, and by interface.
    for by_name in [false, true] {
        let pair = namespace.enter(rping(Place::at(namespace.addr), "-v -V -C 100 -S 4096"));
        let pair = if by_name {
            pair.both(|tool| tool.flag("--netdev", "veth0"))
        } else {
            pair
        };
        let report = pair.run(stage()).expect("start");
        assert!(report.succeeded(), "\n{report}");
        let pings = report
            .client
            .stdout
            .lines()
            .filter(|line| line.contains("ping data"))
            .count();
        assert_eq!(pings, 100, "\n{report}");
    }
}

#[test]
fn rc_pingpong_at_the_veth_mtu() {
    if !root_or_skip("rc_pingpong_at_the_veth_mtu") {
        return;
    }
    let _turn = Turn::take().expect("turn");
    let namespace = Namespace::new("pingpong");
    let pair = namespace.enter(over_tcp(Place::at(namespace.addr), "ibv_rc_pingpong -g 0 -c -m 1024"));
    let report = pair.run(stage()).expect("start");
    assert!(report.succeeded(), "\n{report}");
    assert!(results::pingpong(&report.client.stdout).is_some(), "\n{report}");
}

#[test]
fn an_interface_that_is_down_is_named() {
    if !root_or_skip("an_interface_that_is_down_is_named") {
        return;
    }
    let namespace = Namespace::new("down");
    ip(&format!("-n {} link set veth1 down", namespace.name));
    let tool = harness::Tool::new("true")
        .flag("--netdev", "veth1")
        .in_namespace(&namespace.name);
    let outcome = harness::alone(&tool, 20);
    assert_eq!(outcome.status, harness::Status::Code(125), "{outcome}");
    assert!(outcome.stderr.contains("ip link set veth1 up"), "{outcome}");
}
