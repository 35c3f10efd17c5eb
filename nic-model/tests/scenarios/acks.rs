//! Acknowledgements: coalescing, duplicates, loss of the ACK, MSN.

use crate::harness::log::Sighting;
use crate::harness::{A, B, Pair, PairConfig, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::{LinkConfig, Verdict};
use nic_model::time::Duration;
use roce_wire::opcode::Opcode;

fn acks(pair: &Pair) -> Vec<Sighting> {
    pair.sent
        .iter()
        .filter(|packet| packet.from == B && packet.opcode == Opcode::RcAck)
        .copied()
        .collect()
}

#[test]
fn what_arrives_together_is_acknowledged_once() {
    let link = LinkConfig {
        delay: Duration::from_micros(1),
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(&PairConfig {
        link,
        ..PairConfig::default()
    });
    let (a, b) = pair.connect(&QpOptions {
        psn: (0, 0),
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for id in 0..100 {
        pair.post(a, &Wr::write(&from, 0..64, &to, 0).id(id));
    }
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 100]);
    let acks = acks(&pair);
    assert!(
        acks.len() <= 4,
        "{} ACKs for 100 messages that arrive at once",
        acks.len()
    );
    let last = acks.last().unwrap();
    assert_eq!((last.psn, last.msn, last.dest_qpn), (99, Some(100), pair.qp(a).qpn));
    let _ = b;
}

#[test]
fn a_long_message_is_acknowledged_on_the_way() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 256 * 400), pair.buffer(B, 256 * 400));
    pair.succeed(a, &Wr::write(&from, 0..256 * 400, &to, 0));
    let asked = pair
        .sent
        .iter()
        .filter(|packet| packet.from == A && packet.ack_req)
        .count();
    assert!((4..=40).contains(&asked), "{asked} packets of 400 ask for an ACK");
    assert!(acks(&pair).len() <= asked);
    assert!(
        acks(&pair)[..acks(&pair).len() - 1]
            .iter()
            .all(|ack| ack.msn == Some(0)),
        "the MSN counts whole messages"
    );
}

#[test]
fn a_lost_ack_costs_no_second_execution() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mut from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    let data = from.fill_pattern(1);
    pair.links[B].drop_nth(0);
    pair.post_recv(b, &Recv::into(&to, 0..64).id(1));
    pair.post_recv(b, &Recv::into(&to, 0..64).id(2));
    pair.succeed(a, &Wr::send(&from, 0..64));
    pair.drive();
    assert_eq!(pair.qp(b).recvs.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), [1]);
    assert_eq!(to.bytes(), data);
    assert!(pair.hosts[B].nic.counters().duplicate_request >= 1);
    assert_eq!(
        pair.hosts[A].nic.counters().ack_timeouts,
        0,
        "an early probe recovers it"
    );
}

#[test]
fn a_lost_packet_is_reported_once_and_resent_at_once() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        mtu: 1,
        psn: (10, 10),
        ..QpOptions::default()
    });
    let (mut from, to) = (pair.buffer(A, 256 * 60), pair.buffer(B, 256 * 60));
    let data = from.fill_pattern(1);
    pair.links[A].drop_nth(20);
    let start = pair.now;
    pair.succeed(a, &Wr::write(&from, 0..256 * 60, &to, 0));
    assert!(
        pair.now.since(start) < Duration::from_micros(500),
        "no timer was needed"
    );
    assert_eq!(to.bytes(), data);
    let naks: Vec<u32> = acks(&pair)
        .iter()
        .filter(|ack| ack.syndrome == Some(0x60))
        .map(|ack| ack.psn)
        .collect();
    assert_eq!(naks, [30], "one NAK, with the PSN expected");
}

#[test]
fn late_duplicates_of_a_send_change_nothing() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    let (mut from, to) = (pair.buffer(A, 2_000), pair.buffer(B, 4_000));
    // Every packet comes again in the middle of a later message.
    pair.links[A].add_rule(|_, _| Verdict::Duplicate(Duration::from_micros(3)));
    for round in 0..20 {
        let data = from.fill_pattern(round);
        pair.post_recv(b, &Recv::into(&to, 0..2_000).id(2 * round));
        pair.post_recv(b, &Recv::into(&to, 2_000..4_000).id(2 * round + 1));
        pair.post(a, &Wr::send(&from, 0..2_000));
        pair.post(a, &Wr::send(&from, 0..2_000));
        pair.drive();
        assert_eq!(to.bytes(), [&data[..], &data[..]].concat());
    }
    assert_eq!(
        pair.qp(b).recvs.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(),
        (0..40).collect::<Vec<_>>()
    );
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 40]);
}
