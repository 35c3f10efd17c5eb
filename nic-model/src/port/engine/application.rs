//! What the engine notices of the application's habits: whether it polls, which CQs, whether it posts.
//!
//! Guesses only, so relaxed atomics do: a wrong one costs microseconds, never correctness.

use crate::host_if::command::ObjectId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Polls of empty CQs in a row, without a post, after which the thread leaves the sockets to the application. Waking the
/// thread for every packet costs more than the few calls that tell the kernel not to.
const POLLING_STREAK: u32 = 8;
/// CQs remembered as polled lately.
const RECENT: usize = 4;
/// A CQ was polled lately if it was among so many polls.
const LATELY: u32 = 512;

/// Habits of the application's threads.
#[derive(Debug, Default)]
pub(super) struct Application {
    /// Polls since the last post or rest.
    streak: AtomicU32,
    /// Polls and posts ever.
    calls: AtomicU32,
    /// CQ number above, value of `calls` below.
    recent: [AtomicU64; RECENT],
}

impl Application {
    /// An empty CQ is polled. Returns whether this makes it a polling application.
    pub(super) fn on_poll(&self, cq: ObjectId) -> bool {
        let call = self.calls.fetch_add(1, Relaxed);
        self.recent[cq as usize % RECENT].store(u64::from(cq) << 32 | u64::from(call), Relaxed);
        self.streak.fetch_add(1, Relaxed) == POLLING_STREAK
    }

    /// A WQE was posted.
    pub(super) fn on_post(&self) {
        self.calls.fetch_add(1, Relaxed);
        self.streak.store(0, Relaxed);
    }

    /// The application is taken to do something else now.
    pub(super) fn on_rest(&self) {
        self.streak.store(0, Relaxed);
    }

    /// Changes with every poll and post.
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Relaxed)
    }

    /// The CQs polled lately.
    pub(super) fn recently_polled(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let now = self.calls();
        self.recent.iter().filter_map(move |entry| {
            let entry = entry.load(Relaxed);
            #[expect(clippy::cast_possible_truncation, reason = "the low half")]
            let call = entry as u32;
            let cq = ObjectId::try_from(entry >> 32).unwrap_or(0);
            (now.wrapping_sub(call) < LATELY).then_some(cq)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_noticed_once_and_posting_starts_anew() {
        let application = Application::default();
        let noticed = |polls: u32| (0..polls).filter(|_| application.on_poll(5)).count();
        assert_eq!(noticed(100), 1);
        application.on_post();
        assert_eq!(noticed(8), 0);
        assert_eq!(noticed(1), 1);
    }

    #[test]
    fn a_cq_polled_long_ago_is_forgotten() {
        let application = Application::default();
        application.on_poll(1);
        for _ in 0..LATELY {
            application.on_poll(2);
        }
        assert_eq!(application.recently_polled().collect::<Vec<_>>(), [2]);
    }
}
