//! REJ, reject: refuses or ends the establishment of a connection (InfiniBand specification, table 108).

use super::Body;
use super::{MessageKind, RejReason};
use crate::bytes::{at, put};

/// Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// The message rejected.
    pub message: MessageKind,
    /// Bytes of `info` that are meant, 7 bits.
    pub info_len: u8,
    /// Why.
    pub reason: RejReason,
    /// Further information, depending on the reason. For a time-out: the CA GUID of the sender.
    pub info: [u8; 72],
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 148],
}

impl Rej {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            message: MessageKind::from_bits(b[8] >> 6),
            info_len: b[9] >> 1,
            reason: RejReason::from_u16(u16::from_be_bytes(at(b, 10))),
            info: at(b, 12),
            private_data: at(b, 84),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        b[8] = self.message.to_bits() << 6;
        b[9] = self.info_len << 1;
        put(b, 10, self.reason.to_u16().to_be_bytes());
        put(b, 12, self.info);
        put(b, 84, self.private_data);
    }
}
