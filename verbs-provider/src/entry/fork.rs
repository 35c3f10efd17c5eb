//! Fork support: none is needed, and saying so is all there is to it.
//!
//! Hardware pins pages, and a copy-on-write after `fork` would part the device from its buffer; hence the calls to mark
//! ranges. This device reads and writes through the process's own page tables.

use std::ffi::{c_int, c_void};

use crate::abi::verbs::{IBV_FORK_UNNEEDED, ibv_fork_status};

/// Prepares for `fork`: succeeds.
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Tells how fork is dealt with: it needs no dealing with.
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// Keeps a range out of children: succeeds without doing so.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Undoes [`ibv_dontfork_range`].
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
