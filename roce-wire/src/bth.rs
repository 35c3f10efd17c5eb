//! Base transport header, in front of every packet (InfiniBand specification, 9.2).
//!
//! Reserved bits are written as zero and ignored on receipt; the opcode is checked when parsing.

use crate::bytes::{be24, to_be24};
use crate::opcode::Opcode;
use crate::psn::Psn;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation and place in the message.
    pub opcode: Opcode,
    /// Solicited event: a completion on the other side raises a solicited CQ event.
    pub solicited: bool,
    /// Automatic path migration state.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad_count: u8,
    /// Transport header version, 0.
    pub tver: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination QP, 24 bits.
    pub dest_qpn: u32,
    /// Whether the requester asks for an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// The default, full-member partition key.
pub const DEFAULT_PKEY: u16 = 0xffff;

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// A header with default partition key and every flag clear.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: false,
            pad_count: 0,
            tver: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Destination QPN of a packet, for steering before it is parsed or verified.
    #[inline]
    pub fn peek_dest_qpn(packet: &[u8]) -> Option<u32> {
        packet.first_chunk::<{ Self::LEN }>().map(|b| be24(b[5], b[6], b[7]))
    }

    /// Parse the front of `bytes`; `None` when too short or of an unknown opcode.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self::from_wire(Opcode::from_u8(bytes[0])?, bytes))
    }

    /// Parse a header whose opcode was looked up already.
    #[inline]
    pub(crate) const fn from_wire(opcode: Opcode, b: &[u8; Self::LEN]) -> Self {
        Self {
            opcode,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: (b[1] >> 4) & 3,
            tver: b[1] & 0x0f,
            pkey: u16::from_be_bytes([b[2], b[3]]),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qpn: be24(b[5], b[6], b[7]),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(be24(b[9], b[10], b[11])),
        }
    }

    /// The header as on the wire.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let flags =
            (self.solicited as u8) << 7 | (self.mig_req as u8) << 6 | (self.pad_count & 3) << 4 | (self.tver & 0x0f);
        let [pkey_high, pkey_low] = self.pkey.to_be_bytes();
        let [qpn_high, qpn_mid, qpn_low] = to_be24(self.dest_qpn);
        let [psn_high, psn_mid, psn_low] = self.psn.to_be_bytes();
        [
            self.opcode as u8,
            flags,
            pkey_high,
            pkey_low,
            (self.fecn as u8) << 7 | (self.becn as u8) << 6,
            qpn_high,
            qpn_mid,
            qpn_low,
            (self.ack_req as u8) << 7,
            psn_high,
            psn_mid,
            psn_low,
        ]
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Bth::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_bits() {
        let bth = Bth {
            solicited: true,
            pad_count: 3,
            pkey: 0x8001,
            becn: true,
            ack_req: true,
            ..Bth::new(Opcode::RcWriteLastImm, 0x12_3456, Psn::new(0xab_cdef))
        };
        let bytes = bth.to_bytes();
        assert_eq!(
            bytes,
            [0x09, 0xb0, 0x80, 0x01, 0x40, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef]
        );
        assert_eq!(Bth::parse(&bytes), Some(bth));
        assert_eq!(Bth::peek_dest_qpn(&bytes), Some(0x12_3456));
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let bth = Bth::new(Opcode::RcAck, 1, Psn::new(2));
        let mut bytes = bth.to_bytes();
        bytes[4] |= 0x3f;
        bytes[8] |= 0x7f;
        assert_eq!(Bth::parse(&bytes), Some(bth));
    }

    #[test]
    fn short_or_unknown_is_none() {
        assert_eq!(Bth::parse(&[0; 11]), None);
        assert_eq!(Bth::parse(&[0xff; 12]), None);
    }
}
