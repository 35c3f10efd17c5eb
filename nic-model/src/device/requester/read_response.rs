//! READ responses and atomic acknowledgements (IBTA 9.7.5.1, 9.7.5.3).

use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::super::wqe::SendWqe;
use super::ack::Coverage;
use super::message::local_fault;
use super::{Outcome, Requester};
use crate::host_if::cqe::WcStatus;
use crate::host_if::wqe::WrOpcode;
use crate::tonic::Incoming;
use roce_wire::psn::Psn;

impl Requester {
    /// Bring the READ or atomic that `psn` answers to the front; `None` when there is nothing to do.
    fn answered_message(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn) -> Option<()> {
        // A response acknowledges every request before its own.
        if self.acknowledge(qp, cx, psn.previous()) == Coverage::ReadUnanswered {
            let first = self.inflight.front()?;
            if psn.offset_from(first.first_psn) >= first.psns {
                self.ask_again(cx);
                return None;
            }
        }
        let first = self.inflight.front()?;
        if !first.awaits_response() || self.offered == 0 || first.first_seg >= self.sent_seg {
            cx.counters.malformed_pkts += 1;
            return None;
        }
        let number = psn.signed_offset_from(first.first_psn);
        let expected = i32::try_from(first.answered).unwrap_or(i32::MAX);
        if number < expected {
            cx.counters.duplicate_request += 1;
            return None;
        }
        if number > expected {
            if u32::try_from(number).is_ok_and(|number| number < first.psns) {
                self.ask_again(cx);
            }
            return None;
        }
        Some(())
    }

    /// A READ response packet.
    pub(in crate::device) fn on_read_response(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        psn: Psn,
        payload: &[u8],
    ) -> Outcome {
        if self.answered_message(qp, cx, psn).is_none() {
            return Outcome::Live;
        }
        let Some(first) = self.inflight.front().copied() else {
            return Outcome::Live;
        };
        if first.opcode != WrOpcode::RdmaRead {
            return self.fail_with(qp, cx, WcStatus::BadRespErr, 0);
        }
        let offset = u64::from(first.answered) * u64::from(qp.mtu);
        let left = u64::from(first.length).saturating_sub(offset);
        if payload.len() as u64 != left.min(u64::from(qp.mtu)) {
            return self.fail_with(qp, cx, WcStatus::BadRespErr, 0);
        }
        let last = first.answered + 1 == first.psns;
        if let Err(status) = self.deliver(qp, cx, first.wqe, offset, payload, last) {
            return self.fail_with(qp, cx, status, 0);
        }
        self.count_answer(qp, cx)
    }

    /// An atomic acknowledgement.
    pub(in crate::device) fn on_atomic_ack(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, orig: u64) -> Outcome {
        if self.answered_message(qp, cx, psn).is_none() {
            return Outcome::Live;
        }
        let Some(first) = self.inflight.front().copied() else {
            return Outcome::Live;
        };
        if !first.opcode.is_atomic() {
            return self.fail_with(qp, cx, WcStatus::BadRespErr, 0);
        }
        if let Err(status) = self.deliver(qp, cx, first.wqe, 0, &orig.to_ne_bytes(), true) {
            return self.fail_with(qp, cx, status, 0);
        }
        self.count_answer(qp, cx)
    }

    fn deliver(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        wqe: u32,
        offset: u64,
        data: &[u8],
        last: bool,
    ) -> Result<(), WcStatus> {
        if data.is_empty() {
            return Ok(());
        }
        let wqe = SendWqe::decode(self.image.load(&self.sq, wqe)).map_err(|_| WcStatus::LocQpOpErr)?;
        cx.memory
            .scatter(qp.pd, wqe.list, offset, data, last)
            .map_err(local_fault)
    }

    fn count_answer(&mut self, qp: &QpInfo, cx: &mut Parts) -> Outcome {
        self.asked_again = None;
        self.renew_retries(qp);
        let Some(first) = self.inflight.front_mut() else {
            return Outcome::Live;
        };
        first.answered += 1;
        if !first.is_answered() {
            if let Some(flow) = self.flow {
                // A long READ makes progress without an acknowledged segment.
                cx.tonic.incoming(cx.now, flow, Incoming::Progress);
            }
            return Outcome::Live;
        }
        let una = Some(first.end_seg());
        self.retire_first(qp, cx);
        self.advance(qp, cx, una);
        self.fetch(qp, cx)
    }
}
