//! A peer that does not answer: how often and how long the requester tries (behaviours A4).

use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::WcStatus;
use nic_model::time::Duration;

fn timeout(exponent: u8) -> Duration {
    Duration::from_nanos(4_096 << exponent)
}

#[test]
fn retries_are_counted_and_take_their_time() {
    for (retry_cnt, exponent) in [(0, 10), (3, 12), (7, 8), (7, 14)] {
        let mut pair = Pair::default();
        let (a, _) = pair.connect(&QpOptions { retry_cnt, timeout: exponent, ..QpOptions::default() });
        let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
        pair.links[A].drop_if(|_| true);
        let start = pair.now;
        pair.post(a, &Wr::write(&from, 0..64, &to, 0).id(1));
        pair.post(a, &Wr::write(&from, 0..64, &to, 0).unsignaled().id(2));
        pair.drive_until(Duration::from_secs(10), |pair| pair.qp(a).sends.len() == 2);
        let took = pair.now.since(start);
        let least = timeout(exponent) * (u32::from(retry_cnt) + 1);
        assert!(took >= least, "{took:?} < {least:?}");
        assert!(took <= 4 * least, "{took:?} > 4 × {least:?}");
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
    let (a, _) = pair.connect(&QpOptions { retry_cnt: 0, timeout: 0, ..QpOptions::default() });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    pair.links[A].drop_if(|_| true);
    pair.post(a, &Wr::write(&from, 0..64, &to, 0));
    pair.drive_for(Duration::from_secs(60));
    assert!(pair.qp(a).sends.is_empty());
    pair.links[A].clear_rules();
    pair.drive_for(Duration::from_secs(60));
    assert_eq!(pair.send_statuses(a), [WcStatus::Success], "a probe gets through when the link is back");
}

#[test]
fn answers_renew_the_count() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions { retry_cnt: 1, timeout: 9, ..QpOptions::default() });
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
fn a_peer_that_answers_without_progress_uses_up_the_retries() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions { retry_cnt: 2, timeout: 10, mtu: 1, ..QpOptions::default() });
    let (from, to) = (pair.buffer(A, 10_000), pair.buffer(B, 10_000));
    // Full packets never pass after the first few, so every answer acknowledges the same.
    pair.links[A].add_rule(|number, frame| {
        if number >= 3 && frame.bytes.len() >= 256 + 16 && frame.bytes[11] != 0x35 {
            nic_model::sim::Verdict::Drop
        } else {
            nic_model::sim::Verdict::Pass
        }
    });
    pair.post(a, &Wr::write(&from, 0..10_000, &to, 0));
    pair.drive_until(Duration::from_secs(10), |pair| !pair.qp(a).sends.is_empty());
    assert_eq!(pair.send_statuses(a), [WcStatus::RetryExcErr]);
}

#[test]
fn a_wrong_destination_is_a_peer_that_does_not_answer() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions { retry_cnt: 1, timeout: 8, ..QpOptions::default() });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    let qpn = pair.qp(b).qpn;
    pair.command(B, nic_model::host_if::Command::DestroyQp { qpn }).unwrap();
    let cqe = pair.run(a, &Wr::write(&from, 0..64, &to, 0));
    assert_eq!((cqe.status, cqe.vendor_err), (WcStatus::RetryExcErr as u8, 0x81));
    assert!(pair.hosts[B].nic.counters().wrong_qpn_pkts > 0);
}
