//! The device's view of back-pressure: local or remote, by destination.

use std::net::IpAddr;
use std::time::Instant;

use super::{LocalBudget, RemoteBudget, Slot};
use crate::frame::{Bytes, MAX_BATCH_BYTES, Path, TxBudget};

/// QPN of multicast.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// The budget of one transmit turn. After each batch the engine calls [`LocalBudget::sent`] or [`LocalBudget::release`],
/// and [`RemoteBudget::sent`] if the batch went to another host and will be acknowledged.
pub struct HostBudget<'a> {
    /// Room at the sockets of this host.
    pub local: &'a mut LocalBudget,
    /// Windows towards other hosts.
    pub remote: &'a mut RemoteBudget,
    /// To ask for boards.
    pub slot: &'a mut Slot,
    /// Whether an address is one of this host's.
    pub is_local: &'a dyn Fn(IpAddr) -> bool,
    /// Time of the turn.
    pub now: Instant,
}

impl core::fmt::Debug for HostBudget<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HostBudget")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

impl TxBudget for HostBudget<'_> {
    fn available(&mut self, path: &Path, dest_qpn: u32) -> Bytes {
        self.local.release();
        match u8::try_from(dest_qpn >> 16) {
            // QP0, QP1 and multicast: rare, and of no one socket.
            Ok(0) | Err(_) => MAX_BATCH_BYTES,
            _ if dest_qpn == MULTICAST_QPN => MAX_BATCH_BYTES,
            Ok(to) if (self.is_local)(path.dst) => self.local.available(self.slot, to, path.dst),
            Ok(_) => self.remote.available(path.dst, self.now),
        }
    }
}
