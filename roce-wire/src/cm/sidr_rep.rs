//! SIDR_REP, service id resolution reply (InfiniBand specification, table 120).

use super::Body;
use super::SidrStatus;
use crate::bytes::{at, at24, put, to_be24};

/// Service id resolution reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// Id of the request answered.
    pub request_id: u32,
    /// Outcome.
    pub status: SidrStatus,
    /// Bytes of `info` that are meant.
    pub info_len: u8,
    /// QPN of the service, 24 bits.
    pub qpn: u32,
    /// Service asked for.
    pub service_id: u64,
    /// Queue key of the service.
    pub qkey: u32,
    /// Further information, depending on the status.
    pub info: [u8; 72],
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 136],
}

impl SidrRep {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            request_id: u32::from_be_bytes(at(b, 0)),
            status: SidrStatus::from_u8(b[4]),
            info_len: b[5],
            qpn: at24(b, 8),
            service_id: u64::from_be_bytes(at(b, 12)),
            qkey: u32::from_be_bytes(at(b, 20)),
            info: at(b, 24),
            private_data: at(b, 96),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.request_id.to_be_bytes());
        b[4] = self.status.to_u8();
        b[5] = self.info_len;
        put(b, 8, to_be24(self.qpn));
        put(b, 12, self.service_id.to_be_bytes());
        put(b, 20, self.qkey.to_be_bytes());
        put(b, 24, self.info);
        put(b, 96, self.private_data);
    }
}
