//! REP, reply to a request for communication (InfiniBand specification, table 110).

use super::Body;
use crate::bytes::{at, at24, be24, put, to_be24};
use crate::psn::Psn;

/// Reply to a request for communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Queue key of the sender's QP, unused by connected services.
    pub local_qkey: u32,
    /// Sender's QPN, 24 bits.
    pub local_qpn: u32,
    /// End-to-end context, 24 bits; an XRC target puts its QPN here.
    pub local_eecn: u32,
    /// First PSN the sender will send.
    pub starting_psn: Psn,
    /// Vendor of the options of enhanced connection establishment, 24 bits, 0 for none.
    pub vendor_id: u32,
    /// READs and atomics the sender can serve at once.
    pub responder_resources: u8,
    /// READs and atomics the sender will have outstanding.
    pub initiator_depth: u8,
    /// Longest time to an acknowledgement, 4.096 µs × 2ⁿ, 5 bits.
    pub target_ack_delay: u8,
    /// What became of the alternate path asked for, 2 bits.
    pub failover_accepted: u8,
    /// End-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// RNR retries the receiver's QP is to make, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether a shared receive queue is used.
    pub srq: bool,
    /// The sender's CA GUID.
    pub local_ca_guid: u64,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 196],
}

impl Rep {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            local_qkey: u32::from_be_bytes(at(b, 8)),
            local_qpn: at24(b, 12),
            local_eecn: at24(b, 16),
            starting_psn: Psn::new(at24(b, 20)),
            vendor_id: be24(b[15], b[19], b[23]),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover_accepted: (b[26] >> 1) & 3,
            end_to_end_flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            local_ca_guid: u64::from_be_bytes(at(b, 28)),
            private_data: at(b, 36),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        put(b, 8, self.local_qkey.to_be_bytes());
        put(b, 12, to_be24(self.local_qpn));
        put(b, 16, to_be24(self.local_eecn));
        put(b, 20, self.starting_psn.to_be_bytes());
        [b[15], b[19], b[23]] = to_be24(self.vendor_id);
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover_accepted & 3) << 1 | u8::from(self.end_to_end_flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(b, 28, self.local_ca_guid.to_be_bytes());
        put(b, 36, self.private_data);
    }
}
