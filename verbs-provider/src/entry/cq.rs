//! Completion channels, completion queues and their events.

use super::device::context_core;
use super::event::take_token;
use crate::abi::verbs::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::boundary::{Errno, ErrnoInt, MinusOne, Ptr, Void, entry};
use crate::objects::channel::Channel;
use crate::objects::cq::{Cq, CqCore};
use crate::objects::handle;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

entry! {
    /// Makes a completion channel.
    ///
    /// # Safety
    /// `context` is open.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> Ptr<ibv_comp_channel> {
        // SAFETY: the caller vouches for it.
        unsafe { context_core(context) }?;
        Ok(handle::into_raw(Box::new(Channel::new(context)?)))
    }

    /// Destroys a completion channel; `EBUSY` while CQs report to it.
    ///
    /// # Safety
    /// `channel` came from `ibv_create_comp_channel` and, after success, is not used any more.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            if handle::borrow::<Channel>(channel)?.core.is_used() {
                return Err(Errno::BUSY);
            }
            handle::take::<Channel>(channel).map(drop)
        }
    }

    /// Makes a CQ of at least `cqe` entries.
    ///
    /// # Safety
    /// `context` is open; `channel` is null or alive.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> Ptr<ibv_cq> {
        // SAFETY: the caller vouches for both; the public structure is made of integers, pointers, and a mutex and a
        // condition that start as zeros.
        let (owner, reports_to, empty) = unsafe {
            let reports_to = match channel.is_null() {
                true => None,
                false => Some(Arc::clone(&handle::borrow::<Channel>(channel)?.core)),
            };
            (context_core(context)?, reports_to, handle::zeroed::<ibv_cq>())
        };
        let core = CqCore::create(owner, cqe, comp_vector, reports_to)?;
        let public = ibv_cq { context, channel, cq_context, handle: core.id, cqe: core.entries(), ..empty };
        let cq = handle::into_raw(Box::new(Cq { public: UnsafeCell::new(public), core: Arc::clone(&core) }));
        core.set_handle(cq);
        Ok(cq)
    }

    /// Destroys a CQ: `EBUSY` while QPs use it; waits until every event of it is acknowledged.
    ///
    /// # Safety
    /// `cq` came from `ibv_create_cq` and, after success, is not used any more.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            handle::borrow::<Cq>(cq)?.core.destroy()?;
            handle::take::<Cq>(cq).map(drop)
        }
    }

    /// Acknowledges `nevents` completion events of a CQ.
    ///
    /// # Safety
    /// `cq` is alive.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) -> Void {
        // SAFETY: the caller vouches for it.
        unsafe { handle::borrow::<Cq>(cq) }?.core.completion_events.acknowledge(nevents);
        Ok(())
    }

    /// Takes the event whose token was read: 0, or 1 if it is gone and another token has to be read.
    ///
    /// # Safety
    /// As for `ibv_get_cq_event`, into which it must not be inlined: it has things to clean up.
    #[inline(never)]
    fn take_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> MinusOne {
        // SAFETY: the promise made to `ibv_get_cq_event`.
        let core = unsafe { &handle::borrow::<Channel>(channel)?.core };
        let taken = core.events.take(|event| {
            event.completion_events.deliver();
            event.handle()
        });
        let Some(object) = taken else { return Ok(1) };
        // SAFETY: the same promise, and a CQ that has an event unacknowledged is not destroyed.
        unsafe {
            *cq = object;
            *cq_context = (*object).cq_context;
        }
        Ok(0)
    }
}

/// Waits for a completion event: 0, or −1 with `errno`.
///
/// Blocks in `read` on the channel's descriptor, a cancellation point, with nothing held. Every call in here is to a
/// function that cannot unwind, so this frame has nothing to clean up and a forced unwinding passes through it.
///
/// # Safety
/// `channel` is alive; `cq` and `cq_context` are writable.
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // SAFETY: the caller vouches for all three pointers.
        let outcome = unsafe {
            if !take_token((*channel).fd) {
                return -1;
            }
            take_cq_event(channel, cq, cq_context)
        };
        if outcome <= 0 {
            return outcome;
        }
    }
}

#[cfg(test)]
#[path = "cq_tests.rs"]
mod tests;
