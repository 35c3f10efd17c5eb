//! Atomic extended transport header: operands of a compare-and-swap or fetch-and-add (InfiniBand specification, 9.3).

use crate::bytes::{at, put};

/// Atomic extended transport header: operands of a compare-and-swap or fetch-and-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_add: u64,
    /// Value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            va: u64::from_be_bytes(at(b, 0)),
            rkey: u32::from_be_bytes(at(b, 8)),
            swap_add: u64::from_be_bytes(at(b, 12)),
            compare: u64::from_be_bytes(at(b, 20)),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.va.to_be_bytes());
        put(&mut out, 8, self.rkey.to_be_bytes());
        put(&mut out, 12, self.swap_add.to_be_bytes());
        put(&mut out, 20, self.compare.to_be_bytes());
        out
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`AtomicEth::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_and_round_trip() {
        let header = AtomicEth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            swap_add: 0x0d0e_0f10_1112_1314,
            compare: 0x1516_1718_191a_1b1c,
        };
        let bytes = header.to_bytes();
        assert_eq!(
            bytes,
            [
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
            ]
        );
        assert_eq!(AtomicEth::parse(&bytes), Some(header));
        assert_eq!(AtomicEth::parse(&bytes[1..]), None);
    }
}
