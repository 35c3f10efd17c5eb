//! A peer that does not answer: how often and how long the requester tries (behaviours A4).

use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::Verdict;
use nic_model::time::Duration;
use std::sync::{Arc, Mutex};

fn timeout(exponent: u8) -> Duration {
    Duration::from_nanos(4_096 << exponent)
}

#[test]
fn retries_are_counted_and_take_their_time() {
    for (retry_cnt, exponent) in [(0, 10), (3, 12), (7, 8), (7, 14)] {
        let mut pair = Pair::default();
        let (a, _) = pair.connect(&QpOptions {
            retry_cnt,
            timeout: exponent,
            ..QpOptions::default()
        });
        let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
        pair.links[A].drop_if(|_| true);
        let start = pair.now;
        pair.post(a, &Wr::write(&from, 0..64, &to, 0).id(1));
        pair.post(a, &Wr::write(&from, 0..64, &to, 0).unsignaled().id(2));
        pair.drive_until(Duration::from_secs(10), |pair| pair.qp(a).sends.len() == 2);
        let took = pair.now.since(start);
        let least = timeout(exponent) * (u32::from(retry_cnt) + 1);
        assert!(took >= least, "{took:?} < {least:?}");
        assert!(
            took < 5 * least,
            "{took:?} for {least:?}: the specification allows four times that"
        );
        assert_eq!(pair.send_statuses(a), [WcStatus::RetryExcErr, WcStatus::WrFlushErr]);
        assert_eq!(pair.qp(a).sends[0].vendor_err, 0x81);
        assert_eq!(pair.state(a), QpState::Err);
        let counters = pair.hosts[A].nic.counters();
        assert_eq!(counters.ack_timeouts, u64::from(retry_cnt) + 1);
        assert_eq!(counters.retry_exceeded_err, 1);
        pair.drive();
    }
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        retry_cnt: 0,
        timeout: 0,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    pair.links[A].drop_if(|_| true);
    pair.post(a, &Wr::write(&from, 0..64, &to, 0));
    pair.drive_for(Duration::from_secs(60));
    assert!(pair.qp(a).sends.is_empty());
    pair.links[A].clear_rules();
    pair.drive_for(Duration::from_secs(60));
    assert_eq!(
        pair.send_statuses(a),
        [WcStatus::Success],
        "a probe gets through when the link is back"
    );
}

#[test]
fn answers_renew_the_count() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        retry_cnt: 1,
        timeout: 9,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    // Every other packet is lost: each message needs a retry, none needs two.
    let mut odd = false;
    pair.links[A].drop_if(move |_| {
        odd = !odd;
        odd
    });
    for _ in 0..10 {
        pair.post_recv(b, &Recv::into(&to, 0..64));
        pair.succeed(a, &Wr::send(&from, 0..64));
    }
}

#[test]
fn an_ack_heard_before_is_no_progress() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        retry_cnt: 2,
        timeout: 10,
        mtu: 1,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 256 * 100), pair.buffer(B, 256 * 100));
    // The first 40 packets pass, nothing after them, and the ACK of the 32nd comes again every millisecond.
    pair.links[A].add_rule(|number, _| if number < 40 { Verdict::Pass } else { Verdict::Drop });
    let acks = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&acks);
    pair.links[B].add_rule(move |_, frame| {
        kept.lock().unwrap().push(frame.clone());
        Verdict::Pass
    });
    pair.post(a, &Wr::write(&from, 0..256 * 100, &to, 0));
    for _ in 0..200 {
        pair.drive_for(Duration::from_millis(1));
        let ack = acks.lock().unwrap()[0].clone();
        let (meta, bytes) = ack.open().unwrap();
        let now = pair.now;
        pair.hosts[A].nic.handle_packet(now, &meta, bytes);
    }
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::RetryExcErr]);
    assert!(pair.qp(a).sends[0].timestamp < 200_000_000, "while the ACKs still came");
}

#[test]
fn a_wrong_destination_is_a_peer_that_does_not_answer() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        retry_cnt: 1,
        timeout: 8,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    let qpn = pair.qp(b).qpn;
    pair.command(B, nic_model::host_if::Command::DestroyQp { qpn }).unwrap();
    let cqe = pair.run(a, &Wr::write(&from, 0..64, &to, 0));
    assert_eq!((cqe.status, cqe.vendor_err), (WcStatus::RetryExcErr as u8, 0x81));
    assert!(pair.hosts[B].nic.counters().wrong_qpn_pkts > 0);
}

#[test]
fn the_timeout_can_be_changed_while_drained() {
    use nic_model::host_if::{QpAttr, QpAttrMask as M};
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        retry_cnt: 0,
        timeout: 20,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    pair.set_state(a, QpState::Sqd);
    pair.modify(
        a,
        QpAttr {
            qp_state: QpState::Sqd,
            timeout: 8,
            ..QpAttr::default()
        },
        M::STATE | M::TIMEOUT,
    )
    .unwrap();
    pair.set_state(a, QpState::Rts);
    pair.links[A].drop_if(|_| true);
    let start = pair.now;
    pair.run(a, &Wr::write(&from, 0..64, &to, 0));
    assert!(pair.now.since(start) < 5 * timeout(8), "the specification allows four");
}
