//! First-in first-out sets of flows with O(1) insert, remove and pop: the active set of the data delivery engine and
//! the ready-to-send set of the credit engine (tonic.md §1.2).
//!
//! A flow that is served goes to the back, so flows take turns. A turn is a burst of up to the flow's quantum; with
//! a quantum of one segment this is the paper's per-segment round robin.

use super::FlowId;

const NONE: u32 = u32::MAX;
/// `next` of a flow that is not in the set (the end of the set is `NONE`).
const ABSENT: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// An ordered set of flows, linked through an array indexed by flow.
#[derive(Debug)]
pub(crate) struct FlowFifo {
    links: Vec<Link>,
    head: u32,
    tail: u32,
}

impl Default for FlowFifo {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            head: NONE,
            tail: NONE,
        }
    }
}

impl FlowFifo {
    /// Makes room for flow ids below `flows`.
    pub(crate) fn grow(&mut self, flows: usize) {
        if flows > self.links.len() {
            self.links.resize(
                flows,
                Link {
                    prev: NONE,
                    next: ABSENT,
                },
            );
        }
    }

    /// Whether `flow` is in the set.
    #[inline]
    pub(crate) fn contains(&self, flow: FlowId) -> bool {
        self.links[flow as usize].next != ABSENT
    }

    /// Whether the set is empty.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Appends `flow` unless it is in the set.
    #[inline]
    pub(crate) fn push(&mut self, flow: FlowId) {
        if self.contains(flow) {
            return;
        }
        self.links[flow as usize] = Link {
            prev: self.tail,
            next: NONE,
        };
        match self.tail {
            NONE => self.head = flow,
            tail => self.links[tail as usize].next = flow,
        }
        self.tail = flow;
    }

    /// Takes the flow that waited longest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<FlowId> {
        let flow = self.head;
        if flow == NONE {
            return None;
        }
        let next = self.links[flow as usize].next;
        self.links[flow as usize].next = ABSENT;
        self.head = next;
        match next {
            NONE => self.tail = NONE,
            next => self.links[next as usize].prev = NONE,
        }
        Some(flow)
    }

    /// Removes `flow` if it is in the set.
    #[inline]
    pub(crate) fn remove(&mut self, flow: FlowId) {
        let Link { prev, next } = self.links[flow as usize];
        if next == ABSENT {
            return;
        }
        match prev {
            NONE => self.head = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.links[next as usize].prev = prev,
        }
        self.links[flow as usize].next = ABSENT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn agrees_with_a_queue(ops in proptest::collection::vec((0u8..3, 0u32..8), 0..200)) {
            let mut set = FlowFifo::default();
            set.grow(8);
            let mut model = VecDeque::new();
            for (op, flow) in ops {
                match op {
                    0 => {
                        set.push(flow);
                        if !model.contains(&flow) {
                            model.push_back(flow);
                        }
                    }
                    1 => {
                        set.remove(flow);
                        model.retain(|&other| other != flow);
                    }
                    _ => prop_assert_eq!(set.pop(), model.pop_front()),
                }
                prop_assert_eq!(set.contains(flow), model.contains(&flow));
            }
        }
    }
}
