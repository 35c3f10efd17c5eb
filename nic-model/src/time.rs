//! Device time: nanoseconds since an arbitrary origin, always a parameter.
//!
//! Under a real clock the port layer supplies it; under simulation the virtual network does. Nothing in the
//! device reads a clock.

use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

/// An instant in nanoseconds since the origin of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than every deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// `nanos` after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `micros` after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// `millis` after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`, zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
