//! A ring of 1,024 bits, one for each segment of the largest window (tonic.md appendix C, without head arithmetic).
//!
//! A segment's bit is its number modulo 1,024. Two levels: sixteen words, and a summary with one bit for each word
//! that is not zero, so a search reads the summary and at most two words. The ring is never rotated: a search that
//! starts at a window head masks the bits before it and wraps once.
//!
//! Invariant kept by the owner: bits of segments outside `[una, next_new)` are zero, hence at most 1,024 segments
//! are alive at a time and no two of them share a bit.

use super::SegNo;

/// Segments the ring can tell apart, and the largest window.
pub(crate) const RING_BITS: u64 = 1_024;
const WORDS: usize = 16;

/// One bit for each segment of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: [u64; WORDS],
    summary: u16,
}

/// Word index and bit index of a segment.
#[inline]
const fn place(seg: SegNo) -> (usize, u32) {
    let ring = (seg & (RING_BITS - 1)) as u32;
    ((ring >> 6) as usize, ring & 63)
}

/// `len` ones from bit `from`, where `from + len <= 64`.
#[inline]
const fn ones(from: u32, len: u32) -> u64 {
    if len >= 64 { u64::MAX } else { ((1 << len) - 1) << from }
}

/// The pieces of `[start, end)` that lie in one word each: `(word, mask)`.
fn pieces(start: SegNo, end: SegNo) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (word, bit) = place(at);
        let len = u32::try_from(end - at).unwrap_or(u32::MAX).min(64 - bit);
        at += u64::from(len);
        Some((word, ones(bit, len)))
    })
}

impl Bitmap {
    /// Whether no bit is set.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// The bit of `seg`.
    #[inline]
    pub(crate) const fn get(&self, seg: SegNo) -> bool {
        let (word, bit) = place(seg);
        self.words[word] >> bit & 1 != 0
    }

    #[inline]
    fn store(&mut self, word: usize, bits: u64) {
        self.words[word] = bits;
        self.summary = self.summary & !(1 << word) | u16::from(bits != 0) << word;
    }

    /// Sets the bits of `[start, end)`.
    pub(crate) fn set_range(&mut self, start: SegNo, end: SegNo) {
        for (word, mask) in pieces(start, end) {
            self.store(word, self.words[word] | mask);
        }
    }

    /// Sets the bits of `[start, end)` except where `not` is set.
    pub(crate) fn set_range_except(&mut self, start: SegNo, end: SegNo, not: &Self) {
        for (word, mask) in pieces(start, end) {
            self.store(word, self.words[word] | mask & !not.words[word]);
        }
    }

    /// Clears the bits of `[start, end)`.
    pub(crate) fn clear_range(&mut self, start: SegNo, end: SegNo) {
        if self.is_empty() {
            return;
        }
        for (word, mask) in pieces(start, end) {
            self.store(word, self.words[word] & !mask);
        }
    }

    /// Bits set in `[start, end)`.
    pub(crate) fn count_range(&self, start: SegNo, end: SegNo) -> u64 {
        if self.is_empty() {
            return 0;
        }
        pieces(start, end)
            .map(|(word, mask)| u64::from((self.words[word] & mask).count_ones()))
            .sum()
    }

    /// First set bit at or after `from`, in ring order: the oldest when `from` is the window head.
    #[inline]
    pub(crate) fn first_from(&self, from: SegNo) -> Option<SegNo> {
        if self.is_empty() {
            return None;
        }
        let (word, bit) = place(from);
        let base = from - u64::from(bit);
        let here = self.words[word] & u64::MAX << bit;
        if here != 0 {
            return Some(base + u64::from(here.trailing_zeros()));
        }
        // The other words in ring order: those above `word`, then those below, then the masked part of `word`.
        let turned = self.summary.rotate_right(u32::try_from(word).unwrap_or(0));
        let rest = turned & !1;
        if rest != 0 {
            let step = rest.trailing_zeros();
            let bits = self.words[(word + step as usize) & (WORDS - 1)];
            return Some(base + u64::from(step) * 64 + u64::from(bits.trailing_zeros()));
        }
        Some(base + RING_BITS + u64::from(self.words[word].trailing_zeros()))
    }

    /// Last set bit below `below` and not below `floor`.
    pub(crate) fn last_below(&self, floor: SegNo, below: SegNo) -> Option<SegNo> {
        let mut end = below;
        while end > floor && !self.is_empty() {
            let (word, bit) = place(end - 1);
            let base = end - 1 - u64::from(bit);
            let bits = self.words[word] & ones(0, bit + 1);
            if bits != 0 {
                let seg = base + u64::from(63 - bits.leading_zeros());
                return (seg >= floor).then_some(seg);
            }
            end = base;
        }
        None
    }

    /// Number of set bits from `from` on without a gap, at most `max`.
    #[inline]
    pub(crate) fn run(&self, from: SegNo, max: u64) -> u64 {
        let mut len = 0;
        while len < max {
            let (word, bit) = place(from + len);
            let got = (!(self.words[word] >> bit)).trailing_zeros().min(64 - bit);
            len += u64::from(got);
            if got < 64 - bit {
                break;
            }
        }
        len.min(max)
    }

    /// Number of equal bits (set or clear as the first) from `from` on, at most `max`.
    pub(crate) fn equal_run(&self, from: SegNo, max: u64) -> u64 {
        if self.get(from) {
            return self.run(from, max);
        }
        self.first_from(from).map_or(max, |seg| (seg - from).min(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn worked_examples_of_the_paper() {
        let mut map = Bitmap::default();
        map.set_range(5, 6);
        map.set_range(30, 31);
        assert_eq!(map.first_from(6), Some(30));
        assert_eq!(map.first_from(31), Some(RING_BITS + 5));
        map.clear_range(30, 31);
        assert_eq!(map.first_from(6), Some(RING_BITS + 5));
        map.clear_range(5, 6);
        assert_eq!(map.first_from(6), None);
    }

    #[test]
    fn a_full_window_is_not_an_empty_range() {
        let mut map = Bitmap::default();
        map.set_range(1_000, 1_000 + RING_BITS);
        assert_eq!(map.count_range(1_000, 1_000 + RING_BITS), RING_BITS);
        assert_eq!(map.run(1_000, RING_BITS), RING_BITS);
        map.clear_range(1_000, 1_000 + RING_BITS);
        assert!(map.is_empty());
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            head in 0u64..5_000,
            edits in proptest::collection::vec((any::<bool>(), 0u64..RING_BITS, 0u64..RING_BITS), 1..20),
            probe in 0u64..RING_BITS,
        ) {
            let mut map = Bitmap::default();
            let mut model = BTreeSet::new();
            for (set, at, len) in edits {
                let (start, end) = (head + at, head + (at + len).min(RING_BITS));
                if set {
                    map.set_range(start, end);
                    model.extend(start..end);
                } else {
                    map.clear_range(start, end);
                    model.retain(|seg| !(start..end).contains(seg));
                }
                prop_assert_eq!(map.is_empty(), model.is_empty());
                prop_assert_eq!(map.first_from(head), model.first().copied());
                prop_assert_eq!(map.count_range(head, head + RING_BITS), model.len() as u64);
                prop_assert_eq!(map.last_below(head, head + RING_BITS), model.last().copied());
                let from = head + probe;
                let run = (from..head + RING_BITS).take_while(|seg| model.contains(seg)).count() as u64;
                prop_assert_eq!(map.run(from, head + RING_BITS - from), run);
                let like = model.contains(&from);
                let equal = (from..head + RING_BITS).take_while(|seg| model.contains(seg) == like).count() as u64;
                prop_assert_eq!(map.equal_run(from, head + RING_BITS - from), equal);
                prop_assert_eq!(map.last_below(head, from), model.range(..from).next_back().copied());
            }
        }
    }
}
