//! Tonic: the transmit logic of the NIC, after "Enabling Programmable Transport Protocols in High-Speed NICs"
//! (NSDI 2020). Which segment of which flow leaves next, and when; programmed by [`TransportProgram`]s.
//!
//! ```text
//!  available(upto) ─┐                 active set (FIFO)
//!  incoming(event) ─┼─► data delivery engine ──► ring of N addresses ──► credit engine ──► poll() = Burst
//!  handle_timeout ──┘      ▲   program            (per flow)           window|rate|grant      │
//!                          └───────────────────── "transmitted" ◄─────────── ready set (FIFO)─┘
//! ```
//!
//! | paper | here |
//! |---|---|
//! | data delivery engine: incoming, periodic updates, segment generation, segment transmitted | `delivery`, one file each |
//! | retransmission timer, periodic sweep | `delivery/timer.rs`, `timers` (exact deadlines in place of a sweep) |
//! | credit engine: enqueue, transmit, rate timers, grant tokens | `credit` |
//! | ring of N outstanding addresses | `ring` |
//! | active set, ready-to-transmit set | `sched` |
//! | acked, marked-for-rtx, rtx-cnt bitmaps; find-first of appendix C | `segments`, `bitmap` |
//! | user-defined functions, user context | `program`, `programs`, `view`, `actions` |
//! | merge rules of concurrent modules | calls are serial in the order Incoming, Periodic, Transmitted, Generate; [`Tonic::handle_timeout`] |
//!
//! Beyond the paper: segments of any length without stall, several marked ranges for an event, bursts, exact rates
//! that change at once, windows of 1,024, flows added and removed at run time, timers that stop.
//!
//! No clock, no I/O, no allocation after [`Tonic::add_flow`] but for more flows in recovery than reserved.

mod actions;
mod bitmap;
mod config;
mod credit;
mod delivery;
mod event;
mod facade;
mod flow;
mod program;
pub mod programs;
mod ring;
mod sched;
mod segments;
mod timers;
mod view;

#[cfg(test)]
mod tests;

pub use actions::{Actions, MAX_MARKS, Marks, RateAction, TimerAction, VisitAction};
pub use config::{Burst, FlowConfig, FlowStats, MAX_WINDOW, TonicConfig};
pub use event::Incoming;
pub use facade::Tonic;
pub use program::{
    CreditScheme, FlowParams, Initial, Program, STATE_BYTES, StateBytes, TransportProgram, Wake, program, programs,
};
pub use view::{FlowView, Head};

/// A flow of this NIC, a dense index that is used again after the flow is removed.
pub type FlowId = u32;

/// Number of a segment in its flow: counts up from 0 and never wraps.
pub type SegNo = u64;
