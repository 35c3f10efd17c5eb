//! QP1, the general services interface: connection-management MADs in and out (IBTA 13.5, A17.4).
//!
//! The device only frames and unframes them; the connection manager lives above.

use super::batch;
use super::counters::Counters;
use super::path::{GidTable, source_port};
use crate::frame::{Path, RxMeta, TxBatch};
use core::net::IpAddr;
use roce_wire::bth::Bth;
use roce_wire::ext::Deth;
use roce_wire::opcode::Opcode;
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;
use std::collections::VecDeque;

/// QPN of the general services interface.
pub const GSI_QPN: u32 = 1;
/// Q_Key of the general services interface.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Bytes in a MAD.
pub const MAD_LEN: usize = 256;
/// MADs kept for the connection manager; more are dropped, their senders retry.
const MAX_QUEUED: usize = 4096;

/// A MAD and the addresses it travels between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Own address.
    pub local: IpAddr,
    /// Peer address.
    pub peer: IpAddr,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit; 0 is sent as 64.
    pub hop_limit: u8,
    /// The MAD.
    pub bytes: [u8; MAD_LEN],
}

/// Queues of QP1.
#[derive(Debug, Default)]
pub(super) struct Gsi {
    received: VecDeque<Mad>,
    to_send: VecDeque<Mad>,
    psn: u32,
}

impl Gsi {
    pub(super) fn send(&mut self, mad: Mad) {
        if self.to_send.len() < MAX_QUEUED {
            self.to_send.push_back(mad);
        }
    }

    pub(super) fn take_received(&mut self) -> Option<Mad> {
        self.received.pop_front()
    }

    pub(super) fn receive(&mut self, gids: &GidTable, meta: &RxMeta, packet: &Packet<'_>, counters: &mut Counters) {
        let valid = packet.headers.deth.is_some_and(|deth| deth.qkey == GSI_QKEY) && gids.contains(meta.dst);
        let Some(bytes) = packet
            .payload
            .try_into()
            .ok()
            .filter(|_| valid && self.received.len() < MAX_QUEUED)
        else {
            counters.malformed_pkts += 1;
            return;
        };
        let (traffic_class, hop_limit) = (meta.traffic_class, meta.hop_limit);
        self.received.push_back(Mad {
            local: meta.dst,
            peer: meta.src,
            traffic_class,
            hop_limit,
            bytes,
        });
    }

    /// Append the next MAD to the batch. Returns whether a packet was appended.
    pub(super) fn emit(&mut self, batch: &mut TxBatch) -> bool {
        let Some(mad) = self.to_send.front() else { return false };
        let path = Path {
            src: mad.local,
            dst: mad.peer,
            sport: source_port(0),
            traffic_class: mad.traffic_class,
            hop_limit: if mad.hop_limit == 0 { 64 } else { mad.hop_limit },
            flow_label: 0,
        };
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(self.psn)));
        headers.deth = Some(Deth {
            qkey: GSI_QKEY,
            src_qpn: GSI_QPN,
        });
        let length = batch::packet_length(&headers, MAD_LEN);
        // Messages to QP1 are steered one by one, so each is a batch of its own.
        if !batch.is_empty() {
            return false;
        }
        batch::begin(batch, &path, GSI_QPN, &headers, length);
        batch.bytes.extend_from_slice(&mad.bytes);
        batch::finish(batch, 0);
        self.psn = (self.psn + 1) & 0x00ff_ffff;
        self.to_send.pop_front();
        true
    }
}
