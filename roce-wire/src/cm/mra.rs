//! MRA, message receipt acknowledgement: "wait longer" (InfiniBand specification, table 107).

use super::Body;
use super::MessageKind;
use crate::bytes::{at, put};

/// Message receipt acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// The message received.
    pub message: MessageKind,
    /// Time the answer may take, 4.096 µs × 2ⁿ, 5 bits.
    pub service_timeout: u8,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 222],
}

impl Mra {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            message: MessageKind::from_bits(b[8] >> 6),
            service_timeout: b[9] >> 3,
            private_data: at(b, 10),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        b[8] = self.message.to_bits() << 6;
        b[9] = self.service_timeout << 3;
        put(b, 10, self.private_data);
    }
}
