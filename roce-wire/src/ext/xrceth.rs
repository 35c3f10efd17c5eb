//! XRC extended transport header: the shared receive queue a request is for (InfiniBand specification, 9.3).

use crate::bytes::{be24, to_be24};

/// XRC extended transport header: the shared receive queue a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// Shared receive queue number, 24 bits.
    pub srqn: u32,
}

impl XrcEth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            srqn: be24(b[1], b[2], b[3]),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let [high, mid, low] = to_be24(self.srqn);
        [0, high, mid, low]
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`XrcEth::LEN`].
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
        let header = XrcEth { srqn: 0x01_0203 };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [0, 1, 2, 3]);
        assert_eq!(XrcEth::parse(&bytes), Some(header));
        assert_eq!(XrcEth::parse(&bytes[1..]), None);
    }
}
