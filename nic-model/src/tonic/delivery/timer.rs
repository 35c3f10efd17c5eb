//! Retransmission timer (fixed function) in two stages: early probes, then the ACK timeout.
//!
//! The timer is started by a transmission when it is not running, started again by the program, and stopped when
//! nothing is un-acknowledged in flight. ACK timeouts of verbs are long (67 ms is usual), so a flow may ask for early
//! probes: after `max(8 × smoothed RTT, 1 ms)` without progress, and again each time the wait has doubled, the
//! program is woken to try again without the device hearing of a timeout. Only the end of the ACK timeout is reported.

use super::super::timers::{Kind, Timers};
use super::super::{FlowId, SegNo};
use crate::time::{Duration, Time};

const PROBE_MIN: u64 = 1_000_000;
/// Wait for the first probe while no round trip has been measured.
const PROBE_UNMEASURED: u64 = 2_000_000;
/// A probe wait doubles at most this often.
const PROBE_DOUBLINGS: u8 = 10;
const MAX_BACKOFF: u8 = 16;

/// What the end of a stage means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    /// Nothing: the timer does not run.
    Nothing,
    /// Early probe; the next stage has been started.
    Probe,
    /// ACK timeout; the timer has stopped.
    Timeout,
}

/// State of one flow's timer. `Timers` holds the deadline of the present stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetransmitTimer {
    /// Length of the ACK timeout in nanoseconds, `u64::MAX` for never.
    length: u64,
    /// End of the ACK timeout while running.
    expiry: Time,
    early: bool,
    running: bool,
    /// The stage that runs now is the last.
    last_stage: bool,
    /// Probes since the last progress.
    probes: u8,
    backoff: u8,
}

impl RetransmitTimer {
    pub(crate) fn new(timeout: Option<Duration>, early: bool) -> Self {
        let mut timer = Self {
            length: u64::MAX,
            expiry: Time::NEVER,
            early,
            running: false,
            last_stage: false,
            probes: 0,
            backoff: 0,
        };
        timer.set_length(timeout);
        timer
    }

    #[inline]
    pub(crate) const fn is_running(&self) -> bool {
        self.running
    }

    /// Length of the ACK timeout, back-off included.
    pub(crate) fn length(&self) -> Option<Duration> {
        (self.length != u64::MAX).then(|| Duration::from_nanos(self.backed_off()))
    }

    pub(crate) fn set_length(&mut self, timeout: Option<Duration>) {
        self.length = timeout.map_or(u64::MAX, |length| {
            u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1)
        });
        self.backoff = 0;
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// The window head moved or the peer showed that it is at work.
    #[inline]
    pub(crate) const fn progress(&mut self) {
        self.probes = 0;
        self.backoff = 0;
    }

    fn backed_off(&self) -> u64 {
        self.length.saturating_mul(1 << self.backoff)
    }

    /// Wait for the next probe. Rounded up to 1 or 1.5 times a power of two of half milliseconds, so that flows
    /// share few lengths.
    #[inline]
    fn probe_wait(&self, smoothed_rtt: u32) -> u64 {
        let wait = match smoothed_rtt {
            0 => PROBE_UNMEASURED,
            rtt => u64::from(rtt) * 8,
        };
        if wait <= PROBE_MIN {
            return PROBE_MIN << self.probes.min(PROBE_DOUBLINGS);
        }
        let units = wait.div_ceil(PROBE_MIN / 2);
        let power = units.next_power_of_two();
        let rounded = if units <= power / 4 * 3 { power / 4 * 3 } else { power };
        (rounded * (PROBE_MIN / 2)) << self.probes.min(PROBE_DOUBLINGS)
    }

    /// Starts the timer at `now`, whether or not it runs.
    #[inline]
    pub(crate) fn start(&mut self, timers: &mut Timers, id: FlowId, now: Time, smoothed_rtt: u32) {
        let length = self.backed_off();
        self.expiry = Time(now.0.saturating_add(length));
        self.running = true;
        self.stage(timers, id, now, smoothed_rtt, length);
    }

    #[inline]
    fn stage(&mut self, timers: &mut Timers, id: FlowId, now: Time, smoothed_rtt: u32, left: u64) {
        let wait = if self.early {
            self.probe_wait(smoothed_rtt)
        } else {
            u64::MAX
        };
        self.last_stage = wait >= left;
        if !self.last_stage {
            timers.start(id, now, wait);
        } else if left == u64::MAX {
            timers.cancel(id, Kind::Delivery);
        } else if left == self.length {
            timers.start(id, now, left);
        } else {
            timers.set(id, Kind::Delivery, self.expiry);
        }
    }

    /// Stops the timer.
    #[inline]
    pub(crate) fn stop(&mut self, timers: &mut Timers, id: FlowId) {
        if self.running {
            self.running = false;
            timers.cancel(id, Kind::Delivery);
        }
    }

    /// The present stage has ended.
    pub(crate) fn fire(&mut self, timers: &mut Timers, id: FlowId, now: Time, smoothed_rtt: u32) -> Fired {
        if !self.running {
            return Fired::Nothing;
        }
        if self.last_stage || now >= self.expiry {
            self.running = false;
            return Fired::Timeout;
        }
        self.probes = (self.probes + 1).min(PROBE_DOUBLINGS);
        let left = if self.expiry == Time::NEVER {
            u64::MAX
        } else {
            self.expiry.0 - now.0
        };
        self.stage(timers, id, now, smoothed_rtt, left);
        Fired::Probe
    }
}

/// Whether anything un-acknowledged is in flight.
#[inline]
pub(crate) const fn in_flight(una: SegNo, sent_end: SegNo) -> bool {
    una < sent_end
}
