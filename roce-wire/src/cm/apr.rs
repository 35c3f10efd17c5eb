//! APR, alternate path response (InfiniBand specification, table 116).

use super::Body;
use crate::bytes::{at, put};

/// Alternate path response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apr {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Bytes of `info` that are meant.
    pub info_len: u8,
    /// Outcome, 0 when the path was loaded.
    pub status: u8,
    /// Further information, depending on the status.
    pub info: [u8; 72],
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 148],
}

impl Apr {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            info_len: b[8],
            status: b[9],
            info: at(b, 12),
            private_data: at(b, 84),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        b[8] = self.info_len;
        b[9] = self.status;
        put(b, 12, self.info);
        put(b, 84, self.private_data);
    }
}
