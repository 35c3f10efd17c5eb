//! Inbound RDMA WRITE, with or without immediate (IBTA 9.4.3).

use super::super::dma;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::admit::{Executed, Refusal};
use super::send::immediate;
use super::{Inbound, Responder, remote_nak};
use crate::host_if::cqe::{Cqe, WcOpcode};
use crate::host_if::qp_attr::Access;
use roce_wire::opcode::OpcodeInfo;
use roce_wire::packet::Packet;
use roce_wire::syndrome::NakCode;

impl Responder {
    pub(super) fn on_write(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        info: &OpcodeInfo,
        packet: &Packet<'_>,
    ) -> Result<Executed, Refusal> {
        let (va, rkey, left, total) = match (self.inbound, packet.headers.reth) {
            (Inbound::Write { va, rkey, left, total }, _) => (va, rkey, left, total),
            (_, Some(reth)) => (reth.va, reth.rkey, reth.dma_len, reth.dma_len),
            _ => return Err(Refusal::Request(NakCode::InvalidRequest)),
        };
        let last = info.place.is_end();
        let length = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
        if length > left || (last && length != left) || total > cx.caps.max_msg_size {
            return Err(Refusal::Request(NakCode::InvalidRequest));
        }
        // A WRITE of no bytes checks neither key nor bounds (IBTA 9.4.3).
        if info.place.is_start() && total > 0 {
            if !qp.attr.access.contains(Access::REMOTE_WRITE) {
                return Err(Refusal::Request(NakCode::RemoteAccess));
            }
            cx.memory
                .remote(qp.pd, rkey, va, total as usize, Access::REMOTE_WRITE)
                .map_err(|refused| Refusal::Request(remote_nak(refused)))?;
        }
        let needs_receive = packet.headers.imm.is_some();
        if needs_receive && self.posted() == 0 {
            self.schedule_rnr_nak(qp, cx, packet.headers.bth.psn);
            return Ok(Executed::Silently);
        }
        if length > 0 {
            let range = cx
                .memory
                .remote(qp.pd, rkey, va, length as usize, Access::REMOTE_WRITE)
                .map_err(|refused| Refusal::Request(remote_nak(refused)))?;
            if last {
                dma::write_last(range, packet.payload);
            } else {
                dma::write(range, packet.payload);
            }
        }
        self.expected_psn = self.expected_psn.next();
        if !last {
            let va = va.wrapping_add(u64::from(length));
            self.inbound = Inbound::Write {
                va,
                rkey,
                left: left - length,
                total,
            };
            return Ok(Executed::Done);
        }
        self.inbound = Inbound::Idle;
        self.bump_msn();
        if needs_receive {
            let (imm, flags) = immediate(packet);
            let cqe = Cqe {
                byte_len: total,
                imm,
                opcode: WcOpcode::RecvRdmaWithImm as u8,
                flags: flags.bits(),
                ..Cqe::default()
            };
            self.complete_receive(qp, cx, cqe);
        }
        Ok(Executed::Done)
    }
}
