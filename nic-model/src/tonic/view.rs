//! What a program may look at: a read-only view of its flow.

use super::delivery::Delivery;
use super::delivery::incoming::Outcome;
use super::segments::SegmentState;
use super::{FlowParams, SegNo};
use crate::time::{Duration, Time};

/// Where the oldest un-acknowledged segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It was never sent: nothing is in flight.
    Unsent,
    /// Sent once.
    Sent,
    /// Marked as lost, or its retransmission waits in the ring.
    Waiting,
    /// Retransmitted at this instant (since it became the oldest).
    Resent(Time),
}

/// A flow as its program sees it.
#[derive(Clone, Copy, Debug)]
pub struct FlowView<'a> {
    pub(super) now: Time,
    pub(super) flow: &'a Delivery,
    pub(super) params: &'a FlowParams,
    pub(super) segments: Option<&'a SegmentState>,
    pub(super) outcome: Outcome,
}

impl FlowView<'_> {
    /// The instant of the event.
    #[inline]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// First un-acknowledged segment, after this event.
    #[inline]
    pub const fn una(&self) -> SegNo {
        self.flow.una
    }

    /// First un-acknowledged segment before this event.
    #[inline]
    pub const fn old_una(&self) -> SegNo {
        self.outcome.old_una
    }

    /// Next segment that was never generated.
    #[inline]
    pub const fn next_new(&self) -> SegNo {
        self.flow.next_new
    }

    /// One past the highest segment that was sent; `[una, sent_end)` is in flight, lost or acknowledged selectively.
    #[inline]
    pub const fn sent_end(&self) -> SegNo {
        self.flow.sent_end
    }

    /// Present window in segments.
    #[inline]
    pub const fn window(&self) -> u16 {
        self.flow.window
    }

    /// Largest window in segments.
    #[inline]
    pub const fn max_window(&self) -> u16 {
        self.flow.max_window
    }

    /// Segments this event acknowledged cumulatively that were not acknowledged selectively before.
    #[inline]
    pub const fn newly_acked(&self) -> u16 {
        self.outcome.newly_acked
    }

    /// Whether this event's selective acknowledgement is inside the window and new.
    #[inline]
    pub const fn newly_sacked(&self) -> bool {
        self.outcome.newly_sacked
    }

    /// Round-trip sample this event gave: one segment is timed at a time, never a retransmitted one.
    #[inline]
    pub fn rtt_sample(&self) -> Option<Duration> {
        match self.outcome.rtt_sample {
            0 => None,
            nanos => Some(Duration::from_nanos(u64::from(nanos))),
        }
    }

    /// Smoothed round trip.
    #[inline]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        match self.flow.rtt.smoothed {
            0 => None,
            nanos => Some(Duration::from_nanos(u64::from(nanos))),
        }
    }

    /// Transmissions so far, retransmissions included.
    #[inline]
    pub const fn total_sent(&self) -> u64 {
        self.flow.total_sent
    }

    /// Segments that wait for credit.
    #[inline]
    pub const fn outstanding(&self) -> u16 {
        self.flow.ring.len()
    }

    /// Length of the retransmission timer, `None` for never.
    pub fn timeout(&self) -> Option<Duration> {
        self.flow.timer.length()
    }

    /// What does not change while the flow lives.
    #[inline]
    pub const fn params(&self) -> &FlowParams {
        self.params
    }

    /// Whether `seg`, at or above [`una`](Self::una), was acknowledged selectively.
    pub fn is_acked(&self, seg: SegNo) -> bool {
        self.in_window(seg) && self.segments.is_some_and(|segments| segments.acked.get(seg))
    }

    /// Whether `seg` is marked as lost and waits for its turn.
    pub fn is_marked(&self, seg: SegNo) -> bool {
        self.in_window(seg) && self.segments.is_some_and(|segments| segments.marked.get(seg))
    }

    /// Number of retransmissions of `seg`, saturating at 3.
    pub fn transmission(&self, seg: SegNo) -> u8 {
        if self.in_window(seg) {
            self.segments.map_or(0, |segments| segments.transmission(seg))
        } else {
            0
        }
    }

    /// First segment at or above `from` that was acknowledged selectively.
    pub fn first_acked(&self, from: SegNo) -> Option<SegNo> {
        let from = from.max(self.una());
        self.segments?
            .acked
            .first_from(from)
            .filter(|&seg| seg < self.sent_end())
    }

    /// Last segment below `below` that was acknowledged selectively.
    pub fn last_acked(&self, below: SegNo) -> Option<SegNo> {
        self.segments?.acked.last_below(self.una(), below.min(self.sent_end()))
    }

    /// Segments of `[start, end)` that were acknowledged selectively.
    pub fn count_acked(&self, start: SegNo, end: SegNo) -> u64 {
        let (start, end) = (start.max(self.una()), end.min(self.sent_end()));
        self.segments
            .map_or(0, |segments| segments.acked.count_range(start, end))
    }

    /// Where the oldest un-acknowledged segment is.
    pub fn head(&self) -> Head {
        let una = self.una();
        if una >= self.sent_end() {
            return Head::Unsent;
        }
        let queued = self
            .flow
            .ring
            .front()
            .is_some_and(|run| run.transmission > 0 && run.first <= una);
        if queued || self.is_marked(una) {
            return Head::Waiting;
        }
        match self.flow.head_resent {
            Time::NEVER => Head::Sent,
            at => Head::Resent(at),
        }
    }

    fn in_window(&self, seg: SegNo) -> bool {
        (self.una()..self.next_new()).contains(&seg)
    }
}
