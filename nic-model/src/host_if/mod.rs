//! The host interface: the "PCIe line" between driver and device.
//!
//! Everything both sides share lives here and nowhere else: rings in host memory ([`ring`]), the 64-byte work-queue
//! and completion-queue entries ([`wqe`], [`cqe`]), the doorbell page ([`doorbell`]) and the serial command queue
//! ([`command`]) with its attribute types ([`qp_attr`], [`caps`]). The driver half writes WQEs and rings doorbells; the
//! device validates every index and every WQE it fetches and trusts none of them. `docs/device.md` is the datasheet.

pub mod caps;
pub mod command;
pub mod cqe;
pub mod doorbell;
pub mod event;
pub mod qp_attr;
pub mod ring;
mod sync;
pub mod wqe;

pub use caps::DeviceCaps;
pub use command::{Command, CommandError, Reply};
pub use cqe::{Cqe, CqeFlags, WcOpcode, WcStatus};
pub use doorbell::DoorbellPage;
pub use event::{AsyncEvent, AsyncEventKind, Event};
pub use qp_attr::{AddressVector, Gid, QpAttr, QpAttrMask, QpState, QpType};
pub use ring::{CompletionQueue, WorkQueue};
