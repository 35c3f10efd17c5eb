//! Protection domains and memory regions.

use super::device::context_core;
use crate::abi::verbs::{IBV_ACCESS_OPTIONAL_RANGE, ibv_context, ibv_mr, ibv_pd};
use crate::boundary::{Errno, ErrnoInt, Ptr, entry};
use crate::objects::handle;
use crate::objects::mr::{Mr, MrCore};
use crate::objects::pd::{Pd, PdCore};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};

entry! {
    /// Allocates a protection domain.
    ///
    /// # Safety
    /// `context` is open.
    fn ibv_alloc_pd(context: *mut ibv_context) -> Ptr<ibv_pd> {
        // SAFETY: the caller vouches for it.
        let core = PdCore::create(unsafe { context_core(context) }?)?;
        let public = UnsafeCell::new(ibv_pd { context, handle: core.id });
        Ok(handle::into_raw(Box::new(Pd { public, core })))
    }

    /// Frees a protection domain; `EBUSY` while objects use it.
    ///
    /// # Safety
    /// `pd` came from `ibv_alloc_pd` and, after success, is not used any more.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            handle::borrow::<Pd>(pd)?.core.destroy()?;
            handle::take::<Pd>(pd).map(drop)
        }
    }

    /// Registers memory under its own addresses.
    ///
    /// # Safety
    /// `pd` is alive. The memory stays mapped until it is deregistered.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> Ptr<ibv_mr> {
        // SAFETY: the caller's promise is the callee's.
        unsafe { register(pd, addr, length, addr.expose_provenance() as u64, access.cast_unsigned()) }
    }

    /// Registers memory under addresses from `iova` on.
    ///
    /// # Safety
    /// As for `ibv_reg_mr`.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> Ptr<ibv_mr> {
        // SAFETY: the caller's promise is the callee's.
        unsafe { register(pd, addr, length, iova, access.cast_unsigned()) }
    }

    /// Registers memory under addresses from `iova` on, with access flags the device may not know.
    ///
    /// # Safety
    /// As for `ibv_reg_mr`.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> Ptr<ibv_mr> {
        // SAFETY: the caller's promise is the callee's.
        unsafe { register(pd, addr, length, iova, access & !IBV_ACCESS_OPTIONAL_RANGE) }
    }

    /// Deregisters memory.
    ///
    /// # Safety
    /// `mr` came from a registration and, after success, is not used any more.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            handle::borrow::<Mr>(mr)?.core.deregister()?;
            handle::take::<Mr>(mr).map(drop)
        }
    }
}

/// # Safety
/// As for `ibv_reg_mr`.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the caller vouches for it.
    let domain = unsafe { handle::borrow::<Pd>(pd) }?;
    let core = MrCore::register(
        &domain.core,
        addr.expose_provenance() as u64,
        length as u64,
        iova,
        access,
    )?;
    // SAFETY: a PD that is alive; the member does not change.
    let context = unsafe { (*pd).context };
    let public = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: core.lkey,
        lkey: core.lkey,
        rkey: core.rkey,
    };
    Ok(handle::into_raw(Box::new(Mr {
        public: UnsafeCell::new(public),
        core,
    })))
}
