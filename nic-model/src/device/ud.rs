//! Unreliable datagrams: address handles, sending, receiving (IBTA 9.8.3).

use super::batch;
use super::memory::list_length;
use super::parts::Parts;
use super::path::{self, GidTable};
use super::qp::QpInfo;
use super::receive_queue::ReceiveQueue;
use super::requester::wc_opcode;
use super::wqe::{SendWqe, WqeImage, send_wr_id};
use crate::frame::{Path, RxMeta, TxBatch, TxBudget};
use crate::host_if::command::{CommandError, ObjectId};
use crate::host_if::cqe::{Cqe, CqeFlags, WcOpcode, WcStatus};
use crate::host_if::qp_attr::AddressVector;
use crate::host_if::ring::WorkQueue;
use crate::host_if::wqe::{WqeFlags, WrOpcode};
use roce_wire::bth::Bth;
use roce_wire::ext::{Deth, ImmDt};
use roce_wire::net;
use roce_wire::opcode::Opcode;
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;
use std::sync::Arc;

/// Bytes before the payload in a receive buffer: a GRH, or an IPv4 header in its last 20 bytes.
const GRH_LEN: usize = 40;

/// Address handles of one function.
#[derive(Debug)]
pub(super) struct AhTable {
    handles: Vec<Option<(ObjectId, Path)>>,
    max: u32,
}

impl AhTable {
    pub(super) const fn new(max: u32) -> Self {
        Self {
            handles: Vec::new(),
            max,
        }
    }

    pub(super) fn create(
        &mut self,
        gids: &GidTable,
        pd: ObjectId,
        av: &AddressVector,
    ) -> Result<ObjectId, CommandError> {
        let path = path::resolve(gids, av, 1, 1)?;
        let index = self
            .handles
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.handles.len());
        let id = u32::try_from(index)
            .ok()
            .filter(|id| *id < self.max)
            .ok_or(CommandError::NoResources)?;
        if index == self.handles.len() {
            self.handles.push(None);
        }
        self.handles[index] = Some((pd, path));
        Ok(id)
    }

    pub(super) fn destroy(&mut self, ah: ObjectId) -> Result<ObjectId, CommandError> {
        let slot = self.handles.get_mut(ah as usize).ok_or(CommandError::Invalid)?;
        slot.take().map(|(pd, _)| pd).ok_or(CommandError::Invalid)
    }

    fn get(&self, pd: ObjectId, ah: u32) -> Option<Path> {
        self.handles
            .get(ah as usize)?
            .filter(|(of, _)| *of == pd)
            .map(|(_, path)| path)
    }
}

/// What a turn of a UD send queue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The queue is empty.
    Idle,
    /// Packets are in the batch, more WQEs wait.
    More,
    /// The destination takes nothing now.
    Stalled,
    /// A WQE completed in error: the QP goes to SQE.
    Failed,
}

/// Both halves of a UD QP.
#[derive(Debug)]
pub(super) struct Datagram {
    sq: Arc<WorkQueue>,
    rq: ReceiveQueue,
    send_image: WqeImage,
    fetched: u32,
    psn: Psn,
    listed: bool,
}

impl Datagram {
    pub(super) fn new(sq: Arc<WorkQueue>, rq: Arc<WorkQueue>) -> Self {
        Self::with(sq, ReceiveQueue::new(rq))
    }

    fn with(sq: Arc<WorkQueue>, rq: ReceiveQueue) -> Self {
        let send_image = WqeImage::new(sq.stride());
        Self {
            sq,
            rq,
            send_image,
            fetched: 0,
            psn: Psn::new(0),
            listed: false,
        }
    }

    pub(super) fn start(&mut self, qp: &QpInfo) {
        self.psn = Psn::new(qp.attr.sq_psn);
    }

    pub(super) fn reset(&mut self) {
        let sq = Arc::clone(&self.sq);
        let (fetched, listed) = (sq.producer(), self.listed);
        *self = Self {
            fetched,
            listed,
            ..Self::with(sq, self.rq.emptied())
        };
    }

    fn waiting(&self) -> u32 {
        let count = self.sq.producer().wrapping_sub(self.fetched);
        if count > self.sq.entries() { 0 } else { count }
    }

    pub(super) fn posted(&self) -> u32 {
        self.rq.posted()
    }

    /// Put the QP in the list of those with datagrams to send.
    pub(super) fn list(&mut self, qp: &QpInfo, cx: &mut Parts) {
        if !self.listed && self.waiting() > 0 {
            self.listed = true;
            cx.ud_ready.push_back(qp.index());
        }
    }

    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Append datagrams to the batch as far as they fit it.
    pub(super) fn transmit(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        budget: &mut dyn TxBudget,
        batch: &mut TxBatch,
    ) -> Turn {
        while self.waiting() > 0 {
            let index = self.fetched;
            let image = self.send_image.load(&self.sq, index);
            let Ok(wqe) = SendWqe::decode(image) else {
                let wr_id = send_wr_id(image);
                return self.fail(qp, cx, wr_id, WcStatus::LocQpOpErr);
            };
            let (wr_id, ud) = (wqe.ctrl.wr_id, wqe.ud());
            let length = wqe
                .inline
                .map_or_else(|| list_length(wqe.list), |inline| inline.len() as u64);
            let opcode = match wqe.opcode {
                Some(WrOpcode::Send) => Opcode::UdSendOnly,
                Some(WrOpcode::SendImm) => Opcode::UdSendOnlyImm,
                _ => return self.fail(qp, cx, wr_id, WcStatus::LocQpOpErr),
            };
            if wqe.ctrl.num_sge > 0 && u32::from(wqe.ctrl.num_sge) > qp.max_send_sge {
                return self.fail(qp, cx, wr_id, WcStatus::LocQpOpErr);
            }
            if length > u64::from(qp.mtu) {
                return self.fail(qp, cx, wr_id, WcStatus::LocLenErr);
            }
            let Some(path) = cx.ahs.get(qp.pd, ud.ah) else {
                return self.fail(qp, cx, wr_id, WcStatus::LocQpOpErr);
            };
            let payload = usize::try_from(length).unwrap_or(0);
            let mut bth = Bth::new(opcode, ud.qpn & 0x00ff_ffff, self.psn);
            bth.mig_req = true;
            bth.solicited = wqe.flags.contains(WqeFlags::SOLICITED);
            bth.pad_count = u8::try_from(batch::pad_of(payload)).unwrap_or(0);
            let mut headers = Headers::new(bth);
            let qkey = if ud.qkey & 0x8000_0000 == 0 {
                ud.qkey
            } else {
                qp.attr.qkey
            };
            headers.deth = Some(Deth { qkey, src_qpn: qp.qpn });
            if opcode == Opcode::UdSendOnlyImm {
                headers.imm = Some(ImmDt(wqe.ctrl.imm.to_ne_bytes()));
            }
            let packet = batch::packet_length(&headers, payload);
            if !batch::admits(batch, &path, ud.qpn, packet) {
                return Turn::More;
            }
            if budget.available(&path, ud.qpn) < batch.bytes.len() + packet {
                return if batch.is_empty() { Turn::Stalled } else { Turn::More };
            }
            let start = batch.bytes.len();
            batch::begin(batch, &path, ud.qpn, &headers, packet);
            let filled = match wqe.inline {
                Some(inline) => {
                    batch.bytes.extend_from_slice(inline);
                    Ok(())
                }
                None if payload == 0 => Ok(()),
                None => cx.memory.gather(qp.pd, wqe.list, 0, payload, &mut batch.bytes),
            };
            if filled.is_err() {
                batch.bytes.truncate(start);
                return self.fail(qp, cx, wr_id, WcStatus::LocProtErr);
            }
            let signaled = qp.sq_sig_all || wqe.flags.contains(WqeFlags::SIGNALED);
            batch::finish(batch, batch::pad_of(payload));
            self.psn = self.psn.next();
            self.fetched = index.wrapping_add(1);
            cx.counters.wqes_fetched += 1;
            cx.counters.rdma_sends += 1;
            if signaled {
                complete_send(qp, cx, index, wr_id, WcStatus::Success);
            }
        }
        self.listed = false;
        Turn::Idle
    }

    fn fail(&mut self, qp: &QpInfo, cx: &mut Parts, wr_id: u64, status: WcStatus) -> Turn {
        let index = self.fetched;
        self.fetched = index.wrapping_add(1);
        complete_send(qp, cx, index, wr_id, status);
        cx.counters.send_err += 1;
        Turn::Failed
    }

    /// Flush the send queue.
    pub(super) fn flush_sends(&mut self, qp: &QpInfo, cx: &mut Parts) {
        for _ in 0..self.waiting() {
            let index = self.fetched;
            self.fetched = index.wrapping_add(1);
            let wr_id = send_wr_id(self.send_image.load(&self.sq, index));
            complete_send(qp, cx, index, wr_id, WcStatus::WrFlushErr);
        }
    }

    /// Flush the receive queue.
    pub(super) fn flush_receives(&mut self, qp: &QpInfo, cx: &mut Parts) {
        self.rq.flush(qp, cx);
    }

    /// A datagram for this QP. What does not fit or has no receive WQE is dropped, as the service allows.
    pub(super) fn receive(&mut self, qp: &QpInfo, cx: &mut Parts, meta: &RxMeta, packet: &Packet<'_>) {
        let Some(deth) = packet.headers.deth.filter(|deth| deth.qkey == qp.attr.qkey) else {
            cx.counters.ud_dropped_pkts += 1;
            return;
        };
        if self.posted() == 0 {
            cx.counters.ud_dropped_pkts += 1;
            return;
        }
        let total = GRH_LEN + packet.payload.len();
        let placed = match self.rq.current() {
            Ok(wqe) if list_length(wqe.list) >= total as u64 => {
                let grh = net::grh(
                    meta.src,
                    meta.dst,
                    meta.traffic_class,
                    meta.hop_limit,
                    packet.wire_len(),
                );
                let list = wqe.list;
                cx.memory
                    .scatter(qp.pd, list, 0, &grh, false)
                    .and_then(|()| cx.memory.scatter(qp.pd, list, GRH_LEN as u64, packet.payload, true))
                    .is_ok()
            }
            _ => false,
        };
        if !placed {
            cx.counters.ud_dropped_pkts += 1;
            return;
        }
        let mut flags = CqeFlags::GRH;
        flags.set(CqeFlags::SOLICITED, packet.headers.bth.solicited);
        flags.set(CqeFlags::WITH_IMM, packet.headers.imm.is_some());
        let cqe = Cqe {
            byte_len: u32::try_from(total).unwrap_or(u32::MAX),
            imm: packet.headers.imm.map_or(0, |imm| u32::from_ne_bytes(imm.0)),
            src_qp: deth.src_qpn,
            opcode: WcOpcode::Recv as u8,
            flags: flags.bits(),
            ..Cqe::default()
        };
        self.rq.complete(qp, cx, cqe);
        cx.counters.rdma_recvs += 1;
    }
}

fn complete_send(qp: &QpInfo, cx: &mut Parts, index: u32, wr_id: u64, status: WcStatus) {
    let Ok(permit) = cx.cqs.reserve(qp.send_cq) else { return };
    let cqe = Cqe {
        wr_id,
        timestamp: cx.now.as_nanos(),
        qpn: qp.qpn,
        wqe_index: index,
        opcode: wc_opcode(WrOpcode::Send) as u8,
        status: status as u8,
        ..Cqe::default()
    };
    cx.cqs.complete(permit, cqe);
    cx.counters.cqes_written += 1;
}
