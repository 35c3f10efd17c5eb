//! Criterion benchmarks of the layers below the device.
fn main() {}
