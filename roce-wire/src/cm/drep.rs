//! DREP, disconnect reply (InfiniBand specification, table 113).

use super::Body;
use crate::bytes::{at, put};

/// Disconnect reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drep {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 224],
}

impl Drep {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            private_data: at(b, 8),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        put(b, 8, self.private_data);
    }
}
