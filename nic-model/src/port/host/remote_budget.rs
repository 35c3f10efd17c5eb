//! Back-pressure towards other hosts: a window per destination that shrinks on loss and grows by progress.
//!
//! How full a remote socket is cannot be seen; a loss is the sign that it, or something on the way, was. For
//! acknowledged traffic only: what is never acknowledged would never leave the window.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Where a remote window starts.
const START_WINDOW: usize = 256 << 10;
const LEAST_WINDOW: usize = 16 << 10;
const MOST_WINDOW: usize = 16 << 20;
/// Growth once a loss has shown the limit: this much for each window of progress.
const STEP: usize = 4 << 10;
/// Losses within this time are one event.
const ONE_LOSS: Duration = Duration::from_millis(5);
/// Without any sign of life for so long, what was in flight no longer is.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// Most destinations remembered.
const MOST_DESTINATIONS: usize = 4096;

#[derive(Debug)]
struct Window {
    size: usize,
    in_flight: usize,
    seen_loss: bool,
    last_loss: Option<Instant>,
    touched: Instant,
}

/// Windows towards other hosts, for acknowledged traffic: what is never acknowledged must not be counted as sent.
#[derive(Debug, Default)]
pub struct RemoteBudget {
    windows: BTreeMap<IpAddr, Window>,
}

impl RemoteBudget {
    fn window(&mut self, dst: IpAddr, now: Instant) -> &mut Window {
        if self.windows.len() >= MOST_DESTINATIONS && !self.windows.contains_key(&dst) {
            self.windows
                .retain(|_, window| now.duration_since(window.touched) < FORGOTTEN);
            if self.windows.len() >= MOST_DESTINATIONS {
                self.windows.pop_first();
            }
        }
        let fresh = Window {
            size: START_WINDOW,
            in_flight: 0,
            seen_loss: false,
            last_loss: None,
            touched: now,
        };
        let window = self.windows.entry(dst).or_insert(fresh);
        if now.duration_since(window.touched) >= FORGOTTEN {
            window.in_flight = 0;
            window.touched = now;
        }
        window
    }

    /// Payload bytes that may be sent to `dst` now.
    pub fn available(&mut self, dst: IpAddr, now: Instant) -> usize {
        let window = self.window(dst, now);
        window.size.saturating_sub(window.in_flight)
    }

    /// `bytes` that will be acknowledged were sent to `dst`.
    pub fn sent(&mut self, dst: IpAddr, bytes: usize, now: Instant) {
        let window = self.window(dst, now);
        window.in_flight = window.in_flight.saturating_add(bytes);
        window.touched = now;
    }

    /// `bytes` sent to `dst` were acknowledged.
    pub fn on_progress(&mut self, dst: IpAddr, bytes: usize, now: Instant) {
        let window = self.window(dst, now);
        window.touched = now;
        window.in_flight = window.in_flight.saturating_sub(bytes);
        let growth = if window.seen_loss {
            bytes.saturating_mul(STEP) / window.size
        } else {
            bytes
        };
        window.size = window.size.saturating_add(growth).min(MOST_WINDOW);
    }

    /// `bytes` sent to `dst` will be sent again, or never; zero if that is not known.
    pub fn on_loss(&mut self, dst: IpAddr, bytes: usize, now: Instant) {
        let window = self.window(dst, now);
        window.touched = now;
        window.in_flight = window.in_flight.saturating_sub(bytes);
        if window.last_loss.is_none_or(|last| now.duration_since(last) >= ONE_LOSS) {
            window.last_loss = Some(now);
            window.seen_loss = true;
            window.size = (window.size / 2).max(LEAST_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_windows_halve_once_per_loss_and_grow_by_progress() {
        let mut budget = RemoteBudget::default();
        let dst: IpAddr = "10.0.0.1".parse().unwrap();
        let mut now = Instant::now();
        assert_eq!(budget.available(dst, now), START_WINDOW);
        budget.sent(dst, START_WINDOW, now);
        assert_eq!(budget.available(dst, now), 0);
        budget.on_progress(dst, START_WINDOW / 2, now);
        assert_eq!(budget.available(dst, now), START_WINDOW);
        budget.on_loss(dst, START_WINDOW / 2, now);
        budget.on_loss(dst, 0, now);
        assert_eq!(budget.available(dst, now), START_WINDOW * 3 / 4);
        for _ in 0..20 {
            now += ONE_LOSS;
            budget.on_loss(dst, 0, now);
        }
        assert_eq!(budget.available(dst, now), LEAST_WINDOW);
        budget.sent(dst, LEAST_WINDOW, now);
        budget.on_progress(dst, LEAST_WINDOW, now);
        assert_eq!(budget.available(dst, now), LEAST_WINDOW + STEP);
        budget.sent(dst, 1 << 20, now);
        assert_eq!(budget.available(dst, now), 0);
        now += FORGOTTEN;
        assert_eq!(budget.available(dst, now), LEAST_WINDOW + STEP);
    }

    #[test]
    fn destinations_remembered_are_bounded() {
        let mut budget = RemoteBudget::default();
        let now = Instant::now();
        for i in 0..10_000u32 {
            budget.sent(IpAddr::V4(i.into()), 1, now);
        }
        assert!(budget.windows.len() <= MOST_DESTINATIONS);
    }
}
