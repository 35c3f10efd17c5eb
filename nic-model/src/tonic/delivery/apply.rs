//! Incoming, stage 1 (fixed function): carries out what the program answered about segments.
//!
//! Before anything is marked the ring is recalled: addresses that wait for credit go back to where they came from,
//! retransmissions to the marks and never-sent segments to `next_new`. So what is lost is sent before what is new,
//! and nothing is sent twice because it was both queued and marked.

use super::super::SegNo;
use super::super::segments::{MAX_TRANSMISSION, SegmentPool};
use super::Delivery;

/// Marks `ranges` as lost, clamped to what was sent and is not acknowledged; answers whether any segment is marked.
pub(crate) fn mark(flow: &mut Delivery, pool: &mut SegmentPool, ranges: &[(SegNo, SegNo)]) -> bool {
    if !flow.reliable {
        return false;
    }
    let mut any = false;
    for &(start, end) in ranges {
        let (start, end) = (start.max(flow.una), end.min(flow.sent_end));
        if start >= end {
            continue;
        }
        recall(flow, pool);
        let segments = pool.hold(&mut flow.block);
        segments.mark(start, end);
        any |= !segments.marked.is_empty();
    }
    if any {
        flow.rtt.cancel();
    }
    pool.release_if_clear(&mut flow.block);
    any
}

/// Empties the ring.
pub(crate) fn recall(flow: &mut Delivery, pool: &mut SegmentPool) {
    while let Some(run) = flow.ring.front() {
        flow.ring.take(run.count);
        if run.transmission > 0 {
            remark(flow, pool, run.first, run.end(), run.transmission);
        }
    }
    flow.next_new = flow.sent_end;
}

/// Marks segments whose retransmission `transmission` was generated and not sent.
fn remark(flow: &mut Delivery, pool: &mut SegmentPool, start: SegNo, end: SegNo, transmission: u8) {
    let start = start.max(flow.una);
    if start >= end {
        return;
    }
    let segments = pool.hold(&mut flow.block);
    segments.mark(start, end);
    if transmission < MAX_TRANSMISSION {
        segments.set_transmission(start, end, transmission.saturating_sub(1));
    }
}

/// Takes back `[first, end)`, which left the credit engine and was not sent after all.
pub(crate) fn returned(flow: &mut Delivery, pool: &mut SegmentPool, first: SegNo, end: SegNo) {
    let end = end.min(flow.sent_end);
    if first >= end {
        return;
    }
    recall(flow, pool);
    if !flow.reliable {
        flow.una = flow.una.min(first);
    }
    let transmission = pool.get(flow.block).map_or(0, |segments| segments.transmission(first));
    if transmission == 0 && end == flow.sent_end && first >= flow.una {
        if let Some(segments) = pool.get_mut(flow.block) {
            segments.clear(first, end);
        }
        pool.release_if_clear(&mut flow.block);
        flow.sent_end = first;
        flow.next_new = first;
        if flow.rtt.seg >= first {
            flow.rtt.cancel();
        }
    } else {
        remark(flow, pool, first, end, transmission);
    }
    flow.total_sent = flow.total_sent.saturating_sub(end - first);
    if transmission > 0 {
        flow.retransmitted = flow.retransmitted.saturating_sub(end - first);
    }
}
