//! The subcommands, one a file.

pub mod demo;
pub mod devices;
pub mod guardian;
pub mod run;
pub mod stat;
