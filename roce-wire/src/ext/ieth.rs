//! Invalidate extended transport header: the remote key to invalidate (InfiniBand specification, 9.3).

/// Invalidate extended transport header: the remote key to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// Remote key.
    pub rkey: u32,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            rkey: u32::from_be_bytes(*b),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.rkey.to_be_bytes()
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Ieth::LEN`].
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
        let header = Ieth { rkey: 0x0102_0304 };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert_eq!(Ieth::parse(&bytes), Some(header));
        assert_eq!(Ieth::parse(&bytes[1..]), None);
    }
}
