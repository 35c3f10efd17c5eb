//! ACK extended transport header (InfiniBand specification, 9.3).

use crate::bytes::{be24, to_be24};
use crate::syndrome::Syndrome;

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Positive or negative, and why.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: requests completed by the responder.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Parse the front of `bytes`; `None` when too short.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            syndrome: Syndrome::from_u8(b[0]),
            msn: be24(b[1], b[2], b[3]),
        })
    }

    /// The header as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let [high, mid, low] = to_be24(self.msn);
        [self.syndrome.to_u8(), high, mid, low]
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Aeth::LEN`].
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
        let header = Aeth {
            syndrome: Syndrome::RnrNak { timer: 12 },
            msn: 0x01_0203,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [0x2c, 1, 2, 3]);
        assert_eq!(Aeth::parse(&bytes), Some(header));
        assert_eq!(Aeth::parse(&bytes[1..]), None);
    }
}
