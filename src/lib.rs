//! The `adverb` command, as a library so that its tests, demonstration and benchmarks share its parts.
//!
//! ```text
//!  main ─► cli ─► cmd::{run, devices, stat, demo, guardian}
//!                  │    run: settings (flags, environment) ─► checks (what would go wrong later)
//!                  │         locate (the shared object) ─► shelf (directory of symlinks) ─► exec
//!                  └─► demo: pair (two processes of a tool, each under `adverb run`) ─► a table
//! ```
//!
//! Nothing here is on the data path: `adverb run` ends in an exec, and from then on the NIC lives in the program's own
//! process.
#![forbid(unsafe_code)]

pub mod checks;
pub mod cli;
pub mod cmd;
pub mod errors;
pub mod host;
pub mod locate;
pub mod netdev;
pub mod pair;
pub mod settings;
pub mod shelf;
