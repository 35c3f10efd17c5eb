//! Event queues behind a descriptor, and the accounting of their acknowledgement.
//!
//! A completion channel and a context's asynchronous events have the same shape: events queue up in the process and a
//! semaphore eventfd counts them, so that the descriptor is readable exactly while an event waits and works with
//! poll, epoll, `dup` and `O_NONBLOCK` as an application expects. A reader first takes a token with a plain `read` on
//! the descriptor — in the entry function, holding nothing, because a cancelled thread never returns from there — and
//! then the event with [`EventQueue::take`].
//!
//! Writing tokens goes through `syscall(2)`: `write` is a cancellation point, and a thread cancelled while it delivers
//! an event would leave locks behind.

use crate::objects::sys;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Events waiting to be fetched, and the descriptor that counts them.
#[derive(Debug)]
pub struct EventQueue<T> {
    fd: OwnedFd,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue with a descriptor of its own.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: sys::semaphore()?,
            waiting: Mutex::new(VecDeque::new()),
        })
    }

    /// The descriptor an application polls and reads.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Queue the event that `event` gives. It runs under the queue's lock, so that it can look at what
    /// [`EventQueue::retract`] sets there.
    pub fn push(&self, event: impl FnOnce() -> Option<T>) {
        let mut waiting = self.waiting.lock();
        let Some(event) = event() else { return };
        waiting.push_back(event);
        drop(waiting);
        sys::post_token(self.raw_fd());
    }

    /// Take the oldest event after its token was read. `None` when it was retracted in between: read again.
    ///
    /// `delivered` runs under the queue's lock, so that an event is at any moment either here or counted as delivered.
    pub fn take<R>(&self, delivered: impl FnOnce(T) -> R) -> Option<R> {
        let mut waiting = self.waiting.lock();
        waiting.pop_front().map(delivered)
    }

    /// Remove the events that `matches` and their tokens; `closing` runs first, under the same lock.
    pub fn retract(&self, closing: impl FnOnce(), mut matches: impl FnMut(&T) -> bool) {
        let mut waiting = self.waiting.lock();
        closing();
        let before = waiting.len();
        waiting.retain(|event| !matches(event));
        for _ in waiting.len()..before {
            sys::take_token(self.raw_fd());
        }
    }

    /// Number of events waiting.
    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Counts the events delivered for one object against those acknowledged; destruction waits for them to agree.
#[derive(Debug, Default)]
pub struct AckLedger {
    unacknowledged: Mutex<u64>,
    settled: Condvar,
}

impl AckLedger {
    /// An event of the object was handed to the application.
    pub fn deliver(&self) {
        *self.unacknowledged.lock() += 1;
    }

    /// The application acknowledged `count` events. More than were delivered count as all.
    pub fn acknowledge(&self, count: u32) {
        let mut unacknowledged = self.unacknowledged.lock();
        *unacknowledged = unacknowledged.saturating_sub(u64::from(count));
        if *unacknowledged == 0 {
            self.settled.notify_all();
        }
    }

    /// Wait until every delivered event is acknowledged.
    pub fn wait_until_settled(&self) {
        let mut unacknowledged = self.unacknowledged.lock();
        while *unacknowledged != 0 {
            self.settled.wait(&mut unacknowledged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn readable(fd: RawFd) -> bool {
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    fn read_token(fd: RawFd) -> isize {
        let mut token = 0u64;
        // SAFETY: `token` is eight writable bytes.
        unsafe { libc::read(fd, (&raw mut token).cast(), 8) }
    }

    #[test]
    fn descriptor_is_readable_while_events_wait() {
        let queue = EventQueue::new().unwrap();
        assert!(!readable(queue.raw_fd()));
        queue.push(|| Some(1));
        queue.push(|| Some(2));
        queue.push(|| None);
        for event in [1, 2] {
            assert!(readable(queue.raw_fd()));
            assert_eq!(read_token(queue.raw_fd()), 8);
            assert_eq!(queue.take(|got| got), Some(event));
        }
        assert!(!readable(queue.raw_fd()));
        assert_eq!(queue.take(|got: i32| got), None);
    }

    #[test]
    fn retracted_events_take_their_tokens_along() {
        let queue = EventQueue::new().unwrap();
        for event in [1, 2, 1] {
            queue.push(|| Some(event));
        }
        let closed = AtomicBool::new(false);
        queue.retract(|| closed.store(true, Ordering::Relaxed), |event| *event == 1);
        assert!(closed.load(Ordering::Relaxed));
        assert_eq!(queue.len(), 1);
        assert_eq!(read_token(queue.raw_fd()), 8);
        assert_eq!(queue.take(|got| got), Some(2));
        assert!(!readable(queue.raw_fd()), "two tokens went with the two events");
    }

    #[test]
    fn settling_waits_for_every_acknowledgement() {
        let ledger = Arc::new(AckLedger::default());
        ledger.wait_until_settled();
        for _ in 0..3 {
            ledger.deliver();
        }
        let settled = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (ledger, settled) = (Arc::clone(&ledger), Arc::clone(&settled));
            std::thread::spawn(move || {
                ledger.wait_until_settled();
                settled.store(true, Ordering::SeqCst);
            })
        };
        ledger.acknowledge(1);
        ledger.acknowledge(1);
        assert!(!settled.load(Ordering::SeqCst), "one event is still unacknowledged");
        ledger.acknowledge(5);
        waiter.join().unwrap();
        assert!(settled.load(Ordering::SeqCst));
    }
}
