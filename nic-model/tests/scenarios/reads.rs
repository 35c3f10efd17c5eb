//! READs and atomics in trouble: lost responses, implied NAKs, duplicates among WRITEs, depth (behaviours E2, E4).

use crate::harness::log::Sighting;
use crate::harness::{A, B, Pair, PairConfig, QpOptions, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::{AsyncEventKind, QpState};
use nic_model::sim::{LinkConfig, Verdict};
use nic_model::time::Duration;
use roce_wire::opcode::Opcode;
use roce_wire::packet::Packet;

fn of(pair: &Pair, side: usize, opcode: Opcode) -> Vec<Sighting> {
    pair.sent
        .iter()
        .filter(|packet| packet.from == side && packet.opcode == opcode)
        .copied()
        .collect()
}

fn opcode(bytes: &[u8]) -> Opcode {
    Packet::parse(bytes).unwrap().headers.bth.opcode
}

#[test]
fn the_rest_of_a_read_is_asked_for_again() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        mtu: 1,
        psn: (0x00ff_ffe0, 0),
        ..QpOptions::default()
    });
    let (mine, mut theirs) = (pair.buffer(A, 100 * 256), pair.buffer(B, 100 * 256));
    let data = theirs.fill_pattern(1);
    pair.links[B].drop_nth(50);
    let start = pair.now;
    pair.succeed(a, &Wr::read(&mine, 0..100 * 256, &theirs, 0));
    assert!(
        pair.now.since(start) < Duration::from_micros(500),
        "no timer was needed"
    );
    pair.drive();
    assert_eq!(mine.bytes(), data);
    let asked: Vec<u32> = of(&pair, A, Opcode::RcReadRequest)
        .iter()
        .map(|packet| packet.psn)
        .collect();
    assert_eq!(asked, [0x00ff_ffe0, (0x00ff_ffe0 + 50) & 0x00ff_ffff]);
    assert!(pair.links[B].stats().sent <= 150, "only the rest comes again");
}

#[test]
fn any_response_may_be_lost() {
    for lost in 0..12 {
        let mut pair = Pair::default();
        let (a, _) = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        let (mine, mut theirs) = (pair.buffer(A, 3_000), pair.buffer(B, 3_000));
        let data = theirs.fill_pattern(lost);
        pair.links[B].drop_nth(lost);
        pair.post(a, &Wr::read(&mine, 0..1_000, &theirs, 0).id(0));
        pair.post(a, &Wr::read(&mine, 1_000..2_000, &theirs, 1_000).id(1));
        pair.post(a, &Wr::read(&mine, 2_000..3_000, &theirs, 2_000).id(2));
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 3]);
        assert_eq!(mine.bytes(), data, "response {lost} lost");
        assert_eq!(pair.hosts[A].nic.counters().ack_timeouts, 0);
    }
}

#[test]
fn an_ack_behind_a_read_implies_that_the_response_is_lost() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (mut mine, mut theirs) = (pair.buffer(A, 200), pair.buffer(B, 200));
    let (ours, data) = (mine.fill_pattern(1), theirs.fill_pattern(2));
    let mut first = true;
    pair.links[B]
        .drop_if(move |frame| opcode(&frame.bytes) == Opcode::RcReadResponseOnly && core::mem::take(&mut first));
    let start = pair.now;
    pair.post(a, &Wr::read(&mine, 0..100, &theirs, 0).id(1));
    pair.post(a, &Wr::write(&mine, 100..200, &theirs, 100).id(2));
    pair.drive_until(Duration::from_millis(1), |pair| pair.qp(a).sends.len() == 2);
    assert!(
        pair.now.since(start) < Duration::from_micros(100),
        "no timer was needed"
    );
    assert_eq!(pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        (&mine.bytes()[..100], &theirs.bytes()[100..]),
        (&data[..100], &ours[100..])
    );
}

#[test]
fn an_atomic_is_answered_again_and_not_executed_again() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (old, counter) = (pair.buffer(A, 160), pair.buffer(B, 8));
    let mut kept = 0;
    pair.links[B].drop_if(move |frame| {
        kept += 1;
        opcode(&frame.bytes) == Opcode::RcAtomicAck && kept <= 16
    });
    for index in 0..20 {
        pair.post(a, &Wr::fetch_add(&old, index * 8, &counter, 0, 1));
    }
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 20]);
    assert_eq!(
        (0..20).map(|index| old.word(index * 8)).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
    assert_eq!(counter.word(0), 20);
    assert!(pair.hosts[B].nic.counters().duplicate_request > 0);
}

#[test]
fn a_replayed_read_in_the_middle_of_a_write_disturbs_nothing() {
    let link = LinkConfig {
        rate_bps: 1_000_000_000,
        delay: Duration::from_micros(1),
        ..LinkConfig::default()
    };
    for after in [5, 20, 60, 90] {
        let mut pair = Pair::new(&PairConfig {
            link,
            ..PairConfig::default()
        });
        let (a, _) = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        let (mut mine, mut theirs) = (pair.buffer(A, 40_000), pair.buffer(B, 40_000));
        let (ours, data) = (mine.fill_pattern(1), theirs.fill_pattern(2));
        pair.links[A].add_rule(move |_, frame| match opcode(&frame.bytes) {
            Opcode::RcReadRequest | Opcode::RcFetchAdd => Verdict::Duplicate(Duration::from_micros(after)),
            _ => Verdict::Pass,
        });
        pair.post(a, &Wr::read(&mine, 0..1_000, &theirs, 0));
        pair.post(a, &Wr::fetch_add(&mine, 2_000, &theirs, 2_000, 1));
        pair.post(a, &Wr::write(&mine, 20_000..40_000, &theirs, 20_000));
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 3]);
        assert_eq!(
            (&mine.bytes()[..1_000], &theirs.bytes()[20_000..]),
            (&data[..1_000], &ours[20_000..])
        );
        assert_eq!(
            theirs.word(2_000),
            u64::from_ne_bytes(data[2_000..2_008].try_into().unwrap()).wrapping_add(1)
        );
        let write_psns = pair.sent.iter().filter(|p| p.from == A).map(|p| p.psn).max().unwrap();
        let last = of(&pair, B, Opcode::RcAck).last().copied().unwrap();
        assert_eq!(last.psn, write_psns, "the ACK carries the PSN of the last request");
    }
}

#[test]
fn the_requester_keeps_to_its_depth() {
    for depth in [1, 3, 16] {
        let mut pair = Pair::default();
        let options = QpOptions {
            max_rd_atomic: depth,
            max_dest_rd_atomic: depth,
            ..QpOptions::default()
        };
        let (a, _) = pair.connect(&options);
        let (mine, theirs) = (pair.buffer(A, 4_000), pair.buffer(B, 4_000));
        for index in 0..40 {
            if index % 2 == 0 {
                pair.post(a, &Wr::read(&mine, index * 8..index * 8 + 8, &theirs, 0));
            } else {
                pair.post(a, &Wr::fetch_add(&mine, index * 8, &theirs, 8, 1));
            }
        }
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 40]);
        let (mut outstanding, mut most) = (0i32, 0);
        for packet in &pair.sent {
            outstanding += if packet.from == A { 1 } else { -1 };
            most = most.max(outstanding);
        }
        assert!(most <= i32::from(depth), "{most} outstanding of {depth}");
        assert!(most == i32::from(depth), "the depth is used");
    }
}

#[test]
fn duplicates_do_not_count_as_depth() {
    // A READ takes 317 µs of line time; its duplicate comes when it is nearly or just answered, and is being answered
    // itself when the next READ arrives.
    let link = LinkConfig {
        rate_bps: 1_000_000_000,
        delay: Duration::from_micros(10),
        ..LinkConfig::default()
    };
    for after in (0..400).step_by(10) {
        let mut pair = Pair::new(&PairConfig {
            link,
            egress: Some(2_000),
            ..PairConfig::default()
        });
        let options = QpOptions {
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            mtu: 1,
            ..QpOptions::default()
        };
        let (a, _) = pair.connect(&options);
        let (mine, mut theirs) = (pair.buffer(A, 90_000), pair.buffer(B, 90_000));
        let data = theirs.fill_pattern(1);
        pair.links[A].add_rule(move |_, _| Verdict::Duplicate(Duration::from_micros(after)));
        for index in 0..3 {
            pair.post(
                a,
                &Wr::read(&mine, index * 30_000..(index + 1) * 30_000, &theirs, index * 30_000),
            );
        }
        pair.drive();
        assert_eq!(
            pair.send_statuses(a),
            [WcStatus::Success; 3],
            "duplicates after {after} µs"
        );
        assert_eq!(mine.bytes(), data);
    }
}

#[test]
fn the_responder_refuses_more_than_its_depth() {
    for (dest, wr) in [(2, "read"), (2, "atomic"), (0, "read"), (0, "atomic")] {
        let link = LinkConfig {
            delay: Duration::from_micros(1),
            ..LinkConfig::default()
        };
        let mut pair = Pair::new(&PairConfig {
            link,
            ..PairConfig::default()
        });
        let (a, b) = pair.connect(&QpOptions {
            max_rd_atomic: 8,
            max_dest_rd_atomic: dest,
            ..QpOptions::default()
        });
        let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
        for index in 0..8 {
            let wr = match wr {
                "read" => Wr::read(&mine, index * 8..index * 8 + 8, &theirs, 0),
                _ => Wr::fetch_add(&mine, index * 8, &theirs, 0, 1),
            };
            pair.post(a, &wr);
        }
        pair.drive();
        let statuses = pair.send_statuses(a);
        assert!(statuses.contains(&WcStatus::RemInvReqErr), "{statuses:?}");
        assert_eq!(
            (pair.state(b), pair.events(b)),
            (QpState::Err, vec![AsyncEventKind::QpReqErr])
        );
    }
}

#[test]
fn what_was_asked_for_before_a_refused_request_is_answered() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    let (mine, mut theirs) = (pair.buffer(A, 40_000), pair.buffer(B, 40_000));
    let data = theirs.fill_pattern(1);
    pair.post(a, &Wr::read(&mine, 0..30_000, &theirs, 0).id(1));
    pair.post(a, &Wr::fetch_add(&mine, 39_000, &theirs, 39_000, 1).id(2));
    pair.post(a, &Wr::read(&mine, 30_000..30_008, &theirs, 39_993).id(3));
    pair.post(a, &Wr::write(&mine, 0..8, &theirs, 0).id(4));
    pair.drive();
    use WcStatus::{RemAccessErr, Success, WrFlushErr};
    assert_eq!(pair.send_statuses(a), [Success, Success, RemAccessErr, WrFlushErr]);
    assert_eq!(mine.bytes()[..30_000], data[..30_000]);
    assert_eq!(pair.events(b), [AsyncEventKind::QpAccessErr]);
}

#[test]
fn a_long_read_gets_on_without_acks() {
    let link = LinkConfig {
        rate_bps: 1_000_000_000,
        delay: Duration::from_micros(1),
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(&PairConfig {
        link,
        record: false,
        egress: Some(20_000),
        ..PairConfig::default()
    });
    // 80 ms of data, an ACK timeout of 1 ms, no retry.
    let (a, _) = pair.connect(&QpOptions {
        timeout: 8,
        retry_cnt: 0,
        mtu: 5,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 10_000_000), pair.buffer(B, 10_000_000));
    pair.succeed(a, &Wr::read(&mine, 0..10_000_000, &theirs, 0));
    assert_eq!(pair.hosts[A].nic.counters().ack_timeouts, 0);
    assert_eq!(pair.hosts[B].nic.counters().duplicate_request, 0);
}
