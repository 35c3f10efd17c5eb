//! The rings and the doorbell page against plain collections: one thread, any order of operations, indices that wrap.
//! What two threads see of each other is in `loom_rings.rs`.
#![cfg(not(loom))]

use nic_model::host_if::ring::Arm;
use nic_model::host_if::{CompletionQueue, Cqe, CqeFlags, DoorbellPage, WorkQueue};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

/// Where free-running indices start: anywhere, often just before they wrap.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), any::<u32>(), (0u32..64).prop_map(|before| u32::MAX - before)]
}

#[derive(Clone, Debug)]
enum WorkOp {
    /// Driver: write the next slot, if one is free.
    Write(Vec<u8>),
    /// Driver: publish what is written.
    Publish,
    /// Device: fetch and retire the oldest published WQE.
    Fetch,
}

fn work_op() -> impl Strategy<Value = WorkOp> {
    prop_oneof![
        3 => vec(any::<u8>(), 0..=128).prop_map(WorkOp::Write),
        2 => Just(WorkOp::Publish),
        3 => Just(WorkOp::Fetch),
    ]
}

#[derive(Clone, Debug)]
enum CompletionOp {
    /// Device: write the next entry, if the published consumer index leaves room.
    Write(u64),
    /// Driver: poll one entry.
    Poll,
    /// Driver: publish what is polled.
    Publish,
    /// Driver: mark an entry not polled yet as dead.
    Kill(prop::sample::Index),
}

fn completion_op() -> impl Strategy<Value = CompletionOp> {
    prop_oneof![
        4 => any::<u64>().prop_map(CompletionOp::Write),
        4 => Just(CompletionOp::Poll),
        2 => Just(CompletionOp::Publish),
        1 => any::<prop::sample::Index>().prop_map(CompletionOp::Kill),
    ]
}

proptest! {
    #[test]
    fn a_work_queue_is_a_queue(
        entries in 1u32..9, blocks in 1usize..3, start in start(), ops in vec(work_op(), 0..200),
    ) {
        let ring = WorkQueue::new(entries, blocks * 64);
        prop_assert!(ring.entries() >= entries && ring.entries().is_power_of_two());
        ring.publish(start);
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        let (mut written, mut published, mut fetched) = (start, start, start);
        for op in ops {
            match op {
                WorkOp::Write(mut wqe) => {
                    if written.wrapping_sub(fetched) < ring.entries() {
                        ring.write(written, &wqe);
                        written = written.wrapping_add(1);
                        wqe.truncate(ring.stride());
                        model.push_back(wqe);
                    }
                }
                WorkOp::Publish => {
                    ring.publish(written);
                    published = written;
                }
                WorkOp::Fetch => {
                    prop_assert_eq!(ring.producer(), published);
                    if fetched != published {
                        let expected = model.pop_front().expect("as many as were published");
                        let mut wqe = vec![0; expected.len()];
                        ring.read(fetched, &mut wqe);
                        fetched = fetched.wrapping_add(1);
                        prop_assert_eq!(wqe, expected);
                    }
                }
            }
        }
        for expected in model {
            let mut wqe = vec![0; expected.len()];
            ring.read(fetched, &mut wqe);
            fetched = fetched.wrapping_add(1);
            prop_assert_eq!(wqe, expected);
        }
    }

    #[test]
    fn a_completion_queue_is_a_queue(
        entries in 1u32..9, start in start(), ops in vec(completion_op(), 0..200),
    ) {
        let ring = CompletionQueue::new(entries);
        // A lap already consumed, from which the entries of the next one have to be told apart.
        for before in 1..=ring.entries() {
            ring.write(start.wrapping_sub(before), &Cqe::default());
        }
        ring.publish_consumer(start);
        let mut model: VecDeque<Cqe> = VecDeque::new();
        let (mut produced, mut consumed, mut published) = (start, start, start);
        for op in ops {
            match op {
                CompletionOp::Write(wr_id) => {
                    prop_assert_eq!(ring.consumer(), published);
                    if produced.wrapping_sub(ring.consumer()) < ring.entries() {
                        let cqe = Cqe { wr_id, wqe_index: produced, reserved: [!wr_id; 2], ..Cqe::default() };
                        ring.write(produced, &cqe);
                        produced = produced.wrapping_add(1);
                        model.push_back(cqe);
                    }
                }
                CompletionOp::Poll => {
                    let polled = ring.read(consumed).map(|cqe| Cqe { owner: 0, ..cqe });
                    prop_assert_eq!(polled, model.pop_front());
                    if polled.is_some() {
                        consumed = consumed.wrapping_add(1);
                    }
                }
                CompletionOp::Publish => {
                    ring.publish_consumer(consumed);
                    published = consumed;
                }
                CompletionOp::Kill(which) => {
                    if !model.is_empty() {
                        let at = which.index(model.len());
                        model[at].flags |= CqeFlags::DEAD.bits();
                        let index = consumed.wrapping_add(u32::try_from(at).expect("a small ring"));
                        ring.rewrite(index, &model[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_fires_once(ops in vec((any::<bool>(), any::<bool>()), 0..50)) {
        let ring = CompletionQueue::new(1);
        let mut model = Arm::Idle;
        for (arm, solicited) in ops {
            if arm {
                ring.arm(solicited);
                model = match model {
                    Arm::Any => Arm::Any,
                    _ if solicited => Arm::Solicited,
                    _ => Arm::Any,
                };
            } else {
                let fires = model == Arm::Any || model == Arm::Solicited && solicited;
                prop_assert_eq!(ring.fire(solicited), fires);
                if fires {
                    model = Arm::Idle;
                }
            }
            prop_assert_eq!(ring.armed(), model);
        }
    }

    #[test]
    fn a_doorbell_page_is_an_ordered_set(
        ops in vec(prop_oneof![4 => any::<u32>().prop_map(Some), 1 => Just(None)], 0..200),
    ) {
        let page = DoorbellPage::new();
        let mut model = BTreeSet::new();
        for op in ops {
            if let Some(qpn) = op {
                page.ring(qpn);
                model.insert(u16::try_from(qpn & 0xffff).expect("16 bits"));
            } else {
                let mut taken = Vec::new();
                page.take(|qp| taken.push(qp));
                prop_assert!(taken.into_iter().eq(std::mem::take(&mut model)));
            }
            prop_assert_eq!(page.is_pending(), !model.is_empty());
        }
    }
}
