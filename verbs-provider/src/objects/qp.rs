//! Queue pairs: creation, state changes, destruction.
//!
//! The driver keeps its own copy of the state the application last asked for, because posting is judged by it without
//! asking the device. The device may be in ERR behind its back; it then flushes what is posted, as it should.

use super::context::{AsyncRecord, ContextCore};
use super::cq::CqCore;
use super::events::{AckLedger, EventQueue};
use super::pd::PdCore;
use crate::abi::verbs::{IBV_QPT_RC, IBV_QPT_UD, ibv_qp, ibv_qp_cap, ibv_qp_type};
use crate::boundary::Errno;
use crate::device::registry::Subject;
use crate::device::{Device, errno_of};
use crate::driver::recv::RecvQueue;
use crate::driver::send::SendQueue;
use nic_model::host_if::wqe::{inline_capacity, recv_stride, send_stride};
use nic_model::host_if::{Command, DeviceCaps, QpAttr, QpAttrMask, QpState, QpType, Reply, WorkQueue};
use nic_model::port::engine::Engine;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// What a QP is made of.
#[derive(Debug)]
pub struct QpRequest {
    /// Transport service as the application names it.
    pub qp_type: ibv_qp_type,
    /// CQ of the SQ.
    pub send_cq: Arc<CqCore>,
    /// CQ of the RQ.
    pub recv_cq: Arc<CqCore>,
    /// Capacities asked for.
    pub cap: ibv_qp_cap,
    /// Complete every send WR with a CQE.
    pub sq_sig_all: bool,
}

/// The working part of a QP.
#[derive(Debug)]
pub struct QpCore {
    /// QP number.
    pub qpn: u32,
    /// Transport service.
    pub qp_type: QpType,
    /// Capacities granted.
    pub cap: ibv_qp_cap,
    /// Whether every send WR completes with a CQE.
    pub sq_sig_all: bool,
    /// Driver side of the SQ.
    pub sq: SendQueue,
    /// Driver side of the RQ.
    pub rq: RecvQueue,
    /// CQ of the SQ.
    pub send_cq: Arc<CqCore>,
    /// CQ of the RQ.
    pub recv_cq: Arc<CqCore>,
    /// The device.
    pub device: Arc<Device>,
    /// Its NIC.
    pub engine: Arc<Engine>,
    /// Asynchronous events the application has fetched.
    pub async_events: AckLedger,
    /// Where asynchronous events go.
    pub context_events: Arc<EventQueue<AsyncRecord>>,
    cookie: u64,
    state: AtomicU8,
    failed: AtomicBool,
    closed: AtomicBool,
    handle: AtomicPtr<ibv_qp>,
}

/// A QP as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Qp {
    /// Its public structure.
    pub public: UnsafeCell<ibv_qp>,
    /// The working part.
    pub core: Arc<QpCore>,
}

impl QpCore {
    /// A QP of `pd` in `context`.
    pub fn create(context: &ContextCore, pd: &PdCore, request: QpRequest) -> Result<Arc<Self>, Errno> {
        let QpRequest {
            qp_type,
            send_cq,
            recv_cq,
            cap,
            sq_sig_all,
        } = request;
        let qp_type = match qp_type {
            IBV_QPT_RC => QpType::Rc,
            IBV_QPT_UD => QpType::Ud,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let device = &context.device;
        let (cap, send_stride) = granted(cap, &device.caps)?;
        if !Arc::ptr_eq(&pd.device, device)
            || !Arc::ptr_eq(&send_cq.device, device)
            || !Arc::ptr_eq(&recv_cq.device, device)
        {
            return Err(Errno::INVAL);
        }
        let sq = Arc::new(WorkQueue::new(cap.max_send_wr, send_stride));
        let rq = Arc::new(WorkQueue::new(cap.max_recv_wr, recv_stride(cap.max_recv_sge)));
        let cookie = device.registry.reserve();
        let command = Command::CreateQp {
            pd: pd.id,
            qp_type,
            send_cq: send_cq.id,
            recv_cq: recv_cq.id,
            sq: Arc::clone(&sq),
            rq: Arc::clone(&rq),
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            sq_sig_all,
            cookie,
        };
        let Reply::Qpn(qpn) = pd.engine.command(command).map_err(errno_of)? else {
            return Err(Errno::IO);
        };
        let core = Arc::new(Self {
            qpn,
            qp_type,
            cap,
            sq_sig_all,
            sq: SendQueue::new(sq, cap.max_send_wr),
            rq: RecvQueue::new(rq, cap.max_recv_wr),
            send_cq,
            recv_cq,
            device: Arc::clone(device),
            engine: Arc::clone(&pd.engine),
            async_events: AckLedger::default(),
            context_events: Arc::clone(&context.events),
            cookie,
            state: AtomicU8::new(QpState::Reset as u8),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            handle: AtomicPtr::new(std::ptr::null_mut()),
        });
        for cq in core.cqs() {
            cq.poller.lock().attach(&core);
        }
        device.registry.insert(cookie, Subject::Qp(Arc::clone(&core)));
        Ok(core)
    }

    /// Change attributes or state.
    pub fn modify(&self, attr: QpAttr, mask: QpAttrMask) -> Result<(), Errno> {
        let command = Command::ModifyQp {
            qpn: self.qpn,
            attr,
            mask,
        };
        self.engine.command(command).map_err(errno_of)?;
        if mask.contains(QpAttrMask::STATE) {
            if attr.qp_state == QpState::Reset {
                self.discard_work();
            }
            self.failed.store(attr.qp_state == QpState::Err, Ordering::Relaxed);
            self.state.store(attr.qp_state as u8, Ordering::Release);
        }
        Ok(())
    }

    /// The attributes on the device.
    pub fn query(&self) -> Result<QpAttr, Errno> {
        match self
            .engine
            .command(Command::QueryQp { qpn: self.qpn })
            .map_err(errno_of)?
        {
            Reply::Qp(attr) => Ok(*attr),
            _ => Err(Errno::IO),
        }
    }

    /// Destroy the QP and every trace of it in its CQs; waits until the application has acknowledged its events.
    pub fn destroy(self: &Arc<Self>) -> Result<(), Errno> {
        self.device
            .release(&self.engine, Command::DestroyQp { qpn: self.qpn })?;
        if self.device.is_inert() {
            return Ok(());
        }
        for cq in self.cqs() {
            let mut poller = cq.poller.lock();
            poller.discard(&cq.ring, self.qpn);
            poller.detach(self.qpn);
        }
        self.device.registry.remove(self.cookie);
        self.context_events.retract(
            || self.closed.store(true, Ordering::Relaxed),
            |record| matches!(&record.subject, Subject::Qp(qp) if Arc::ptr_eq(qp, self)),
        );
        self.async_events.wait_until_settled();
        Ok(())
    }

    /// The state the application last asked for.
    pub fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Whether the QP is known to be in an error state, where whatever is posted must be flushed at once.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The device reported an error of the QP.
    pub fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether it is being destroyed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The application knows it by this pointer.
    pub fn set_handle(&self, handle: *mut ibv_qp) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// The pointer by which the application knows it.
    pub fn handle(&self) -> *mut ibv_qp {
        self.handle.load(Ordering::Relaxed)
    }

    /// Its one or two CQs.
    fn cqs(&self) -> impl Iterator<Item = &Arc<CqCore>> {
        let second = (!Arc::ptr_eq(&self.send_cq, &self.recv_cq)).then_some(&self.recv_cq);
        std::iter::once(&self.send_cq).chain(second)
    }

    /// After a transition to RESET: the WRs on the queues are gone and their completions with them.
    fn discard_work(&self) {
        for cq in self.cqs() {
            cq.poller.lock().discard(&cq.ring, self.qpn);
        }
        self.sq.discard();
        self.rq.discard();
    }
}

/// The capacities granted for those asked for, and the SQ's stride; `EINVAL` beyond the device's limits.
fn granted(mut cap: ibv_qp_cap, limits: &DeviceCaps) -> Result<(ibv_qp_cap, usize), Errno> {
    if cap.max_send_wr > limits.max_qp_wr
        || cap.max_recv_wr > limits.max_qp_wr
        || cap.max_send_sge > limits.max_sge
        || cap.max_recv_sge > limits.max_sge
        || cap.max_inline_data > limits.max_inline
    {
        return Err(Errno::INVAL);
    }
    let stride = send_stride(cap.max_send_sge, cap.max_inline_data);
    cap.max_inline_data = u32::try_from(inline_capacity(stride))
        .unwrap_or(0)
        .min(limits.max_inline);
    Ok((cap, stride))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(max_send_wr: u32, max_send_sge: u32, max_inline_data: u32) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr,
            max_recv_wr: 1,
            max_send_sge,
            max_recv_sge: 1,
            max_inline_data,
        }
    }

    #[test]
    fn whatever_fits_the_slot_is_granted_as_inline_data() {
        let limits = DeviceCaps::default();
        for (sge, asked, got, stride) in [(1, 0, 32, 64), (1, 64, 96, 128), (30, 0, 480, 512), (2, 928, 928, 960)] {
            let (granted, send_stride) = granted(cap(8, sge, asked), &limits).unwrap();
            assert_eq!((granted.max_inline_data, send_stride), (got, stride));
            assert_eq!(granted.max_send_wr, 8);
        }
    }

    #[test]
    fn limits_of_the_device_hold() {
        let limits = DeviceCaps::default();
        assert!(granted(cap(limits.max_qp_wr, limits.max_sge, limits.max_inline), &limits).is_ok());
        assert!(granted(cap(0, 0, 0), &limits).is_ok());
        for wrong in [
            cap(limits.max_qp_wr + 1, 1, 0),
            cap(1, limits.max_sge + 1, 0),
            cap(1, 1, limits.max_inline + 1),
            ibv_qp_cap {
                max_recv_wr: limits.max_qp_wr + 1,
                ..cap(1, 1, 0)
            },
            ibv_qp_cap {
                max_recv_sge: limits.max_sge + 1,
                ..cap(1, 1, 0)
            },
        ] {
            assert_eq!(granted(wrong, &limits).err(), Some(Errno::INVAL));
        }
    }
}
