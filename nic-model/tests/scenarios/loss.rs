//! Random loss, reordering, duplication and corruption: every kind of message arrives whole and exactly once.

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Recv, Wr, seeds};
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::Faults;
use nic_model::time::Duration;

/// Seeds of one scenario.
const SEEDS: u64 = 3;
const ROUNDS: usize = 40;
const SIZE: usize = 6_000;

/// Many messages of each kind, several in flight, under `faults`; all data compared.
fn everything_arrives(faults: Faults) {
    for seed in seeds(SEEDS) {
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..PairConfig::faulty(seed, faults)
        });
        let options = QpOptions {
            mtu: 2,
            send_wr: 512,
            recv_wr: 512,
            ..QpOptions::default()
        };
        let (a, b) = pair.connect(&options);
        let total = ROUNDS * SIZE;
        let (mut out, sent, written) = (pair.buffer(A, total), pair.buffer(B, total), pair.buffer(B, total));
        let (read, mut source) = (pair.buffer(A, total), pair.buffer(B, total));
        let (olds, counter) = (pair.buffer(A, ROUNDS * 8), pair.buffer(B, 8));
        let (ours, theirs) = (out.fill_pattern(seed), source.fill_pattern(seed + 99));
        for round in 0..ROUNDS {
            let (start, length) = (round * SIZE, SIZE - round * 7);
            let range = start..start + length;
            pair.post_recv(b, &Recv::into(&sent, range.clone()).id(round as u64));
            pair.post_recv(b, &Recv::default().id(1_000 + round as u64));
            pair.post(a, &Wr::send(&out, range.clone()).id(5 * round as u64));
            pair.post(
                a,
                &Wr::write(&out, range.clone(), &written, start).id(5 * round as u64 + 1),
            );
            pair.post(
                a,
                &Wr::read(&read, range.clone(), &source, start).id(5 * round as u64 + 2),
            );
            pair.post(
                a,
                &Wr::fetch_add(&olds, round * 8, &counter, 0, 3).id(5 * round as u64 + 3),
            );
            pair.post(
                a,
                &Wr::write(&out, range.start..range.start, &written, 0)
                    .imm(round as u32)
                    .id(5 * round as u64 + 4),
            );
        }
        pair.drive();
        let ids: Vec<u64> = pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect();
        assert_eq!(pair.send_statuses(a), vec![WcStatus::Success; 5 * ROUNDS]);
        assert_eq!(ids, (0..5 * ROUNDS as u64).collect::<Vec<_>>());
        assert_eq!(pair.recv_statuses(b), vec![WcStatus::Success; 2 * ROUNDS]);
        let (sent, written, read) = (sent.bytes(), written.bytes(), read.bytes());
        for round in 0..ROUNDS {
            let range = round * SIZE..round * SIZE + SIZE - round * 7;
            assert_eq!(sent[range.clone()], ours[range.clone()], "SEND {round}");
            assert_eq!(written[range.clone()], ours[range.clone()], "WRITE {round}");
            assert_eq!(read[range.clone()], theirs[range], "READ {round}");
            assert_eq!(olds.word(round * 8), 3 * round as u64, "FETCH_ADD {round}");
        }
        assert_eq!(counter.word(0), 3 * ROUNDS as u64);
    }
}

#[test]
fn loss() {
    everything_arrives(Faults {
        loss: 0.05,
        ..Faults::default()
    });
}

#[test]
fn heavy_loss() {
    everything_arrives(Faults {
        loss: 0.15,
        ..Faults::default()
    });
}

#[test]
fn reordering() {
    everything_arrives(Faults {
        reorder: 0.1,
        ..Faults::default()
    });
}

#[test]
fn late_duplicates() {
    let hold = Duration::from_micros(300);
    everything_arrives(Faults {
        duplicate: 0.2,
        hold,
        ..Faults::default()
    });
}

#[test]
fn corruption() {
    everything_arrives(Faults {
        corrupt: 0.05,
        ..Faults::default()
    });
}

#[test]
fn everything_at_once() {
    let hold = Duration::from_micros(100);
    everything_arrives(Faults {
        loss: 0.02,
        reorder: 0.02,
        duplicate: 0.02,
        corrupt: 0.005,
        hold,
    });
}

#[test]
fn a_thousand_atomics_count_to_a_thousand() {
    let faults = Faults {
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.02,
        ..Faults::default()
    };
    for depth in [1, 16] {
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..PairConfig::faulty(u64::from(depth), faults)
        });
        let options = QpOptions {
            max_rd_atomic: depth,
            max_dest_rd_atomic: depth,
            send_wr: 1_024,
            ..QpOptions::default()
        };
        let (a, _) = pair.connect(&options);
        let (olds, counter) = (pair.buffer(A, 8_000), pair.buffer(B, 8));
        for index in 0..1_000 {
            pair.post(a, &Wr::fetch_add(&olds, index * 8, &counter, 0, 1));
        }
        pair.drive();
        assert_eq!(pair.send_statuses(a), vec![WcStatus::Success; 1_000]);
        assert_eq!(counter.word(0), 1_000);
        assert!(
            (0..1_000).all(|index| olds.word(index * 8) == index as u64),
            "each old value once, in order"
        );
    }
}

#[test]
fn both_directions_of_one_connection() {
    let faults = Faults {
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.05,
        ..Faults::default()
    };
    for seed in seeds(SEEDS) {
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..PairConfig::faulty(seed, faults)
        });
        let (a, b) = pair.connect(&QpOptions {
            mtu: 1,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ..QpOptions::default()
        });
        let mut out = [pair.buffer(A, 60_000), pair.buffer(B, 60_000)];
        let data = [out[A].fill_pattern(seed), out[B].fill_pattern(seed + 7)];
        let (sent, read) = (
            [pair.buffer(A, 60_000), pair.buffer(B, 60_000)],
            [pair.buffer(A, 60_000), pair.buffer(B, 60_000)],
        );
        for part in 0..30 {
            let range = part * 2_000..(part + 1) * 2_000;
            for (qp, peer) in [(a, B), (b, A)] {
                pair.post_recv(qp, &Recv::into(&sent[qp.side], range.clone()).id(part as u64));
                pair.post(qp, &Wr::send(&out[qp.side], range.clone()));
                pair.post(qp, &Wr::read(&read[qp.side], range.clone(), &out[peer], range.start));
            }
        }
        pair.drive();
        for (qp, peer) in [(a, B), (b, A)] {
            assert_eq!(pair.send_statuses(qp), [WcStatus::Success; 60]);
            assert_eq!(pair.recv_statuses(qp), [WcStatus::Success; 30]);
            assert!(sent[qp.side].bytes() == data[peer] && read[qp.side].bytes() == data[peer]);
        }
    }
}
