//! QP1: connection-management MADs pass between the hosts, and only those.

use crate::harness::{A, B, Pair};
use nic_model::device::{GSI_QKEY, GSI_QPN, MAD_LEN, Mad};
use roce_wire::opcode::Opcode;

fn mad(pair: &Pair, fill: u8) -> Mad {
    Mad {
        local: pair.hosts[A].addr,
        peer: pair.hosts[B].addr,
        traffic_class: 0,
        hop_limit: 0,
        bytes: [fill; MAD_LEN],
    }
}

#[test]
fn mads_arrive_in_order_with_their_addresses() {
    let mut pair = Pair::default();
    for fill in 0..100 {
        let mad = mad(&pair, fill);
        pair.hosts[A].nic.send_mad(mad);
    }
    pair.drive_until(nic_model::time::Duration::from_millis(1), |pair| pair.sent.len() == 100);
    pair.drive();
    assert!(
        pair.sent
            .iter()
            .all(|packet| (packet.opcode, packet.dest_qpn) == (Opcode::UdSendOnly, GSI_QPN))
    );
    for fill in 0..100 {
        let received = pair.hosts[B].nic.poll_mad().expect("another MAD");
        assert_eq!(
            (received.local, received.peer),
            (pair.hosts[B].addr, pair.hosts[A].addr)
        );
        assert_eq!((received.bytes, received.hop_limit), ([fill; MAD_LEN], 64));
    }
    assert!(pair.hosts[B].nic.poll_mad().is_none());
}

#[test]
fn what_is_no_mad_is_dropped() {
    let mut pair = Pair::default();
    let (frames, now) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), pair.now);
    let kept = frames.clone();
    pair.links[A].add_rule(move |_, frame| {
        kept.lock().unwrap().push(frame.clone());
        nic_model::sim::Verdict::Drop
    });
    let mad = mad(&pair, 1);
    pair.hosts[A].nic.send_mad(mad);
    pair.drive();
    let frame = frames.lock().unwrap()[0].clone();
    let (meta, bytes) = frame.open().unwrap();
    let mut offer = |meta, bytes: &[u8]| {
        pair.hosts[B].nic.handle_packet(now, &meta, bytes);
        pair.hosts[B].nic.poll_mad().is_some()
    };
    assert!(offer(meta, bytes));
    let mut forged = bytes.to_vec();
    forged[12..16].copy_from_slice(&(GSI_QKEY ^ 1).to_be_bytes());
    assert!(!offer(meta, &forged), "wrong Q_Key");
    assert!(
        !offer(meta, &[&bytes[..100], &bytes[bytes.len() - 4..]].concat()),
        "shorter than a MAD"
    );
    let elsewhere = nic_model::frame::RxMeta {
        dst: "10.0.0.9".parse().unwrap(),
        ..meta
    };
    assert!(!offer(elsewhere, bytes), "not an address of the device");
}
