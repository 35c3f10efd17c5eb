//! Asynchronous events, and waiting on event descriptors.

use super::device::context_core;
use crate::abi::verbs::{IBV_EVENT_CQ_ERR, ibv_async_event, ibv_context};
use crate::boundary::{Errno, MinusOne, Void, entry};
use crate::objects::cq::Cq;
use crate::objects::handle;
use crate::objects::qp::Qp;
use nic_model::host_if::AsyncEventKind;
use std::ffi::{c_int, c_void};

/// Read one token from an event descriptor; false leaves `errno` as `read` set it.
///
/// A thread cancelled in `read` is unwound through this frame by force, which Rust's unwinding code allows only where a
/// frame has nothing to clean up. So there is no call here but that of `read`, not even of a function that would be
/// inlined: an unoptimised build does not.
#[inline(never)]
pub(crate) extern "C" fn take_token(fd: c_int) -> bool {
    const TOKEN: usize = size_of::<u64>();
    const WHOLE: isize = TOKEN.cast_signed();
    let mut token = 0u64;
    // SAFETY: `token` is eight writable bytes.
    let read = unsafe { libc::read(fd, &raw mut token as *mut c_void, TOKEN) };
    read == WHOLE
}

entry! {
    /// Acknowledges an asynchronous event.
    ///
    /// # Safety
    /// `event` came from `ibv_get_async_event`.
    fn ibv_ack_async_event(event: *mut ibv_async_event) -> Void {
        const QP_EVENTS: [u32; 6] = [
            AsyncEventKind::QpFatal as u32,
            AsyncEventKind::QpReqErr as u32,
            AsyncEventKind::QpAccessErr as u32,
            AsyncEventKind::CommEst as u32,
            AsyncEventKind::SqDrained as u32,
            AsyncEventKind::QpLastWqeReached as u32,
        ];
        // SAFETY: the caller vouches for the event; its object is not destroyed before this acknowledgement.
        unsafe {
            let event = event.as_ref().ok_or(Errno::INVAL)?;
            if event.event_type == IBV_EVENT_CQ_ERR {
                handle::borrow::<Cq>(event.element.cq)?.core.async_events.acknowledge(1);
            } else if QP_EVENTS.contains(&event.event_type) {
                handle::borrow::<Qp>(event.element.qp)?.core.async_events.acknowledge(1);
            }
        }
        Ok(())
    }

    /// Takes the event whose token was read: 0, or 1 if it is gone and another token has to be read.
    ///
    /// # Safety
    /// As for `ibv_get_async_event`, into which it must not be inlined: it has things to clean up.
    #[inline(never)]
    fn take_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> MinusOne {
        // SAFETY: the promise made to `ibv_get_async_event`.
        unsafe {
            let Some(taken) = context_core(context)?.take_event() else { return Ok(1) };
            *event = taken;
        }
        Ok(0)
    }
}

/// Waits for an asynchronous event: 0, or −1 with `errno`. Blocks like `ibv_get_cq_event`.
///
/// # Safety
/// `context` is open and `event` writable.
pub unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    loop {
        // SAFETY: the caller vouches for both pointers.
        let outcome = unsafe {
            if !take_token((*context).async_fd) {
                return -1;
            }
            take_async_event(context, event)
        };
        if outcome <= 0 {
            return outcome;
        }
    }
}
