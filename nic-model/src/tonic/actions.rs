//! What a program answers to an event. The engines clamp every value, so no answer can break their invariants.

use super::SegNo;
use crate::time::{Duration, Time};
use core::ops::Range;

/// Ranges of lost segments one event may mark.
pub const MAX_MARKS: usize = 4;

/// Change of the retransmission timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerAction {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Start it again with its present length; nothing un-acknowledged in flight stops it.
    Reset,
    /// Give it a new length and start it again.
    ResetTo(Duration),
    /// Stop it until the next transmission.
    Disarm,
    /// Double its length (until the next `ResetTo` or progress) and start it again.
    Backoff,
}

/// Change of the sending rate. It reaches the credit engine at once and rescales a pending wait for credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateAction {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Limit to this many bits a second.
    Set(u64),
    /// No limit: the link itself is the limiter.
    Unlimited,
}

/// Change of the program's next visit by [`periodic`](super::TransportProgram::periodic).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisitAction {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Visit at this instant (not before the next nanosecond).
    At(Time),
    /// No visit.
    Never,
}

/// Ranges of segments marked as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    ranges: [(SegNo, SegNo); MAX_MARKS],
    used: u8,
}

impl Marks {
    /// Adds the half-open `range`; an empty or backward one adds nothing. A fifth range is merged into the fourth.
    pub fn add(&mut self, range: Range<SegNo>) {
        if range.start >= range.end {
            return;
        }
        let used = usize::from(self.used);
        if used < MAX_MARKS {
            self.ranges[used] = (range.start, range.end);
            self.used += 1;
        } else {
            let last = &mut self.ranges[MAX_MARKS - 1];
            *last = (last.0.min(range.start), last.1.max(range.end));
        }
    }

    /// The ranges, `(start, end)`.
    #[inline]
    pub fn ranges(&self) -> &[(SegNo, SegNo)] {
        &self.ranges[..usize::from(self.used)]
    }
}

/// The answer of a program to one event. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Segments to send again. What was acknowledged stays so, and parts outside what was sent are ignored.
    pub marks: Marks,
    /// New window in segments from the first un-acknowledged one.
    pub window: Option<u16>,
    /// Sending rate (rate credit schemes).
    pub rate: RateAction,
    /// Segments of extra credit (grant scheme), for instance after a timeout.
    pub grant: u16,
    /// Retransmission timer.
    pub timer: TimerAction,
    /// Next visit of the program.
    pub visit: VisitAction,
}
