//! Packetizing: from a segment number to a request packet in the batch.

use super::super::batch;
use super::super::memory::Refused;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::super::wqe::SendWqe;
use super::Requester;
use super::message::{Message, local_fault};
use crate::frame::{Path, TxBatch};
use crate::host_if::wqe::{WqeFlags, WrOpcode};
use crate::tonic::SegNo;
use roce_wire::ext::{AtomicEth, ImmDt, Reth};
use roce_wire::opcode::Opcode;
use roce_wire::packet::Headers;

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum Emitted {
    /// In the batch.
    Packet,
    /// It needs a batch of its own.
    Full,
    /// Nothing to send: acknowledged meanwhile, or its message failed.
    Nothing,
}

/// A message asks for an ACK at its end and at every so many segments, so that a long one keeps its window moving.
const ACK_INTERVAL: u32 = 32;

impl Requester {
    fn locate(&self, seg: SegNo) -> Option<usize> {
        let first = self.inflight.front()?;
        if seg < first.first_seg {
            return None;
        }
        if seg < first.end_seg() {
            return Some(0);
        }
        let index = self.inflight.partition_point(|message| message.end_seg() <= seg);
        (index < self.offered).then_some(index)
    }

    /// As [`Self::locate`], looking first where the last packet came from: bursts run on.
    #[inline]
    fn locate_next(&mut self, seg: SegNo) -> Option<usize> {
        let first = self.inflight.front()?;
        let near = self.emitted_wqe.wrapping_sub(first.wqe) as usize;
        let owns = |index: &usize| {
            let message = self.inflight.get(*index);
            message.is_some_and(|message| (message.first_seg..message.end_seg()).contains(&seg))
        };
        let index = match [near, near.wrapping_add(1)].into_iter().find(owns) {
            Some(index) if index < self.offered => index,
            _ => self.locate(seg)?,
        };
        self.emitted_wqe = self.inflight[index].wqe;
        Some(index)
    }

    /// UDP payload bytes of a segment, for Tonic's credit.
    pub(in crate::device) fn segment_length(&self, qp: &QpInfo, seg: SegNo) -> u32 {
        const OVERHEAD: u32 = 32;
        let Some(message) = self.locate(seg).map(|index| &self.inflight[index]) else {
            return OVERHEAD;
        };
        if message.awaits_response() {
            return OVERHEAD;
        }
        let offset = u64::from(qp.mtu) * (seg - message.first_seg);
        let left = u64::from(message.length).saturating_sub(offset);
        OVERHEAD + u32::try_from(left).unwrap_or(u32::MAX).min(qp.mtu)
    }

    /// Append the packet of segment `seg` to the batch if it fits there.
    #[inline]
    pub(in crate::device) fn emit(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        path: &Path,
        seg: SegNo,
        batch: &mut TxBatch,
    ) -> Emitted {
        let Some(index) = self.locate_next(seg) else {
            return Emitted::Nothing;
        };
        let message = self.inflight[index];
        if message.fault.is_some() {
            return Emitted::Nothing;
        }
        let packet = PacketPlan::new(&message, qp, seg);
        let length = batch::packet_length(&packet.headers, packet.payload);
        if !batch::admits(batch, path, qp.attr.dest_qp_num, length) {
            return Emitted::Full;
        }
        let mut headers = packet.headers;
        // The peer's answer to the oldest packet sent again tells whether the rest must follow.
        headers.bth.ack_req |= seg == self.acked_seg && seg < self.sent_seg;
        let wqe_needed = packet.payload > 0 || message.opcode.is_atomic();
        let start = batch.bytes.len();
        if wqe_needed {
            let image = self.image.load(&self.sq, message.wqe);
            let Ok(wqe) = SendWqe::decode(image) else {
                return Emitted::Nothing;
            };
            if let Some(atomic) = headers.atomic.as_mut() {
                atomic.swap_add = wqe.atomic.swap_add;
                atomic.compare = wqe.atomic.compare;
            }
            batch::begin(batch, path, qp.attr.dest_qp_num, &headers, length);
            let filled = match wqe.inline {
                Some(inline) => gather_inline(inline, packet.offset, packet.payload, &mut batch.bytes),
                None if packet.payload == 0 => Ok(()),
                None => cx
                    .memory
                    .gather(qp.pd, wqe.list, packet.offset, packet.payload, &mut batch.bytes),
            };
            if let Err(refused) = filled {
                // The region went away under the WQE: it fails when its turn comes.
                batch.bytes.truncate(start);
                self.inflight[index].fault = Some(local_fault(refused));
                return Emitted::Nothing;
            }
        } else {
            batch::begin(batch, path, qp.attr.dest_qp_num, &headers, length);
        }
        batch::finish(batch, batch::pad_of(packet.payload));
        if seg < self.sent_seg {
            cx.counters.retransmitted_pkts += 1;
        } else {
            self.sent_seg = seg + 1;
        }
        Emitted::Packet
    }

    /// Whether the oldest message turned faulty after it was offered.
    pub(in crate::device) fn settle_fault(&mut self, qp: &QpInfo, cx: &mut Parts) -> super::Outcome {
        self.offer(qp, cx)
    }
}

fn gather_inline(inline: &[u8], offset: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
    let start = usize::try_from(offset).map_err(|_| Refused::Bounds)?;
    let end = start.checked_add(length).ok_or(Refused::Bounds)?;
    out.extend_from_slice(inline.get(start..end).ok_or(Refused::Bounds)?);
    Ok(())
}

/// Headers and payload range of one request packet.
struct PacketPlan {
    headers: Headers,
    offset: u64,
    payload: usize,
}

impl PacketPlan {
    #[inline]
    fn new(message: &Message, qp: &QpInfo, seg: SegNo) -> Self {
        if message.awaits_response() {
            return Self::single(message, qp);
        }
        let number = u32::try_from(seg - message.first_seg).unwrap_or(0);
        let offset = u64::from(qp.mtu) * u64::from(number);
        let left = u64::from(message.length) - offset.min(u64::from(message.length));
        let payload = u32::try_from(left).unwrap_or(u32::MAX).min(qp.mtu) as usize;
        let (first, last) = (number == 0, number + 1 == message.segs);
        let opcode = opcode_of(message.opcode, first, last);
        let mut bth = qp.bth(opcode, message.first_psn + number);
        bth.pad_count = u8::try_from(batch::pad_of(payload)).unwrap_or(0);
        bth.ack_req = last || number % ACK_INTERVAL == ACK_INTERVAL - 1;
        let receives = !matches!(message.opcode, WrOpcode::RdmaWrite);
        bth.solicited = last && receives && message.flags.contains(WqeFlags::SOLICITED);
        let mut headers = Headers::new(bth);
        if first && matches!(message.opcode, WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm) {
            headers.reth = Some(Reth {
                va: message.remote_addr,
                rkey: message.rkey,
                dma_len: message.length,
            });
        }
        if last && matches!(message.opcode, WrOpcode::SendImm | WrOpcode::RdmaWriteImm) {
            headers.imm = Some(ImmDt(message.imm.to_ne_bytes()));
        }
        Self {
            headers,
            offset,
            payload,
        }
    }

    /// A READ (or the rest of one) or an atomic.
    fn single(message: &Message, qp: &QpInfo) -> Self {
        let opcode = match message.opcode {
            WrOpcode::CmpSwap => Opcode::RcCmpSwap,
            WrOpcode::FetchAdd => Opcode::RcFetchAdd,
            _ => Opcode::RcReadRequest,
        };
        let mut bth = qp.bth(opcode, message.first_psn + message.answered);
        bth.ack_req = true;
        let mut headers = Headers::new(bth);
        if message.opcode == WrOpcode::RdmaRead {
            let done = message.answered * qp.mtu;
            headers.reth = Some(Reth {
                va: message.remote_addr.wrapping_add(u64::from(done)),
                rkey: message.rkey,
                dma_len: message.length - done.min(message.length),
            });
        } else {
            headers.atomic = Some(AtomicEth {
                va: message.remote_addr,
                rkey: message.rkey,
                swap_add: 0,
                compare: 0,
            });
        }
        Self {
            headers,
            offset: 0,
            payload: 0,
        }
    }
}

const fn opcode_of(opcode: WrOpcode, first: bool, last: bool) -> Opcode {
    match (opcode, first, last) {
        (WrOpcode::RdmaWrite, true, true) => Opcode::RcWriteOnly,
        (WrOpcode::RdmaWriteImm, true, true) => Opcode::RcWriteOnlyImm,
        (WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm, true, false) => Opcode::RcWriteFirst,
        (WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm, false, false) => Opcode::RcWriteMiddle,
        (WrOpcode::RdmaWrite, false, true) => Opcode::RcWriteLast,
        (WrOpcode::RdmaWriteImm, false, true) => Opcode::RcWriteLastImm,
        (WrOpcode::SendImm, true, true) => Opcode::RcSendOnlyImm,
        (WrOpcode::SendImm, false, true) => Opcode::RcSendLastImm,
        (_, true, true) => Opcode::RcSendOnly,
        (_, true, false) => Opcode::RcSendFirst,
        (_, false, false) => Opcode::RcSendMiddle,
        (_, false, true) => Opcode::RcSendLast,
    }
}
