//! Acknowledgements: ACK, NAK and RNR NAK (IBTA 9.7.5.2, 9.7.5.2.8, 9.9.2).

use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::{Outcome, Requester};
use crate::host_if::cqe::WcStatus;
use crate::tonic::{Incoming, SegNo};
use roce_wire::psn::Psn;
use roce_wire::syndrome::{NakCode, Syndrome, rnr_timer};

impl Requester {
    /// An acknowledge packet.
    pub(in crate::device) fn on_ack(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, syndrome: Syndrome) -> Outcome {
        match syndrome {
            Syndrome::Ack { .. } => {
                if self.acknowledge(qp, cx, psn) == Coverage::ReadUnanswered {
                    self.ask_again(cx);
                }
                self.fetch(qp, cx)
            }
            Syndrome::Nak(code) => self.on_nak(qp, cx, psn, code),
            Syndrome::RnrNak { timer } => self.on_rnr_nak(qp, cx, psn, timer),
            Syndrome::Reserved(_) => {
                cx.counters.malformed_pkts += 1;
                Outcome::Live
            }
        }
    }

    /// Everything up to and including `psn` has arrived: retire what that covers.
    pub(super) fn acknowledge(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn) -> Coverage {
        let mut una = None;
        let mut coverage = Coverage::Plain;
        while let Some(first) = self.inflight.front() {
            let covered = psn.signed_offset_from(first.first_psn) + 1;
            let Ok(covered) = u32::try_from(covered) else { break };
            if covered == 0 {
                break;
            }
            if first.awaits_response() {
                if first.is_answered() {
                    una = Some(first.end_seg());
                    self.retire_first(qp, cx);
                    continue;
                }
                // More is acknowledged than the responses that came: one is lost.
                if covered > first.answered {
                    coverage = Coverage::ReadUnanswered;
                }
                break;
            }
            let acked = first.first_seg + SegNo::from(covered.min(first.segs));
            if acked > self.sent_seg {
                cx.counters.malformed_pkts += 1;
                break;
            }
            una = Some(acked);
            if covered < first.segs {
                break;
            }
            self.retire_first(qp, cx);
        }
        self.advance(qp, cx, una);
        coverage
    }

    /// Tell Tonic about progress.
    pub(super) fn advance(&mut self, qp: &QpInfo, cx: &mut Parts, una: Option<SegNo>) {
        // An ACK heard before is no progress and renews no retries.
        if let (Some(cum), Some(flow)) = (una.filter(|una| *una > self.acked_seg), self.flow) {
            self.acked_seg = cum;
            cx.tonic.incoming(cx.now, flow, Incoming::Ack { cum });
            self.renew_retries(qp);
            self.rnr_left = qp.attr.rnr_retry;
        }
    }

    /// The segment that carries `psn`, if it is in flight.
    fn segment_of(&self, psn: Psn) -> Option<SegNo> {
        let front = self.inflight.front()?;
        if psn.is_before(front.first_psn) {
            return None;
        }
        let message = self
            .inflight
            .iter()
            .take(self.offered)
            .find(|message| psn.offset_from(message.first_psn) < message.psns)?;
        let number = if message.awaits_response() {
            0
        } else {
            psn.offset_from(message.first_psn)
        };
        Some(message.first_seg + SegNo::from(number)).filter(|seg| *seg < self.sent_seg)
    }

    fn on_nak(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, code: NakCode) -> Outcome {
        let Some(seg) = self.segment_of(psn) else {
            cx.counters.malformed_pkts += 1;
            return Outcome::Live;
        };
        if self.acknowledge(qp, cx, psn.previous()) == Coverage::ReadUnanswered {
            self.ask_again(cx);
            return Outcome::Live;
        }
        let status = match code {
            NakCode::PsnSequence => {
                cx.counters.rcvd_seq_err += 1;
                if self.go_back(cx, seg) && self.spend_retry(qp, cx) == Outcome::Failed {
                    return Outcome::Failed;
                }
                return self.fetch(qp, cx);
            }
            NakCode::InvalidRequest | NakCode::InvalidRd => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
        };
        self.fail_with(qp, cx, status, 0)
    }

    /// Send again from `seg` on, which the peer misses; whether that counts as a retry.
    ///
    /// A NAK of what is on its way again already does not, nor does the first one after progress: only a peer that
    /// refuses the same packet again and again uses the retries up.
    fn go_back(&mut self, cx: &mut Parts, seg: SegNo) -> bool {
        let Some(flow) = self.flow else { return false };
        let marked = cx.tonic.stats(flow).marked;
        cx.tonic.incoming(cx.now, flow, Incoming::Nack { cum: seg });
        if cx.tonic.stats(flow).marked == marked {
            return false;
        }
        let again = self.acked_seg == self.refused_seg;
        self.refused_seg = self.acked_seg;
        again
    }

    fn on_rnr_nak(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, timer: u8) -> Outcome {
        let Some(seg) = self.segment_of(psn) else {
            cx.counters.malformed_pkts += 1;
            return Outcome::Live;
        };
        cx.counters.rcvd_rnr_err += 1;
        if self.acknowledge(qp, cx, psn.previous()) == Coverage::ReadUnanswered {
            self.ask_again(cx);
            return Outcome::Live;
        }
        if self.rnr_until.is_some() {
            return Outcome::Live;
        }
        if qp.attr.rnr_retry != RNR_RETRY_FOREVER {
            if self.rnr_left == 0 {
                cx.counters.retry_rnr_exceeded_err += 1;
                return self.fail_with(qp, cx, WcStatus::RnrRetryExcErr, 0);
            }
            self.rnr_left -= 1;
        }
        let until = cx.now + rnr_timer(timer);
        self.rnr_until = Some(until);
        cx.timers.set(until, qp.index());
        if let Some(flow) = self.flow {
            cx.tonic.incoming(cx.now, flow, Incoming::Rewind { from: seg });
            cx.tonic.block(flow);
        }
        Outcome::Live
    }

    /// Send the oldest unanswered READ or atomic again, once for each gap.
    pub(super) fn ask_again(&mut self, cx: &mut Parts) {
        let (Some(first), Some(flow)) = (self.inflight.front(), self.flow) else {
            return;
        };
        let expected = first.first_psn + first.answered;
        if self.asked_again == Some(expected) {
            return;
        }
        self.asked_again = Some(expected);
        cx.tonic
            .incoming(cx.now, flow, Incoming::Rewind { from: first.first_seg });
    }
}

/// `rnr_retry` value that means without limit.
const RNR_RETRY_FOREVER: u8 = 7;

/// What an acknowledgement ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// Nothing special.
    Plain,
    /// It covers a READ or atomic whose response has not come.
    ReadUnanswered,
}
