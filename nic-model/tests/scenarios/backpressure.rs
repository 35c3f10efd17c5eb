//! A destination that takes little: everything still arrives, and nothing of it counts as loss.

use crate::harness::host::QpOptions;
use crate::harness::{A, B, Pair, PairConfig, Recv, Wr};
use nic_model::frame::{Path, TxBudget};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::wqe::UdSeg;
use nic_model::sim::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Mostly nothing, at times a few packets.
struct Stingy(SmallRng);

impl TxBudget for Stingy {
    fn available(&mut self, _: &Path, _: u32) -> usize {
        if self.0.random_range(0..10) < 7 {
            0
        } else {
            self.0.random_range(0..6_000)
        }
    }
}

fn stingy(seed: u64, faults: Faults) -> Pair {
    let mut pair = Pair::new(&PairConfig::faulty(seed, faults));
    for side in [A, B] {
        pair.hosts[side].budget = Box::new(Stingy(SmallRng::seed_from_u64(seed + side as u64)));
    }
    pair
}

fn everything_arrives(faults: Faults, clean: bool) {
    for seed in crate::harness::seeds(4) {
        let mut pair = stingy(seed, faults);
        let (a, b) = pair.connect(&QpOptions::default());
        let (mut mine, theirs) = (pair.buffer(A, 100_000), pair.buffer(B, 200_000));
        let read = pair.buffer(A, 50_000);
        let data = mine.fill_pattern(seed);
        pair.post_recv(b, &Recv::into(&theirs, 0..100_000));
        pair.post(a, &Wr::send(&mine, 0..100_000));
        pair.post(a, &Wr::write(&mine, 0..100_000, &theirs, 100_000));
        pair.post(a, &Wr::read(&read, 0..50_000, &theirs, 100_000));
        for _ in 0..10 {
            pair.post(a, &Wr::write(&mine, 0..100, &theirs, 100_000).unsignaled());
        }
        pair.post(a, &Wr::write(&mine, 0..100, &theirs, 100_000));
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 4]);
        assert_eq!(theirs.bytes(), [&data[..], &data[..]].concat());
        assert_eq!(read.bytes(), data[..50_000]);
        let counters = pair.hosts[A].nic.counters();
        assert!(counters.backpressure_stalls > 10);
        if clean {
            assert_eq!((counters.rcvd_seq_err, counters.ack_timeouts), (0, 0), "{counters:?}");
        }
    }
}

#[test]
fn on_a_clean_link() {
    everything_arrives(Faults::default(), true);
}

#[test]
fn on_a_lossy_link() {
    everything_arrives(
        Faults {
            loss: 0.05,
            reorder: 0.02,
            ..Faults::default()
        },
        false,
    );
}

#[test]
fn datagrams_wait_and_none_is_lost() {
    let mut pair = stingy(5, Faults::default());
    let (a, b) = (
        pair.datagram(A, &QpOptions::default()),
        pair.datagram(B, &QpOptions::default()),
    );
    let peer = pair.hosts[B].addr;
    let ah = pair.hosts[A].address_handle(pair.now, peer);
    let to = UdSeg {
        ah,
        qpn: pair.qp(b).qpn,
        qkey: QpOptions::default().qkey,
        inline_len: 0,
    };
    let (mine, theirs) = (pair.buffer(A, 4_000), pair.buffer(B, 5_000));
    for id in 0..100 {
        pair.post_recv(b, &Recv::into(&theirs, 0..5_000).id(id));
        pair.post(a, &Wr::send(&mine, 0..40 * id as usize).to(to).id(id));
    }
    pair.drive();
    let lengths: Vec<u32> = pair.qp(b).recvs.iter().map(|cqe| cqe.byte_len).collect();
    assert_eq!(lengths, (0..100).map(|id| 40 + 40 * id).collect::<Vec<_>>());
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 100]);
}
