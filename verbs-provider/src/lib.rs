//! The drop-in verbs library: `libibverbs.so.1`, whose only devices are those of the Adverb NIC.
//!
//! ```text
//! application ──► exports (versioned C symbols) ──► entry/* (decode, call, encode) ──► driver half ──► nic-model
//! ```
//!
//! * [`abi`]: the C interface as Rust types.
//! * [`boundary`]: how a C call enters and leaves Rust.
//! * [`exports`]: which symbols exist, at which versions, and what serves them.
//! * [`entry`]: the exported functions, one file a family of verbs.

pub mod abi;
pub mod boundary;
pub mod entry;
pub mod exports;
