//! Inbound RDMA READ and the queue of responses (IBTA 9.4.4, 9.7.5.1.9).
//!
//! READ responses are data segments and leave by a Tonic flow of their own; atomic acknowledgements are control packets.
//! Both wait in one queue, so that responses keep PSN order. A duplicate READ takes the place of what is queued for its
//! PSNs, and what is queued behind it follows anew.

use super::super::batch;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::super::requester::Emitted;
use super::admit::{Executed, Refusal};
use super::{Outcome, Responder, remote_nak};
use crate::frame::{Path, TxBatch};
use crate::host_if::qp_attr::Access;
use crate::tonic::{FlowId, SegNo};
use roce_wire::ext::Aeth;
use roce_wire::opcode::Opcode;
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;
use roce_wire::syndrome::{NakCode, Syndrome};
use std::collections::VecDeque;

/// A READ being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadResponse {
    first_seg: SegNo,
    segs: u32,
    first_psn: Psn,
    va: u64,
    rkey: u32,
    length: u32,
    msn: u32,
    /// It answers a duplicate.
    repeat: bool,
}

impl ReadResponse {
    fn end_psn(&self) -> Psn {
        self.first_psn + self.segs
    }

    const fn end_seg(&self) -> SegNo {
        self.first_seg + self.segs as u64
    }
}

/// A response to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// Segments of READ data.
    Read(ReadResponse),
    /// An atomic acknowledgement.
    Atomic {
        /// PSN of the request.
        psn: Psn,
        /// Value before the operation.
        orig: u64,
        /// MSN at its execution.
        msn: u32,
        /// It answers a duplicate.
        repeat: bool,
    },
}

impl Response {
    const fn is_repeat(&self) -> bool {
        match self {
            Self::Read(read) => read.repeat,
            Self::Atomic { repeat, .. } => *repeat,
        }
    }

    fn first_psn(&self) -> Psn {
        match self {
            Self::Read(read) => read.first_psn,
            Self::Atomic { psn, .. } => *psn,
        }
    }

    fn end_psn(&self) -> Psn {
        match self {
            Self::Read(read) => read.end_psn(),
            Self::Atomic { psn, .. } => psn.next(),
        }
    }
}

/// Most responses queued; duplicates beyond that are ignored, their requester asks again.
const MAX_QUEUED: usize = 64;

/// Responses in PSN order.
#[derive(Debug, Default)]
pub(super) struct ResponseQueue {
    queue: VecDeque<Response>,
    flow: Option<FlowId>,
    next_seg: SegNo,
    offered: SegNo,
}

impl ResponseQueue {
    pub(super) fn start(&mut self, flow: FlowId) {
        self.flow = Some(flow);
    }

    pub(super) const fn flow(&self) -> Option<FlowId> {
        self.flow
    }

    pub(super) fn take_flow(&mut self) -> Option<FlowId> {
        self.flow.take()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    pub(super) fn head(&self) -> Option<Response> {
        self.queue.front().copied()
    }

    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Requests being answered for the first time: those the peer may count as outstanding.
    pub(super) fn outstanding(&self) -> usize {
        self.queue.iter().filter(|response| !response.is_repeat()).count()
    }

    /// Whether a duplicate may be answered.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < MAX_QUEUED
    }

    fn push_read(&mut self, mut read: ReadResponse) {
        read.first_seg = self.next_seg;
        self.next_seg = read.end_seg();
        self.queue.push_back(Response::Read(read));
    }

    pub(super) fn push_atomic(&mut self, psn: Psn, orig: u64, msn: u32, repeat: bool) {
        self.queue.push_back(Response::Atomic { psn, orig, msn, repeat });
    }

    /// Offer Tonic the READs up to the first atomic.
    pub(super) fn offer(&mut self, cx: &mut Parts) {
        let Some(flow) = self.flow else { return };
        let upto = self.queue.iter().map_while(|response| match response {
            Response::Read(read) => Some(read.end_seg()),
            Response::Atomic { .. } => None,
        });
        if let Some(upto) = upto.last().filter(|upto| *upto > self.offered) {
            self.offered = upto;
            cx.tonic.available(cx.now, flow, upto);
        }
    }

    /// Answer a duplicate READ: in place of what is queued for its PSNs, before what is queued behind. Segments of the
    /// old entries that Tonic already has turn out to be nothing.
    fn repeat_read(&mut self, read: ReadResponse) {
        let behind = self
            .queue
            .iter()
            .position(|queued| read.first_psn.is_before(queued.end_psn()));
        let behind = self.queue.split_off(behind.unwrap_or(self.queue.len()));
        self.push_read(read);
        for queued in behind
            .into_iter()
            .filter(|queued| !queued.first_psn().is_before(read.end_psn()))
        {
            match queued {
                Response::Read(read) => self.push_read(read),
                Response::Atomic { .. } => self.queue.push_back(queued),
            }
        }
    }

    /// The READ that owns a segment.
    fn owner(&self, seg: SegNo) -> Option<ReadResponse> {
        self.queue.iter().find_map(|response| match response {
            Response::Read(read) if (read.first_seg..read.end_seg()).contains(&seg) => Some(*read),
            _ => None,
        })
    }
}

impl Responder {
    pub(super) fn on_read(&mut self, qp: &QpInfo, cx: &mut Parts, packet: &Packet<'_>) -> Result<Executed, Refusal> {
        if self.responses.outstanding() >= usize::from(qp.attr.max_dest_rd_atomic) {
            return Err(Refusal::Request(NakCode::InvalidRequest));
        }
        let read = self.check_read(qp, cx, packet).map_err(Refusal::Request)?;
        self.expected_psn = self.expected_psn + read.segs;
        self.bump_msn();
        self.responses.push_read(ReadResponse { msn: self.msn, ..read });
        self.responses.offer(cx);
        Ok(Executed::Silently)
    }

    fn check_read(&self, qp: &QpInfo, cx: &Parts, packet: &Packet<'_>) -> Result<ReadResponse, NakCode> {
        let reth = packet.headers.reth.ok_or(NakCode::InvalidRequest)?;
        if reth.dma_len > cx.caps.max_msg_size {
            return Err(NakCode::InvalidRequest);
        }
        if reth.dma_len > 0 {
            if !qp.attr.access.contains(Access::REMOTE_READ) {
                return Err(NakCode::RemoteAccess);
            }
            cx.memory
                .remote(qp.pd, reth.rkey, reth.va, reth.dma_len as usize, Access::REMOTE_READ)
                .map_err(remote_nak)?;
        }
        Ok(ReadResponse {
            first_seg: 0,
            segs: reth.dma_len.div_ceil(qp.mtu).max(1),
            first_psn: packet.headers.bth.psn,
            va: reth.va,
            rkey: reth.rkey,
            length: reth.dma_len,
            msn: self.msn,
            repeat: false,
        })
    }

    pub(super) fn on_duplicate_read(&mut self, qp: &QpInfo, cx: &mut Parts, packet: &Packet<'_>) {
        let Ok(read) = self.check_read(qp, cx, packet) else {
            return;
        };
        // A duplicate asks for PSNs that were given out; anything beyond them is a forgery.
        if self.expected_psn.is_before(read.end_psn()) {
            cx.counters.malformed_pkts += 1;
            return;
        }
        if !self.responses.has_room() {
            return;
        }
        self.responses.repeat_read(ReadResponse { repeat: true, ..read });
        self.responses.offer(cx);
    }

    /// UDP payload bytes of a response segment, for Tonic's credit.
    pub(in crate::device) fn response_length(&self, qp: &QpInfo, seg: SegNo) -> u32 {
        const OVERHEAD: u32 = 20;
        let Some(read) = self.responses.owner(seg) else {
            return 0;
        };
        let offset = (seg - read.first_seg) * u64::from(qp.mtu);
        let left = u64::from(read.length).saturating_sub(offset);
        OVERHEAD + u32::try_from(left).unwrap_or(u32::MAX).min(qp.mtu)
    }

    /// Append the packet of response segment `seg` to the batch if it fits there.
    pub(in crate::device) fn emit_response(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        path: &Path,
        seg: SegNo,
        batch: &mut TxBatch,
    ) -> Result<Emitted, Outcome> {
        let Some(read) = self.responses.owner(seg) else {
            return Ok(Emitted::Nothing);
        };
        let number = u32::try_from(seg - read.first_seg).unwrap_or(0);
        let offset = u64::from(number) * u64::from(qp.mtu);
        let left = u64::from(read.length).saturating_sub(offset);
        let payload = u32::try_from(left).unwrap_or(u32::MAX).min(qp.mtu) as usize;
        let (first, last) = (number == 0, number + 1 == read.segs);
        let opcode = match (first, last) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
        };
        let mut headers = Headers::new(qp.bth(opcode, read.first_psn + number));
        headers.bth.pad_count = u8::try_from(batch::pad_of(payload)).unwrap_or(0);
        if first || last {
            headers.aeth = Some(Aeth {
                syndrome: Syndrome::ACK,
                msn: read.msn,
            });
        }
        let length = batch::packet_length(&headers, payload);
        if !batch::admits(batch, path, qp.attr.dest_qp_num, length) {
            return Ok(Emitted::Full);
        }
        let range = if payload == 0 {
            None
        } else {
            // The region may have gone since the request was admitted.
            let va = read.va.wrapping_add(offset);
            match cx.memory.remote(qp.pd, read.rkey, va, payload, Access::REMOTE_READ) {
                Ok(range) => Some(range),
                Err(refused) => {
                    let code = remote_nak(refused);
                    self.responses.clear();
                    self.schedule_nak(qp, cx, read.first_psn + number, code);
                    return Err(Outcome::Refused(code));
                }
            }
        };
        batch::begin(batch, path, qp.attr.dest_qp_num, &headers, length);
        if let Some(range) = range {
            super::super::dma::read(range, &mut batch.bytes);
        }
        batch::finish(batch, batch::pad_of(payload));
        if last {
            self.responses.pop();
            // An atomic acknowledgement or an ACK may have waited for this response.
            self.responses.offer(cx);
            self.list(qp, cx);
        }
        Ok(Emitted::Packet)
    }
}
