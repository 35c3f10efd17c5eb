//! QPs by number.

use super::Qp;

/// QPs of one function, indexed by the low 16 bits of their QPN.
#[derive(Debug)]
pub(in crate::device) struct QpTable {
    qps: Vec<Option<Box<Qp>>>,
    slot: u8,
    next: u16,
    /// Indices in use, in no order.
    live: Vec<u16>,
    max: u32,
}

impl QpTable {
    /// An empty table of the function in `slot`, whose numbers start at index `first`.
    pub(in crate::device) fn new(slot: u8, first: u16, max: u32) -> Self {
        let mut qps = Vec::new();
        qps.resize_with(1 << 16, || None);
        Self {
            qps,
            slot,
            next: first,
            live: Vec::new(),
            max,
        }
    }

    /// A QPN not in use and not used lately: indices go round the whole space before one comes again.
    pub(in crate::device) fn allocate(&mut self) -> Option<u32> {
        if self.len() >= self.max {
            return None;
        }
        for _ in 0..self.qps.len() {
            let index = self.next;
            self.next = index.wrapping_add(1);
            // Index 0 is kept free, and 0xFFFFFF is the multicast QPN.
            if index != 0 && index != u16::MAX && self.qps[usize::from(index)].is_none() {
                return Some(u32::from(self.slot) << 16 | u32::from(index));
            }
        }
        None
    }

    pub(in crate::device) fn insert(&mut self, qp: Qp) {
        let qp_index = qp.info.index();
        self.qps[usize::from(qp_index)] = Some(Box::new(qp));
        self.live.push(qp_index);
    }

    pub(in crate::device) fn remove(&mut self, qpn: u32) -> Option<Box<Qp>> {
        self.get(qpn)?;
        let qp = self.qps[(qpn & 0xffff) as usize].take()?;
        let index = qp.info.index();
        self.live.retain(|live| *live != index);
        Some(qp)
    }

    #[inline]
    pub(in crate::device) fn get(&mut self, qpn: u32) -> Option<&mut Qp> {
        self.qps[(qpn & 0xffff) as usize]
            .as_deref_mut()
            .filter(|qp| qp.info.qpn == qpn)
    }

    #[inline]
    pub(in crate::device) fn at(&mut self, index: u16) -> Option<&mut Qp> {
        self.qps[usize::from(index)].as_deref_mut()
    }

    #[inline]
    pub(in crate::device) fn peek(&self, index: u16) -> Option<&Qp> {
        self.qps[usize::from(index)].as_deref()
    }

    /// Number of QPs.
    pub(in crate::device) fn len(&self) -> u32 {
        u32::try_from(self.live.len()).unwrap_or(u32::MAX)
    }

    /// All QPs, in no order.
    pub(in crate::device) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.live.iter().filter_map(|index| self.peek(*index))
    }
}
