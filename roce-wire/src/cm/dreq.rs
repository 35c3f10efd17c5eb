//! DREQ, disconnect request (InfiniBand specification, table 112).

use super::Body;
use crate::bytes::{at, at24, put, to_be24};

/// Disconnect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Receiver's QPN, 24 bits.
    pub remote_qpn: u32,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 220],
}

impl Dreq {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            remote_qpn: at24(b, 8),
            private_data: at(b, 12),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        put(b, 8, to_be24(self.remote_qpn));
        put(b, 12, self.private_data);
    }
}
