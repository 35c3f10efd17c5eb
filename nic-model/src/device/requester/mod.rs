//! The requester of a connected QP: WQEs in, request packets out, acknowledgements in, completions out.
//!
//! ```text
//! SQ ring ─ fetch ─► inflight messages ─ offer ─► Tonic (segments it may send)
//!                        ▲    │                       │ burst
//!        acknowledge ────┘    └──────── emit ◄────────┘
//! ```
//!
//! Messages keep ring order from fetch to completion. Tonic numbers the packets the requester sends (a READ is one),
//! the wire numbers PSNs (a READ is one for each response packet); a message knows both. IBTA 9.7.5 and 9.9.

mod ack;
mod emit;
mod message;
mod read_response;

pub(super) use emit::Emitted;
pub(super) use message::wc_opcode;

use super::parts::Parts;
use super::qp::QpInfo;
use super::wqe::{SendWqe, WqeImage, send_wr_id};
use crate::host_if::cqe::{Cqe, CqeFlags, WcStatus};
use crate::host_if::qp_attr::QpState;
use crate::host_if::ring::WorkQueue;
use crate::host_if::wqe::WqeFlags;
use crate::time::Time;
use crate::tonic::{FlowId, Incoming, SegNo};
use message::Message;
use roce_wire::psn::Psn;
use std::collections::VecDeque;
use std::sync::Arc;

/// WQEs fetched ahead of completion.
const FETCH_DEPTH: usize = 512;

/// What a step of the requester did to its QP.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The QP goes on.
    Live,
    /// A WQE completed in error: the QP goes to ERR.
    Failed,
}

/// Send side of a connected QP.
#[derive(Debug)]
pub(super) struct Requester {
    sq: Arc<WorkQueue>,
    image: WqeImage,
    /// Free-running index of the next WQE to fetch.
    fetched: u32,
    inflight: VecDeque<Message>,
    /// Leading messages of `inflight` that Tonic may send.
    offered: usize,
    /// Offered READs and atomics without their response.
    rd_outstanding: u8,
    next_psn: Psn,
    next_seg: SegNo,
    /// Highest segment ever emitted, plus one: an ACK beyond it is a lie.
    sent_seg: SegNo,
    /// WQE of the packet emitted last.
    emitted_wqe: u32,
    /// Segments before this one are acknowledged.
    acked_seg: SegNo,
    /// `acked_seg` at the last NAK that made the requester go back.
    refused_seg: SegNo,
    /// Tonic flow of the requests, from RTS on.
    flow: Option<FlowId>,
    retries_left: u8,
    rnr_left: u8,
    rnr_until: Option<Time>,
    /// A gap in the responses has been answered by asking again from this PSN.
    asked_again: Option<Psn>,
}

impl Requester {
    pub(super) fn new(sq: Arc<WorkQueue>) -> Self {
        let image = WqeImage::new(sq.stride());
        Self {
            sq,
            image,
            fetched: 0,
            inflight: VecDeque::new(),
            offered: 0,
            rd_outstanding: 0,
            next_psn: Psn::new(0),
            next_seg: 0,
            sent_seg: 0,
            emitted_wqe: 0,
            acked_seg: 0,
            refused_seg: 0,
            flow: None,
            retries_left: 0,
            rnr_left: 0,
            rnr_until: None,
            asked_again: None,
        }
    }

    /// RTR → RTS: start at the SQ PSN on a fresh flow.
    pub(super) fn start(&mut self, qp: &QpInfo, flow: FlowId) {
        self.next_psn = Psn::new(qp.attr.sq_psn);
        self.next_seg = 0;
        self.sent_seg = 0;
        self.acked_seg = 0;
        self.refused_seg = 0;
        self.flow = Some(flow);
        self.renew_retries(qp);
        self.rnr_left = qp.attr.rnr_retry;
    }

    /// Forget everything, as RESET does, what is posted included. Ring indices run on.
    pub(super) fn reset(&mut self) -> Option<FlowId> {
        let flow = self.flow.take();
        let sq = Arc::clone(&self.sq);
        let fetched = sq.producer();
        *self = Self {
            fetched,
            ..Self::new(sq)
        };
        flow
    }

    pub(super) const fn flow(&self) -> Option<FlowId> {
        self.flow
    }

    /// Give up the flow, as a QP in ERR does.
    pub(super) fn take_flow(&mut self) -> Option<FlowId> {
        self.rnr_until = None;
        self.flow.take()
    }

    /// PSN of the next message.
    pub(super) const fn next_psn(&self) -> Psn {
        self.next_psn
    }

    /// Whether no fetched WQE is unfinished.
    pub(super) fn is_drained(&self) -> bool {
        self.inflight.is_empty()
    }

    fn renew_retries(&mut self, qp: &QpInfo) {
        self.retries_left = qp.attr.retry_cnt;
    }

    fn retired(&self) -> u32 {
        let inflight = u32::try_from(self.inflight.len()).unwrap_or(u32::MAX);
        self.fetched.wrapping_sub(inflight)
    }

    /// Fetch what the doorbell announced and offer it to Tonic.
    pub(super) fn fetch(&mut self, qp: &QpInfo, cx: &mut Parts) -> Outcome {
        let producer = self.sq.producer();
        if producer.wrapping_sub(self.retired()) > self.sq.entries() {
            // The driver's index is ahead of the ring: nothing in the queue can be trusted any more.
            return Outcome::Failed;
        }
        // A draining QP finishes what it has fetched and fetches no more.
        let may_fetch = qp.state() == QpState::Rts;
        while may_fetch && self.fetched != producer && self.inflight.len() < FETCH_DEPTH {
            if self.inflight.back().is_some_and(|last| last.fault.is_some()) {
                break;
            }
            let index = self.fetched;
            let image = self.image.load(&self.sq, index);
            let message = match SendWqe::decode(image) {
                Ok(wqe) => Message::lay_out(&wqe, index, self.next_seg, self.next_psn, qp, &cx.memory, &cx.caps),
                Err(_) => Message::malformed(send_wr_id(image), index, self.next_seg, self.next_psn),
            };
            self.fetched = index.wrapping_add(1);
            self.next_seg = message.end_seg();
            self.next_psn = self.next_psn + message.psns;
            self.inflight.push_back(message);
            cx.counters.wqes_fetched += 1;
        }
        self.offer(qp, cx)
    }

    /// Offer messages to Tonic as far as fences and the READ/atomic depth allow; fail when a faulty one is next.
    fn offer(&mut self, qp: &QpInfo, cx: &mut Parts) -> Outcome {
        if self.inflight.front().is_some_and(|first| first.fault.is_some()) {
            return self.fail_first(qp, cx, 0);
        }
        let mut upto = None;
        let Some(oldest_psn) = self.inflight.front().map(|first| first.first_psn) else {
            return Outcome::Live;
        };
        while let Some(message) = self.inflight.get(self.offered) {
            let fenced = message.flags.contains(WqeFlags::FENCE) && self.rd_outstanding > 0;
            let too_deep = message.awaits_response() && self.rd_outstanding >= qp.attr.max_rd_atomic;
            // PSNs in flight must stay comparable (IBTA 9.7.2): no more than half of their space.
            let span = message.first_psn.offset_from(oldest_psn) + message.psns;
            let too_long = self.offered > 0 && span > Psn::COUNT / 2;
            if message.fault.is_some() || fenced || too_deep || too_long {
                break;
            }
            self.rd_outstanding += u8::from(message.awaits_response());
            upto = Some(message.end_seg());
            self.offered += 1;
        }
        if let (Some(upto), Some(flow)) = (upto, self.flow) {
            cx.tonic.available(cx.now, flow, upto);
        }
        Outcome::Live
    }

    /// Complete the oldest message in error and report the failure.
    fn fail_first(&mut self, qp: &QpInfo, cx: &mut Parts, vendor_err: u32) -> Outcome {
        let Some(first) = self.inflight.front() else {
            return Outcome::Failed;
        };
        let status = first.fault.unwrap_or(WcStatus::GeneralErr);
        let first = *first;
        self.pop_first();
        complete(qp, cx, &first, status, vendor_err);
        cx.counters.send_err += 1;
        Outcome::Failed
    }

    /// The oldest message fails with `status`.
    fn fail_with(&mut self, qp: &QpInfo, cx: &mut Parts, status: WcStatus, vendor_err: u32) -> Outcome {
        if let Some(first) = self.inflight.front_mut() {
            first.fault = Some(status);
        }
        self.fail_first(qp, cx, vendor_err)
    }

    fn pop_first(&mut self) {
        let Some(first) = self.inflight.pop_front() else { return };
        if self.offered > 0 {
            self.offered -= 1;
            self.rd_outstanding -= u8::from(first.awaits_response());
        }
    }

    /// Retire the oldest message with success.
    fn retire_first(&mut self, qp: &QpInfo, cx: &mut Parts) {
        let Some(first) = self.inflight.front().copied() else {
            return;
        };
        self.pop_first();
        if qp.sq_sig_all || first.flags.contains(WqeFlags::SIGNALED) {
            complete(qp, cx, &first, WcStatus::Success, 0);
        }
        cx.counters.rdma_sends += 1;
    }

    /// Flush every WQE not completed, those not fetched yet included (IBTA 10.8.3.2.4).
    pub(super) fn flush(&mut self, qp: &QpInfo, cx: &mut Parts) {
        while let Some(first) = self.inflight.front().copied() {
            self.pop_first();
            complete(qp, cx, &first, WcStatus::WrFlushErr, 0);
        }
        let producer = self.sq.producer();
        if producer.wrapping_sub(self.fetched) > self.sq.entries() {
            return;
        }
        while self.fetched != producer {
            let index = self.fetched;
            self.fetched = index.wrapping_add(1);
            let wr_id = send_wr_id(self.image.load(&self.sq, index));
            let message = Message::malformed(wr_id, index, 0, Psn::new(0));
            complete(qp, cx, &message, WcStatus::WrFlushErr, 0);
        }
    }

    /// The local ACK timeout passed without progress; Tonic has marked what to send again.
    pub(super) fn on_timeout(&mut self, qp: &QpInfo, cx: &mut Parts) -> Outcome {
        if self.inflight.is_empty() {
            return Outcome::Live;
        }
        cx.counters.ack_timeouts += 1;
        self.spend_retry(qp, cx)
    }

    /// Count one retry; without any left the oldest message fails (IBTA 9.9.2.4).
    fn spend_retry(&mut self, qp: &QpInfo, cx: &mut Parts) -> Outcome {
        if self.retries_left == 0 {
            cx.counters.retry_exceeded_err += 1;
            return self.fail_with(qp, cx, WcStatus::RetryExcErr, VENDOR_RETRIES_EXCEEDED);
        }
        self.retries_left -= 1;
        cx.counters.completer_retry_err += 1;
        Outcome::Live
    }

    /// An RNR wait may be over.
    pub(super) fn on_rnr_timer(&mut self, cx: &mut Parts) {
        let (Some(until), Some(flow)) = (self.rnr_until, self.flow) else {
            return;
        };
        if until > cx.now {
            return;
        }
        self.rnr_until = None;
        if let Some(first) = self.inflight.front() {
            let from = first.first_seg;
            cx.tonic.incoming(cx.now, flow, Incoming::Rewind { from });
        }
        cx.tonic.unblock(cx.now, flow);
    }

    /// Whether Tonic's flow must stay blocked for the QP's own reasons.
    pub(super) const fn is_waiting(&self) -> bool {
        self.rnr_until.is_some()
    }
}

/// Vendor syndrome of exceeded retries, the value ConnectX reports and perftest users know.
const VENDOR_RETRIES_EXCEEDED: u32 = 0x81;

/// Write the CQE of a send WQE.
fn complete(qp: &QpInfo, cx: &mut Parts, message: &Message, status: WcStatus, vendor_err: u32) {
    let Ok(permit) = cx.cqs.reserve(qp.send_cq) else { return };
    let byte_len = if message.awaits_response() { message.length } else { 0 };
    let cqe = Cqe {
        wr_id: message.wr_id,
        timestamp: cx.now.as_nanos(),
        byte_len,
        qpn: qp.qpn,
        vendor_err,
        wqe_index: message.wqe,
        opcode: wc_opcode(message.opcode) as u8,
        status: status as u8,
        flags: CqeFlags::empty().bits(),
        ..Cqe::default()
    };
    cx.cqs.complete(permit, cqe);
    cx.counters.cqes_written += 1;
}
