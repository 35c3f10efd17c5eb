//! Datagram extended transport header (InfiniBand specification, 9.3).

use crate::bytes::{at, be24, put, to_be24};

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source QP, 24 bits.
    pub src_qpn: u32,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            qkey: u32::from_be_bytes(at(b, 0)),
            src_qpn: be24(b[5], b[6], b[7]),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.qkey.to_be_bytes());
        put(&mut out, 5, to_be24(self.src_qpn));
        out
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Deth::LEN`].
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
        let header = Deth {
            qkey: 0x8001_0000,
            src_qpn: 0x01_0203,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [0x80, 1, 0, 0, 0, 1, 2, 3]);
        assert_eq!(Deth::parse(&bytes), Some(header));
        assert_eq!(Deth::parse(&bytes[1..]), None);
    }
}
