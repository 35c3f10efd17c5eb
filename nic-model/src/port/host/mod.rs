//! Sharing one host address between processes.
//!
//! Every process that opens a device is one function of the NIC. Nothing central runs on the data path; the processes of
//! a network namespace find each other by abstract Unix socket names, which the kernel frees at death:
//!
//! | name                              | kind      | what it is                                             |
//! |-----------------------------------|-----------|--------------------------------------------------------|
//! | `adverb/<n>`                      | datagram  | [`slot`]: top byte of QPNs and CM ids, and a mailbox   |
//! | `adverb/cm/<space>/<addr>/<port>` | datagram  | [`ports`]: a CM port, and the mailbox for its requests |
//! | `adverb/lock/<addr>`              | datagram  | [`steering`]: one at a time rebuilds the table         |
//! | `adverb/guardian/<euid>`          | seqpacket | [`guardian`]: speaks for the dead                      |
//!
//! ```text
//!  packet for (address, 4791)
//!     │ kernel: SO_REUSEPORT group, program of [`filter`] picks the socket by the slot in the destination QPN
//!     ▼
//!  engine of some process ── own slot? ──► device
//!     │ no: table out of date                 ▲
//!     └── [`slot::Slot::send`] HandOver ──────┘ (in the owner's process)
//! ```
//!
//! The table is an optimisation: with a wrong one, or none, every packet still reaches its owner by hand-over.
//! [`board`] and [`local_budget`] bound what is in flight towards each socket, so that the kernel never drops for lack of room.

pub mod board;
pub mod filter;
pub mod guardian;
pub mod local_budget;
pub mod message;
pub mod ports;
pub mod probe;
pub mod remote_budget;
pub mod slot;
pub mod steering;
mod sys;
pub mod truesize;

pub use board::Board;
pub use guardian::Guardian;
pub use local_budget::LocalBudget;
pub use message::Message;
pub use ports::PortClaim;
pub use remote_budget::RemoteBudget;
pub use slot::{Sender, Slot, live_slots};
pub use steering::Steering;
pub use sys::{SocketMemory, socket_memory};

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
