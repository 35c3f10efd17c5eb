//! Requester and responder against a plain model: random operations under random faults leave the memory a sequential
//! execution would leave, and complete in order, each exactly once.

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::{CqeFlags, WcStatus};
use nic_model::host_if::wqe::WqeFlags;
use nic_model::sim::{Faults, LinkConfig};
use nic_model::time::Duration;
use proptest::prelude::*;

/// Bytes of remote memory that operations share.
const REMOTE: usize = 8_192;
/// Bytes of local memory and of receive buffer of each operation.
const SLOT: usize = 4_096;

#[derive(Clone, Debug)]
enum Op {
    Send { len: usize, imm: Option<u32> },
    Write { len: usize, at: usize, imm: Option<u32> },
    Read { len: usize, at: usize },
    FetchAdd { word: usize, add: u64 },
    CmpSwap { word: usize, hit: bool, swap: u64 },
    Pause { micros: u64 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![Just(0usize), 1usize..20, 200usize..SLOT];
    let at = 0..REMOTE - SLOT;
    let imm = proptest::option::of(any::<u32>());
    let word = 0..REMOTE / 8;
    let op = prop_oneof![
        3 => (len.clone(), imm.clone()).prop_map(|(len, imm)| Op::Send { len, imm }),
        3 => (len.clone(), at.clone(), imm).prop_map(|(len, at, imm)| Op::Write { len, at, imm }),
        3 => (len, at).prop_map(|(len, at)| Op::Read { len, at }),
        2 => (word.clone(), any::<u64>()).prop_map(|(word, add)| Op::FetchAdd { word, add }),
        2 => (word, any::<bool>(), any::<u64>()).prop_map(|(word, hit, swap)| Op::CmpSwap { word, hit, swap }),
        1 => (0u64..3_000).prop_map(|micros| Op::Pause { micros }),
    ];
    proptest::collection::vec(op, 1..40)
}

#[derive(Clone, Debug)]
struct Setting {
    seed: u64,
    faults: Faults,
    mtu: u8,
    psn: (u32, u32),
    depth: u8,
    quantum: u16,
    rate_bps: u64,
    unsignaled: u64,
    /// Receives are posted only at pauses, so that messages find none.
    late: bool,
}

fn settings() -> impl Strategy<Value = Setting> {
    let psn = || prop_oneof![Just(0x00ff_fff0u32), 0u32..0x0100_0000];
    let faults = (0.0..0.08f64, 0.0..0.08f64, 0.0..0.08f64, 0.0..0.03f64, 1u64..200).prop_map(
        |(loss, reorder, duplicate, corrupt, hold)| Faults {
            loss,
            reorder,
            duplicate,
            corrupt,
            hold: Duration::from_micros(hold),
        },
    );
    let rate = prop_oneof![Just(0u64), Just(1_000_000_000), Just(100_000_000_000)];
    let numbers = (any::<u64>(), 1u8..=5, psn(), psn());
    let limits = (1u8..=16, 1u16..=64, rate, any::<u64>(), any::<bool>());
    (numbers, faults, limits).prop_map(
        |((seed, mtu, a, b), faults, (depth, quantum, rate_bps, unsignaled, late))| Setting {
            seed,
            faults,
            mtu,
            psn: (a, b),
            depth,
            quantum,
            rate_bps,
            unsignaled,
            late,
        },
    )
}

/// What a receive must show: length and immediate.
type Arrival = (u32, Option<u32>);

fn check(setting: &Setting, ops: &[Op]) {
    let link = LinkConfig {
        rate_bps: setting.rate_bps,
        delay: Duration::from_micros(2),
        faults: setting.faults,
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(&PairConfig {
        seed: setting.seed,
        link,
        quantum: setting.quantum,
        record: false,
        ..PairConfig::default()
    });
    let options = QpOptions {
        mtu: setting.mtu,
        psn: setting.psn,
        max_rd_atomic: setting.depth,
        max_dest_rd_atomic: setting.depth,
        min_rnr_timer: 4,
        ..QpOptions::default()
    };
    let (a, b) = pair.connect(&options);
    let count = ops.len();
    let mut source = pair.buffer(A, count * SLOT);
    let data = source.fill_pattern(setting.seed);
    let results = pair.buffer(A, count * SLOT);
    let received = pair.buffer(B, count * SLOT);
    let mut remote = pair.buffer(B, REMOTE);
    let mut memory = remote.fill_pattern(setting.seed ^ 1);
    let mut expected_results = vec![0; count * SLOT];
    let mut expected_received = vec![0; count * SLOT];
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut signaled: Vec<u64> = Vec::new();
    let post_receives = |pair: &mut Pair, count: usize| {
        for arrival in pair.qp(b).rq_head as usize..count {
            pair.post_recv(
                b,
                &Recv::into(&received, arrival * SLOT..(arrival + 1) * SLOT).id(arrival as u64),
            );
        }
    };
    // A READ is not ordered before a later change of what it reads, except by a fence.
    let mut read_before = false;
    for (index, op) in ops.iter().enumerate() {
        let slot = index * SLOT;
        let word = |memory: &[u8], word: usize| u64::from_ne_bytes(memory[word * 8..word * 8 + 8].try_into().unwrap());
        let mut wr = match *op {
            Op::Pause { micros } => {
                pair.drive_for(Duration::from_micros(micros));
                post_receives(&mut pair, arrivals.len());
                continue;
            }
            Op::Send { len, imm } => {
                let into = arrivals.len() * SLOT;
                expected_received[into..into + len].copy_from_slice(&data[slot..slot + len]);
                arrivals.push((len as u32, imm));
                let wr = Wr::send(&source, slot..slot + len);
                if let Some(imm) = imm { wr.imm(imm) } else { wr }
            }
            Op::Write { len, at, imm } => {
                memory[at..at + len].copy_from_slice(&data[slot..slot + len]);
                let wr = Wr::write(&source, slot..slot + len, &remote, at);
                match imm {
                    None => wr,
                    Some(imm) => {
                        arrivals.push((len as u32, Some(imm)));
                        wr.imm(imm)
                    }
                }
            }
            Op::Read { len, at } => {
                expected_results[slot..slot + len].copy_from_slice(&memory[at..at + len]);
                Wr::read(&results, slot..slot + len, &remote, at)
            }
            Op::FetchAdd { word: at, add } => {
                let old = word(&memory, at);
                expected_results[slot..slot + 8].copy_from_slice(&old.to_ne_bytes());
                memory[at * 8..at * 8 + 8].copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
                Wr::fetch_add(&results, slot, &remote, at * 8, add)
            }
            Op::CmpSwap { word: at, hit, swap } => {
                let old = word(&memory, at);
                let compare = if hit { old } else { old.wrapping_add(1) };
                expected_results[slot..slot + 8].copy_from_slice(&old.to_ne_bytes());
                if hit {
                    memory[at * 8..at * 8 + 8].copy_from_slice(&swap.to_ne_bytes());
                }
                Wr::cmp_swap(&results, slot, &remote, at * 8, (compare, swap))
            }
        };
        if matches!(op, Op::Read { .. }) {
            read_before = true;
        } else if core::mem::take(&mut read_before) {
            wr = wr.flag(WqeFlags::FENCE);
        }
        let last = index + 1 == count;
        if setting.unsignaled >> (index % 64) & 1 == 0 || last {
            signaled.push(index as u64);
        } else {
            wr = wr.unsignaled();
        }
        pair.post(a, &wr.id(index as u64));
        if !setting.late {
            post_receives(&mut pair, arrivals.len());
        }
    }
    for count in pair.qp(b).rq_head as usize..arrivals.len() {
        pair.drive_for(Duration::from_micros(100));
        post_receives(&mut pair, count + 1);
    }
    pair.drive();
    let ids: Vec<u64> = pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(ids, signaled, "send completions");
    assert!(pair.send_statuses(a).iter().all(|status| *status == WcStatus::Success));
    let seen: Vec<Arrival> = pair
        .qp(b)
        .recvs
        .iter()
        .map(|cqe| {
            (
                cqe.byte_len,
                (cqe.flags & CqeFlags::WITH_IMM.bits() != 0).then_some(cqe.imm),
            )
        })
        .collect();
    assert_eq!(seen, arrivals, "receive completions");
    assert!(
        pair.qp(b)
            .recvs
            .iter()
            .enumerate()
            .all(|(index, cqe)| cqe.wr_id == index as u64)
    );
    assert!(remote.bytes() == memory, "remote memory");
    assert!(results.bytes() == expected_results, "READ and atomic results");
    assert!(received.bytes() == expected_received, "received messages");
    assert!(source.bytes() == data, "the source is untouched");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_sequential_execution(setting in settings(), ops in ops()) {
        check(&setting, &ops);
    }
}
