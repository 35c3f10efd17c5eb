//! What the CM core asks of the world around it: devices, routes, ports, randomness.
//!
//! The core does no I/O. Everything it must know about the host comes through [`Environment`], which tests implement
//! with a handful of tables.

use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

/// An error number of the C library.
pub type Errno = c_int;

/// A device as the connection manager needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Node GUID, as a number in host order.
    pub guid: u64,
    /// What `ibv_get_device_index` answers.
    pub index: u32,
    /// Slot of this process on the device: top byte of its communication ids.
    pub slot: u8,
    /// GID table index of the address the device was looked up by.
    pub gid_index: u8,
    /// Active MTU as `enum ibv_mtu`.
    pub mtu: u8,
}

/// A port to reserve among the processes of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// RDMA port space: `RDMA_PS_TCP` and so on.
    pub space: u16,
    /// The address, unspecified for all of its family.
    pub addr: IpAddr,
    /// The port, never 0.
    pub port: u16,
    /// Whether an IPv6 wildcard leaves IPv4 alone.
    pub v6_only: bool,
}

/// A reserved port: free again when the last clone is dropped.
pub type PortGuard = Arc<dyn Send + Sync>;

/// The host as the core sees it. Called with the core's lock held: implementations must not call back.
pub trait Environment: Send + Sync {
    /// The device that owns this address, if there is one.
    fn device_for(&self, local: IpAddr) -> Option<Device>;

    /// Every device that could receive a request for a wildcard listener.
    fn devices(&self) -> Vec<Device>;

    /// The address the host would send from towards `destination`.
    fn source_for(&self, destination: SocketAddr) -> Option<IpAddr>;

    /// Reserve a port; `EADDRINUSE` when another process has it.
    ///
    /// # Errors
    /// An error number for the application.
    fn claim(&self, request: &PortRequest) -> Result<PortGuard, Errno>;

    /// Whether ports below 1024 may be bound.
    fn may_bind_privileged(&self) -> bool;

    /// A random number: communication ids, packet sequence numbers, ephemeral ports.
    fn random(&self) -> u32;
}

/// How patient the connection manager is.
///
/// The defaults fit peers that answer within milliseconds; the values *sent* to peers are those of the Linux kernel.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Wait before the first repetition of a message.
    pub first_retry: Duration,
    /// Longest wait between two repetitions; waits grow by half until then.
    pub longest_retry: Duration,
    /// Repetitions before giving up; also sent as `max_cm_retries`.
    pub retries: u8,
    /// Wait between repetitions to a peer that asked for time.
    pub patient_retry: Duration,
    /// How long a closed connection answers duplicates.
    pub time_wait: Duration,
    /// Packet life time exponent of path records; with the device's ACK delay it gives the local ACK timeout, 34 ms.
    pub packet_life_time: u8,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            first_retry: Duration::from_millis(100),
            longest_retry: Duration::from_secs(2),
            retries: 15,
            patient_retry: Duration::from_secs(2),
            time_wait: Duration::from_millis(500),
            packet_life_time: 11,
        }
    }
}

impl Timing {
    /// Wait before repetition number `attempt`, counted from 0.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Duration {
        let mut wait = self.first_retry;
        for _ in 0..attempt {
            if wait >= self.longest_retry {
                break;
            }
            wait += wait / 2;
        }
        wait.min(self.longest_retry)
    }
}
