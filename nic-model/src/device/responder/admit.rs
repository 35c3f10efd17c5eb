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
        if let Ok(ahead @ 1..) = u32::try_from(ahead) {
            self.on_gap(qp, cx, ahead);
            return Outcome::Live;
        }
        if ahead < 0 {
            return self.on_duplicate(qp, cx, info, packet);
        }
        self.gap = Gap::None;
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

    /// A PSN beyond the expected one by `ahead`: report the gap once, and again each time the requester has gone back
    /// to fill it and the expected packet was lost again.
    fn on_gap(&mut self, qp: &QpInfo, cx: &mut Parts, ahead: u32) {
        cx.counters.out_of_seq_request += 1;
        if self.gap.is_news(ahead) {
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

/// What is known of the packets beyond the expected PSN.
///
/// One NAK is sent for a gap, and what follows it is discarded in silence (IBTA 9.7.4.1.2). Only a requester that has
/// gone back sends a PSN twice, so one that comes again while the gap is still there tells that the retransmission of
/// the expected packet is lost, and is worth another NAK. A packet that was overtaken comes once and is no news; a copy
/// made on the way costs a NAK, which the requester ignores while its retransmission is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nothing is missing.
    None,
    /// A NAK is out. `first` is how far beyond the expected PSN the packet was that gave rise to it; bit n of `near`
    /// that the PSN n + 1 beyond has arrived since.
    Reported { first: u32, near: u64 },
    /// An RNR NAK is out: silence until its PSN comes again.
    Silenced,
}

impl Gap {
    /// Take note of the PSN `ahead` of the expected one; whether a NAK is due.
    fn is_news(&mut self, ahead: u32) -> bool {
        // A requester that goes back starts at the expected PSN: those farther away need not be remembered.
        let bit = 1u64.checked_shl(ahead - 1).unwrap_or(0);
        match self {
            Self::Silenced => false,
            Self::Reported { first, near } if *first != ahead && *near & bit == 0 => {
                *near |= bit;
                false
            }
            Self::None | Self::Reported { .. } => {
                *self = Self::Reported { first: ahead, near: 0 };
                true
            }
        }
    }
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
