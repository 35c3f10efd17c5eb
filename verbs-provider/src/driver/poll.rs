//! Polling a CQ: CQE → `struct ibv_wc`.
//!
//! A poll that finds the ring empty drives the device once and looks again, so that an application that spins on
//! `ibv_poll_cq` needs no other thread to make progress.

use super::directory::QpDirectory;
use crate::abi::verbs::{ibv_wc, ibv_wc_imm};
use crate::objects::cq::CqCore;
use crate::objects::qp::QpCore;
use nic_model::host_if::{CompletionQueue, Cqe, CqeFlags, WcStatus};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The consumer's side of a CQ ring.
#[derive(Debug, Default)]
pub struct Poller {
    /// Free-running index of the next entry.
    consumer: u32,
    qps: QpDirectory,
}

impl Poller {
    /// Completions of `qp` may appear from now on.
    pub fn attach(&mut self, qp: &Arc<QpCore>) {
        self.qps.insert(qp);
    }

    /// Completions of that QP do not appear any more.
    pub fn detach(&mut self, qpn: u32) {
        self.qps.remove(qpn);
    }

    /// Make the entries of a QP that were not polled yet invisible.
    pub fn discard(&self, ring: &CompletionQueue, qpn: u32) {
        for offset in 0..ring.entries() {
            let index = self.consumer.wrapping_add(offset);
            let Some(mut cqe) = ring.read(index) else { return };
            if cqe.qpn == qpn {
                cqe.flags |= CqeFlags::DEAD.bits();
                ring.rewrite(index, &cqe);
            }
        }
    }

    /// Fill `out` from the ring, as far as there is something; gives the number of entries filled.
    fn drain(&mut self, ring: &CompletionQueue, out: &mut [MaybeUninit<ibv_wc>]) -> usize {
        let first = self.consumer;
        let mut filled = 0;
        while let Some(slot) = out.get_mut(filled) {
            let Some(cqe) = ring.read(self.consumer) else { break };
            self.consumer = self.consumer.wrapping_add(1);
            let flags = CqeFlags::from_bits_truncate(cqe.flags);
            if flags.contains(CqeFlags::DEAD) {
                continue;
            }
            // Of a QP that is gone, like a dead one.
            let Some(qp) = self.qps.get(cqe.qpn) else { continue };
            if flags.contains(CqeFlags::RECV) {
                qp.rq.retire();
            } else {
                qp.sq.retire(cqe.wqe_index);
            }
            if cqe.status != WcStatus::Success as u8 {
                qp.set_failed();
            }
            slot.write(work_completion(&cqe, flags));
            filled += 1;
        }
        if self.consumer != first {
            ring.publish_consumer(self.consumer);
        }
        filled
    }
}

/// Poll up to `count` completions into `out`; gives their number.
///
/// # Safety
/// `out` has room for `count` elements.
pub unsafe fn poll_cq(cq: &CqCore, count: usize, out: *mut ibv_wc) -> usize {
    if count == 0 || out.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise; uninitialised elements are fine as such.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<ibv_wc>>(), count) };
    let filled = cq.poller.lock().drain(&cq.ring, out);
    if filled != 0 {
        return filled;
    }
    cq.engine.poll(cq.id);
    cq.poller.lock().drain(&cq.ring, out)
}

/// The `ibv_wc` of a CQE. Of a failed one only `wr_id`, `status`, `qp_num` and `vendor_err` mean something; its opcode is
/// set too, as some applications look at it first.
fn work_completion(cqe: &Cqe, flags: CqeFlags) -> ibv_wc {
    let shown = CqeFlags::GRH | CqeFlags::WITH_IMM | CqeFlags::WITH_INV;
    let failed = cqe.status != WcStatus::Success as u8;
    ibv_wc {
        wr_id: cqe.wr_id,
        status: cqe.status.into(),
        opcode: cqe.opcode.into(),
        vendor_err: cqe.vendor_err,
        byte_len: if failed { 0 } else { cqe.byte_len },
        imm: ibv_wc_imm { imm_data: cqe.imm },
        qp_num: cqe.qpn,
        src_qp: cqe.src_qp,
        wc_flags: if failed { 0 } else { (flags & shown).bits().into() },
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_unknown_queue_pairs_are_skipped() {
        let ring = CompletionQueue::new(4);
        ring.write(
            0,
            &Cqe {
                qpn: 9,
                ..Cqe::default()
            },
        );
        let mut poller = Poller::default();
        let mut out = [const { MaybeUninit::uninit() }; 2];
        assert_eq!(poller.drain(&ring, &mut out), 0);
        assert_eq!(ring.consumer(), 1, "its entry is given back all the same");
    }

    #[test]
    fn discarding_marks_only_that_queue_pair() {
        let ring = CompletionQueue::new(4);
        for (index, qpn) in [7, 8, 7, 8].into_iter().enumerate() {
            ring.write(u32::try_from(index).unwrap(), &Cqe { qpn, ..Cqe::default() });
        }
        Poller::default().discard(&ring, 7);
        let dead = |index| CqeFlags::from_bits_truncate(ring.read(index).unwrap().flags).contains(CqeFlags::DEAD);
        assert_eq!([0, 1, 2, 3].map(dead), [true, false, true, false]);
    }

    #[test]
    fn failed_completions_show_no_lengths_or_flags() {
        let cqe = Cqe {
            wr_id: 1,
            qpn: 2,
            status: WcStatus::RetryExcErr as u8,
            vendor_err: 0x81,
            byte_len: 5,
            flags: CqeFlags::GRH.bits(),
            ..Cqe::default()
        };
        let wc = work_completion(&cqe, CqeFlags::GRH | CqeFlags::RECV);
        assert_eq!((wc.wr_id, wc.status, wc.qp_num, wc.vendor_err), (1, 12, 2, 0x81));
        assert_eq!((wc.byte_len, wc.wc_flags), (0, 0));
        let wc = work_completion(
            &Cqe {
                status: 0,
                opcode: 128,
                ..cqe
            },
            CqeFlags::GRH | CqeFlags::RECV,
        );
        assert_eq!((wc.byte_len, wc.wc_flags, wc.opcode), (5, 1, 128));
    }
}
