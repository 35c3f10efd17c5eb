//! Data delivery engine: which segment next (tonic.md §1.3).
//!
//! One file for each event module: [`incoming`] (fixed stage 0, before the program), [`apply`] (fixed stage 1, after
//! it), [`generate`], [`transmitted`], [`timer`] (retransmission timer and the visits of periodic updates).
//!
//! Invariants: `una <= sent_end <= next_new`; never-sent segments in the ring are exactly `[sent_end, next_new)`;
//! `next_new <= una + 1024`; the timer runs only while `una < sent_end`.

pub(crate) mod apply;
pub(crate) mod generate;
pub(crate) mod incoming;
pub(crate) mod timer;
pub(crate) mod transmitted;

use super::SegNo;
use super::ring::SendRing;
use super::segments::Block;
use crate::time::Time;
use timer::RetransmitTimer;

/// Fixed state of one flow in the data delivery engine.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// First un-acknowledged segment (the paper's wnd-start).
    pub(crate) una: SegNo,
    /// Next segment to generate for the first time.
    pub(crate) next_new: SegNo,
    /// One past the highest segment that left the credit engine.
    pub(crate) sent_end: SegNo,
    /// Segments below this may be sent.
    pub(crate) available: SegNo,
    /// Allowed segments from `una`.
    pub(crate) window: u16,
    /// Upper bound of `window`.
    pub(crate) max_window: u16,
    /// Segments of one turn.
    pub(crate) quantum: u16,
    /// Acknowledged at transmission when false.
    pub(crate) reliable: bool,
    pub(crate) block: Block,
    pub(crate) ring: SendRing,
    pub(crate) timer: RetransmitTimer,
    pub(crate) rtt: RttProbe,
    /// When `una` was last retransmitted, `NEVER` if it was not since it became the oldest.
    pub(crate) head_resent: Time,
    /// Transmissions, retransmissions included.
    pub(crate) total_sent: u64,
    pub(crate) retransmitted: u64,
}

/// One round-trip sample at a time, dropped when anything is retransmitted (Karn).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttProbe {
    seg: SegNo,
    sent: Time,
    /// Smoothed round trip in nanoseconds, 0 before the first sample.
    pub(crate) smoothed: u32,
}

impl RttProbe {
    pub(crate) const fn new() -> Self {
        Self {
            seg: 0,
            sent: Time::NEVER,
            smoothed: 0,
        }
    }

    /// Starts timing `seg` unless another segment is being timed.
    #[inline]
    pub(crate) fn start(&mut self, seg: SegNo, now: Time) {
        if self.sent == Time::NEVER {
            *self = Self {
                seg,
                sent: now,
                ..*self
            };
        }
    }

    /// Forgets the segment being timed.
    pub(crate) const fn cancel(&mut self) {
        self.sent = Time::NEVER;
    }

    /// Takes the sample if `una` shows that the segment arrived; RFC 6298 smoothing.
    #[inline]
    pub(crate) fn finish(&mut self, una: SegNo, now: Time) -> Option<u32> {
        if self.sent == Time::NEVER || una <= self.seg {
            return None;
        }
        let sample = u32::try_from(now.0.saturating_sub(self.sent.0))
            .unwrap_or(u32::MAX)
            .max(1);
        self.sent = Time::NEVER;
        self.smoothed = match self.smoothed {
            0 => sample,
            old => old - old / 8 + sample / 8,
        };
        Some(sample)
    }
}
