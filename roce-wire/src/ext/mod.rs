//! Extension headers, one file each (InfiniBand specification, 9.3).
//!
//! Every header has `LEN`, `parse`, `to_bytes` and `emit`. Reserved fields are written as zero and ignored on receipt.

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod deth;
mod ieth;
mod imm_dt;
mod reth;
mod xrceth;

pub use aeth::Aeth;
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use deth::Deth;
pub use ieth::Ieth;
pub use imm_dt::ImmDt;
pub use reth::Reth;
pub use xrceth::XrcEth;
