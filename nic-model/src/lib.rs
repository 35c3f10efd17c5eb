//! The RDMA NIC device model.
pub mod frame;
pub mod host_if;
pub mod time;
