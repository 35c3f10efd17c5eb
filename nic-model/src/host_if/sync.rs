//! The atomics of what driver and device share.
//!
//! Those of `core`; under `cfg(loom)` those of loom, which runs `tests/loom_rings.rs` through every interleaving and
//! every value that the memory model lets a load return.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
