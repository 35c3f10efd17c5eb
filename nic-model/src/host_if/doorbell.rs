//! The doorbell page: how the driver tells the device that a QP has new WQEs.
//!
//! The producer index itself lies in the ring ([`super::ring::WorkQueue::publish`]); ringing marks the QP as pending in
//! a two-level bitmap that the device scans, so that 65,536 QPs cost the device nothing while they are quiet, many WQEs
//! need one doorbell, and no doorbell is ever lost or queued twice.

use super::sync::{AtomicU64, Ordering};

/// QP indices. Under loom two words of them: enough to show all that can happen, and few enough to explore.
const QPS: usize = if cfg!(loom) { 128 } else { 1 << 16 };

/// Pending bits for every QP index of a function.
#[derive(Debug)]
pub struct DoorbellPage {
    pending: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl Default for DoorbellPage {
    fn default() -> Self {
        Self::new()
    }
}

impl DoorbellPage {
    /// A page with nothing pending.
    pub fn new() -> Self {
        let zeroed = |words: usize| (0..words).map(|_| AtomicU64::new(0)).collect();
        Self {
            pending: zeroed(QPS / 64),
            summary: zeroed(QPS.div_ceil(64 * 64)),
        }
    }

    /// Driver: ring for the QP with that QPN (its low 16 bits index the page).
    pub fn ring(&self, qpn: u32) {
        let index = qpn as usize % QPS;
        self.pending[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
        self.summary[index / 4096].fetch_or(1 << (index / 64 % 64), Ordering::Release);
    }

    /// Whether any QP is pending.
    pub fn is_pending(&self) -> bool {
        self.summary.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Device: take every pending QP index, ascending, and call `f` with it.
    pub fn take(&self, mut f: impl FnMut(u16)) {
        for (group, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut words = summary.swap(0, Ordering::AcqRel);
            while words != 0 {
                let word = group * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bits = self.pending[word].swap(0, Ordering::AcqRel);
                while bits != 0 {
                    let index = word * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    f(u16::try_from(index).unwrap_or(0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_taken_once_and_in_order() {
        let page = DoorbellPage::new();
        for qpn in [0x02_ffff, 0x02_0001, 0x02_0040, 0x02_0001] {
            page.ring(qpn);
        }
        assert!(page.is_pending());
        let mut taken = Vec::new();
        page.take(|index| taken.push(index));
        assert_eq!(taken, [1, 0x40, 0xffff]);
        assert!(!page.is_pending());
    }
}
