//! Functions of the C library the library stands in for, so that the real librdmacm finds a `/dev/infiniband/rdma_cm`.
//!
//! ```text
//! application or librdmacm ──► write (stub, assembly) ── bit clear ──► jmp next write     no Rust, no frame, no syscall
//!                                   │ bit set
//!                                   ├── descriptors::confirm: another socket by now ──► jmp next write
//!                                   └── ours ──► device::write
//! ```
//!
//! The stubs must not be noticed: the functions behind them are cancellation points, are called from signal handlers,
//! before constructors, in forked children. So nothing but a test and a jump stands in an application's way; Rust runs
//! only for the device's path and its descriptors. `read`, `poll` and the rest need no hook, as the descriptors are real
//! sockets that are readable when there is an event.
//!
//! * [`next`]: the functions behind the hooks.
//! * [`descriptors`]: which descriptors are ours.
//! * [`device`]: the device itself.
//! * `stubs`: the exported symbols. x86-64 only; elsewhere the device does not exist.

#[cfg(target_arch = "x86_64")]
mod descriptors;
#[cfg(target_arch = "x86_64")]
mod device;
#[cfg(target_arch = "x86_64")]
mod next;
#[cfg(target_arch = "x86_64")]
pub mod stubs;

use std::ffi::c_int;

/// The calling thread's `errno`.
fn errno() -> c_int {
    // SAFETY: libc's pointer to the thread's own errno is valid while the thread lives.
    unsafe { *libc::__errno_location() }
}

/// Set the calling thread's `errno`.
fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}
