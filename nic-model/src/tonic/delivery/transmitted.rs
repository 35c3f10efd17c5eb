//! Segment transmitted (fixed function): bookkeeping when a burst leaves the credit engine.

use super::super::ring::Run;
use super::super::segments::SegmentPool;
use super::Delivery;
use crate::time::Time;

/// Accounts for `sent`, which is no longer in the ring; answers whether the retransmission timer must be started.
#[inline]
pub(crate) fn transmitted(flow: &mut Delivery, pool: &mut SegmentPool, now: Time, sent: Run) -> bool {
    flow.total_sent += u64::from(sent.count);
    flow.sent_end = flow.sent_end.max(sent.end());
    if !flow.reliable {
        flow.una = flow.una.max(sent.end());
        return false;
    }
    if sent.transmission > 0 {
        flow.retransmitted += u64::from(sent.count);
        if sent.first <= flow.una && flow.una < sent.end() {
            flow.head_resent = now;
        }
    } else if pool.get(flow.block).is_none_or(|segments| segments.marked.is_empty()) {
        flow.rtt.start(sent.end() - 1, now);
    }
    !flow.timer.is_running()
}
