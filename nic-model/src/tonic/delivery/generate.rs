//! Segment generation (fixed function): the oldest lost segments first, then new ones.
//!
//! One turn generates neighbours of one kind, up to the quantum, the room in the ring, the window and what is
//! available. A window that shrank leaves marks beyond it waiting; they are eligible again when it opens.

use super::super::SegNo;
use super::super::ring::Run;
use super::super::segments::{MAX_TRANSMISSION, SegmentPool};
use super::Delivery;

impl Delivery {
    #[inline]
    fn window_end(&self) -> SegNo {
        self.una + u64::from(self.window)
    }

    /// Whether a turn of generation would produce a segment, given room in the ring.
    #[inline]
    pub(crate) fn has_work(&self, pool: &SegmentPool) -> bool {
        if self.next_new < self.available && self.next_new < self.window_end() {
            return true;
        }
        pool.get(self.block)
            .and_then(|segments| segments.marked.first_from(self.una))
            .is_some_and(|seg| seg < self.window_end())
    }

    /// Whether the ring takes more addresses.
    #[inline]
    pub(crate) const fn has_room(&self, ring: u16) -> bool {
        self.ring.len() < ring && self.ring.has_slot()
    }
}

/// Runs one turn; answers the generated run, which the caller puts in the ring or sends at once.
#[inline]
pub(crate) fn generate(flow: &mut Delivery, pool: &mut SegmentPool, ring: u16) -> Option<Run> {
    if !flow.has_room(ring) {
        return None;
    }
    let most = u64::from(flow.quantum.min(ring - flow.ring.len()));
    let end = flow.window_end();
    if let Some(segments) = pool.get_mut(flow.block)
        && let Some(first) = segments.marked.first_from(flow.una)
    {
        if first >= end {
            return None;
        }
        let count = segments.marked_run(first, most.min(end - first));
        let transmission = (segments.transmission(first) + 1).min(MAX_TRANSMISSION);
        segments.marked.clear_range(first, first + count);
        segments.set_transmission(first, first + count, transmission);
        let count = u16::try_from(count).unwrap_or(0);
        return Some(Run {
            first,
            count,
            transmission,
        });
    }
    let limit = end.min(flow.available);
    if flow.next_new >= limit {
        return None;
    }
    let count = u16::try_from(most.min(limit - flow.next_new)).unwrap_or(0);
    let first = flow.next_new;
    flow.next_new += u64::from(count);
    Some(Run {
        first,
        count,
        transmission: 0,
    })
}
