//! Admission of request packets: PSN, opcode sequence, length, resources (IBTA 9.7.4.1, figure 79).

use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::{Inbound, Outcome, Responder};
use roce_wire::opcode::{Kind, OpcodeInfo, Place};
use roce_wire::packet::Packet;
use roce_wire::psn::Psn;
use roce_wire::syndrome::NakCode;

impl Responder {
    /// A request packet of this QP's service.
    pub(in crate::device) fn on_request(&mut self, qp: &QpInfo, cx: &mut Parts, packet: &Packet<'_>) -> Outcome {
        let bth = &packet.headers.bth;
        let info = bth.opcode.info();
        let ahead = bth.psn.signed_offset_from(self.expected_psn);
        if ahead > 0 {
            self.on_gap(qp, cx);
            return Outcome::Live;
        }
        if ahead < 0 {
            return self.on_duplicate(qp, cx, info, packet);
        }
        self.gap_reported = false;
        if let Err(code) = self
            .check_sequence(info)
            .and_then(|()| check_length(info, packet.payload.len(), qp.mtu))
        {
            return self.refuse(qp, cx, bth.psn, code);
        }
        let outcome = match info.kind {
            Kind::Send => self.on_send(qp, cx, info, packet),
            Kind::Write => self.on_write(qp, cx, info, packet),
            Kind::ReadRequest => self.on_read(qp, cx, packet),
            Kind::CmpSwap | Kind::FetchAdd => self.on_atomic(qp, cx, info.kind, packet),
            Kind::ReadResponse | Kind::Ack | Kind::AtomicAck | Kind::Cnp => Ok(Executed::Silently),
        };
        match outcome {
            Ok(Executed::Done) => {
                if bth.ack_req {
                    self.schedule_ack(qp, cx);
                }
                Outcome::Live
            }
            Ok(Executed::Silently) => Outcome::Live,
            Err(Refusal::Request(code)) => self.refuse(qp, cx, bth.psn, code),
            Err(Refusal::Receive(code)) => {
                self.schedule_nak(qp, cx, bth.psn, code);
                Outcome::ReceiveFailed(code)
            }
        }
    }

    fn refuse(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn, code: NakCode) -> Outcome {
        match code {
            NakCode::RemoteAccess => cx.counters.remote_access_err += 1,
            _ => cx.counters.remote_invalid_req_err += 1,
        }
        self.schedule_nak(qp, cx, psn, code);
        Outcome::Refused(code)
    }

    /// A PSN beyond the expected one: report the gap once.
    fn on_gap(&mut self, qp: &QpInfo, cx: &mut Parts) {
        cx.counters.out_of_seq_request += 1;
        if !self.gap_reported {
            self.gap_reported = true;
            let expected = self.expected_psn;
            self.schedule_nak(qp, cx, expected, NakCode::PsnSequence);
        }
    }

    /// A PSN before the expected one (IBTA 9.7.4.1.2 and 9.7.5.1.4): SEND and WRITE are acknowledged again and not
    /// executed, READs executed again, atomics answered from the replay cache.
    fn on_duplicate(&mut self, qp: &QpInfo, cx: &mut Parts, info: &OpcodeInfo, packet: &Packet<'_>) -> Outcome {
        cx.counters.duplicate_request += 1;
        match info.kind {
            // Asked for or not: the requester may probe with any packet whether its ACK was lost.
            Kind::Send | Kind::Write => self.schedule_ack(qp, cx),
            Kind::ReadRequest => self.on_duplicate_read(qp, cx, packet),
            Kind::CmpSwap | Kind::FetchAdd => self.on_duplicate_atomic(qp, cx, packet.headers.bth.psn),
            Kind::ReadResponse | Kind::Ack | Kind::AtomicAck | Kind::Cnp => {}
        }
        Outcome::Live
    }

    /// Whether the opcode may follow what came before.
    fn check_sequence(&self, info: &OpcodeInfo) -> Result<(), NakCode> {
        let fits = matches!(
            (self.inbound, info.kind, info.place),
            (Inbound::Idle, _, Place::First | Place::Only)
                | (Inbound::Send { .. }, Kind::Send, Place::Middle | Place::Last)
                | (Inbound::Write { .. }, Kind::Write, Place::Middle | Place::Last)
        );
        if fits { Ok(()) } else { Err(NakCode::InvalidRequest) }
    }
}

/// Whether the payload length fits the place of the packet (IBTA 9.7.4.1.6).
fn check_length(info: &OpcodeInfo, payload: usize, mtu: u32) -> Result<(), NakCode> {
    let mtu = mtu as usize;
    let fits = match info.place {
        Place::First | Place::Middle => payload == mtu,
        Place::Last => payload > 0 && payload <= mtu,
        Place::Only => payload <= mtu,
    };
    if fits { Ok(()) } else { Err(NakCode::InvalidRequest) }
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executed {
    /// Done: acknowledge if asked.
    Done,
    /// Done, or dropped with its own answer: no ACK for it.
    Silently,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The peer's fault.
    Request(NakCode),
    /// The receive WQE's fault; it has completed in error.
    Receive(NakCode),
}
