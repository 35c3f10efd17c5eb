//! Pointers an application holds ↔ objects of ours.
//!
//! The only place where one becomes the other. An application that passes a pointer it did not get from us, or one it
//! has already destroyed, breaks the verbs' contract; null is answered with `EINVAL`.

use super::ah::Ah;
use super::channel::Channel;
use super::context::Context;
use super::cq::Cq;
use super::device::DeviceObject;
use super::mr::Mr;
use super::pd::Pd;
use super::qp::Qp;
use crate::abi::verbs::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_gid, ibv_mr, ibv_pd, ibv_qp, verbs_context,
};
use crate::boundary::Errno;

/// An object known to the application by a pointer to the C structure inside it.
///
/// # Safety
/// The type is `#[repr(C)]` and has a `C`, or an `UnsafeCell<C>`, at [`Handle::OFFSET`].
pub unsafe trait Handle: Sized {
    /// The C structure.
    type C;
    /// Where in the object it lies.
    const OFFSET: usize = 0;
}

macro_rules! handles {
    ($($object:ty => $c:ty),* $(,)?) => {
        $(
            // SAFETY: the object is `#[repr(C)]` and starts with a cell of its C structure.
            unsafe impl Handle for $object {
                type C = $c;
            }
        )*
    };
}

handles! {
    DeviceObject => ibv_device,
    Channel => ibv_comp_channel,
    Cq => ibv_cq,
    Qp => ibv_qp,
    Pd => ibv_pd,
    Mr => ibv_mr,
    Ah => ibv_ah,
}

// SAFETY: the object is `#[repr(C)]` and starts with a cell of a `verbs_context`, whose last member is the context.
unsafe impl Handle for Context {
    type C = ibv_context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
}

/// Give the object to the application.
pub fn into_raw<T: Handle>(object: Box<T>) -> *mut T::C {
    let object = Box::into_raw(object);
    // SAFETY: the trait's contract puts a `C` at that offset within the allocation.
    unsafe { object.byte_add(T::OFFSET).cast() }
}

/// Look at an object the application has.
///
/// # Safety
/// `pointer` is null or came from [`into_raw`] for the same type, and the object is not taken back before `'a` ends.
pub unsafe fn borrow<'a, T: Handle>(pointer: *mut T::C) -> Result<&'a T, Errno> {
    if pointer.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise this undoes `into_raw`; shared access only, interior parts that change are cells,
    // atomics or behind locks.
    Ok(unsafe { &*pointer.byte_sub(T::OFFSET).cast::<T>() })
}

/// Take the object back from the application.
///
/// # Safety
/// As for [`borrow`], and nobody uses the pointer afterwards.
pub unsafe fn take<T: Handle>(pointer: *mut T::C) -> Result<Box<T>, Errno> {
    if pointer.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise this undoes `into_raw`, once.
    Ok(unsafe { Box::from_raw(pointer.byte_sub(T::OFFSET).cast::<T>()) })
}

/// A C structure of zero bytes.
///
/// # Safety
/// All-zero bytes are a valid `T`: integers, raw pointers, optional functions, and structures of those.
pub unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}

/// The bytes of a GID.
pub fn gid_bytes(gid: &ibv_gid) -> [u8; 16] {
    // SAFETY: every member of the union covers all 16 bytes, and any bytes are an array of bytes.
    unsafe { gid.raw }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    #[repr(C)]
    struct Object {
        before: u64,
        public: UnsafeCell<u32>,
        after: String,
    }

    // SAFETY: repr(C) with a cell of `u32` at the offset of `public`.
    unsafe impl Handle for Object {
        type C = u32;
        const OFFSET: usize = std::mem::offset_of!(Object, public);
    }

    #[test]
    fn pointers_go_out_and_come_back() {
        let pointer = into_raw(Box::new(Object {
            before: 1,
            public: UnsafeCell::new(2),
            after: "three".to_owned(),
        }));
        // SAFETY: the pointer is from `into_raw` and taken back once.
        unsafe {
            assert_eq!(*pointer, 2);
            assert_eq!(borrow::<Object>(pointer).unwrap().after, "three");
            let object = take::<Object>(pointer).unwrap();
            assert_eq!(object.before, 1);
        }
    }

    #[test]
    fn null_is_invalid() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(borrow::<Object>(std::ptr::null_mut()).err(), Some(Errno::INVAL));
            assert!(take::<Object>(std::ptr::null_mut()).is_err());
        }
    }
}
