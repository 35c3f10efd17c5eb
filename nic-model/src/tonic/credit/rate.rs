//! Rate scheme: exact lazy credit (tonic.md §1.5 and §1.9 without its quantisation).
//!
//! Credit is counted in units of 10⁻⁹ bit, so a rate of R bits a second earns exactly R units each nanosecond and a
//! byte costs 8·10⁹ units: no rounding at any rate, for segments of any length. Only the wait for missing credit is
//! rounded up to the next nanosecond, and what was earned too much by that stays in the account.
//!
//! A flow that waits becomes ready when it can send a burst that lasts [`Pacing::burst`], so that bursts form; with
//! a burst of zero every segment goes alone. A late poll finds what was earned meanwhile, up to
//! [`Pacing::lateness`]; an idle flow keeps no more than one burst.

use super::Verdict;
use crate::time::{Duration, Time};

const UNITS_PER_BYTE: u64 = 8_000_000_000;
/// Wire bytes of a segment beyond its payload: UDP/IPv6, BTH, longest extension headers, ICRC.
const OVERHEAD: u64 = 128;

/// Larger segments than this are counted as this large when bursts are sized.
const MAX_SEGMENT: u32 = 1 << 20;

/// Units of `length` bytes, a segment of at least one byte.
const fn cost(length: u32) -> u64 {
    (if length == 0 { 1 } else { length as u64 }).saturating_mul(UNITS_PER_BYTE)
}

/// How rate-limited flows form bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    pub(crate) burst: Duration,
    pub(crate) lateness: Duration,
    pub(crate) quantum: u16,
}

/// Credit of one flow. A rate of 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateCredit {
    bps: u64,
    /// Units earned up to `updated`.
    credit: u64,
    updated: Time,
    /// Units the head of the ring waits for, 0 when nothing waits.
    need: u64,
    /// Units kept for a late poll.
    slack: u64,
    last_cost: u64,
    segment_size: u32,
    /// Segments of a burst at this rate.
    burst: u16,
    last_count: u16,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl RateCredit {
    pub(super) fn new(segment_size: u32, bps: u64, pacing: Pacing, now: Time) -> Self {
        let mut rate = Self {
            bps: 0,
            credit: 0,
            updated: now,
            need: 0,
            slack: 0,
            last_cost: 0,
            segment_size: segment_size.clamp(1, MAX_SEGMENT),
            burst: 1,
            last_count: 0,
        };
        rate.set_rate(now, bps, pacing);
        rate
    }

    #[inline]
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.bps == 0
    }

    /// Bits a second, 0 for no limit.
    pub(crate) const fn rate(&self) -> u64 {
        self.bps
    }

    fn segment_units(&self) -> u64 {
        (u64::from(self.segment_size) + OVERHEAD) * UNITS_PER_BYTE
    }

    /// Changes the rate now: what was earned so far was earned at the old rate, a pending wait is rescaled. Answers
    /// the new end of that wait.
    pub(crate) fn set_rate(&mut self, now: Time, bps: u64, pacing: Pacing) -> Option<Verdict> {
        self.accrue(now);
        self.bps = bps;
        if bps == 0 {
            self.credit = 0;
            return (core::mem::take(&mut self.need) > 0).then_some(Verdict::Ready);
        }
        let full = u64::from(self.segment_size) * UNITS_PER_BYTE;
        let lasting = bps.saturating_mul(nanos(pacing.burst)) / full;
        let old = core::mem::replace(&mut self.burst, 1);
        self.burst = u16::try_from(lasting)
            .unwrap_or(u16::MAX)
            .clamp(1, pacing.quantum.max(1));
        self.slack = bps.saturating_mul(nanos(pacing.lateness).max(1));
        if self.need == 0 {
            return None;
        }
        if self.burst < old {
            // A shorter burst is enough now.
            self.need = self.need.min(u64::from(self.burst) * self.segment_units());
        }
        Some(self.wait())
    }

    /// Adds what was earned since the last update.
    fn accrue(&mut self, now: Time) {
        let earned = self.bps.saturating_mul(now.0.saturating_sub(self.updated.0));
        self.updated = self.updated.max(now);
        let most = match self.need {
            0 => u64::from(self.burst) * self.segment_units(),
            need => need.saturating_add(self.slack),
        };
        // Credit above the cap was put there by a refund or a higher cap; it is not taken away.
        self.credit = self.credit.max(self.credit.saturating_add(earned).min(most));
    }

    fn wait(&self) -> Verdict {
        let missing = self.need.saturating_sub(self.credit);
        if missing == 0 {
            return Verdict::Ready;
        }
        Verdict::At(Time(self.updated.0.saturating_add(missing.div_ceil(self.bps))))
    }

    /// Whether a burst of up to `queued` segments, the first of `length` bytes, may start.
    pub(super) fn verdict(&mut self, now: Time, queued: u16, length: u32) -> Verdict {
        self.accrue(now);
        self.need = cost(length).saturating_mul(u64::from(queued.min(self.burst)));
        let verdict = self.wait();
        if verdict == Verdict::Ready {
            self.need = 0;
        }
        verdict
    }

    /// Pays for up to `most` segments.
    pub(super) fn spend(&mut self, now: Time, first: u64, most: u16, length: &mut dyn FnMut(u64) -> u32) -> u16 {
        self.accrue(now);
        self.need = 0;
        self.last_cost = 0;
        let mut count = 0;
        while count < most {
            let cost = cost(length(first + u64::from(count)));
            if cost > self.credit {
                break;
            }
            self.credit -= cost;
            self.last_cost += cost;
            count += 1;
        }
        self.last_count = count;
        count
    }

    pub(super) fn refund(&mut self, count: u16) {
        let count = count.min(self.last_count);
        if count > 0 {
            let back = self.last_cost / u64::from(self.last_count) * u64::from(count);
            self.credit += back;
            self.last_cost -= back;
            self.last_count -= count;
        }
    }

    pub(super) const fn stop_waiting(&mut self) {
        self.need = 0;
    }
}
