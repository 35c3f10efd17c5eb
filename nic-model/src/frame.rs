//! What passes between the device and a port: batches of RoCEv2 packets and their addressing.
//!
//! A packet here is a UDP payload: BTH … payload, pad, ICRC. The device leaves the ICRC bytes zero; the engine seals a
//! batch (`roce_wire::icrc`) once the port's IP identification rule is known, and verifies what it receives before the
//! device sees it.

use core::net::IpAddr;

/// Addressing of a batch, from the QP's or AH's address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Own address.
    pub src: IpAddr,
    /// Peer address.
    pub dst: IpAddr,
    /// UDP source port, ≥ 0xC000; entropy for equal-cost multipath. The destination port is always 4791.
    pub sport: u16,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
}

/// Packets of one path to one QP, to be sent in order: all `segment_size` long except the last, which may be shorter.
#[derive(Clone, Debug)]
pub struct TxBatch {
    /// Addressing.
    pub path: Path,
    /// Destination QPN of every packet in it.
    pub dest_qpn: u32,
    /// UDP payload length of every packet but the last.
    pub segment_size: usize,
    /// The packets, back to back.
    pub bytes: Vec<u8>,
}

impl TxBatch {
    /// An empty batch with room for a full one.
    pub fn new() -> Self {
        let any = IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        let path = Path {
            src: any,
            dst: any,
            sport: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
        };
        Self {
            path,
            dest_qpn: 0,
            segment_size: 0,
            bytes: Vec::with_capacity(MAX_BATCH_BYTES),
        }
    }

    /// The packets.
    pub fn segments(&self) -> core::slice::Chunks<'_, u8> {
        self.bytes.chunks(self.segment_size.max(1))
    }

    /// The packets, writable.
    pub fn segments_mut(&mut self) -> core::slice::ChunksMut<'_, u8> {
        self.bytes.chunks_mut(self.segment_size.max(1))
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_size.max(1))
    }

    /// Whether it holds no packet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forget the packets, keep the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.segment_size = 0;
    }
}

impl Default for TxBatch {
    fn default() -> Self {
        Self::new()
    }
}

/// Most bytes in one batch: what one UDP segmentation-offload send takes (65,535 less IPv4 and UDP headers).
pub const MAX_BATCH_BYTES: usize = 65_507;
/// Most packets in one batch: the kernel's UDP_MAX_SEGMENTS on the oldest kernel that has the offload.
pub const MAX_BATCH_SEGMENTS: usize = 64;

/// Addressing of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// Sender's address.
    pub src: IpAddr,
    /// Address it was sent to.
    pub dst: IpAddr,
    /// Sender's UDP port.
    pub sport: u16,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

impl RxMeta {
    /// Whether a switch marked the packet Congestion Experienced (RFC 3168).
    pub const fn is_congestion_experienced(&self) -> bool {
        self.traffic_class & 3 == 3
    }
}

/// Most bytes a sender may still put towards a destination now, see [`TxBudget`].
pub type Bytes = usize;

/// Back-pressure towards destination sockets, asked before a burst is formed.
pub trait TxBudget {
    /// Bytes of UDP payload that may be sent to the socket serving `dest_qpn` at `path.dst` now.
    fn available(&mut self, path: &Path, dest_qpn: u32) -> Bytes;
}

/// No back-pressure: the simulated link has queues of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl TxBudget for Unlimited {
    fn available(&mut self, _: &Path, _: u32) -> Bytes {
        usize::MAX
    }
}
