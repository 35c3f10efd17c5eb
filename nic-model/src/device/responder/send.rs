//! Inbound SEND, with or without immediate (IBTA 9.4.1).

use super::super::memory::list_length;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::admit::{Executed, Refusal};
use super::{Inbound, Responder};
use crate::host_if::cqe::{Cqe, CqeFlags, WcOpcode, WcStatus};
use roce_wire::opcode::OpcodeInfo;
use roce_wire::packet::Packet;
use roce_wire::syndrome::NakCode;

impl Responder {
    pub(super) fn on_send(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
    ) -> Result<Executed, Refusal> {
        if packet.headers.ieth.is_some() {
            // SEND with invalidate: memory windows and remote invalidation are not capabilities of the device.
            return Err(Refusal::Request(NakCode::InvalidRequest));
        }
        let received = match self.inbound {
            Inbound::Send { received } => received,
            _ => 0,
        };
        if info.place.is_start() && self.posted() == 0 {
            self.schedule_rnr_nak(qp, cx, packet.headers.bth.psn);
            return Ok(Executed::Silently);
        }
        let length = packet.payload.len() as u64;
        let last = info.place.is_end();
        if let Err((status, code)) = self.place(qp, cx, received, packet.payload, last) {
            self.rq.fail(qp, cx, status);
            self.inbound = Inbound::Idle;
            return Err(Refusal::Receive(code));
        }
        self.expected_psn = self.expected_psn.next();
        if !last {
            self.inbound = Inbound::Send {
                received: received + length,
            };
            return Ok(Executed::Done);
        }
        self.inbound = Inbound::Idle;
        self.bump_msn();
        let (imm, flags) = immediate(packet);
        let cqe = Cqe {
            byte_len: u32::try_from(received + length).unwrap_or(u32::MAX),
            imm,
            opcode: WcOpcode::Recv as u8,
            flags: flags.bits(),
            ..Cqe::default()
        };
        self.complete_receive(qp, cx, cqe);
        Ok(Executed::Done)
    }

    /// Put payload into the current receive WQE at `offset`.
    fn place(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        offset: u64,
        payload: &[u8],
        last: bool,
    ) -> Result<(), (WcStatus, NakCode)> {
        let wqe = self
            .rq
            .current()
            .map_err(|_| (WcStatus::LocQpOpErr, NakCode::RemoteOperational))?;
        if wqe.list.len() > qp.max_recv_sge as usize {
            return Err((WcStatus::LocQpOpErr, NakCode::RemoteOperational));
        }
        if payload.is_empty() {
            return Ok(());
        }
        if offset + payload.len() as u64 > list_length(wqe.list) {
            return Err((WcStatus::LocLenErr, NakCode::InvalidRequest));
        }
        cx.memory
            .scatter(qp.pd, wqe.list, offset, payload, last)
            .map_err(|_| (WcStatus::LocProtErr, NakCode::RemoteOperational))
    }
}

/// Immediate data and flags of a packet that ends a message.
pub(super) fn immediate(packet: &Packet<'_>) -> (u32, CqeFlags) {
    let mut flags = CqeFlags::empty();
    flags.set(CqeFlags::SOLICITED, packet.headers.bth.solicited);
    let Some(imm) = packet.headers.imm else {
        return (0, flags);
    };
    (u32::from_ne_bytes(imm.0), flags | CqeFlags::WITH_IMM)
}
