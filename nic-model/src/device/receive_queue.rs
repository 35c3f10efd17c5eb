//! The receive queue as the device sees it: which WQE is next, and its completion.

use super::parts::Parts;
use super::qp::QpInfo;
use super::wqe::{Malformed, RecvWqe, WqeImage, recv_wr_id};
use crate::host_if::cqe::{Cqe, CqeFlags, WcOpcode, WcStatus};
use crate::host_if::ring::WorkQueue;
use std::sync::Arc;

/// Consumer side of an RQ.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    ring: Arc<WorkQueue>,
    image: WqeImage,
    /// Free-running index of the next WQE.
    next: u32,
}

impl ReceiveQueue {
    pub(super) fn new(ring: Arc<WorkQueue>) -> Self {
        let image = WqeImage::new(ring.stride());
        Self { ring, image, next: 0 }
    }

    /// The same queue with nothing posted, as after RESET. Ring indices run on.
    pub(super) fn emptied(&self) -> Self {
        let next = self.ring.producer();
        Self {
            next,
            ..Self::new(Arc::clone(&self.ring))
        }
    }

    /// WQEs posted and not used; none when the driver's index makes no sense.
    #[inline]
    pub(super) fn posted(&self) -> u32 {
        let count = self.ring.producer().wrapping_sub(self.next);
        if count > self.ring.entries() { 0 } else { count }
    }

    /// The WQE to be used next.
    #[inline]
    pub(super) fn current(&mut self) -> Result<RecvWqe<'_>, Malformed> {
        RecvWqe::decode(self.image.load(&self.ring, self.next))
    }

    /// Complete the current WQE and step to the next.
    pub(super) fn complete(&mut self, qp: &QpInfo, cx: &mut Parts, cqe: Cqe) {
        let wr_id = recv_wr_id(self.image.load(&self.ring, self.next));
        self.next = self.next.wrapping_add(1);
        let Ok(permit) = cx.cqs.reserve(qp.recv_cq) else { return };
        let cqe = Cqe {
            wr_id,
            timestamp: cx.now.as_nanos(),
            qpn: qp.qpn,
            flags: cqe.flags | CqeFlags::RECV.bits(),
            ..cqe
        };
        cx.cqs.complete(permit, cqe);
        cx.counters.cqes_written += 1;
    }

    /// The current WQE fails.
    pub(super) fn fail(&mut self, qp: &QpInfo, cx: &mut Parts, status: WcStatus) {
        let cqe = Cqe {
            opcode: WcOpcode::Recv as u8,
            status: status as u8,
            ..Cqe::default()
        };
        self.complete(qp, cx, cqe);
    }

    /// Flush every WQE.
    pub(super) fn flush(&mut self, qp: &QpInfo, cx: &mut Parts) {
        for _ in 0..self.posted() {
            self.fail(qp, cx, WcStatus::WrFlushErr);
        }
    }
}
