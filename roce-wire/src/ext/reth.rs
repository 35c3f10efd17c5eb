//! RDMA extended transport header: what memory a WRITE or READ addresses (InfiniBand specification, 9.3).

use crate::bytes::{at, put};

/// RDMA extended transport header: what memory a WRITE or READ addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message.
    pub dma_len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            va: u64::from_be_bytes(at(b, 0)),
            rkey: u32::from_be_bytes(at(b, 8)),
            dma_len: u32::from_be_bytes(at(b, 12)),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.va.to_be_bytes());
        put(&mut out, 8, self.rkey.to_be_bytes());
        put(&mut out, 12, self.dma_len.to_be_bytes());
        out
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Reth::LEN`].
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
        let header = Reth {
            va: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            dma_len: 0x0d0e_0f10,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(Reth::parse(&bytes), Some(header));
        assert_eq!(Reth::parse(&bytes[1..]), None);
    }
}
