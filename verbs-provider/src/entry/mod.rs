//! The exported functions, one file a family of verbs. Each decodes its arguments, calls the driver half, and reports in
//! its C return shape (see [`crate::boundary`]); nothing here decides anything about the device.

pub mod ah;
pub mod convert;
pub mod cq;
pub mod device;
pub mod event;
pub mod fork;
pub mod pd_mr;
pub mod qp;
pub mod rate;
pub mod strings;
pub(crate) mod stubs;
pub mod sysfs;
