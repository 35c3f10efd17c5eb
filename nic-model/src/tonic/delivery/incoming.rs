//! Incoming, stage 0 (fixed function): moves the window and records selective acknowledgements.
//!
//! Refused before anything moves: acknowledgements of segments that were never sent, and refusals or
//! acknowledgements older than the window head.

use super::super::event::Incoming;
use super::super::segments::SegmentPool;
use super::Delivery;
use super::apply::recall;
use crate::time::Time;

/// What stage 0 tells the program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) old_una: u64,
    /// Segments that left the window and had not been acknowledged selectively.
    pub(crate) newly_acked: u16,
    /// The selective acknowledgement is inside the window and new.
    pub(crate) newly_sacked: bool,
    /// Round-trip sample in nanoseconds, 0 for none.
    pub(crate) rtt_sample: u32,
}

/// Runs stage 0; `None` when the event must not reach the program.
#[inline]
pub(crate) fn stage0(flow: &mut Delivery, pool: &mut SegmentPool, now: Time, event: &Incoming) -> Option<Outcome> {
    let mut outcome = Outcome {
        old_una: flow.una,
        ..Outcome::default()
    };
    let Some(cum) = event.cumulative() else {
        return Some(outcome);
    };
    if cum > flow.sent_end || !flow.reliable {
        return None;
    }
    if cum < flow.una
        && matches!(
            event,
            Incoming::Ack { .. } | Incoming::Nack { .. } | Incoming::Delay { .. }
        )
    {
        return None;
    }
    if cum > flow.una {
        let moved = cum - flow.una;
        let sacked = pool
            .get_mut(flow.block)
            .map_or(0, |segments| segments.clear(flow.una, cum));
        pool.release_if_clear(&mut flow.block);
        flow.una = cum;
        flow.head_resent = Time::NEVER;
        flow.ring.trim(cum);
        outcome.newly_acked = u16::try_from(moved - sacked).unwrap_or(u16::MAX);
        outcome.rtt_sample = flow.rtt.finish(cum, now).unwrap_or(0);
        flow.timer.progress();
    }
    if let Incoming::Sack { seg, .. } = *event
        && seg > flow.una
        && seg < flow.sent_end
    {
        let repairs = flow
            .ring
            .front()
            .is_some_and(|run| run.transmission > 0 && run.first <= seg);
        let segments = pool.hold(&mut flow.block);
        outcome.newly_sacked = !segments.acked.get(seg);
        segments.acked.set_range(seg, seg + 1);
        segments.marked.clear_range(seg, seg + 1);
        if repairs {
            // Its retransmission may be among those that wait for credit.
            recall(flow, pool);
        }
    }
    Some(outcome)
}
