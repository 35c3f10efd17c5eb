//! Atomic ACK extended transport header: the value before the operation (InfiniBand specification, 9.3).

/// Atomic ACK extended transport header: the value before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// Original value.
    pub orig: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            orig: u64::from_be_bytes(*b),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.orig.to_be_bytes()
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`AtomicAckEth::LEN`].
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
        let header = AtomicAckEth {
            orig: 0x0102_0304_0506_0708,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(AtomicAckEth::parse(&bytes), Some(header));
        assert_eq!(AtomicAckEth::parse(&bytes[1..]), None);
    }
}
