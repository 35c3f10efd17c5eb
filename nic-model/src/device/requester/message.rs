//! A fetched send WQE on its way: which Tonic segments and PSNs it owns.

use super::super::memory::{Memory, Refused, list_length};
use super::super::qp::QpInfo;
use super::super::wqe::SendWqe;
use crate::host_if::caps::DeviceCaps;
use crate::host_if::cqe::{WcOpcode, WcStatus};
use crate::host_if::wqe::{WqeFlags, WrOpcode};
use crate::tonic::SegNo;
use roce_wire::psn::Psn;

/// One message in flight or waiting for its turn.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) struct Message {
    pub(super) wqe: u32,
    pub(super) wr_id: u64,
    pub(super) opcode: WrOpcode,
    pub(super) flags: WqeFlags,
    pub(super) imm: u32,
    pub(super) length: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) first_seg: SegNo,
    /// Packets it sends: one for READs and atomics.
    pub(super) segs: u32,
    pub(super) first_psn: Psn,
    /// PSNs it occupies: for a READ one for each response packet.
    pub(super) psns: u32,
    /// Response packets received.
    pub(super) answered: u32,
    /// Why it cannot be sent; it completes with this status when its turn comes.
    pub(super) fault: Option<WcStatus>,
}

impl Message {
    /// Whether it is answered by response packets instead of an ACK.
    pub(super) const fn awaits_response(&self) -> bool {
        matches!(self.opcode, WrOpcode::RdmaRead | WrOpcode::CmpSwap | WrOpcode::FetchAdd)
    }

    pub(super) const fn is_answered(&self) -> bool {
        self.answered == self.psns
    }

    pub(super) const fn end_seg(&self) -> SegNo {
        self.first_seg + self.segs as u64
    }

    /// Check a WQE and lay it out behind what was fetched before. Never fails: a WQE that cannot be sent carries its
    /// fault, so that it completes in order.
    pub(super) fn lay_out(
        wqe: &SendWqe<'_>,
        index: u32,
        first_seg: SegNo,
        first_psn: Psn,
        qp: &QpInfo,
        memory: &Memory,
        caps: &DeviceCaps,
    ) -> Self {
        let length = wqe
            .inline
            .map_or_else(|| list_length(wqe.list), |inline| inline.len() as u64);
        let opcode = wqe.opcode.unwrap_or(WrOpcode::Send);
        let fault = fault_of(wqe, length, qp, memory, caps).err();
        let length = u32::try_from(length).unwrap_or(0);
        let packets = length.div_ceil(qp.mtu).max(1);
        let single = matches!(opcode, WrOpcode::RdmaRead | WrOpcode::CmpSwap | WrOpcode::FetchAdd);
        let psns = if opcode.is_atomic() { 1 } else { packets };
        Self {
            wqe: index,
            wr_id: wqe.ctrl.wr_id,
            opcode,
            flags: wqe.flags,
            imm: wqe.ctrl.imm,
            length,
            remote_addr: wqe.remote.addr,
            rkey: wqe.remote.rkey,
            first_seg,
            segs: if single { 1 } else { packets },
            first_psn,
            psns,
            answered: 0,
            fault,
        }
    }

    /// A message that only carries a fault (its WQE does not decode).
    pub(super) fn malformed(wr_id: u64, index: u32, first_seg: SegNo, first_psn: Psn) -> Self {
        Self {
            wqe: index,
            wr_id,
            opcode: WrOpcode::Send,
            flags: WqeFlags::empty(),
            imm: 0,
            length: 0,
            remote_addr: 0,
            rkey: 0,
            first_seg,
            segs: 1,
            first_psn,
            psns: 1,
            answered: 0,
            fault: Some(WcStatus::LocQpOpErr),
        }
    }
}

fn fault_of(wqe: &SendWqe<'_>, length: u64, qp: &QpInfo, memory: &Memory, caps: &DeviceCaps) -> Result<(), WcStatus> {
    let opcode = wqe.opcode.ok_or(WcStatus::LocQpOpErr)?;
    let inline = wqe.flags.contains(WqeFlags::INLINE);
    match opcode {
        WrOpcode::Send | WrOpcode::SendImm | WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm => {}
        WrOpcode::RdmaRead | WrOpcode::CmpSwap | WrOpcode::FetchAdd if !inline && qp.attr.max_rd_atomic > 0 => {}
        // Memory windows and key invalidation are not capabilities of the device.
        _ => return Err(WcStatus::LocQpOpErr),
    }
    if u32::from(wqe.ctrl.num_sge) > qp.max_send_sge.max(u32::from(opcode.is_atomic())) {
        return Err(WcStatus::LocQpOpErr);
    }
    if length > u64::from(caps.max_msg_size) || (opcode.is_atomic() && length != 8) {
        return Err(WcStatus::LocLenErr);
    }
    let writes_locally = opcode == WrOpcode::RdmaRead || opcode.is_atomic();
    memory.admits(qp.pd, wqe.list, writes_locally).map_err(local_fault)
}

/// Status of a local access that was refused.
pub(super) const fn local_fault(_: Refused) -> WcStatus {
    WcStatus::LocProtErr
}

/// Completion opcode of a send opcode.
pub(in crate::device) const fn wc_opcode(opcode: WrOpcode) -> WcOpcode {
    match opcode {
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm => WcOpcode::RdmaWrite,
        WrOpcode::Send | WrOpcode::SendImm | WrOpcode::SendInv => WcOpcode::Send,
        WrOpcode::RdmaRead => WcOpcode::RdmaRead,
        WrOpcode::CmpSwap => WcOpcode::CompSwap,
        WrOpcode::FetchAdd => WcOpcode::FetchAdd,
        WrOpcode::LocalInv => WcOpcode::LocalInv,
        WrOpcode::BindMw => WcOpcode::BindMw,
    }
}
