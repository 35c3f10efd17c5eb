//! Receiver not ready: counted, timed, endless (behaviours A1).

use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::WcStatus;
use nic_model::time::Duration;
use roce_wire::syndrome::{Syndrome, rnr_timer};

fn rnr_naks(pair: &Pair) -> usize {
    let is_rnr = |byte| matches!(Syndrome::from_u8(byte), Syndrome::RnrNak { .. });
    pair.sent
        .iter()
        .filter(|packet| packet.from == B && packet.syndrome.is_some_and(is_rnr))
        .count()
}

#[test]
fn without_retry_one_nak_fails_the_qp() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        rnr_retry: 0,
        ..QpOptions::default()
    });
    let from = pair.buffer(A, 64);
    for id in 0..3 {
        pair.post(a, &Wr::send(&from, 0..64).id(id));
    }
    pair.drive();
    assert_eq!(
        pair.send_statuses(a),
        [WcStatus::RnrRetryExcErr, WcStatus::WrFlushErr, WcStatus::WrFlushErr]
    );
    assert_eq!(
        (rnr_naks(&pair), pair.state(a), pair.state(b)),
        (1, QpState::Err, QpState::Rts)
    );
}

#[test]
fn three_retries_wait_three_timers() {
    let mut pair = Pair::default();
    let code = 20;
    let (a, _) = pair.connect(&QpOptions {
        rnr_retry: 3,
        min_rnr_timer: code,
        ..QpOptions::default()
    });
    let from = pair.buffer(A, 64);
    let start = pair.now;
    pair.post(a, &Wr::send(&from, 0..64));
    pair.post(a, &Wr::send(&from, 0..64));
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::RnrRetryExcErr, WcStatus::WrFlushErr]);
    assert_eq!(rnr_naks(&pair), 4);
    let took = pair.now.since(start);
    let timer = rnr_timer(code);
    assert!(
        took >= 3 * timer && took < 3 * timer + timer / 2,
        "{took:?} for timers of {timer:?}"
    );
}

#[test]
fn seven_means_for_ever_and_other_packets_change_nothing() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        rnr_retry: 7,
        min_rnr_timer: 12,
        retry_cnt: 0,
        ..QpOptions::default()
    });
    let (mut from, to) = (pair.buffer(A, 30_000), pair.buffer(B, 30_000));
    let data = from.fill_pattern(1);
    for part in 0..10 {
        pair.post(a, &Wr::send(&from, part * 3_000..(part + 1) * 3_000).id(part as u64));
    }
    pair.drive_for(Duration::from_millis(200));
    assert!(pair.qp(a).sends.is_empty(), "{:?}", pair.send_statuses(a));
    assert!(rnr_naks(&pair) > 100);
    for part in 0..10 {
        pair.post_recv(b, &Recv::into(&to, part * 3_000..(part + 1) * 3_000));
        pair.drive_for(Duration::from_millis(3));
        assert_eq!(pair.send_statuses(a), vec![WcStatus::Success; part + 1]);
    }
    assert_eq!(to.bytes(), data);
    assert_eq!(
        pair.hosts[A].nic.counters().rcvd_seq_err,
        0,
        "an RNR NAK is not followed by sequence NAKs"
    );
}

#[test]
fn a_write_with_immediate_needs_a_receive() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        rnr_retry: 7,
        min_rnr_timer: 5,
        ..QpOptions::default()
    });
    let (mut from, to) = (pair.buffer(A, 10_000), pair.buffer(B, 10_000));
    let data = from.fill_pattern(1);
    pair.post(a, &Wr::write(&from, 0..10_000, &to, 0).imm(9));
    pair.drive_for(Duration::from_millis(5));
    assert!(pair.qp(a).sends.is_empty() && rnr_naks(&pair) > 3);
    pair.post_recv(b, &Recv::default().id(3));
    pair.drive();
    assert_eq!(to.bytes(), data);
    assert_eq!(
        (pair.send_statuses(a), pair.qp(b).recvs[0].byte_len),
        (vec![WcStatus::Success], 10_000)
    );
}

#[test]
fn the_count_starts_again_with_every_message() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        rnr_retry: 2,
        min_rnr_timer: 14,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for id in 0..6 {
        pair.post(a, &Wr::send(&from, 0..64).id(id));
    }
    for _ in 0..6 {
        // Each message is refused once or twice before its receive is there.
        pair.drive_for(rnr_timer(14) * 3 / 2);
        pair.post_recv(b, &Recv::into(&to, 0..64));
    }
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 6]);
}

#[test]
fn rnr_under_loss() {
    for seed in crate::harness::seeds(8) {
        let faults = nic_model::sim::Faults {
            loss: 0.1,
            duplicate: 0.05,
            ..nic_model::sim::Faults::default()
        };
        let mut pair = Pair::new(&crate::harness::PairConfig::faulty(seed, faults));
        let (a, b) = pair.connect(&QpOptions {
            min_rnr_timer: 8,
            ..QpOptions::default()
        });
        let (mut from, to) = (pair.buffer(A, 32 * 500), pair.buffer(B, 32 * 500));
        let data = from.fill_pattern(seed);
        for part in 0..32 {
            pair.post(a, &Wr::send(&from, part * 500..(part + 1) * 500));
        }
        for part in 0..32 {
            pair.post_recv(b, &Recv::into(&to, part * 500..(part + 1) * 500));
            pair.drive_for(Duration::from_micros(150));
        }
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 32]);
        assert_eq!(to.bytes(), data);
    }
}
