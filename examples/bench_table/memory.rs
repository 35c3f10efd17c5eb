//! memcpy: what moving the payload once costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Gbit/s of copying a buffer of that size over and over.
pub(crate) fn copy(bytes: usize, span: Duration) -> f64 {
    let from = vec![7_u8; bytes];
    let mut to = vec![0_u8; bytes];
    let started = Instant::now();
    let mut copied = 0_u64;
    while started.elapsed() < span {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        copied += bytes as u64;
    }
    copied as f64 * 8.0 / started.elapsed().as_secs_f64() / 1e9
}
