//! Devices, contexts, and what can be asked of them.

use crate::abi::verbs::{
    _compat_ibv_port_attr, IBV_GID_TYPE_ROCE_V2, be16, be64, ibv_context, ibv_device, ibv_device_attr,
    ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input,
};
use crate::boundary::{Errno, ErrnoInt, MinusOne, NegatedErrno, Plain, Ptr, Void, entry};
use crate::device::{Device, attributes};
use crate::objects::address::c_gid;
use crate::objects::context::{Context, ContextCore};
use crate::objects::device::DeviceObject;
use crate::objects::handle;
use crate::runtime::Runtime;
use nic_model::host_if::Gid;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// What sysfs calls RoCEv2, in the numbering of `ibv_query_gid_type`.
const GID_TYPE_SYSFS_ROCE_V2: c_uint = 1;

entry! {
    /// Lists the devices in an array that ends with a null pointer, and counts them in `num_devices` unless it is null.
    ///
    /// # Safety
    /// `num_devices` is null or writable.
    fn ibv_get_device_list(num_devices: *mut c_int) -> Ptr<*mut ibv_device> {
        let devices = Runtime::get().devices();
        // SAFETY: calloc takes any size.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno::NOMEM);
        }
        for (index, device) in devices.iter().enumerate() {
            // SAFETY: the array has one element more than there are devices.
            unsafe { list.add(index).write(device_handle(device)) };
        }
        if !num_devices.is_null() {
            // SAFETY: writable unless null.
            unsafe { *num_devices = c_int::try_from(devices.len()).unwrap_or(c_int::MAX) };
        }
        Ok(list)
    }

    /// Frees a list; the devices stay.
    ///
    /// # Safety
    /// `list` came from `ibv_get_device_list`, or is null.
    fn ibv_free_device_list(list: *mut *mut ibv_device) -> Void {
        // SAFETY: allocated by calloc in `ibv_get_device_list`.
        unsafe { libc::free(list.cast::<c_void>()) };
        Ok(())
    }

    /// Name of a device.
    ///
    /// # Safety
    /// `device` came from a device list.
    fn ibv_get_device_name(device: *mut ibv_device) -> Ptr<c_char> {
        if device.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller vouches for it.
        Ok(unsafe { &raw mut (*device).name }.cast())
    }

    /// Node GUID of a device.
    ///
    /// # Safety
    /// `device` came from a device list.
    fn ibv_get_device_guid(device: *mut ibv_device) -> Plain<be64> {
        // SAFETY: the caller vouches for it.
        Ok(unsafe { handle::borrow::<DeviceObject>(device) }?.core.node_guid.to_be())
    }

    /// Number of a device.
    ///
    /// # Safety
    /// `device` came from a device list.
    fn ibv_get_device_index(device: *mut ibv_device) -> MinusOne {
        // SAFETY: the caller vouches for it.
        let device = unsafe { handle::borrow::<DeviceObject>(device) }?;
        c_int::try_from(device.core.index).map_err(|_| Errno::INVAL)
    }

    /// Opens a device. Its NIC starts when the first object is made.
    ///
    /// # Safety
    /// `device` came from a device list.
    fn ibv_open_device(device: *mut ibv_device) -> Ptr<ibv_context> {
        // SAFETY: the caller vouches for it.
        let object = unsafe { handle::borrow::<DeviceObject>(device) }?;
        let (core, device) = current(&object.core, device)?;
        Ok(handle::into_raw(Box::new(Context::new(core, device)?)))
    }

    /// Closes a context. Objects made in it that are left over stay as they are.
    ///
    /// # Safety
    /// `context` came from `ibv_open_device` and is not used afterwards.
    fn ibv_close_device(context: *mut ibv_context) -> ErrnoInt {
        // SAFETY: the caller vouches for it.
        unsafe { handle::take::<Context>(context) }.map(drop)
    }

    /// Attributes of the device.
    ///
    /// # Safety
    /// `context` is open and `attr` writable.
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> ErrnoInt {
        // SAFETY: the caller vouches for both.
        unsafe { *attr = attributes::device(&context_core(context)?.device) };
        Ok(())
    }

    /// Attributes of the device, as far as the caller's `attr_size` goes: `verbs_context::query_device_ex`.
    ///
    /// # Safety
    /// `context` is open, `input` null or readable, `attr` writable for `attr_size` bytes.
    fn query_device_ex(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        attr_size: usize,
    ) -> ErrnoInt {
        // SAFETY: readable unless null.
        let asks_for_more = unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0);
        if asks_for_more || attr_size < size_of::<ibv_device_attr>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the structure is made of integers; the caller vouches for `context`.
        let (mut full, device) = unsafe { (handle::zeroed::<ibv_device_attr_ex>(), &context_core(context)?.device) };
        full.orig_attr = attributes::device(device);
        full.device_cap_flags_ex = full.orig_attr.device_cap_flags.into();
        full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt.into();
        // SAFETY: the caller vouches for `attr_size` bytes.
        unsafe { copy_out(&full, attr.cast(), attr_size) };
        Ok(())
    }

    /// Attributes of a port, as far as the caller's `port_attr_len` goes: `verbs_context::query_port`.
    ///
    /// # Safety
    /// `context` is open, `port_attr` writable for `port_attr_len` bytes.
    fn query_port(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut ibv_port_attr,
        port_attr_len: usize,
    ) -> ErrnoInt {
        check_port(port_num.into())?;
        // SAFETY: the caller vouches for both.
        unsafe { copy_out(&attributes::port(&context_core(context)?.device), port_attr.cast(), port_attr_len) };
        Ok(())
    }

    /// Attributes of a port, of those members that the oldest callers know.
    ///
    /// # Safety
    /// `context` is open and `port_attr` writable.
    fn ibv_query_port(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> ErrnoInt {
        check_port(port_num.into())?;
        // SAFETY: the caller vouches for both. The structures are alike up to `flags`, the last of the smaller one.
        unsafe {
            let full = attributes::port(&context_core(context)?.device);
            copy_out(&full, port_attr.cast(), std::mem::offset_of!(_compat_ibv_port_attr, flags) + 1);
        }
        Ok(())
    }

    /// An entry of the GID table; an empty one is all zeros.
    ///
    /// # Safety
    /// `context` is open and `gid` writable.
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> MinusOne {
        // SAFETY: the caller vouches for both.
        unsafe { *gid = c_gid(table_entry(context, port_num.into(), u32::try_from(index).unwrap_or(u32::MAX))?) };
        Ok(0)
    }

    /// Type of an entry of the GID table as sysfs numbers them: 1 for RoCEv2, 0 otherwise, as for an empty entry.
    ///
    /// # Safety
    /// `context` is open and `gid_type` writable.
    fn ibv_query_gid_type(
        context: *mut ibv_context,
        port_num: u8,
        index: c_uint,
        gid_type: *mut c_uint,
    ) -> MinusOne {
        // SAFETY: the caller vouches for both.
        unsafe {
            let gid = table_entry(context, port_num.into(), index)?;
            *gid_type = if gid.is_zero() { 0 } else { GID_TYPE_SYSFS_ROCE_V2 };
        }
        Ok(0)
    }

    /// An entry of the GID table with its type and interface; `ENODATA` for an empty one.
    ///
    /// # Safety
    /// `context` is open, `entry` writable for `entry_size` bytes.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> ErrnoInt {
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller vouches for both.
        unsafe {
            let gid = table_entry(context, port_num, gid_index)?;
            if gid.is_zero() {
                return Err(Errno::NODATA);
            }
            let full = gid_entry(&context_core(context)?.device, gid_index, gid);
            copy_out(&full, entry.cast(), entry_size);
        }
        Ok(())
    }

    /// All populated entries of the GID table; gives their number.
    ///
    /// # Safety
    /// `context` is open, `entries` writable for `max_entries` elements of `entry_size` bytes.
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> NegatedErrno {
        // SAFETY: the caller vouches for it.
        let device = unsafe { &context_core(context)?.device };
        let count = device.gids.iter().count();
        if flags != 0 || count > max_entries {
            return Err(Errno::INVAL);
        }
        for (position, (index, gid)) in device.gids.iter().enumerate() {
            let full = gid_entry(device, index.into(), gid);
            // SAFETY: `position` is below `max_entries`, for which the caller vouches.
            unsafe { copy_out(&full, entries.byte_add(position * entry_size).cast(), entry_size) };
        }
        isize::try_from(count).map_err(|_| Errno::INVAL)
    }

    /// An entry of the P_Key table, which has one.
    ///
    /// # Safety
    /// `context` is open and `pkey` writable.
    fn ibv_query_pkey(_context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut be16) -> MinusOne {
        check_port(port_num.into())?;
        if index != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller vouches for it.
        unsafe { *pkey = attributes::DEFAULT_PKEY.to_be() };
        Ok(0)
    }

    /// Where in the P_Key table `pkey` is.
    ///
    /// # Safety
    /// `context` is open.
    fn ibv_get_pkey_index(_context: *mut ibv_context, port_num: u8, pkey: be16) -> MinusOne {
        check_port(port_num.into())?;
        if u16::from_be(pkey) == attributes::DEFAULT_PKEY { Ok(0) } else { Err(Errno::NOENT) }
    }
}

/// The pointer by which applications know `device`.
fn device_handle(device: &Arc<Device>) -> *mut ibv_device {
    device.handle(|| {
        // SAFETY: the structure is made of integers, characters and null pointers.
        let empty = unsafe { handle::zeroed() };
        handle::into_raw(Box::new(DeviceObject::new(Arc::clone(device), empty)))
    })
}

/// The device to open for `device`: itself, or in a forked child, which may hold a pointer from before, the child's own
/// of that name.
fn current(device: &Arc<Device>, pointer: *mut ibv_device) -> Result<(Arc<Device>, *mut ibv_device), Errno> {
    if !device.is_inert() {
        return Ok((Arc::clone(device), pointer));
    }
    let devices = Runtime::get().devices();
    let own = devices.iter().find(|own| own.name == device.name).ok_or(Errno::NODEV)?;
    Ok((Arc::clone(own), device_handle(own)))
}

/// The working part of a context.
///
/// # Safety
/// `context` is null or open, and stays open while the result is used.
pub(crate) unsafe fn context_core<'a>(context: *mut ibv_context) -> Result<&'a ContextCore, Errno> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { handle::borrow::<Context>(context) }?.core)
}

/// There is only port 1.
fn check_port(port: u32) -> Result<(), Errno> {
    if port == 1 { Ok(()) } else { Err(Errno::INVAL) }
}

/// # Safety
/// `context` is null or open.
unsafe fn table_entry(context: *mut ibv_context, port: u32, index: u32) -> Result<Gid, Errno> {
    check_port(port)?;
    // SAFETY: the caller's promise.
    unsafe { context_core(context) }?
        .device
        .gids
        .get(index)
        .ok_or(Errno::INVAL)
}

fn gid_entry(device: &Device, index: u32, gid: Gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: c_gid(gid),
        gid_index: index,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: device.gids.ifindex(),
    }
}

/// Copy as much of `value` as the caller has room for, and zero the rest of that room: the caller's structure may be
/// older or newer than ours.
///
/// # Safety
/// `out` is writable for `size` bytes.
unsafe fn copy_out<T: Copy>(value: &T, out: *mut u8, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: `known` is within both, the rest within the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), out, known);
        out.add(known).write_bytes(0, size - known);
    }
}
