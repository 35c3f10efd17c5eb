//! Deadlines of all flows: exact earliest deadline, no scan over flows.
//!
//! Two structures. Retransmission timers restart on every acknowledgement, but with few different lengths; timers of
//! equal length end in the order they were started, so each length has its own first-in first-out queue and a
//! restart is O(1). Everything else (rate credit, program visits, the rest of a length) is in an indexed 4-ary heap.
//! The earliest deadline is the least of the queue heads and the heap top.

use super::FlowId;
use crate::time::Time;

/// What a deadline is for. Each flow has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Retransmission timer (probe or ACK timeout).
    Delivery,
    /// Rate credit for the head of the ring suffices.
    Credit,
    /// The program asked for a visit.
    Program,
}

const KINDS: [Kind; 3] = [Kind::Delivery, Kind::Credit, Kind::Program];
/// Different lengths with a queue of their own; further lengths use the heap.
const LENGTHS: usize = 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: Time,
    token: u32,
}

/// Queue membership of a flow's retransmission timer.
#[derive(Clone, Copy, Debug)]
struct Link {
    deadline: Time,
    prev: u32,
    next: u32,
    /// Queue of the last use, a hint for the next.
    queue: u32,
    queued: bool,
}

const IDLE: Link = Link {
    deadline: Time::NEVER,
    prev: NONE,
    next: NONE,
    queue: 0,
    queued: false,
};

#[derive(Clone, Copy, Debug)]
struct Queue {
    length: u64,
    head_deadline: Time,
    head: u32,
    tail: u32,
}

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queues: Vec<Queue>,
    links: Vec<Link>,
    heap: Vec<Entry>,
    /// Heap position of each token, `NONE` when not in the heap.
    positions: Vec<u32>,
}

#[inline]
const fn token(flow: FlowId, kind: Kind) -> u32 {
    flow * 3 + kind as u32
}

impl Timers {
    /// Makes room for flow ids below `flows`.
    pub(crate) fn grow(&mut self, flows: usize) {
        if flows > self.links.len() {
            self.links.resize(flows, IDLE);
            self.positions.resize(flows * KINDS.len(), NONE);
            // Capacities follow the doubling of the arrays, so that later inserts do not allocate.
            self.heap.reserve(self.positions.capacity() - self.heap.len());
            self.queues.reserve(LENGTHS - self.queues.len());
        }
    }

    /// Sets a deadline, replacing an earlier one of the same flow and kind.
    #[inline]
    pub(crate) fn set(&mut self, flow: FlowId, kind: Kind, deadline: Time) {
        if kind == Kind::Delivery {
            self.unlink(flow);
        }
        self.heap_set(token(flow, kind), deadline);
    }

    /// Sets the retransmission timer `nanos` from `now`, cheaply when the length is a usual one.
    #[inline]
    pub(crate) fn start(&mut self, flow: FlowId, now: Time, nanos: u64) {
        let deadline = Time(now.0.saturating_add(nanos));
        self.unlink(flow);
        let Some(queue) = self.queue_for(self.links[flow as usize].queue, nanos) else {
            self.heap_set(token(flow, Kind::Delivery), deadline);
            return;
        };
        let tail = self.queues[queue].tail;
        if tail != NONE && self.links[tail as usize].deadline > deadline {
            // The clock stepped back: keep the queue sorted.
            self.heap_set(token(flow, Kind::Delivery), deadline);
            return;
        }
        self.heap_remove(token(flow, Kind::Delivery));
        let index = u32::try_from(queue).unwrap_or(0);
        self.links[flow as usize] = Link {
            deadline,
            prev: tail,
            next: NONE,
            queue: index,
            queued: true,
        };
        self.queues[queue].tail = flow;
        if tail == NONE {
            self.queues[queue].head = flow;
            self.queues[queue].head_deadline = deadline;
        } else {
            self.links[tail as usize].next = flow;
        }
    }

    /// Removes a deadline.
    #[inline]
    pub(crate) fn cancel(&mut self, flow: FlowId, kind: Kind) {
        if kind == Kind::Delivery {
            self.unlink(flow);
        }
        self.heap_remove(token(flow, kind));
    }

    /// The deadline of a flow and kind.
    #[cfg(test)]
    pub(crate) fn get(&self, flow: FlowId, kind: Kind) -> Option<Time> {
        if kind == Kind::Delivery && self.links[flow as usize].queued {
            return Some(self.links[flow as usize].deadline);
        }
        let at = self.positions[token(flow, kind) as usize];
        (at != NONE).then(|| self.heap[at as usize].deadline)
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let heads = self
            .queues
            .iter()
            .map(|queue| queue.head_deadline)
            .min()
            .unwrap_or(Time::NEVER);
        let top = self.heap.first().map_or(Time::NEVER, |entry| entry.deadline);
        let next = heads.min(top);
        (next != Time::NEVER).then_some(next)
    }

    /// Takes the earliest deadline at or before `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(FlowId, Kind)> {
        let due = self.next()?;
        if due > now {
            return None;
        }
        if self.heap.first().is_some_and(|entry| entry.deadline == due) {
            let token = self.heap[0].token;
            self.heap_remove(token);
            return Some((token / 3, KINDS[(token % 3) as usize]));
        }
        let flow = self.queues.iter().find(|queue| queue.head_deadline == due)?.head;
        self.unlink(flow);
        Some((flow, Kind::Delivery))
    }

    #[inline]
    fn queue_for(&mut self, hint: u32, length: u64) -> Option<usize> {
        let hint = hint as usize;
        if self.queues.get(hint).is_some_and(|queue| queue.length == length) {
            return Some(hint);
        }
        if let Some(found) = self.queues.iter().position(|queue| queue.length == length) {
            return Some(found);
        }
        let fresh = Queue {
            length,
            head_deadline: Time::NEVER,
            head: NONE,
            tail: NONE,
        };
        if self.queues.len() < LENGTHS {
            self.queues.push(fresh);
            return Some(self.queues.len() - 1);
        }
        let empty = self.queues.iter().position(|queue| queue.head == NONE)?;
        self.queues[empty] = fresh;
        Some(empty)
    }

    #[inline]
    fn unlink(&mut self, flow: FlowId) {
        let link = self.links[flow as usize];
        if !link.queued {
            return;
        }
        self.links[flow as usize].queued = false;
        let queue = &mut self.queues[link.queue as usize];
        if link.next == NONE {
            queue.tail = link.prev;
        }
        if link.prev == NONE {
            queue.head = link.next;
            queue.head_deadline = match link.next {
                NONE => Time::NEVER,
                next => self.links[next as usize].deadline,
            };
        } else {
            self.links[link.prev as usize].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next as usize].prev = link.prev;
        }
    }

    fn heap_set(&mut self, token: u32, deadline: Time) {
        let mut at = self.positions[token as usize] as usize;
        if at == NONE as usize {
            at = self.heap.len();
            self.heap.push(Entry { deadline, token });
            self.positions[token as usize] = u32::try_from(at).unwrap_or(NONE);
        } else {
            self.heap[at].deadline = deadline;
        }
        let at = self.sift_up(at);
        self.sift_down(at);
    }

    #[inline]
    fn heap_remove(&mut self, token: u32) {
        let at = self.positions[token as usize] as usize;
        if at == NONE as usize {
            return;
        }
        self.positions[token as usize] = NONE;
        let Some(last) = self.heap.pop() else { return };
        if at < self.heap.len() {
            self.put(at, last);
            let at = self.sift_up(at);
            self.sift_down(at);
        }
    }

    #[inline]
    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.positions[entry.token as usize] = u32::try_from(at).unwrap_or(NONE);
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.heap[parent].deadline <= entry.deadline {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let first = at * 4 + 1;
            let children = first..(first + 4).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child].deadline) else {
                break;
            };
            if self.heap[least].deadline >= entry.deadline {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_deadline_is_exact(
            ops in proptest::collection::vec((0u8..4, 0u32..6, 0usize..3, 0u64..100), 0..300),
        ) {
            let mut timers = Timers::default();
            timers.grow(6);
            let mut model = [[Time::NEVER; 3]; 6];
            let mut now = Time::ZERO;
            for (op, flow, kind, value) in ops {
                match op {
                    0 => {
                        timers.set(flow, KINDS[kind], now + Duration::from_nanos(value));
                        model[flow as usize][kind] = now + Duration::from_nanos(value);
                    }
                    1 => {
                        // More lengths than queues, so that queues are reused and the heap takes the rest.
                        timers.start(flow, now, value);
                        model[flow as usize][0] = now + Duration::from_nanos(value);
                    }
                    2 => {
                        timers.cancel(flow, KINDS[kind]);
                        model[flow as usize][kind] = Time::NEVER;
                    }
                    _ => {
                        now += Duration::from_nanos(value / 4);
                        while let Some((flow, kind)) = timers.pop_due(now) {
                            let least = model.iter().flatten().copied().min();
                            let slot = &mut model[flow as usize][kind as usize];
                            prop_assert_eq!(Some(*slot), least);
                            prop_assert!(*slot <= now);
                            *slot = Time::NEVER;
                        }
                    }
                }
                let least = model.iter().flatten().copied().min().filter(|&at| at != Time::NEVER);
                prop_assert_eq!(timers.next(), least);
                for (flow, slots) in model.iter().enumerate() {
                    for (kind, &slot) in KINDS.iter().zip(slots) {
                        let got = timers.get(u32::try_from(flow).unwrap(), *kind).unwrap_or(Time::NEVER);
                        prop_assert_eq!(got, slot);
                    }
                }
            }
        }
    }
}
