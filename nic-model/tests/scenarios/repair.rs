//! Lost requests: when the responder reports a gap again, and what its reports cost the requester.

use crate::harness::{A, B, Pair, QpOptions, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::{SimFrame, Verdict};
use nic_model::time::Duration;
use roce_wire::packet::Packet;

const PACKETS: usize = 60;
const SIZE: usize = 256 * PACKETS;
/// PSN of the first packet, and of one in the middle.
const FIRST: u32 = 10;
const LOST: u32 = 30;

fn options(retry_cnt: u8) -> QpOptions {
    QpOptions {
        mtu: 1,
        psn: (FIRST, FIRST),
        retry_cnt,
        ..QpOptions::default()
    }
}

fn psn(frame: &SimFrame) -> u32 {
    Packet::parse(&frame.bytes).unwrap().headers.bth.psn.get()
}

/// PSNs of the sequence NAKs.
fn naks(pair: &Pair) -> Vec<u32> {
    pair.sent
        .iter()
        .filter(|packet| packet.from == B && packet.syndrome == Some(0x60))
        .map(|packet| packet.psn)
        .collect()
}

/// Lose the packet with `lost` for so many times.
fn lose(pair: &mut Pair, lost: u32, mut times: u32) {
    pair.links[A].drop_if(move |frame| {
        let hit = times > 0 && psn(frame) == lost;
        times -= u32::from(hit);
        hit
    });
}

#[test]
fn a_retransmission_lost_again_needs_no_timer() {
    for times in 1..5 {
        let mut pair = Pair::default();
        let (a, _) = pair.connect(&options(7));
        let (mut from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
        let data = from.fill_pattern(1);
        lose(&mut pair, LOST, times);
        let start = pair.now;
        pair.succeed(a, &Wr::write(&from, 0..SIZE, &to, 0));
        assert!(
            pair.now.since(start) < Duration::from_micros(500),
            "the earliest timer takes a millisecond"
        );
        assert_eq!(to.bytes(), data);
        assert_eq!(naks(&pair), vec![LOST; times as usize], "one NAK for each loss");
    }
}

#[test]
fn packets_that_overtake_each_other_are_not_reported() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&options(7));
    let (mut from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    let data = from.fill_pattern(1);
    lose(&mut pair, LOST, 1);
    // Behind the gap every third packet comes after the next two, the first time it is sent.
    pair.links[A].add_rule(|number, frame| {
        if number < PACKETS as u64 && psn(frame) > LOST + 1 && psn(frame).is_multiple_of(3) {
            Verdict::Delay(Duration::from_nanos(80))
        } else {
            Verdict::Pass
        }
    });
    pair.succeed(a, &Wr::write(&from, 0..SIZE, &to, 0));
    assert_eq!(to.bytes(), data);
    assert!(pair.links[A].stats().held > 5);
    assert_eq!(naks(&pair), [LOST]);
}

#[test]
fn a_copied_packet_costs_one_nak_and_no_second_retransmission() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&options(0));
    let (mut from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    let data = from.fill_pattern(1);
    pair.succeed(a, &Wr::write(&from, 0..256, &to, 0));
    lose(&mut pair, LOST, 1);
    pair.links[A].add_rule(|_, frame| {
        if psn(frame) == LOST + 5 {
            Verdict::Duplicate(Duration::from_nanos(300))
        } else {
            Verdict::Pass
        }
    });
    pair.succeed(a, &Wr::write(&from, 0..SIZE, &to, 0));
    assert_eq!(to.bytes(), data);
    assert_eq!(naks(&pair), [LOST; 2]);
    let counters = pair.hosts[A].nic.counters();
    assert!(
        counters.retransmitted_pkts <= PACKETS as u64,
        "{counters:?}: the second NAK is ignored"
    );
    assert_eq!(counters.completer_retry_err, 0);
}

#[test]
fn copies_of_a_nak_spend_no_retries() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&options(1));
    let (from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    pair.succeed(a, &Wr::write(&from, 0..256, &to, 0));
    lose(&mut pair, LOST, 2);
    pair.links[B].add_rule(|_, _| Verdict::Duplicate(Duration::from_nanos(100)));
    pair.succeed(a, &Wr::write(&from, 0..SIZE, &to, 0));
    let counters = pair.hosts[A].nic.counters();
    assert_eq!((counters.rcvd_seq_err, counters.completer_retry_err), (4, 1));
}

#[test]
fn a_peer_that_refuses_for_ever_uses_the_retries_up() {
    for retry_cnt in [0, 1, 7] {
        let mut pair = Pair::default();
        let (a, _) = pair.connect(&options(retry_cnt));
        let (from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
        lose(&mut pair, LOST, u32::MAX);
        pair.post(a, &Wr::write(&from, 0..SIZE, &to, 0));
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::RetryExcErr]);
        let counters = pair.hosts[A].nic.counters();
        // The first NAK acknowledges what came before the gap.
        assert_eq!(naks(&pair).len(), usize::from(retry_cnt) + 2);
        assert_eq!(
            (counters.completer_retry_err, counters.ack_timeouts),
            (u64::from(retry_cnt), 0)
        );
    }
}

#[test]
fn a_lost_nak_costs_one_probe() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&options(7));
    let (from, to) = (pair.buffer(A, SIZE), pair.buffer(B, SIZE));
    lose(&mut pair, LOST, 1);
    // The probe is answered with an ACK of far more than itself and less than was sent.
    pair.links[B].drop_nth(0);
    let start = pair.now;
    pair.succeed(a, &Wr::write(&from, 0..SIZE, &to, 0));
    let took = pair.now.since(start);
    assert!(
        took > Duration::from_millis(1) && took < Duration::from_millis(3),
        "{took:?}: a probe after 2 ms, not one more after another 4"
    );
}
