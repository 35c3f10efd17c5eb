//! What to acknowledge and when (IBTA 9.7.5.1).
//!
//! Positive ACKs coalesce: only the last one asked for in a turn is sent. A NAK or RNR NAK replaces it, as it
//! acknowledges everything before its PSN by itself. Nothing overtakes a READ response or atomic acknowledgement that
//! is still to be sent.

use super::super::batch;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::admit::Gap;
use super::{Responder, Response};
use crate::frame::{Path, TxBatch};
use roce_wire::ext::{Aeth, AtomicAckEth};
use roce_wire::opcode::Opcode;
use roce_wire::packet::Headers;
use roce_wire::psn::Psn;
use roce_wire::syndrome::{NakCode, Syndrome};

/// Acknowledgement waiting for the end of the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    /// Positive or negative, and its PSN.
    ack: Option<(Psn, Syndrome)>,
    /// The QP is in the list of QPs with something to send.
    listed: bool,
}

/// What a call to [`Responder::emit_ack`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum AckEmitted {
    /// Nothing left to send now.
    Done,
    /// One packet appended, more to come.
    More,
    /// The packet needs a batch of its own.
    Full,
}

impl Responder {
    /// Acknowledge everything before the expected PSN.
    pub(super) fn schedule_ack(&mut self, qp: &QpInfo, cx: &mut Parts) {
        // A NAK of the expected PSN says more; one of an earlier PSN is out of date.
        let refused = self
            .pending
            .ack
            .is_some_and(|(psn, syndrome)| psn == self.expected_psn && !matches!(syndrome, Syndrome::Ack { .. }));
        if !refused {
            let last = self.expected_psn.previous();
            self.pending.ack = Some((last, Syndrome::ACK));
        }
        self.list(qp, cx);
    }

    pub(super) fn schedule_nak(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, code: NakCode) {
        self.pending.ack = Some((psn, Syndrome::Nak(code)));
        self.list(qp, cx);
    }

    pub(super) fn schedule_rnr_nak(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn) {
        cx.counters.send_rnr_err += 1;
        // What follows is discarded in silence until this PSN comes again (IBTA 9.7.5.2.8).
        self.gap = Gap::Silenced;
        self.pending.ack = Some((
            psn,
            Syndrome::RnrNak {
                timer: qp.attr.min_rnr_timer,
            },
        ));
        self.list(qp, cx);
    }

    /// Put the QP in the list of those with acknowledgements to send.
    pub(in crate::device) fn list(&mut self, qp: &QpInfo, cx: &mut Parts) {
        if !self.pending.listed {
            self.pending.listed = true;
            cx.ack_due.push_back(qp.index());
        }
    }

    /// Append the next acknowledgement to the batch.
    pub(in crate::device) fn emit_ack(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        path: &Path,
        batch: &mut TxBatch,
    ) -> AckEmitted {
        let msn = self.msn;
        let headers = match self.responses.head() {
            Some(Response::Read(_)) => {
                // The ACK, if any, follows the READ responses; they put the QP back in the list when they are out.
                self.pending.listed = false;
                cx.counters.ack_deferred += u64::from(self.pending.ack.is_some());
                return AckEmitted::Done;
            }
            Some(Response::Atomic { psn, orig, msn, .. }) => {
                let mut headers = Headers::new(qp.bth(Opcode::RcAtomicAck, psn));
                headers.aeth = Some(Aeth {
                    syndrome: Syndrome::ACK,
                    msn,
                });
                headers.atomic_ack = Some(AtomicAckEth { orig });
                headers
            }
            None => {
                let Some((psn, syndrome)) = self.pending.ack else {
                    self.pending.listed = false;
                    return AckEmitted::Done;
                };
                let mut headers = Headers::new(qp.bth(Opcode::RcAck, psn));
                headers.aeth = Some(Aeth { syndrome, msn });
                headers
            }
        };
        let length = batch::packet_length(&headers, 0);
        if !batch::admits(batch, path, qp.attr.dest_qp_num, length) {
            return AckEmitted::Full;
        }
        batch::begin(batch, path, qp.attr.dest_qp_num, &headers, length);
        batch::finish(batch, 0);
        cx.counters.acks_sent += 1;
        if self.responses.head().is_some() {
            self.responses.pop();
            self.responses.offer(cx);
        } else {
            self.pending.ack = None;
        }
        AckEmitted::More
    }
}
