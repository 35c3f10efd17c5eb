//! REQ, request for communication: opens a connection (InfiniBand specification, table 106).

use super::{Body, CmPath};
use crate::bytes::{at, at24, put, to_be24};
use crate::psn::Psn;

/// Request for communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Vendor of the options of enhanced connection establishment, 24 bits, 0 for none.
    pub vendor_id: u32,
    /// Service asked for, see [`super::ip`].
    pub service_id: u64,
    /// The sender's CA GUID.
    pub local_ca_guid: u64,
    /// Queue key of the sender's QP, unused by connected services.
    pub local_qkey: u32,
    /// Sender's QPN, 24 bits.
    pub local_qpn: u32,
    /// READs and atomics the sender can serve at once.
    pub responder_resources: u8,
    /// End-to-end context, 24 bits.
    pub local_eecn: u32,
    /// READs and atomics the sender will have outstanding.
    pub initiator_depth: u8,
    /// End-to-end context of the receiver, 24 bits.
    pub remote_eecn: u32,
    /// Time within which the receiver is to answer, 4.096 µs × 2ⁿ, 5 bits.
    pub remote_cm_response_timeout: u8,
    /// Transport service, 2 bits, see [`Req::transport`].
    pub transport_type: u8,
    /// End-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// First PSN the sender will send.
    pub starting_psn: Psn,
    /// Time within which the sender answers, 4.096 µs × 2ⁿ, 5 bits.
    pub local_cm_response_timeout: u8,
    /// Retries the receiver's QP is to make, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU code, 4 bits: 256 × 2ⁿ⁻¹ bytes.
    pub path_mtu: u8,
    /// Whether a reliable-datagram channel exists.
    pub rdc_exists: bool,
    /// RNR retries the receiver's QP is to make, 3 bits.
    pub rnr_retry_count: u8,
    /// Retries of CM messages, 4 bits.
    pub max_cm_retries: u8,
    /// Whether a shared receive queue is used.
    pub srq: bool,
    /// Extended transport service, 3 bits, see [`Req::transport`].
    pub extended_transport_type: u8,
    /// The path to use.
    pub primary: CmPath,
    /// The path to fall back to, all zero when there is none.
    pub alternate: CmPath,
    /// Whether the sender understands suggested alternate paths.
    pub sap_supported: bool,
    /// Consumer's data, zeros after it; begins with the prefix of [`super::ip`] over RDMA-CM.
    pub private_data: [u8; 92],
}

/// Transport service a REQ asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended reliable connection.
    Xrc,
    /// Any other extended service.
    Reserved,
}

impl Req {
    /// Transport service asked for.
    pub const fn transport(&self) -> Transport {
        match (self.transport_type & 3, self.extended_transport_type & 7) {
            (0, _) => Transport::Rc,
            (1, _) => Transport::Uc,
            (2, _) => Transport::Rd,
            (_, 1) => Transport::Xrc,
            _ => Transport::Reserved,
        }
    }

    /// Ask for a transport service.
    pub fn set_transport(&mut self, transport: Transport) {
        (self.transport_type, self.extended_transport_type) = match transport {
            Transport::Rc => (0, 0),
            Transport::Uc => (1, 0),
            Transport::Rd => (2, 0),
            Transport::Xrc => (3, 1),
            Transport::Reserved => (3, 0),
        };
    }

    /// Whether an alternate path is offered.
    pub const fn has_alternate(&self) -> bool {
        self.alternate.local_lid != 0
    }

    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            vendor_id: at24(b, 5),
            service_id: u64::from_be_bytes(at(b, 8)),
            local_ca_guid: u64::from_be_bytes(at(b, 16)),
            local_qkey: u32::from_be_bytes(at(b, 28)),
            local_qpn: at24(b, 32),
            responder_resources: b[35],
            local_eecn: at24(b, 36),
            initiator_depth: b[39],
            remote_eecn: at24(b, 40),
            remote_cm_response_timeout: b[43] >> 3,
            transport_type: (b[43] >> 1) & 3,
            end_to_end_flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(at24(b, 44)),
            local_cm_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: u16::from_be_bytes(at(b, 48)),
            path_mtu: b[50] >> 4,
            rdc_exists: b[50] & 8 != 0,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended_transport_type: b[51] & 7,
            primary: CmPath::parse(&at(b, 52)),
            alternate: CmPath::parse(&at(b, 96)),
            sap_supported: b[139] & 4 != 0,
            private_data: at(b, 140),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 5, to_be24(self.vendor_id));
        put(b, 8, self.service_id.to_be_bytes());
        put(b, 16, self.local_ca_guid.to_be_bytes());
        put(b, 28, self.local_qkey.to_be_bytes());
        put(b, 32, to_be24(self.local_qpn));
        b[35] = self.responder_resources;
        put(b, 36, to_be24(self.local_eecn));
        b[39] = self.initiator_depth;
        put(b, 40, to_be24(self.remote_eecn));
        b[43] = self.remote_cm_response_timeout << 3
            | (self.transport_type & 3) << 1
            | u8::from(self.end_to_end_flow_control);
        put(b, 44, self.starting_psn.to_be_bytes());
        b[47] = self.local_cm_response_timeout << 3 | (self.retry_count & 7);
        put(b, 48, self.pkey.to_be_bytes());
        b[50] = self.path_mtu << 4 | u8::from(self.rdc_exists) << 3 | (self.rnr_retry_count & 7);
        b[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | (self.extended_transport_type & 7);
        put(b, 52, self.primary.to_bytes());
        put(b, 96, self.alternate.to_bytes());
        b[139] |= u8::from(self.sap_supported) << 2;
        put(b, 140, self.private_data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_round_trip() {
        let mut req = Req::parse(&[0; super::super::BODY_LEN]);
        for transport in [
            Transport::Rc,
            Transport::Uc,
            Transport::Rd,
            Transport::Xrc,
            Transport::Reserved,
        ] {
            req.set_transport(transport);
            let mut body = [0; super::super::BODY_LEN];
            req.emit(&mut body);
            assert_eq!(Req::parse(&body).transport(), transport);
        }
    }
}
