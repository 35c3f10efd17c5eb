//! ibverbs-utils: the device list, and ping-pong over RC and UD without the connection manager.

mod harness;

use harness::{Pair, Place, Tool, alone, over_tcp, pass, results};

fn pass_with_numbers(pair: Pair) {
    let report = pass(pair);
    for side in [&report.server, &report.client] {
        assert!(results::pingpong(&side.stdout).is_some(), "\n{report}");
        assert!(!side.said().contains("invalid data"), "\n{report}");
    }
}

#[test]
fn the_devices_are_listed() {
    let outcome = alone(&Tool::new("ibv_devices"), 20);
    assert!(outcome.succeeded() && outcome.stdout.contains("adverb0"), "{outcome}");
}

#[test]
fn the_device_describes_itself_sanely() {
    let place = Place::new();
    let outcome = alone(&Tool::new("ibv_devinfo -v -d adverb0").addr(place.addr), 20);
    assert!(outcome.succeeded(), "{outcome}");
    let value = |key: &str| {
        let line = outcome.stdout.lines().find(|line| line.trim_start().starts_with(key));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let expected = [
        ("hca_id", "adverb0"),
        ("transport", "InfiniBand (0)"),
        ("phys_port_cnt", "1"),
        ("state", "PORT_ACTIVE (4)"),
        ("max_mtu", "4096 (5)"),
        ("active_mtu", "4096 (5)"),
        ("link_layer", "Ethernet"),
        ("phys_state", "LINK_UP (5)"),
    ];
    for (key, wanted) in expected {
        assert_eq!(value(key), wanted, "{key}\n{outcome}");
    }
    assert_ne!(value("node_guid"), "0000:0000:0000:0000", "{outcome}");
    let number = |key: &str| {
        value(key)
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0)
    };
    for (key, least) in [
        ("max_qp_wr", 16384),
        ("max_sge", 16),
        ("max_qp_rd_atom", 16),
        ("max_cqe", 65535),
    ] {
        assert!(number(key) >= least, "{key} {}\n{outcome}", number(key));
    }
    assert!(outcome.stdout.contains("RoCE v2"), "{outcome}");
}

#[test]
fn reliable_connection_with_data_checked() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_rc_pingpong -g 0 -c"));
}

#[test]
fn reliable_connection_sleeping_on_events() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_rc_pingpong -g 0 -c -e"));
}

#[test]
fn reliable_connection_at_path_mtu_1024() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_rc_pingpong -g 0 -c -m 1024"));
}

#[test]
fn reliable_connection_at_every_path_mtu() {
    for mtu in [256, 512, 2048, 4096] {
        pass_with_numbers(over_tcp(
            Place::new(),
            &format!("ibv_rc_pingpong -g 0 -c -n 200 -m {mtu}"),
        ));
    }
}

#[test]
fn reliable_connection_with_a_mebibyte() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_rc_pingpong -g 0 -c -s 1048576").limit(120));
}

#[test]
fn unreliable_datagram() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_ud_pingpong -g 0"));
}

#[test]
fn unreliable_datagram_on_events_with_data_checked() {
    pass_with_numbers(over_tcp(Place::new(), "ibv_ud_pingpong -g 0 -e -c -s 1024"));
}
