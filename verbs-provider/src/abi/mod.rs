//! The C interface as Rust types: what applications were compiled against.
//!
//! Everything here is data layout and constants, taken over name by name from the public headers so that the rest of
//! the crate reads like their documentation. Nothing here has behaviour. [`verbs`] is what the other modules import;
//! [`kern`] and [`rdma_ucm`] are the shapes librdmacm exchanges with the emulated `rdma_cm` device.
//!
//! Enumerations are plain integers (`pub type` and constants): the values come from C and may be anything.
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "the names are those of the C headers"
)]
#![allow(missing_docs, reason = "members are documented by the C headers' manual pages")]

/// `Debug` for unions, which cannot be read without knowing what they hold.
macro_rules! opaque_debug {
    ($($name:ident),* $(,)?) => {
        $(impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

mod ah;
mod context;
mod cq;
mod device;
mod flow;
pub mod kern;
#[cfg(target_arch = "x86_64")]
mod layout;
mod mr;
mod qp;
pub mod rdma_ucm;
mod sa;
mod srq;
pub mod verbs;
mod wq;
mod wr;
