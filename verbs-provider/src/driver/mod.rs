//! The driver half: what the verbs' data path does on the driver's side of the host interface.
//!
//! ```text
//!   ibv_send_wr ─► send ──WQE──► SQ ring ─┐ doorbell, kick ─► device
//!   ibv_recv_wr ─► recv ──WQE──► RQ ring ─┘
//!   ibv_wc      ◄─ poll ◄──CQE── CQ ring ◄──────────────────── device
//! ```
//!
//! Everything goes through `nic_model::host_if`; the engine is only told to look. Nothing here allocates. A slot of a
//! work queue is free again when the application has polled a completion that covers it, not earlier: completions a
//! device has written but nobody has polled still name the slot.

pub mod directory;
pub mod notify;
pub mod poll;
pub mod recv;
pub mod send;
