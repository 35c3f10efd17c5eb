//! Packet sequence numbers: 24 bits, cyclic (InfiniBand specification, 9.7.1).
//!
//! There is no `Ord`: on a circle "before" depends on where one stands. Compare by the distance to a base
//! ([`Psn::offset_from`]) or within half the circle ([`Psn::is_before`]).

use crate::bytes::{MASK_24, to_be24};
use core::fmt;
use core::ops::{Add, Sub};

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Number of different PSNs.
    pub const COUNT: u32 = MASK_24 + 1;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// Value in `0..2^24`.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it.
    #[inline]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The one before it.
    #[inline]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// Steps forward from `base` to `self`, in `0..2^24`.
    #[inline]
    pub const fn offset_from(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK_24
    }

    /// The shorter way from `base` to `self`, in `-2^23..2^23`: negative when `self` is behind.
    #[inline]
    pub const fn signed_offset_from(self, base: Self) -> i32 {
        let top_aligned = self.0.wrapping_sub(base.0) << 8;
        i32::from_ne_bytes(top_aligned.to_ne_bytes()) >> 8
    }

    /// Whether `other` lies ahead of `self` by less than half the circle.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        matches!(other.offset_from(self), 1..0x80_0000)
    }

    pub(crate) const fn to_be_bytes(self) -> [u8; 3] {
        to_be24(self.0)
    }
}

impl Add<u32> for Psn {
    type Output = Self;

    #[inline]
    fn add(self, steps: u32) -> Self {
        Self::new(self.0.wrapping_add(steps))
    }
}

impl Sub<u32> for Psn {
    type Output = Self;

    #[inline]
    fn sub(self, steps: u32) -> Self {
        Self::new(self.0.wrapping_sub(steps))
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Psn = Psn::new(0xff_ffff);

    #[test]
    fn wraps_in_both_directions() {
        assert_eq!(LAST.next(), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), LAST);
        assert_eq!(LAST + 3, Psn::new(2));
        assert_eq!(Psn::new(2) - 3, LAST);
        assert_eq!(Psn::new(5) + u32::MAX, Psn::new(4));
    }

    #[test]
    fn distances_cross_the_wrap() {
        assert_eq!(Psn::new(2).offset_from(LAST), 3);
        assert_eq!(Psn::new(2).signed_offset_from(LAST), 3);
        assert_eq!(LAST.signed_offset_from(Psn::new(2)), -3);
        assert_eq!(Psn::new(0x80_0000).signed_offset_from(Psn::new(0)), -0x80_0000);
    }

    #[test]
    fn before_is_strict_and_ends_at_half_the_circle() {
        assert!(LAST.is_before(Psn::new(0)));
        assert!(!Psn::new(0).is_before(LAST));
        assert!(!LAST.is_before(LAST));
        assert!(Psn::new(0).is_before(Psn::new(0x7f_ffff)));
        assert!(!Psn::new(0).is_before(Psn::new(0x80_0000)));
    }
}
