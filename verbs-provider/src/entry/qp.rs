//! Queue pairs.

use super::device::context_core;
use crate::abi::verbs::{ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};
use crate::boundary::{Errno, ErrnoInt, Ptr, entry};
use crate::objects::cq::Cq;
use crate::objects::handle;
use crate::objects::pd::Pd;
use crate::objects::qp::{Qp, QpCore, QpRequest};
use crate::objects::qp_attributes;
use nic_model::host_if::QpAttrMask;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

entry! {
    /// Makes a QP, and writes the capacities granted back to `init_attr`.
    ///
    /// # Safety
    /// `pd` and the CQs are alive, `init_attr` is readable and writable.
    fn ibv_create_qp(pd: *mut ibv_pd, init_attr: *mut ibv_qp_init_attr) -> Ptr<ibv_qp> {
        // SAFETY: the caller vouches for all of them; the public structure is made of integers, pointers, and a mutex and
        // a condition that start as zeros.
        let (domain, owner, attr, empty) = unsafe {
            let domain = handle::borrow::<Pd>(pd)?;
            let attr = init_attr.as_mut().ok_or(Errno::INVAL)?;
            (domain, context_core((*pd).context)?, attr, handle::zeroed::<ibv_qp>())
        };
        if !attr.srq.is_null() {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the caller vouches for both CQs; null is refused.
        let (send_cq, recv_cq) = unsafe { (handle::borrow::<Cq>(attr.send_cq)?, handle::borrow::<Cq>(attr.recv_cq)?) };
        let request = QpRequest {
            qp_type: attr.qp_type,
            send_cq: Arc::clone(&send_cq.core),
            recv_cq: Arc::clone(&recv_cq.core),
            cap: attr.cap,
            sq_sig_all: attr.sq_sig_all != 0,
        };
        let core = QpCore::create(owner, &domain.core, request)?;
        attr.cap = core.cap;
        let public = ibv_qp {
            // SAFETY: a PD that is alive; the member does not change.
            context: unsafe { (*pd).context },
            qp_context: attr.qp_context,
            pd,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            handle: core.qpn,
            qp_num: core.qpn,
            state: core.state().into(),
            qp_type: attr.qp_type,
            ..empty
        };
        let qp = handle::into_raw(Box::new(Qp { public: UnsafeCell::new(public), core: Arc::clone(&core) }));
        core.set_handle(qp);
        Ok(qp)
    }

    /// Changes attributes or state of a QP.
    ///
    /// # Safety
    /// `qp` is alive, `attr` readable.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> ErrnoInt {
        // SAFETY: the caller vouches for both.
        let (core, attr) = unsafe { (&handle::borrow::<Qp>(qp)?.core, attr.as_ref().ok_or(Errno::INVAL)?) };
        let (attr, mask) = qp_attributes::from_c(attr, attr_mask.cast_unsigned())?;
        core.modify(attr, mask)?;
        if mask.contains(QpAttrMask::STATE) {
            // SAFETY: the caller vouches for the QP; verbs that change one QP's state do not run at the same time.
            unsafe { (*qp).state = attr.qp_state as u32 };
        }
        Ok(())
    }

    /// Reads attributes of a QP, and how it was made.
    ///
    /// # Safety
    /// `qp` is alive, `attr` and `init_attr` are writable.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        let core = unsafe { &handle::borrow::<Qp>(qp)?.core };
        let found = core.query()?;
        // SAFETY: the caller vouches for all three; the QP's other members do not change.
        unsafe {
            (*qp).state = found.qp_state as u32;
            if let Some(attr) = attr.as_mut() {
                *attr = qp_attributes::to_c(&found, core.cap);
            }
            if let Some(init_attr) = init_attr.as_mut() {
                *init_attr = ibv_qp_init_attr {
                    qp_context: (*qp).qp_context,
                    send_cq: (*qp).send_cq,
                    recv_cq: (*qp).recv_cq,
                    srq: (*qp).srq,
                    cap: core.cap,
                    qp_type: (*qp).qp_type,
                    sq_sig_all: core.sq_sig_all.into(),
                };
            }
        }
        Ok(())
    }

    /// Destroys a QP with all its completions; waits until every event of it is acknowledged.
    ///
    /// # Safety
    /// `qp` came from `ibv_create_qp` and, after success, is not used any more.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            handle::borrow::<Qp>(qp)?.core.destroy()?;
            handle::take::<Qp>(qp).map(drop)
        }
    }

    /// The extended interface of a QP: none is made with one.
    ///
    /// # Safety
    /// None.
    fn ibv_qp_to_qp_ex(_qp: *mut ibv_qp) -> Ptr<ibv_qp_ex> {
        Err(Errno::OPNOTSUPP)
    }
}
