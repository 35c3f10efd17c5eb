//! LAP, load alternate path (InfiniBand specification, table 115).

use super::{Body, CmPath};
use crate::bytes::{at, at24, put, to_be24};

/// Load alternate path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    /// Sender's id of the connection.
    pub local_comm_id: u32,
    /// Receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Receiver's QPN, 24 bits.
    pub remote_qpn: u32,
    /// Time within which the receiver is to answer, 4.096 µs × 2ⁿ, 5 bits.
    pub remote_cm_response_timeout: u8,
    /// The path to load.
    pub alternate: CmPath,
    /// Consumer's data, zeros after it.
    pub private_data: [u8; 168],
}

impl Lap {
    /// Parse a message body. Any bytes are one.
    pub fn parse(b: &Body) -> Self {
        Self {
            local_comm_id: u32::from_be_bytes(at(b, 0)),
            remote_comm_id: u32::from_be_bytes(at(b, 4)),
            remote_qpn: at24(b, 12),
            remote_cm_response_timeout: b[15] >> 3,
            // The fields of a REQ's path, packed differently from the flow label on.
            alternate: CmPath {
                local_lid: u16::from_be_bytes(at(b, 20)),
                remote_lid: u16::from_be_bytes(at(b, 22)),
                local_gid: at(b, 24),
                remote_gid: at(b, 40),
                flow_label: at24(b, 56) >> 4,
                traffic_class: b[59],
                hop_limit: b[60],
                packet_rate: b[61] & 0x3f,
                sl: b[62] >> 4,
                subnet_local: b[62] & 8 != 0,
                local_ack_timeout: b[63] >> 3,
            },
            private_data: at(b, 64),
        }
    }

    /// Write it to `b`, whose other bytes are zero.
    pub fn emit(&self, b: &mut Body) {
        let path = &self.alternate;
        put(b, 0, self.local_comm_id.to_be_bytes());
        put(b, 4, self.remote_comm_id.to_be_bytes());
        put(b, 12, to_be24(self.remote_qpn));
        b[15] = self.remote_cm_response_timeout << 3;
        put(b, 20, path.local_lid.to_be_bytes());
        put(b, 22, path.remote_lid.to_be_bytes());
        put(b, 24, path.local_gid);
        put(b, 40, path.remote_gid);
        put(b, 56, to_be24(path.flow_label << 4));
        b[59] = path.traffic_class;
        b[60] = path.hop_limit;
        b[61] = path.packet_rate & 0x3f;
        b[62] = path.sl << 4 | u8::from(path.subnet_local) << 3;
        b[63] = path.local_ack_timeout << 3;
        put(b, 64, self.private_data);
    }
}
