//! Posting to the RQ: `struct ibv_recv_wr` → receive WQE.
//!
//! Refused are `EINVAL` in RESET or for more segments than the QP was made for, `ENOMEM` when the queue is full.

use crate::abi::verbs::{ibv_recv_wr, ibv_sge};
use crate::boundary::Errno;
use crate::objects::qp::QpCore;
use nic_model::host_if::wqe::{DataSeg, RECV_DATA_OFFSET, RecvCtrl};
use nic_model::host_if::{QpState, WorkQueue};
use parking_lot::Mutex;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Driver side of an RQ.
#[derive(Debug)]
pub struct RecvQueue {
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

impl RecvQueue {
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

    /// The completion of the oldest WQE was polled: receives complete one by one, in order.
    pub fn retire(&self) {
        // One CQ's lock is held by every caller.
        self.retired
            .store(self.retired.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
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
/// `wr` is a list of valid WRs whose `sg_list`s have `num_sge` elements; `bad_wr` is null or writable.
pub unsafe fn post_recv(qp: &QpCore, mut wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    let rq = &qp.rq;
    let mut result = Ok(());
    let mut producer = rq.producer.lock();
    let Producer { index, wqe } = &mut *producer;
    let first = *index;
    // SAFETY: the caller's list; each element is valid and null ends it.
    while let Some(request) = unsafe { wr.as_ref() } {
        result = can_post(qp.state(), *index, rq)
            // SAFETY: the caller's promise about each element.
            .and_then(|()| unsafe { encode(request, qp.cap.max_recv_sge, wqe) })
            .map(|length| rq.ring.write(*index, &wqe[..length]));
        if result.is_err() {
            break;
        }
        *index = index.wrapping_add(1);
        wr = request.next;
    }
    let last = *index;
    if last != first {
        rq.ring.publish(last);
    }
    drop(producer);
    if last != first {
        // The device finds the WQE when a message comes. Only a QP in error has something to do with it at once; where
        // the error is not known here yet, its completion is still to be polled, and polling drives the device.
        qp.engine.doorbells().ring(qp.qpn);
        if qp.has_failed() {
            qp.engine.kick(0);
        }
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

fn can_post(state: u8, index: u32, rq: &RecvQueue) -> Result<(), Errno> {
    if state == QpState::Reset as u8 {
        return Err(Errno::INVAL);
    }
    if index.wrapping_sub(rq.retired.load(Ordering::Acquire)) >= rq.capacity {
        return Err(Errno::NOMEM);
    }
    Ok(())
}

/// Put the WQE for `wr` into `wqe`, a buffer of the RQ's stride; gives its length.
///
/// # Safety
/// `sg_list` has `num_sge` elements.
unsafe fn encode(wr: &ibv_recv_wr, max_sge: u32, wqe: &mut [u8]) -> Result<usize, Errno> {
    let num_sge = u32::try_from(wr.num_sge)
        .ok()
        .filter(|&count| count <= max_sge)
        .ok_or(Errno::INVAL)?;
    let sges: &[ibv_sge] = if num_sge == 0 || wr.sg_list.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(wr.sg_list, num_sge as usize) }
    };
    let length = RECV_DATA_OFFSET + size_of_val(sges);
    let (ctrl, data) = wqe
        .get_mut(..length)
        .ok_or(Errno::INVAL)?
        .split_at_mut_checked(RECV_DATA_OFFSET)
        .ok_or(Errno::INVAL)?;
    let num_sge = u32::try_from(sges.len()).map_err(|_| Errno::INVAL)?;
    ctrl.copy_from_slice(bytemuck::bytes_of(&RecvCtrl {
        wr_id: wr.wr_id,
        num_sge,
        reserved: 0,
    }));
    for (slot, sge) in data.chunks_exact_mut(size_of::<DataSeg>()).zip(sges) {
        slot.copy_from_slice(bytemuck::bytes_of(&DataSeg {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        }));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wqe_has_control_and_segments() {
        let mut sges = [
            ibv_sge {
                addr: 0x1000,
                length: 8,
                lkey: 7,
            },
            ibv_sge {
                addr: 0x2000,
                length: 16,
                lkey: 9,
            },
        ];
        let mut wr = ibv_recv_wr {
            wr_id: 5,
            next: std::ptr::null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: 2,
        };
        let mut wqe = [0xffu8; 64];
        // SAFETY: `sg_list` has two elements.
        unsafe {
            assert_eq!(encode(&wr, 3, &mut wqe), Ok(48));
            assert_eq!(encode(&wr, 1, &mut wqe), Err(Errno::INVAL));
        }
        let ctrl: RecvCtrl = bytemuck::pod_read_unaligned(&wqe[..16]);
        assert_eq!(
            ctrl,
            RecvCtrl {
                wr_id: 5,
                num_sge: 2,
                reserved: 0
            }
        );
        let second: DataSeg = bytemuck::pod_read_unaligned(&wqe[32..48]);
        assert_eq!(
            second,
            DataSeg {
                addr: 0x2000,
                length: 16,
                lkey: 9
            }
        );
        wr.num_sge = -1;
        // SAFETY: as above.
        assert_eq!(unsafe { encode(&wr, 3, &mut wqe) }, Err(Errno::INVAL));
        wr.num_sge = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { encode(&wr, 0, &mut wqe) }, Ok(16));
    }
}
