//! The drop-in verbs library: `libibverbs.so.1`, whose only devices are those of the Adverb NIC.
//!
//! ```text
//! application ──► exports (versioned C symbols) ──► entry/* (decode, call, encode) ──► objects ──► driver ──► nic-model
//!      │                                                                                  ▲
//!      └──► ops (function tables behind the inlines of verbs.h: post, poll, arm) ─────────┘
//! librdmacm ──► hooks (open, write … of /dev/infiniband/rdma_cm) ──► cm (connection manager) ──► MADs of nic-model
//! ```
//!
//! * [`abi`]: the C interface as Rust types.
//! * [`exports`]: which symbols exist, at which versions, and what serves them.
//! * [`boundary`]: how a C call enters and leaves Rust.
//! * [`entry`]: the exported functions, one file a family of verbs; [`ops`]: the ones reached through a context.
//! * [`objects`], [`driver`]: what stands behind a C object, and the rings and doorbells by which it uses the device.
//! * [`runtime`], [`device`], [`config`]: the process's devices and how they were asked for.
//! * [`cm`], [`hooks`]: the connection manager, and the emulated kernel device that librdmacm finds it behind.

pub mod abi;
pub mod boundary;
pub mod cm;
pub mod config;
pub mod device;
pub mod driver;
pub mod entry;
pub mod exports;
pub mod hooks;
pub mod objects;
pub mod ops;
pub mod runtime;
