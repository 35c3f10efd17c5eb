//! SIDR_REQ, service id resolution request: asks for the QPN of a datagram service (InfiniBand specification, table 119).

use super::Body;
use crate::bytes::{at, put};

/// Service id resolution request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// Sender's id of the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// Service asked for.
    pub service_id: u64,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 216],
}

impl SidrReq {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            request_id: u32::from_be_bytes(at(b, 0)),
            pkey: u16::from_be_bytes(at(b, 4)),
            service_id: u64::from_be_bytes(at(b, 8)),
            private_data: at(b, 16),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.request_id.to_be_bytes());
        put(b, 4, self.pkey.to_be_bytes());
        put(b, 8, self.service_id.to_be_bytes());
        put(b, 16, self.private_data);
    }
}
