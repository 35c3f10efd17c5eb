//! The connection manager: what stands behind the emulated `/dev/infiniband/rdma_cm` that the real librdmacm opens.
//!
//! ```text
//!  librdmacm ── open, write, close, fstat ──► crate::hooks ──► service.rs ── uapi.rs ──► core/ (sans-I/O)
//!                                                                  ▲  │                     │
//!  engine ── MADs of QP1, timer ──────────────► host.rs ───────────┘  └── MADs, ports, ─────┘
//!                                                                         guardian: host.rs
//! ```
//!
//! * [`core`]: the kernel's connection manager as a state machine without I/O.
//! * [`service`]: lock, clock and descriptors around it.
//! * [`host`]: the rest of the library and the host as the core sees them.
//! * `uapi`: the C structures.

pub mod core;
pub mod host;
pub mod service;
mod uapi;
