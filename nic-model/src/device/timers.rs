//! Timers of QPs other than Tonic's: RNR waits.

use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines by QP index. A QP may have stale entries; it ignores those that are not its current deadline.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Time, u16)>>);

impl Timers {
    pub(super) fn set(&mut self, at: Time, qp: u16) {
        self.0.push(Reverse((at, qp)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// The next expired entry.
    pub(super) fn pop(&mut self, now: Time) -> Option<u16> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, qp))| qp)
    }
}
