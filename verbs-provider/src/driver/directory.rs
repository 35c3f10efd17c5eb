//! The QPs attached to a CQ, by QPN.
//!
//! Polling looks a QP up for every completion, so that must cost no more than two dependent loads: the 16-bit index in
//! the QPN is split over two levels of tables, of which only the used parts exist.

use crate::objects::qp::QpCore;
use std::sync::Arc;

const FANOUT: usize = 256;

type Leaf = [Option<Arc<QpCore>>; FANOUT];

/// A sparse table of QPs.
pub struct QpDirectory {
    leaves: Box<[Option<Box<Leaf>>]>,
}

impl std::fmt::Debug for QpDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // QPs lead to their CQs and from there back here.
        f.debug_struct("QpDirectory").finish_non_exhaustive()
    }
}

impl Default for QpDirectory {
    fn default() -> Self {
        Self {
            leaves: (0..FANOUT).map(|_| None).collect(),
        }
    }
}

impl QpDirectory {
    /// Add a QP.
    pub fn insert(&mut self, qp: &Arc<QpCore>) {
        let (high, low) = split(qp.qpn);
        let leaf = self.leaves[high].get_or_insert_with(|| Box::new([const { None }; FANOUT]));
        leaf[low] = Some(Arc::clone(qp));
    }

    /// Remove the QP with that number.
    pub fn remove(&mut self, qpn: u32) {
        let (high, low) = split(qpn);
        let Some(leaf) = &mut self.leaves[high] else { return };
        leaf[low] = None;
        if leaf.iter().all(Option::is_none) {
            self.leaves[high] = None;
        }
    }

    /// The QP with that number.
    pub fn get(&self, qpn: u32) -> Option<&QpCore> {
        let (high, low) = split(qpn);
        self.leaves[high].as_ref()?[low].as_deref().filter(|qp| qp.qpn == qpn)
    }
}

/// The low 16 bits tell the QPs of one process apart.
fn split(qpn: u32) -> (usize, usize) {
    let [low, high, ..] = qpn.to_le_bytes();
    (high.into(), low.into())
}
