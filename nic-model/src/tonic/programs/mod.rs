//! Transport programs, one protocol a file. The registry lists them with their default parameters.

pub mod go_back_n;
pub mod roce_dcqcn;

use super::program::Program;

/// All built-in programs; the first is the default.
pub(super) static ALL: &[&dyn Program] = &[&roce_dcqcn::RoceDcqcn::DEFAULT];
