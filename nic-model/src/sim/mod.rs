//! The simulated wire: links in virtual time.
//!
//! ```text
//! TxBatch ─ SimFrame::seal_all ─► SimLink (rules, faults, queue, rate, delay) ─► SimFrame::open ─► Nic::handle_packet
//! ```
//!
//! A [`SimFrame`] is one sealed packet with its addressing: what a cable carries. A [`SimLink`] carries frames one way
//! and knows nothing of hosts or of what joins its ends, so that NICs, switches and whole networks are built from it.
//! Nothing here does I/O or reads a clock, and every random choice comes from a seed: a run is a function of its
//! configuration.

mod faults;
mod frame;
mod link;

pub use faults::{Faults, Verdict};
pub use frame::SimFrame;
pub use link::{LinkConfig, LinkStats, SimLink};
