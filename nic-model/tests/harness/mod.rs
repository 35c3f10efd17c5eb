//! Two NICs, two links and a virtual clock, with a mock driver: the bench on which the scenarios run.
//!
//! [`Pair`] owns everything. A scenario brings QPs up ([`Pair::connect`]), registers memory ([`Pair::buffer`]), posts
//! work requests ([`wr::Wr`]) and lets time pass ([`Pair::drive`], [`Pair::drive_until`]); completions gather in each
//! QP's [`host::Qp`]. When an assertion fails, the seed and the last events are printed.

pub(crate) mod buffer;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod wr;

pub(crate) use buffer::Buffer;
pub(crate) use host::{QpId, QpOptions, Side};
pub(crate) use pair::{Pair, PairConfig};
pub(crate) use wr::{Recv, Wr};

/// The first host.
pub(crate) const A: Side = 0;
/// The second host.
pub(crate) const B: Side = 1;

/// Seeds for a scenario: so many, or as many as `SIM_SEEDS` says, for a long run.
pub(crate) fn seeds(default: u64) -> core::ops::Range<u64> {
    0..std::env::var("SIM_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(default)
}
