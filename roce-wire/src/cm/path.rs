//! A path as a REQ describes it, primary or alternate (InfiniBand specification, table 106).

use crate::bytes::{at, at24, put, to_be24};

/// Addresses and attributes of one path, seen from the sender of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmPath {
    /// Sender's LID; over RoCE permissive (0xffff) when routed, else 0.
    pub local_lid: u16,
    /// Receiver's LID.
    pub remote_lid: u16,
    /// Sender's GID; over RoCEv2 its IP address, IPv4 mapped.
    pub local_gid: [u8; 16],
    /// Receiver's GID.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate code, 6 bits.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Whether both ends are in one subnet.
    pub subnet_local: bool,
    /// Time to wait for an acknowledgement, 4.096 µs × 2ⁿ, 5 bits.
    pub local_ack_timeout: u8,
}

impl CmPath {
    /// Bytes in a REQ.
    pub(super) const LEN: usize = 44;

    pub(super) fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            local_lid: u16::from_be_bytes(at(b, 0)),
            remote_lid: u16::from_be_bytes(at(b, 2)),
            local_gid: at(b, 4),
            remote_gid: at(b, 20),
            flow_label: at24(b, 36) >> 4,
            packet_rate: b[39] & 0x3f,
            traffic_class: b[40],
            hop_limit: b[41],
            sl: b[42] >> 4,
            subnet_local: b[42] & 8 != 0,
            local_ack_timeout: b[43] >> 3,
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        put(&mut b, 0, self.local_lid.to_be_bytes());
        put(&mut b, 2, self.remote_lid.to_be_bytes());
        put(&mut b, 4, self.local_gid);
        put(&mut b, 20, self.remote_gid);
        put(&mut b, 36, to_be24(self.flow_label << 4));
        b[39] = self.packet_rate & 0x3f;
        b[40] = self.traffic_class;
        b[41] = self.hop_limit;
        b[42] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        b[43] = self.local_ack_timeout << 3;
        b
    }
}
