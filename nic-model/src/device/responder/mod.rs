//! The responder of a connected QP: request packets in, acknowledgements and READ responses out.
//!
//! [`admit`] checks every request in the order of the specification (IBTA 9.7.4); [`send`], [`write`], [`read`] and
//! [`atomic`] carry it out; [`ack`] decides what to acknowledge and when. Responses leave in PSN order: an ACK waits
//! until the READ responses before it are sent.

mod ack;
mod admit;
mod atomic;
mod read;
mod send;
mod write;

use super::memory::Refused;
use super::parts::Parts;
use super::qp::QpInfo;
use super::receive_queue::ReceiveQueue;
use crate::host_if::cqe::Cqe;
use crate::host_if::ring::WorkQueue;
use crate::tonic::FlowId;
pub(super) use ack::AckEmitted;
use ack::Pending;
use admit::Gap;
use atomic::ReplayCache;
use read::{Response, ResponseQueue};
use roce_wire::psn::Psn;
use roce_wire::syndrome::NakCode;
use std::sync::Arc;

/// Where the responder is inside a multi-packet message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    /// Between messages.
    Idle,
    /// In a SEND; so many bytes have arrived.
    Send { received: u64 },
    /// In a WRITE: where the next byte goes and how many are left.
    Write { va: u64, rkey: u32, left: u32, total: u32 },
}

/// What a request packet did to its QP.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The QP goes on.
    Live,
    /// The request was refused with that NAK: the QP goes to ERR.
    Refused(NakCode),
    /// A receive WQE completed in error: the QP goes to ERR, the peer got that NAK.
    ReceiveFailed(NakCode),
}

/// Receive side of a connected QP.
#[derive(Debug)]
pub(super) struct Responder {
    rq: ReceiveQueue,
    expected_psn: Psn,
    msn: u32,
    inbound: Inbound,
    /// What is known of the packets beyond the expected PSN.
    gap: Gap,
    pending: Pending,
    responses: ResponseQueue,
    replays: ReplayCache,
}

impl Responder {
    pub(super) fn new(rq: Arc<WorkQueue>) -> Self {
        Self::with(ReceiveQueue::new(rq))
    }

    fn with(rq: ReceiveQueue) -> Self {
        Self {
            rq,
            expected_psn: Psn::new(0),
            msn: 0,
            inbound: Inbound::Idle,
            gap: Gap::None,
            pending: Pending::default(),
            responses: ResponseQueue::default(),
            replays: ReplayCache::default(),
        }
    }

    /// INIT → RTR: expect the RQ PSN; READ responses will leave on `flow`.
    pub(super) fn start(&mut self, qp: &QpInfo, flow: FlowId) {
        self.expected_psn = Psn::new(qp.attr.rq_psn);
        self.responses.start(flow);
    }

    /// Forget everything, as RESET does, what is posted included. Ring indices run on.
    pub(super) fn reset(&mut self) -> Option<FlowId> {
        let flow = self.responses.flow();
        *self = Self::with(self.rq.emptied());
        flow
    }

    /// Last PSN received in order and the MSN, for a QP that must stay answerable after its end.
    pub(super) const fn position(&self) -> (Psn, u32) {
        (self.expected_psn, self.msn)
    }

    pub(super) fn flow(&self) -> Option<FlowId> {
        self.responses.flow()
    }

    /// Give up the flow, as a QP in ERR does.
    pub(super) fn take_flow(&mut self) -> Option<FlowId> {
        self.responses.take_flow()
    }

    /// Drop READ responses and atomic acknowledgements not sent; a NAK that waited behind them goes out.
    pub(super) fn abandon_responses(&mut self, qp: &QpInfo, cx: &mut Parts) {
        self.responses.clear();
        self.list(qp, cx);
    }

    /// Receive WQEs posted and not used.
    pub(super) fn posted(&self) -> u32 {
        self.rq.posted()
    }

    fn bump_msn(&mut self) {
        self.msn = (self.msn + 1) & 0x00ff_ffff;
    }

    /// Complete the current receive WQE with a message.
    fn complete_receive(&mut self, qp: &QpInfo, cx: &mut Parts, cqe: Cqe) {
        self.rq.complete(qp, cx, cqe);
        cx.counters.rdma_recvs += 1;
    }

    /// Flush every receive WQE.
    pub(super) fn flush(&mut self, qp: &QpInfo, cx: &mut Parts) {
        self.rq.flush(qp, cx);
    }
}

/// NAK for a remote access that was refused.
const fn remote_nak(_: Refused) -> NakCode {
    NakCode::RemoteAccess
}
