//! Posting to the SQ: `struct ibv_send_wr` → send WQE.
//!
//! A list is posted WR by WR until one is refused; those before it stay posted. Refused are, as by the NICs people know:
//! `EINVAL` for a state before RTS, for an opcode the transport does not have, for more segments than the QP was made
//! for, for inline data that is too long or that a READ or atomic cannot have; `ENOMEM` for a full queue; `EOPNOTSUPP`
//! for what needs memory windows. Lengths, keys and alignment are the device's to judge: they end in completions.

use crate::abi::verbs::{IBV_SEND_INLINE, ibv_qp_cap, ibv_send_wr, ibv_sge};
use crate::boundary::Errno;
use crate::objects::qp::QpCore;
use nic_model::host_if::wqe::{
    ATOMIC_DATA_OFFSET, AtomicSeg, DATA_OFFSET, DataSeg, RemoteSeg, SendCtrl, UdSeg, WqeFlags, WrOpcode,
};
use nic_model::host_if::{QpState, QpType, WorkQueue};
use parking_lot::Mutex;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Driver side of an SQ.
#[derive(Debug)]
pub struct SendQueue {
    ring: Arc<WorkQueue>,
    capacity: u32,
    /// Free-running index of the oldest WQE not known to be complete.
    retired: AtomicU32,
    producer: Mutex<Producer>,
}

#[derive(Debug)]
struct Producer {
    /// Free-running index of the next WQE.
    index: u32,
    /// Where a WQE is put together before it goes into the ring.
    wqe: Box<[u8]>,
}

impl SendQueue {
    /// The driver side of `ring`, for `capacity` WRs at a time.
    pub fn new(ring: Arc<WorkQueue>, capacity: u32) -> Self {
        let wqe = vec![0; ring.stride()].into_boxed_slice();
        Self {
            ring,
            capacity,
            retired: AtomicU32::new(0),
            producer: Mutex::new(Producer { index: 0, wqe }),
        }
    }

    /// A completion was polled that covers all WQEs up to `index`.
    pub fn retire(&self, index: u32) {
        let upto = index.wrapping_add(1);
        // One CQ's lock is held by every caller. A late completion never gives slots back a second time.
        if upto.wrapping_sub(self.retired.load(Ordering::Relaxed)) <= self.capacity {
            self.retired.store(upto, Ordering::Release);
        }
    }

    /// The device has forgotten what was posted. Indices run on from where they are.
    pub fn discard(&self) {
        let producer = self.producer.lock();
        self.retired.store(producer.index, Ordering::Release);
    }
}

/// Post the list `wr`; gives an errno, and where it stopped in `bad_wr`.
///
/// # Safety
/// `wr` is a list of valid WRs whose `sg_list`s have `num_sge` elements, whose inline data is readable and whose AHs
/// are alive; `bad_wr` is null or writable.
pub unsafe fn post_send(qp: &QpCore, mut wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    let sq = &qp.sq;
    let mut result = Ok(());
    let mut producer = sq.producer.lock();
    let Producer { index, wqe } = &mut *producer;
    let first = *index;
    // SAFETY: the caller's list; each element is valid and null ends it.
    while let Some(request) = unsafe { wr.as_ref() } {
        result = can_post(qp.state(), *index, sq)
            // SAFETY: the caller's promise about each element.
            .and_then(|()| unsafe { encode(qp.qp_type, &qp.cap, request, wqe) })
            .map(|length| sq.ring.write(*index, &wqe[..length]));
        if result.is_err() {
            break;
        }
        *index = index.wrapping_add(1);
        wr = request.next;
    }
    let last = *index;
    if last != first {
        sq.ring.publish(last);
    }
    drop(producer);
    if last != first {
        qp.engine.doorbells().ring(qp.qpn);
        qp.engine.kick(last.wrapping_sub(sq.retired.load(Ordering::Relaxed)));
    }
    match result {
        Ok(()) => 0,
        Err(errno) => {
            if !bad_wr.is_null() {
                // SAFETY: the caller's pointer, writable unless null.
                unsafe { *bad_wr = wr };
            }
            errno.get()
        }
    }
}

fn can_post(state: u8, index: u32, sq: &SendQueue) -> Result<(), Errno> {
    if state < QpState::Rts as u8 {
        return Err(Errno::INVAL);
    }
    if index.wrapping_sub(sq.retired.load(Ordering::Acquire)) >= sq.capacity {
        return Err(Errno::NOMEM);
    }
    Ok(())
}

/// Put the WQE for `wr` into `wqe`, a buffer of the SQ's stride; gives its length.
///
/// # Safety
/// As for [`post_send`], for this WR.
unsafe fn encode(qp_type: QpType, cap: &ibv_qp_cap, wr: &ibv_send_wr, wqe: &mut [u8]) -> Result<usize, Errno> {
    let opcode = opcode_for(qp_type, wr.opcode)?;
    let num_sge = u32::try_from(wr.num_sge)
        .ok()
        .filter(|&count| count <= cap.max_send_sge)
        .ok_or(Errno::INVAL)?;
    let sges: &[ibv_sge] = if num_sge == 0 || wr.sg_list.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise: `sg_list` has `num_sge` elements.
        unsafe { std::slice::from_raw_parts(wr.sg_list, num_sge as usize) }
    };
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    let (data_at, inline_len, data_end) = if opcode.is_atomic() {
        // The slot has room for one segment behind the operands, and the device could use no second one.
        if inline || sges.len() != 1 {
            return Err(Errno::INVAL);
        }
        (ATOMIC_DATA_OFFSET, 0, put_segments(wqe, ATOMIC_DATA_OFFSET, sges)?)
    } else if inline {
        if opcode == WrOpcode::RdmaRead {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller's promise about inline data.
        let length = unsafe { put_inline(wqe, sges, cap.max_inline_data) }?;
        (DATA_OFFSET, length, DATA_OFFSET + length as usize)
    } else {
        (DATA_OFFSET, 0, put_segments(wqe, DATA_OFFSET, sges)?)
    };
    let ctrl = SendCtrl {
        opcode: opcode as u8,
        flags: WqeFlags::from_bits_truncate(wr.send_flags.to_le_bytes()[0]).bits(),
        num_sge: if inline {
            0
        } else {
            u8::try_from(sges.len()).map_err(|_| Errno::INVAL)?
        },
        reserved: 0,
        // SAFETY: both members of the union are 32-bit integers.
        imm: unsafe { wr.imm.imm_data },
        wr_id: wr.wr_id,
    };
    put(wqe, 0, &ctrl)?;
    match qp_type {
        QpType::Ud => {
            // SAFETY: every member of the union is plain data, and this one is filled in for UD.
            let ud = unsafe { wr.wr.ud };
            // SAFETY: the caller's promise: null, or an AH that is alive.
            let ah = unsafe { ud.ah.as_ref() }.ok_or(Errno::INVAL)?.handle;
            put(
                wqe,
                16,
                &UdSeg {
                    ah,
                    qpn: ud.remote_qpn,
                    qkey: ud.remote_qkey,
                    inline_len,
                },
            )?;
        }
        QpType::Rc | QpType::Uc if opcode.is_atomic() => {
            // SAFETY: every member of the union is plain data, and this one is filled in for atomics.
            let atomic = unsafe { wr.wr.atomic };
            put(
                wqe,
                16,
                &RemoteSeg {
                    addr: atomic.remote_addr,
                    rkey: atomic.rkey,
                    inline_len: 0,
                },
            )?;
            let (swap_add, compare) = match opcode {
                WrOpcode::CmpSwap => (atomic.swap, atomic.compare_add),
                _ => (atomic.compare_add, 0),
            };
            put(wqe, DATA_OFFSET, &AtomicSeg { swap_add, compare })?;
        }
        QpType::Rc | QpType::Uc => {
            // SAFETY: every member of the union is plain data; for a SEND nobody looks at this one's values.
            let rdma = unsafe { wr.wr.rdma };
            put(
                wqe,
                16,
                &RemoteSeg {
                    addr: rdma.remote_addr,
                    rkey: rdma.rkey,
                    inline_len,
                },
            )?;
        }
    }
    debug_assert!(data_end >= data_at);
    Ok(data_end)
}

/// The opcode of that value if the transport has it.
fn opcode_for(qp_type: QpType, value: u32) -> Result<WrOpcode, Errno> {
    let opcode = u8::try_from(value)
        .ok()
        .and_then(WrOpcode::from_u8)
        .ok_or(Errno::INVAL)?;
    match (qp_type, opcode) {
        (_, WrOpcode::Send | WrOpcode::SendImm)
        | (QpType::Rc | QpType::Uc, WrOpcode::RdmaWrite | WrOpcode::RdmaWriteImm)
        | (QpType::Rc, WrOpcode::RdmaRead | WrOpcode::CmpSwap | WrOpcode::FetchAdd) => Ok(opcode),
        (QpType::Rc, WrOpcode::LocalInv | WrOpcode::BindMw | WrOpcode::SendInv) => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::INVAL),
    }
}

fn put<T: bytemuck::Pod>(wqe: &mut [u8], at: usize, segment: &T) -> Result<(), Errno> {
    let range: Range<usize> = at..at + size_of::<T>();
    wqe.get_mut(range)
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytemuck::bytes_of(segment));
    Ok(())
}

/// Put data segments at `at`; gives where they end.
fn put_segments(wqe: &mut [u8], at: usize, sges: &[ibv_sge]) -> Result<usize, Errno> {
    let mut end = at;
    for sge in sges {
        put(
            wqe,
            end,
            &DataSeg {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey,
            },
        )?;
        end += size_of::<DataSeg>();
    }
    Ok(end)
}

/// Gather inline data behind the segments; gives its length. Keys are not looked at: the memory need not be registered.
///
/// # Safety
/// Each element names readable memory.
unsafe fn put_inline(wqe: &mut [u8], sges: &[ibv_sge], limit: u32) -> Result<u32, Errno> {
    let mut length = 0u32;
    for sge in sges {
        let start = DATA_OFFSET + length as usize;
        length = length
            .checked_add(sge.length)
            .filter(|&length| length <= limit)
            .ok_or(Errno::INVAL)?;
        let target = wqe.get_mut(start..DATA_OFFSET + length as usize).ok_or(Errno::INVAL)?;
        let source = usize::try_from(sge.addr).map_err(|_| Errno::INVAL)?;
        if !target.is_empty() {
            // SAFETY: the caller's promise for the source; the target is a slice of that length. A WQE buffer is
            // nobody's message, so they do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::with_exposed_provenance::<u8>(source),
                    target.as_mut_ptr(),
                    target.len(),
                );
            }
        }
    }
    Ok(length)
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
