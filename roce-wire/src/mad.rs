//! Management datagrams, as far as connection management needs them (InfiniBand specification, 13.4).
//!
//! A MAD is the 256-byte payload of a UD SEND to QP 1, the general services interface. [`crate::cm`] has the messages
//! it carries.

use crate::bth::Bth;
use crate::bytes::{at, put};
use crate::ext::Deth;
use crate::opcode::Opcode;
use crate::packet::Headers;
use crate::psn::Psn;

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;
/// QPN of the general services interface, where connection management lives.
pub const GSI_QPN: u32 = 1;
/// Queue key of the general services interface.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Management class of communication management.
pub const CLASS_CM: u8 = 0x07;
/// Version of the class that is spoken here.
pub const CLASS_CM_VERSION: u8 = 2;
/// Method of every CM message: a request without a MAD-level response.
pub const METHOD_SEND: u8 = 0x03;

/// Header of every MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadHeader {
    /// Version of the MAD format, 1.
    pub base_version: u8,
    /// Management class.
    pub mgmt_class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Method, response bit included.
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// Depends on the class.
    pub class_specific: u16,
    /// Transaction: a reply has that of its request.
    pub tid: u64,
    /// What the MAD is about.
    pub attr_id: u16,
    /// Depends on the attribute. In CM messages: options of enhanced connection establishment.
    pub attr_mod: u32,
}

impl MadHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// Header of a CM message; the message's own attribute is filled in when it is emitted.
    pub const fn cm(tid: u64) -> Self {
        Self {
            base_version: 1,
            mgmt_class: CLASS_CM,
            class_version: CLASS_CM_VERSION,
            method: METHOD_SEND,
            status: 0,
            class_specific: 0,
            tid,
            attr_id: 0,
            attr_mod: 0,
        }
    }

    /// Parse the front of `bytes`; `None` when too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            base_version: b[0],
            mgmt_class: b[1],
            class_version: b[2],
            method: b[3],
            status: u16::from_be_bytes(at(b, 4)),
            class_specific: u16::from_be_bytes(at(b, 6)),
            tid: u64::from_be_bytes(at(b, 8)),
            attr_id: u16::from_be_bytes(at(b, 16)),
            attr_mod: u32::from_be_bytes(at(b, 20)),
        })
    }

    /// The header as on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(
            &mut out,
            0,
            [self.base_version, self.mgmt_class, self.class_version, self.method],
        );
        put(&mut out, 4, self.status.to_be_bytes());
        put(&mut out, 6, self.class_specific.to_be_bytes());
        put(&mut out, 8, self.tid.to_be_bytes());
        put(&mut out, 16, self.attr_id.to_be_bytes());
        put(&mut out, 20, self.attr_mod.to_be_bytes());
        out
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`MadHeader::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.to_bytes());
    }
}

/// Transport headers of a packet that carries a MAD to the peer's general services interface.
pub const fn gsi_headers(psn: Psn) -> Headers {
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, psn));
    headers.deth = Some(Deth {
        qkey: GSI_QKEY,
        src_qpn: GSI_QPN,
    });
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_and_round_trip() {
        let header = MadHeader {
            base_version: 1,
            mgmt_class: 2,
            class_version: 3,
            method: 4,
            status: 0x0506,
            class_specific: 0x0708,
            tid: 0x090a_0b0c_0d0e_0f10,
            attr_id: 0x1112,
            attr_mod: 0x1516_1718,
        };
        let bytes = header.to_bytes();
        assert_eq!(
            bytes,
            [
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0, 0, 21, 22, 23, 24
            ]
        );
        assert_eq!(MadHeader::parse(&bytes), Some(header));
        assert_eq!(MadHeader::parse(&bytes[1..]), None);
    }
}
