//! What answers for the symbols that are not implemented, one function a return shape.
//!
//! Their callers pass arguments; in the C calling conventions of our targets the caller also removes them, so a callee
//! that takes none serves all. `verbs_register_driver_34`, which vendor libraries call from their constructors, is
//! served by [`void`]: a driver for hardware that is not there has nothing to register for. None of these starts the
//! library, as loading must have no effects.
#![cfg_attr(test, allow(dead_code, reason = "unit tests are built without the trampolines"))]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::abi::verbs::IBV_REREG_MR_ERR_CMD;
use crate::boundary::{Errno, set_errno};

/// A verb that returns its error number.
pub(crate) extern "C" fn int() -> c_int {
    set_errno(Errno::OPNOTSUPP);
    Errno::OPNOTSUPP.get()
}

/// A function that returns −1.
pub(crate) extern "C" fn minus() -> c_int {
    set_errno(Errno::OPNOTSUPP);
    -1
}

/// A function that returns its error number negated.
#[allow(dead_code, reason = "used while the one symbol of this shape is not implemented")]
pub(crate) extern "C" fn negative() -> isize {
    set_errno(Errno::OPNOTSUPP);
    -(libc::EOPNOTSUPP as isize)
}

/// A question whose safe answer is no.
pub(crate) extern "C" fn zero() -> u64 {
    0
}

/// A constructor of something.
pub(crate) extern "C" fn ptr() -> *mut c_void {
    set_errno(Errno::OPNOTSUPP);
    null_mut()
}

/// A notice that is not heeded.
pub(crate) extern "C" fn void() {}

/// `ibv_rereg_mr`, which has error codes of its own.
pub(crate) extern "C" fn rereg() -> c_int {
    set_errno(Errno::OPNOTSUPP);
    IBV_REREG_MR_ERR_CMD
}
