//! Congestion: marks become notifications, notifications lower the rate, quiet brings it back. Many QPs share a link.

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::{LinkConfig, Verdict};
use nic_model::time::Duration;
use roce_wire::opcode::Opcode;

const LINE: u64 = 40_000_000_000;
const SIZE: usize = 4_000_000;

fn fast() -> PairConfig {
    let link = LinkConfig {
        rate_bps: LINE,
        delay: Duration::from_micros(2),
        ..LinkConfig::default()
    };
    PairConfig {
        link,
        line_rate: LINE,
        egress: Some(20_000),
        ..PairConfig::default()
    }
}

#[test]
fn marks_lower_the_rate_and_quiet_restores_it() {
    let mut pair = Pair::new(&fast());
    let (a, b) = pair.connect(&QpOptions {
        mtu: 5,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    let timed = |pair: &mut Pair| {
        let start = pair.now;
        pair.succeed(a, &Wr::write(&mine, 0..SIZE, &theirs, 0));
        pair.now.since(start)
    };
    let free = timed(&mut pair);
    assert_eq!(pair.hosts[B].nic.counters().cnp_sent, 0);

    pair.links[A].add_rule(|_, _| Verdict::Mark);
    let congested = timed(&mut pair);
    pair.links[A].clear_rules();
    pair.drive();
    assert!(
        congested > 2 * free,
        "{congested:?} with every packet marked, {free:?} without"
    );
    let (sender, receiver) = (pair.hosts[A].nic.counters(), pair.hosts[B].nic.counters());
    assert!(
        receiver.ecn_marked_pkts > receiver.cnp_sent,
        "notifications are limited in rate"
    );
    assert!(receiver.cnp_sent > 3 && sender.cnp_handled == receiver.cnp_sent);
    let cnps: Vec<_> = pair.sent.iter().filter(|packet| packet.opcode == Opcode::Cnp).collect();
    assert!(cnps.iter().all(|cnp| cnp.from == B && cnp.dest_qpn == pair.qp(a).qpn));
    let close = cnps
        .windows(2)
        .filter(|pair| pair[1].at.since(pair[0].at) < Duration::from_micros(50))
        .count();
    assert_eq!(close, 0, "no two within 50 µs");
    let later = timed(&mut pair);
    assert!(
        later < free + free / 10,
        "{later:?} after it is quiet again, {free:?} at first"
    );
    let _ = b;
}

#[test]
fn a_read_is_slowed_where_its_data_comes_from() {
    let mut pair = Pair::new(&fast());
    let (a, _) = pair.connect(&QpOptions {
        mtu: 5,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    let start = pair.now;
    pair.succeed(a, &Wr::read(&mine, 0..SIZE, &theirs, 0));
    let free = pair.now.since(start);
    pair.links[B].add_rule(|_, _| Verdict::Mark);
    let start = pair.now;
    pair.succeed(a, &Wr::read(&mine, 0..SIZE, &theirs, 0));
    assert!(pair.now.since(start) > 2 * free);
    assert!(pair.hosts[B].nic.counters().cnp_handled > 3);
}

#[test]
fn a_bottleneck_with_marking_keeps_its_queue_short() {
    // A NIC that believes in its line rate sends into a link of a quarter of it.
    let run = |ecn_threshold| {
        let mut config = fast();
        config.link = LinkConfig {
            rate_bps: LINE / 4,
            ecn_threshold,
            ..config.link
        };
        config.egress = None;
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..config
        });
        let (a, _) = pair.connect(&QpOptions {
            mtu: 5,
            ..QpOptions::default()
        });
        let (mine, theirs) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
        for _ in 0..10 {
            pair.post(a, &Wr::write(&mine, 0..SIZE, &theirs, 0));
        }
        let start = pair.now;
        let mut average = Vec::new();
        while pair.qp(a).sends.len() < 10 {
            pair.step();
            average.push(pair.links[A].queued(pair.now));
        }
        let goodput = (10 * SIZE * 8) as f64 / pair.now.since(start).as_secs_f64();
        average.sort_unstable();
        (average[average.len() / 2], goodput, pair.send_statuses(a))
    };
    let (marked, goodput, statuses) = run(Some(100_000));
    let (unmarked, full, _) = run(None);
    assert_eq!(statuses, [WcStatus::Success; 10]);
    assert!(
        marked < unmarked / 2,
        "median queue {marked} with marking, {unmarked} without"
    );
    assert!(goodput > full * 0.6, "{goodput} bit/s with marking, {full} without");
}

#[test]
fn sixteen_qps_get_equal_shares() {
    let mut pair = Pair::new(&PairConfig {
        record: false,
        ..fast()
    });
    let options = QpOptions {
        mtu: 5,
        ..QpOptions::default()
    };
    let qps: Vec<_> = (0..16).map(|_| pair.connect(&options).0).collect();
    let (mine, theirs) = (pair.buffer(A, 65_536), pair.buffer(B, 65_536));
    for qp in &qps {
        for _ in 0..100 {
            pair.post(*qp, &Wr::write(&mine, 0..65_536, &theirs, 0));
        }
    }
    pair.drive_until(Duration::from_secs(1), |pair| pair.qp(qps[0]).sends.len() >= 50);
    let done: Vec<usize> = qps.iter().map(|qp| pair.qp(*qp).sends.len()).collect();
    let (least, most) = (*done.iter().min().unwrap(), *done.iter().max().unwrap());
    assert!(least * 10 >= most * 8, "{done:?}");
    pair.drive();
    assert!(qps.iter().all(|qp| pair.send_statuses(*qp) == [WcStatus::Success; 100]));
}

#[test]
fn a_small_request_is_not_stuck_behind_a_bulk_transfer() {
    let mut pair = Pair::new(&PairConfig {
        record: false,
        ..fast()
    });
    let options = QpOptions {
        mtu: 5,
        ..QpOptions::default()
    };
    let (bulk, small) = (pair.connect(&options).0, pair.connect(&options).0);
    let (mine, theirs) = (pair.buffer(A, 10_000_000), pair.buffer(B, 10_000_000));
    pair.post(bulk, &Wr::write(&mine, 0..10_000_000, &theirs, 0));
    pair.drive_for(Duration::from_micros(300));
    pair.succeed(small, &Wr::write(&mine, 0..8, &theirs, 0));
    assert!(pair.qp(bulk).sends.is_empty());
}
