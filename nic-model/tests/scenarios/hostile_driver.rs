//! A driver that breaks every rule: garbage in slots, wild indices, commands at any time. It harms its own QPs at most.

use crate::harness::host::vector;
use crate::harness::{A, B, Pair, PairConfig, QpId, QpOptions, Recv, Wr, seeds};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::wqe::{DataSeg, UdSeg};
use nic_model::host_if::{Command, QpAttr, QpAttrMask, QpState};
use nic_model::sim::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A slot of garbage, or a request that is nearly right.
fn slot(rng: &mut SmallRng, good: &[u8]) -> Vec<u8> {
    if rng.random_range(0..3) == 0 {
        return (0..rng.random_range(0..160)).map(|_| rng.random()).collect();
    }
    let mut bytes = good.to_vec();
    for _ in 0..rng.random_range(0..3) {
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random();
    }
    bytes
}

fn mischief(pair: &mut Pair, rng: &mut SmallRng, victim: QpId, is_datagram: bool, good: &[Vec<u8>]) {
    let (now, qp) = (pair.now, pair.qp(victim));
    let (sq, rq, qpn) = (qp.sq.clone(), qp.rq.clone(), qp.qpn);
    match rng.random_range(0..12) {
        0 => sq.publish(rng.random()),
        1 => rq.publish(rng.random()),
        2 => {
            let qp_state = QpState::from_u8(rng.random_range(0..7)).unwrap();
            let (addr, dest_qp_num) = (pair.hosts[1 - victim.side].addr, rng.random_range(0..0x40_0000));
            let path_mtu = rng.random_range(0..7);
            let attr = QpAttr {
                qp_state,
                dest_qp_num,
                ah: vector(addr),
                path_mtu,
                port_num: 1,
                ..QpAttr::default()
            };
            let mask = QpAttrMask::from_bits_truncate(rng.random());
            let _ = pair.modify(victim, attr, mask | QpAttrMask::STATE);
        }
        3 => pair.set_state(victim, QpState::Reset),
        4 => {
            let side = victim.side;
            let peer = pair.hosts[1 - side].addr;
            let index = victim.index;
            if pair.state(victim) == QpState::Reset && is_datagram {
                pair.hosts[side].ud_ready(now, index);
            } else if pair.state(victim) == QpState::Reset {
                pair.hosts[side].init(now, index);
                pair.hosts[side].ready_to_receive(now, index, peer, rng.random_range(0..0x40_0000));
                pair.hosts[side].ready_to_send(now, index);
            }
        }
        5 => {
            let _ = pair.command(
                victim.side,
                Command::DeregMr {
                    lkey: rng.random_range(0x1000..0x20_0000),
                },
            );
        }
        6 => {
            let index = rq.producer();
            rq.write(index, &slot(rng, &good[0]));
            rq.publish(index.wrapping_add(1));
        }
        _ => {
            let index = sq.producer();
            let wqe = &good[rng.random_range(1..good.len())];
            sq.write(index, &slot(rng, wqe));
            sq.publish(index.wrapping_add(1));
        }
    }
    pair.hosts[victim.side].ring(qpn);
}

#[test]
fn a_hostile_driver_harms_its_own_qps_at_most() {
    for seed in seeds(40) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let faults = Faults {
            loss: 0.01,
            duplicate: 0.01,
            ..Faults::default()
        };
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..PairConfig::faulty(seed, faults)
        });
        let options = QpOptions {
            mtu: 1,
            timeout: 10,
            ..QpOptions::default()
        };
        let victim = pair.connect(&options);
        let datagram = [pair.datagram(A, &options), pair.datagram(B, &options)];
        let (a, b) = pair.connect(&options);
        let (mut mine, theirs) = (pair.buffer(A, 50_000), pair.buffer(B, 50_000));
        // What the victims' requests may touch is not what the bystander uses.
        let (left, right) = (pair.buffer(A, 2_000), pair.buffer(B, 2_000));
        let ah = pair.hosts[A].address_handle(pair.now, "10.0.0.2".parse().unwrap());
        let to = UdSeg {
            ah,
            qpn: pair.qp(datagram[1]).qpn,
            qkey: options.qkey,
            inline_len: 0,
        };
        let good = vec![
            Recv {
                sges: vec![
                    DataSeg {
                        addr: left.addr,
                        length: 2_000,
                        lkey: left.key
                    };
                    2
                ],
                ..Recv::default()
            }
            .encode(),
            Wr::send(&left, 0..900).encode(),
            Wr::write(&left, 0..900, &right, 0).encode(),
            Wr::read(&left, 0..900, &right, 0).encode(),
            Wr::fetch_add(&left, 0, &right, 0, 1).encode(),
            Wr::write(&left, 0..0, &right, 0).inlined(&[7; 50]).imm(1).encode(),
            Wr::send(&left, 0..100).to(to).encode(),
        ];
        let data = mine.fill_pattern(seed);
        for round in 0..50 {
            pair.post_recv(b, &Recv::into(&theirs, round * 1_000..(round + 1) * 1_000));
            pair.post(a, &Wr::send(&mine, round * 1_000..(round + 1) * 1_000));
            for _ in 0..rng.random_range(0..8) {
                let which = rng.random_range(0..4);
                let qp = [victim.0, victim.1, datagram[0], datagram[1]][which];
                mischief(&mut pair, &mut rng, qp, which > 1, &good);
            }
            for _ in 0..rng.random_range(0..10) {
                pair.step();
            }
        }
        for qp in [victim.0, victim.1, datagram[0], datagram[1]] {
            let qpn = pair.qp(qp).qpn;
            pair.command(qp.side, Command::DestroyQp { qpn }).unwrap();
        }
        pair.drive();
        assert_eq!(pair.send_statuses(a), [WcStatus::Success; 50]);
        assert_eq!(theirs.bytes(), data);
        for buffer in [&mine, &theirs, &left, &right] {
            buffer.assert_intact();
        }
    }
}
