//! Immediate data, carried unchanged from work request to completion (InfiniBand specification, 9.3).

/// Immediate data, carried unchanged from work request to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt(
    /// The four bytes, in the order of the wire.
    pub [u8; 4],
);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self(*b))
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.0
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`ImmDt::LEN`].
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
        let header = ImmDt([1, 2, 3, 4]);
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert_eq!(ImmDt::parse(&bytes), Some(header));
        assert_eq!(ImmDt::parse(&bytes[1..]), None);
    }
}
