//! The tables through which the static inlines of `verbs.h` call.
//!
//! A member that is null makes the inline answer `EOPNOTSUPP`, or take the exported function instead; so only what works
//! is here. The data path's members are called without a look at the pointer and are never null. They are plain
//! functions without the entries' barrier, which would cost more than the work: nothing behind them panics.

use crate::abi::verbs::{
    ibv_context, ibv_context_ops, ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_srq, ibv_wc, verbs_context,
};
use crate::boundary::{Errno, set_errno};
use crate::driver::{notify, poll, recv, send};
use crate::entry::device::{query_device_ex, query_port};
use crate::objects::cq::Cq;
use crate::objects::handle;
use crate::objects::qp::Qp;
use std::ffi::c_int;

/// A `verbs_context` with its operations and everything else zero.
pub fn verbs_context() -> verbs_context {
    // SAFETY: the structure is made of integers, raw pointers, optional functions and a mutex that starts as zeros.
    let mut table: verbs_context = unsafe { handle::zeroed() };
    table.query_port = Some(query_port);
    table.query_device_ex = Some(query_device_ex);
    table.sz = size_of::<verbs_context>();
    table.context = ibv_context {
        ops: context_ops(table.context.ops),
        ..table.context
    };
    table
}

fn context_ops(empty: ibv_context_ops) -> ibv_context_ops {
    ibv_context_ops {
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        post_srq_recv: Some(post_srq_recv),
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        alloc_mw: Some(alloc_mw),
        bind_mw: Some(bind_mw),
        dealloc_mw: Some(dealloc_mw),
        ..empty
    }
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: `ibv_post_send` is called with a QP that is alive, a WR list as it describes, and a place for `bad_wr`.
    unsafe {
        match handle::borrow::<Qp>(qp) {
            Ok(qp) => send::post_send(&qp.core, wr, bad_wr),
            Err(errno) => errno.get(),
        }
    }
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: `ibv_post_recv` is called with a QP that is alive, a WR list as it describes, and a place for `bad_wr`.
    unsafe {
        match handle::borrow::<Qp>(qp) {
            Ok(qp) => recv::post_recv(&qp.core, wr, bad_wr),
            Err(errno) => errno.get(),
        }
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let count = usize::try_from(num_entries).unwrap_or(0);
    // SAFETY: `ibv_poll_cq` is called with a CQ that is alive and an array of `num_entries`.
    let filled = unsafe { handle::borrow::<Cq>(cq).map(|cq| poll::poll_cq(&cq.core, count, wc)) };
    // Never more than `num_entries`.
    filled.map_or(-1, |filled| c_int::try_from(filled).unwrap_or(c_int::MAX))
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: `ibv_req_notify_cq` is called with a CQ that is alive.
    match unsafe { handle::borrow::<Cq>(cq) } {
        Ok(cq) => {
            notify::req_notify(&cq.core, solicited_only != 0);
            0
        }
        Err(errno) => errno.get(),
    }
}

unsafe extern "C" fn post_srq_recv(
    _srq: *mut ibv_srq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    if !bad_recv_wr.is_null() {
        // SAFETY: the caller's place for the refused WR, writable unless null.
        unsafe { *bad_recv_wr = recv_wr };
    }
    libc::EOPNOTSUPP
}

unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, _type: ibv_mw_type) -> *mut ibv_mw {
    set_errno(Errno::OPNOTSUPP);
    std::ptr::null_mut()
}

unsafe extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _mw_bind: *mut ibv_mw_bind) -> c_int {
    libc::EOPNOTSUPP
}

unsafe extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    libc::EOPNOTSUPP
}
