//! The rings and the doorbell page under loom: every interleaving of a driver and a device, and the values that the
//! memory model lets a load return.
//!
//! `make loom`. Each model has the driver in one thread and the device in another, as the product has them. What is
//! read is compared with what was written, so a torn, old, lost or doubled entry fails; so does waiting for something
//! that never comes, as loom limits the length of an execution. Loom lets a load
//! return an old value and otherwise keeps each thread in order: an ordering that only keeps a load before a later
//! store (the consumer index), or two read-modify-writes in order (the summary bits), is not tested here.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::{model, thread};
use nic_model::host_if::{CompletionQueue, Cqe, DoorbellPage, WorkQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A WQE of two words, each of which says whose it is.
fn wqe(index: u32) -> [u8; 16] {
    let word = u64::from(index + 1) * 0x0101_0101_0101_0101;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&word.to_ne_bytes());
    bytes[8..].copy_from_slice(&(!word).to_ne_bytes());
    bytes
}

/// A CQE whose every word says whose it is.
fn cqe(index: u32) -> Cqe {
    let word = u64::from(index + 1);
    Cqe {
        wr_id: word,
        timestamp: word,
        byte_len: index + 1,
        imm: index + 1,
        qpn: index + 1,
        src_qp: index + 1,
        vendor_err: index + 1,
        wqe_index: index,
        reserved: [word; 2],
        reserved2: index + 1,
        ..Cqe::default()
    }
}

/// Wait for the entry of `index`, and see that it is that of `index` and complete.
fn consume(cq: &CompletionQueue, index: u32) {
    let found = loop {
        if let Some(found) = cq.read(index) {
            break found;
        }
        thread::yield_now();
    };
    assert_eq!(Cqe { owner: 0, ..found }, cqe(index));
}

/// The driver posts `total` WQEs, as many at once as the ring has room for; the device fetches and completes them. A
/// slot is written again as soon as a CQE says that its WQE is retired.
fn post_and_fetch(entries: u32, total: u32) {
    let queue = Arc::new(WorkQueue::new(entries, 64));
    let cq = Arc::new(CompletionQueue::new(total));
    let device = {
        let (queue, cq) = (Arc::clone(&queue), Arc::clone(&cq));
        thread::spawn(move || {
            let mut next = 0;
            while next < total {
                let producer = queue.producer();
                assert!(
                    producer >= next && producer <= total,
                    "index {producer}, which nobody has published"
                );
                if producer == next {
                    thread::yield_now();
                }
                for index in next..producer {
                    let mut fetched = [0; 16];
                    queue.read(index, &mut fetched);
                    assert_eq!(fetched, wqe(index), "WQE {index}");
                    cq.write(index, &cqe(index));
                }
                next = producer;
            }
        })
    };
    let mut retired = 0;
    let mut posted = 0;
    while posted < total {
        if posted - retired == queue.entries() {
            consume(&cq, retired);
            retired += 1;
        }
        while posted < total && posted - retired < queue.entries() {
            queue.write(posted, &wqe(posted));
            posted += 1;
        }
        queue.publish(posted);
    }
    device.join().unwrap();
    for index in retired..total {
        consume(&cq, index);
    }
}

#[test]
fn a_wqe_is_whole_when_its_index_is_published() {
    model(|| post_and_fetch(2, 2));
}

#[test]
fn a_slot_is_reused_once_its_wqe_is_retired() {
    model(|| post_and_fetch(1, 2));
}

#[test]
fn slots_of_a_longer_ring_are_reused_too() {
    model(|| post_and_fetch(2, 3));
}

/// The device completes `total` times as far as the published consumer index leaves room; the driver polls by owner
/// bit and publishes what it has consumed.
fn complete_and_poll(entries: u32, total: u32) {
    let cq = Arc::new(CompletionQueue::new(entries));
    let device = {
        let cq = Arc::clone(&cq);
        thread::spawn(move || {
            for index in 0..total {
                while index - cq.consumer() >= cq.entries() {
                    thread::yield_now();
                }
                cq.write(index, &cqe(index));
            }
        })
    };
    for index in 0..total {
        consume(&cq, index);
        cq.publish_consumer(index + 1);
    }
    device.join().unwrap();
    assert_eq!(cq.read(total), None, "there are no more than were written");
}

#[test]
fn every_cqe_is_polled_once_and_whole() {
    model(|| complete_and_poll(2, 2));
}

#[test]
fn the_owner_bit_tells_laps_apart() {
    model(|| complete_and_poll(1, 3));
}

#[test]
fn two_laps_of_a_longer_ring() {
    // Without a bound it takes ten times as long as all others together.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(4);
    bounded.check(|| complete_and_poll(2, 4));
}

/// The device publishes `solicited.len()` completions one by one and fires events, as a flush does; the driver makes
/// the requests `arms` (whether solicited only) and polls, as `ibv_req_notify_cq` and then `ibv_poll_cq` do.
///
/// Returns how many completions that poll saw, and for each completion whether it fired an event.
fn arm_and_fire(arms: &'static [bool], solicited: &'static [bool], fences: bool) -> (usize, Vec<bool>) {
    let cq = Arc::new(CompletionQueue::new(2));
    let device = {
        let cq = Arc::clone(&cq);
        thread::spawn(move || {
            let complete = |(index, solicited): (u32, &bool)| {
                cq.write(index, &cqe(index));
                if fences {
                    fence(Ordering::SeqCst);
                }
                cq.fire(*solicited)
            };
            (0..).zip(solicited).map(complete).collect()
        })
    };
    for solicited_only in arms {
        cq.arm(*solicited_only);
        if fences {
            fence(Ordering::SeqCst);
        }
    }
    let seen = (0..)
        .zip(solicited)
        .take_while(|(index, _)| cq.read(*index).is_some())
        .count();
    (seen, device.join().unwrap())
}

#[test]
fn a_completion_is_polled_or_fires() {
    model(|| {
        let (seen, fired) = arm_and_fire(&[false], &[false], true);
        assert!(seen == 1 || fired[0], "neither seen nor notified");
    });
}

#[test]
#[should_panic(expected = "neither seen nor notified")]
fn without_the_fences_a_completion_can_be_missed() {
    model(|| {
        let (seen, fired) = arm_and_fire(&[false], &[false], false);
        assert!(seen == 1 || fired[0], "neither seen nor notified");
    });
}

#[test]
fn one_request_gives_one_event() {
    model(|| {
        let (seen, fired) = arm_and_fire(&[false], &[false, false], true);
        let events = fired.iter().filter(|fired| **fired).count();
        assert!(seen == 2 || events == 1, "saw {seen}, {events} events");
        assert!(events <= 1);
    });
}

#[test]
fn only_a_solicited_completion_fires_a_solicited_request() {
    model(|| {
        let (seen, fired) = arm_and_fire(&[true], &[false, true], true);
        assert!(!fired[0]);
        assert!(seen == 2 || fired[1], "neither seen nor notified");
    });
}

#[test]
fn a_request_for_any_completion_replaces_one_for_solicited_ones() {
    model(|| {
        let (seen, fired) = arm_and_fire(&[true, false], &[false], true);
        assert!(seen == 1 || fired[0], "neither seen nor notified");
    });
    model(|| {
        let (seen, fired) = arm_and_fire(&[false, true], &[false], true);
        assert!(seen == 1 || fired[0], "a request for any completion was weakened");
    });
}

/// Threads of the driver post one WQE for each of the QPs given to them, and ring; the device takes what is pending
/// `takes` times meanwhile, and once when they are done. Every QP has then been taken with all that was posted to it.
fn ring_and_take(drivers: &'static [&'static [u16]], takes: usize) {
    let page = Arc::new(DoorbellPage::new());
    let rung: BTreeSet<u16> = drivers.concat().into_iter().collect();
    // Stands for the producer index, with no ordering of its own.
    let posted: Arc<BTreeMap<u16, AtomicU32>> = Arc::new(rung.iter().map(|qp| (*qp, AtomicU32::new(0))).collect());
    let mut threads = Vec::new();
    for qps in drivers {
        let (page, posted) = (Arc::clone(&page), Arc::clone(&posted));
        threads.push(thread::spawn(move || {
            for qp in *qps {
                posted[qp].fetch_add(1, Ordering::Relaxed);
                page.ring(u32::from(*qp));
            }
        }));
    }
    let mut fetched = BTreeMap::new();
    let mut take = || {
        let mut last = None;
        page.take(|qp| {
            assert!(last < Some(qp), "QP {qp} after {last:?}");
            last = Some(qp);
            fetched.insert(qp, posted[&qp].load(Ordering::Relaxed));
        });
    };
    for _ in 0..takes {
        take();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    take();
    for qp in rung {
        let expected = drivers.concat().iter().filter(|other| **other == qp).count();
        assert_eq!(fetched.remove(&qp).map(usize::try_from), Some(Ok(expected)), "QP {qp}");
    }
    assert!(fetched.is_empty(), "QPs that were never rung");
    assert!(!page.is_pending());
}

#[test]
fn a_qp_that_rings_again_is_taken_again() {
    model(|| ring_and_take(&[&[3, 3]], 2));
}

#[test]
fn rings_of_one_word_are_not_lost() {
    model(|| ring_and_take(&[&[3], &[4]], 1));
}

#[test]
fn rings_of_two_words_are_not_lost() {
    model(|| ring_and_take(&[&[3, 64]], 2));
    model(|| ring_and_take(&[&[3], &[64]], 1));
}

#[test]
fn two_threads_ring_one_qp() {
    model(|| ring_and_take(&[&[3], &[3]], 1));
}
