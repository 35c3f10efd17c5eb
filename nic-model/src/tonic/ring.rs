//! The ring of outstanding segment addresses between the two engines (tonic.md §1.2).
//!
//! Holds up to N addresses that the data delivery engine has generated and the credit engine has not sent. Addresses
//! are kept as runs of neighbours with the same transmission id, so a burst costs as much as one segment. Runs are
//! ascending: whoever marks segments as lost first recalls the ring, so a retransmission never queues behind new data.

use super::SegNo;

const RUNS: usize = 4;

/// Neighbouring segments with one transmission id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: SegNo,
    pub(crate) count: u16,
    /// Number of earlier transmissions, saturating.
    pub(crate) transmission: u8,
}

impl Run {
    /// One past the last segment.
    #[inline]
    pub(crate) const fn end(&self) -> SegNo {
        self.first + self.count as u64
    }
}

/// A run in one word, so that what was just written is read back without a stall: low half of the first segment
/// (the rest follows from the end of the ring), count, transmission id.
#[derive(Clone, Copy, Debug, Default)]
struct Slot(u64);

impl Slot {
    #[inline]
    const fn new(run: &Run) -> Self {
        Self(run.first << 32 | (run.count as u64) << 16 | run.transmission as u64)
    }

    #[inline]
    const fn first(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    const fn count(self) -> u16 {
        (self.0 >> 16 & 0xffff) as u16
    }

    #[inline]
    const fn transmission(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// Moves the start by `count` segments.
    #[inline]
    const fn advance(self, count: u16) -> Self {
        let first = self.first().wrapping_add(count as u32);
        Self((first as u64) << 32 | ((self.count() - count) as u64) << 16 | self.transmission() as u64)
    }
}

/// Generated and unsent segments of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendRing {
    slots: [Slot; RUNS],
    /// One past the last queued segment.
    end: SegNo,
    segments: u16,
    head: u8,
    used: u8,
}

impl SendRing {
    /// Number of queued segments.
    #[inline]
    pub(crate) const fn len(&self) -> u16 {
        self.segments
    }

    /// Whether nothing is queued.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Whether another run fits, whatever it is.
    #[inline]
    pub(crate) const fn has_slot(&self) -> bool {
        (self.used as usize) < RUNS
    }

    #[inline]
    const fn index(&self, position: u8) -> usize {
        (self.head.wrapping_add(position)) as usize % RUNS
    }

    /// Appends a run that lies after all queued ones. The caller has checked [`has_slot`](Self::has_slot).
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        debug_assert!(self.has_slot() && (self.is_empty() || run.first >= self.end));
        if self.used > 0 {
            let last = self.index(self.used - 1);
            if self.end == run.first && self.slots[last].transmission() == run.transmission {
                self.slots[last].0 += u64::from(run.count) << 16;
                self.segments += run.count;
                self.end = run.end();
                return;
            }
        }
        let at = self.index(self.used);
        self.slots[at] = Slot::new(&run);
        self.used += 1;
        self.segments += run.count;
        self.end = run.end();
    }

    /// The oldest run.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "differences of low halves are exact below 2^32"
    )]
    pub(crate) fn front(&self) -> Option<Run> {
        if self.used == 0 {
            return None;
        }
        let slot = self.slots[self.index(0)];
        let first = self.end - u64::from((self.end as u32).wrapping_sub(slot.first()));
        Some(Run {
            first,
            count: slot.count(),
            transmission: slot.transmission(),
        })
    }

    /// Removes the first `count` segments of the oldest run.
    #[inline]
    pub(crate) fn take(&mut self, count: u16) {
        let at = self.index(0);
        let slot = self.slots[at];
        debug_assert!(self.used > 0 && count <= slot.count());
        self.segments -= count;
        self.slots[at] = slot.advance(count);
        if slot.count() == count {
            self.head = self.head.wrapping_add(1) % 4;
            self.used -= 1;
        }
    }

    /// Drops segments below `una`: they were acknowledged while they waited.
    #[inline]
    pub(crate) fn trim(&mut self, una: SegNo) {
        while let Some(run) = self.front() {
            if run.first >= una {
                break;
            }
            let count = (una - run.first).min(u64::from(run.count));
            self.take(u16::try_from(count).unwrap_or(run.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_bursts_leave_in_order() {
        let mut ring = SendRing::default();
        let base = (1 << 32) - 3;
        ring.push(Run {
            first: base,
            count: 2,
            transmission: 0,
        });
        ring.push(Run {
            first: base + 2,
            count: 5,
            transmission: 0,
        });
        ring.push(Run {
            first: base + 9,
            count: 1,
            transmission: 1,
        });
        assert_eq!(ring.len(), 8);
        assert_eq!(
            ring.front(),
            Some(Run {
                first: base,
                count: 7,
                transmission: 0
            })
        );
        ring.take(4);
        assert_eq!(
            ring.front(),
            Some(Run {
                first: base + 4,
                count: 3,
                transmission: 0
            })
        );
        ring.trim(base + 9);
        assert_eq!(
            ring.front(),
            Some(Run {
                first: base + 9,
                count: 1,
                transmission: 1
            })
        );
        ring.take(1);
        assert!(ring.is_empty() && ring.front().is_none());
    }
}
