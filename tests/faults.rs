//! The tools over a network that loses, reorders, duplicates and corrupts, in both directions.
//!
//! The ten seeds run side by side: what such a run does most of the time is to wait for a retransmission timer.

mod harness;

use harness::{FAULTS, Listening, Pair, Place, Tool, Turn, bound, over_tcp, pass_together, results, rping, stage_with};

fn under_every_seed(make: impl Fn() -> Pair, seconds: u64) -> Vec<harness::Report> {
    let pair = |seed: u32| {
        make()
            .both(|tool| tool.faults(&format!("{FAULTS},seed={seed}")))
            .limit(seconds)
    };
    pass_together((1..=10).map(pair).collect())
}

#[test]
fn rping_verifies_five_hundred_pings_under_ten_seeds() {
    for report in under_every_seed(|| rping(Place::new(), "-v -V -C 500"), 240) {
        let pings = report
            .client
            .stdout
            .lines()
            .filter(|line| line.contains("ping data"))
            .count();
        assert_eq!(pings, 500, "\n{report}");
    }
}

#[test]
fn rc_pingpong_keeps_its_data_under_ten_seeds() {
    for report in under_every_seed(|| over_tcp(Place::new(), "ibv_rc_pingpong -g 0 -c"), 240) {
        for side in [&report.server, &report.client] {
            assert!(results::pingpong(&side.stdout).is_some(), "\n{report}");
            assert!(!side.said().contains("invalid data"), "\n{report}");
        }
    }
}

#[test]
fn rstream_keeps_its_data_under_ten_seeds() {
    for report in under_every_seed(|| bound(Place::new(), "rstream -T v -I 20 -C 10 -S 16384"), 240) {
        for side in [&report.server, &report.client] {
            assert!(!side.said().contains("verification failed"), "\n{report}");
            assert_eq!(results::rstream(&side.stdout).len(), 1, "\n{report}");
        }
    }
}

#[test]
fn a_hundred_thousand_fetch_and_adds_leave_exactly_that() {
    let _turn = Turn::take().expect("turn");
    let stage = stage_with("atomic_count");
    let program = stage.path("atomic_count").display().to_string();
    let place = Place::new();
    let side = |role: &str| {
        let arguments = format!("{role} --host {} --port {} --count 100000", place.addr, place.port);
        Tool::new(&program).args(&arguments).addr(place.addr)
    };
    let pair = Pair::new(side("server"), side("client"), Listening::Tcp(place.port))
        .both(|tool| tool.faults("drop=0.02,seed=7"))
        .limit(240);
    let report = pair.run(&stage).expect("start");
    assert!(report.succeeded(), "\n{report}");
    assert!(report.server.stdout.contains("counter 100000"), "\n{report}");
}
