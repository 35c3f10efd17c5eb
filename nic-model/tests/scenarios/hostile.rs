//! Hostile packets: random ones, mutated ones, forged ones. No panic, no byte outside a region, no harm to others.

use crate::harness::{A, B, Pair, PairConfig, QpId, QpOptions, Recv, Wr, seeds};
use nic_model::frame::RxMeta;
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::WcStatus;
use nic_model::sim::{SimFrame, Verdict};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};

/// A pair that keeps what passes on both links, busy with every kind of message on a victim.
fn captured(seed: u64) -> Vec<(usize, SimFrame)> {
    let mut pair = Pair::new(&PairConfig {
        seed,
        ..PairConfig::default()
    });
    let kept = Arc::new(Mutex::new(Vec::new()));
    for side in [A, B] {
        let kept = Arc::clone(&kept);
        pair.links[side].add_rule(move |_, frame| {
            kept.lock().unwrap().push((side, frame.clone()));
            Verdict::Pass
        });
    }
    let (a, b) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    work(&mut pair, a, b);
    drop(pair);
    Arc::into_inner(kept).unwrap().into_inner().unwrap()
}

fn work(pair: &mut Pair, a: QpId, b: QpId) {
    let (mine, theirs) = (pair.buffer(A, 1_000), pair.buffer(B, 1_000));
    pair.post_recv(b, &Recv::into(&theirs, 0..1_000));
    pair.post_recv(b, &Recv::default());
    pair.post(a, &Wr::send(&mine, 0..900));
    pair.post(a, &Wr::write(&mine, 0..900, &theirs, 0).imm(7));
    pair.post(a, &Wr::read(&mine, 0..900, &theirs, 0));
    pair.post(a, &Wr::cmp_swap(&mine, 0, &theirs, 0, (0, 1)));
    pair.post(a, &Wr::fetch_add(&mine, 0, &theirs, 0, 1));
    pair.drive();
}

fn meta(frame: &SimFrame, rng: &mut SmallRng) -> RxMeta {
    let (meta, _) = frame.open().expect("captured packets are sealed");
    RxMeta {
        traffic_class: rng.random(),
        ..meta
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut SmallRng) {
    match rng.random_range(0..10) {
        0 => bytes.truncate(rng.random_range(0..=bytes.len())),
        1 => bytes.extend((0..rng.random_range(0..300)).map(|_| 0xaa)),
        2 => {
            *bytes = (0..rng.random_range(0..400)).map(|_| rng.random()).collect();
        }
        _ => {
            for _ in 0..rng.random_range(1..5) {
                // Headers matter most.
                let within = if rng.random() { bytes.len().min(32) } else { bytes.len() };
                if within > 0 {
                    let at = rng.random_range(0..within);
                    bytes[at] = rng.random();
                }
            }
        }
    }
}

/// Keep the packet's destination among the victim's or nobody's: the bystander has its own test.
fn spare(bytes: &mut [u8], bystander: u32, victim: u32) {
    if bytes.len() >= 8 && bytes[5..8] == bystander.to_be_bytes()[1..] {
        bytes[5..8].copy_from_slice(&victim.to_be_bytes()[1..]);
    }
}

#[test]
fn mutated_packets_of_the_peer_harm_their_own_qp_at_most() {
    for seed in seeds(30) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let packets = captured(seed);
        let mut pair = Pair::new(&PairConfig {
            seed,
            record: false,
            ..PairConfig::default()
        });
        // The first QPs have the numbers and PSNs of the capture.
        let victim = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        let bystander = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        let numbers = [victim, bystander].map(|(a, b)| [pair.qp(a).qpn, pair.qp(b).qpn]);
        let (mut mine, theirs) = (pair.buffer(A, 50_000), pair.buffer(B, 50_000));
        let data = mine.fill_pattern(seed);
        for part in 0..50 {
            pair.post(
                bystander.0,
                &Wr::write(&mine, part * 1_000..(part + 1) * 1_000, &theirs, part * 1_000),
            );
        }
        let (left, right) = (pair.buffer(A, 1_000), pair.buffer(B, 1_000));
        pair.post_recv(victim.1, &Recv::into(&right, 0..1_000));
        pair.post(victim.0, &Wr::send(&left, 0..900));
        pair.post(victim.0, &Wr::read(&left, 0..900, &right, 0));
        for _ in 0..400 {
            let (from, frame) = &packets[rng.random_range(0..packets.len())];
            let to = 1 - from;
            let meta = meta(frame, &mut rng);
            let mut bytes = frame.bytes.clone();
            mutate(&mut bytes, &mut rng);
            spare(&mut bytes, numbers[1][to], numbers[0][to]);
            let now = pair.now;
            pair.hosts[to].nic.handle_packet(now, &meta, &bytes);
            if rng.random_range(0..4) == 0 {
                pair.step();
            }
        }
        pair.drive();
        assert_eq!(pair.send_statuses(bystander.0), [WcStatus::Success; 50]);
        assert_eq!(theirs.bytes(), data);
        for buffer in [&mine, &theirs, &left, &right] {
            buffer.assert_intact();
        }
    }
}

#[test]
fn damaged_truncated_and_foreign_packets_leave_the_connection_alive() {
    for seed in seeds(20) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let packets = captured(seed);
        let mut pair = Pair::new(&PairConfig {
            seed,
            record: false,
            ..PairConfig::default()
        });
        let (a, b) = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        for _ in 0..20 {
            work(&mut pair, a, b);
            for _ in 0..50 {
                let (from, frame) = &packets[rng.random_range(0..packets.len())];
                let to = 1 - from;
                let mut meta = meta(frame, &mut rng);
                meta.traffic_class &= !3;
                let mut bytes = frame.bytes.clone();
                match rng.random_range(0..4) {
                    // From another address.
                    0 => meta.src = "10.0.0.3".parse().unwrap(),
                    // Shorter than its headers.
                    1 => bytes.truncate(rng.random_range(0..12)),
                    // To a QP that does not exist.
                    2 => bytes[6] ^= 0x40,
                    // Of an unknown opcode, version or partition.
                    _ => match rng.random_range(0..3) {
                        0 => bytes[0] = 0xc0 | (bytes[0] & 0x1f),
                        1 => bytes[1] |= 5,
                        _ => bytes[2] = 0x12,
                    },
                }
                let now = pair.now;
                pair.hosts[to].nic.handle_packet(now, &meta, &bytes);
            }
        }
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 100]);
        assert_eq!((pair.state(a), pair.state(b)), (QpState::Rts, QpState::Rts));
        for host in &pair.hosts {
            let counters = host.nic.counters();
            assert!(counters.malformed_pkts > 0 && counters.wrong_peer_pkts > 0 && counters.wrong_qpn_pkts > 0);
        }
    }
}

#[test]
fn stale_packets_of_the_same_connection_change_nothing() {
    // Every packet of the run comes again at the end, in any order: all are duplicates.
    for seed in seeds(20) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut pair = Pair::new(&PairConfig {
            seed,
            record: false,
            ..PairConfig::default()
        });
        let kept = Arc::new(Mutex::new(Vec::new()));
        for side in [A, B] {
            let kept = Arc::clone(&kept);
            pair.links[side].add_rule(move |_, frame| {
                kept.lock().unwrap().push((side, frame.clone()));
                Verdict::Pass
            });
        }
        let (a, b) = pair.connect(&QpOptions {
            mtu: 1,
            ..QpOptions::default()
        });
        let (mut mine, theirs) = (pair.buffer(A, 3_000), pair.buffer(B, 3_000));
        mine.fill_pattern(seed);
        pair.post_recv(b, &Recv::into(&theirs, 0..1_000));
        pair.post_recv(b, &Recv::into(&theirs, 0..1_000));
        pair.post(a, &Wr::send(&mine, 0..900));
        pair.post(a, &Wr::write(&mine, 0..900, &theirs, 1_000));
        pair.post(a, &Wr::read(&mine, 2_000..2_900, &theirs, 1_000));
        pair.post(a, &Wr::fetch_add(&mine, 2_992, &theirs, 2_992, 1));
        pair.drive();
        let (ours, before) = (mine.bytes(), theirs.bytes());
        let mut packets = kept.lock().unwrap().clone();
        for _ in 0..packets.len() * 2 {
            let index = rng.random_range(0..packets.len());
            let (from, frame) = packets.swap_remove(index);
            packets.push((from, frame.clone()));
            let (meta, bytes) = frame.open().unwrap();
            let now = pair.now;
            pair.hosts[1 - from].nic.handle_packet(now, &meta, bytes);
            pair.step();
        }
        pair.drive();
        assert!(mine.bytes() == ours && theirs.bytes() == before);
        assert_eq!(
            (pair.send_statuses(a), pair.recv_statuses(b)),
            (vec![WcStatus::Success; 4], vec![WcStatus::Success])
        );
        pair.succeed(a, &Wr::fetch_add(&mine, 2_992, &theirs, 2_992, 1));
        assert_eq!(theirs.word(2_992), 2);
    }
}
