//! Address handles.

use super::device::context_core;
use crate::abi::verbs::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};
use crate::boundary::{Errno, ErrnoInt, MinusOne, Ptr, entry};
use crate::objects::address;
use crate::objects::ah::{Ah, AhCore, GRH_LEN, reply_address};
use crate::objects::handle;
use crate::objects::pd::Pd;
use std::cell::UnsafeCell;

entry! {
    /// Makes an address handle.
    ///
    /// # Safety
    /// `pd` is alive, `attr` readable.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> Ptr<ibv_ah> {
        // SAFETY: the caller vouches for both.
        unsafe { create(pd, attr.as_ref().ok_or(Errno::INVAL)?) }
    }

    /// Makes an address handle for answering the datagram that `wc` and `grh` describe.
    ///
    /// # Safety
    /// `pd` is alive, `wc` readable, and `grh` too if the completion has one.
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> Ptr<ibv_ah> {
        // SAFETY: the caller vouches for all of them.
        unsafe {
            let context = pd.as_ref().ok_or(Errno::INVAL)?.context;
            create(pd, &from_wc(context, port_num, wc, grh)?)
        }
    }

    /// The address for answering the datagram that `wc` and `grh` describe.
    ///
    /// # Safety
    /// `context` is open, `wc` readable, `grh` too if the completion has one, `ah_attr` writable.
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> MinusOne {
        // SAFETY: the caller vouches for all of them.
        unsafe { *ah_attr = from_wc(context, port_num, wc, grh)? };
        Ok(0)
    }

    /// Destroys an address handle.
    ///
    /// # Safety
    /// `ah` came from one of the above and, after success, is not used any more.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe {
            handle::borrow::<Ah>(ah)?.core.destroy()?;
            handle::take::<Ah>(ah).map(drop)
        }
    }
}

/// # Safety
/// `pd` is null or alive.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    // SAFETY: the caller's promise; the member read does not change.
    let (domain, context) = unsafe { (handle::borrow::<Pd>(pd)?, (*pd).context) };
    let core = AhCore::create(&domain.core, attr)?;
    let public = ibv_ah {
        context,
        pd,
        handle: core.id,
    };
    Ok(handle::into_raw(Box::new(Ah {
        public: UnsafeCell::new(public),
        core,
    })))
}

/// # Safety
/// As for `ibv_init_ah_from_wc`.
unsafe fn from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Result<ibv_ah_attr, Errno> {
    // SAFETY: the caller's promise.
    let (device, wc) = unsafe { (&context_core(context)?.device, wc.as_ref().ok_or(Errno::INVAL)?) };
    if port_num != 1 {
        return Err(Errno::INVAL);
    }
    if wc.wc_flags & IBV_WC_GRH == 0 {
        // Not global: of use on other link layers only.
        let vector = nic_model::host_if::AddressVector {
            port_num,
            dlid: wc.slid,
            sl: wc.sl,
            ..Default::default()
        };
        return Ok(address::ah_attr(&vector));
    }
    // SAFETY: the caller's promise: the completion has a GRH, so its 40 bytes are readable.
    let area = unsafe { grh.cast::<[u8; GRH_LEN]>().as_ref() }.ok_or(Errno::INVAL)?;
    let vector = reply_address(area, &device.gids)?;
    Ok(address::ah_attr(&nic_model::host_if::AddressVector {
        sl: wc.sl,
        ..vector
    }))
}
