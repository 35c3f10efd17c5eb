//! Per-segment state of a window: acknowledged, marked for retransmission, transmission count (tonic.md §1.4).
//!
//! A flow without loss needs none of it: its segments are acknowledged in order and its counts are zero. So blocks
//! come from a pool, taken at the first mark or selective acknowledgement and given back when all bits are zero
//! again. The pool grows beyond its reserve only when more flows recover from loss at once than ever before.

use super::SegNo;
use super::bitmap::Bitmap;

/// Transmission counts saturate here (two bits).
pub(crate) const MAX_TRANSMISSION: u8 = 3;

/// State of each segment in the window. Bits outside `[una, next_new)` are zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentState {
    /// Arrived out of order.
    pub(crate) acked: Bitmap,
    /// Lost and waiting for retransmission. Never set together with `acked`.
    pub(crate) marked: Bitmap,
    low: Bitmap,
    high: Bitmap,
}

impl SegmentState {
    /// Marks `[start, end)` but for what was acknowledged.
    pub(crate) fn mark(&mut self, start: SegNo, end: SegNo) {
        self.marked.set_range_except(start, end, &self.acked);
    }

    /// Number of retransmissions of `seg` so far, saturating.
    #[inline]
    pub(crate) fn transmission(&self, seg: SegNo) -> u8 {
        u8::from(self.low.get(seg)) | u8::from(self.high.get(seg)) << 1
    }

    /// Sets the count of `[start, end)`.
    pub(crate) fn set_transmission(&mut self, start: SegNo, end: SegNo, count: u8) {
        for (plane, bit) in [(&mut self.low, count & 1), (&mut self.high, count & 2)] {
            if bit == 0 {
                plane.clear_range(start, end);
            } else {
                plane.set_range(start, end);
            }
        }
    }

    /// Marked segments from `from` on without a gap and with equal counts, at most `max`.
    pub(crate) fn marked_run(&self, from: SegNo, max: u64) -> u64 {
        let run = self.marked.run(from, max);
        self.high.equal_run(from, self.low.equal_run(from, run))
    }

    /// Clears everything about `[start, end)`; answers how many were acknowledged.
    pub(crate) fn clear(&mut self, start: SegNo, end: SegNo) -> u64 {
        let acked = self.acked.count_range(start, end);
        self.acked.clear_range(start, end);
        self.marked.clear_range(start, end);
        self.low.clear_range(start, end);
        self.high.clear_range(start, end);
        acked
    }

    const fn is_clear(&self) -> bool {
        self.acked.is_empty() && self.marked.is_empty() && self.low.is_empty() && self.high.is_empty()
    }
}

/// A flow's hold on a block of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(u32);

impl Block {
    /// No block: every bit is zero.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Blocks for the flows that recover from loss.
#[derive(Debug, Default)]
pub(crate) struct SegmentPool {
    blocks: Vec<SegmentState>,
    free: Vec<u32>,
}

impl SegmentPool {
    /// Makes sure that `count` blocks can be in use without allocation.
    pub(crate) fn reserve(&mut self, count: usize) {
        if count > self.blocks.capacity() {
            self.blocks.reserve(count - self.blocks.len());
            self.free.reserve(count - self.free.len());
        }
    }

    /// The state in a block, if the flow holds one.
    #[inline]
    pub(crate) fn get(&self, block: Block) -> Option<&SegmentState> {
        if block == Block::NONE {
            None
        } else {
            self.blocks.get(block.0 as usize)
        }
    }

    /// As [`get`](Self::get), to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, block: Block) -> Option<&mut SegmentState> {
        if block == Block::NONE {
            None
        } else {
            self.blocks.get_mut(block.0 as usize)
        }
    }

    /// The state in `block`, which is taken from the pool when the flow holds none.
    pub(crate) fn hold(&mut self, block: &mut Block) -> &mut SegmentState {
        if *block == Block::NONE {
            let index = self.free.pop().unwrap_or_else(|| {
                self.blocks.push(SegmentState::default());
                u32::try_from(self.blocks.len() - 1).unwrap_or(u32::MAX - 1)
            });
            *block = Block(index);
        }
        &mut self.blocks[block.0 as usize]
    }

    /// Gives the block back when all its bits are zero.
    #[inline]
    pub(crate) fn release_if_clear(&mut self, block: &mut Block) {
        if self.get(*block).is_some_and(SegmentState::is_clear) {
            self.free.push(block.0);
            *block = Block::NONE;
        }
    }

    /// Gives the block back, whatever it holds.
    pub(crate) fn release(&mut self, block: &mut Block) {
        if let Some(state) = self.get_mut(*block) {
            *state = SegmentState::default();
            self.free.push(block.0);
            *block = Block::NONE;
        }
    }
}
