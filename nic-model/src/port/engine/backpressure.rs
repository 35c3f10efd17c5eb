//! Which budget a destination is under: a sibling's socket on this host, or a remote one.

use crate::frame::{MAX_BATCH_BYTES, Path, TxBudget};
use crate::port::host::{LocalBudget, Slot};
use crate::port::netdev::{self, NetDevice};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Budgets of one function.
#[derive(Debug)]
pub(super) struct HostBudget {
    local: LocalBudget,
    addrs: Vec<IpAddr>,
}

/// A budget together with the slot it asks through.
pub(super) struct Asking<'a> {
    budget: &'a mut HostBudget,
    slot: &'a mut Slot,
}

impl HostBudget {
    pub(super) fn new(slot: u8, netdev: &NetDevice) -> Self {
        let mut addrs = netdev.addrs.clone();
        addrs.extend(
            netdev::devices()
                .unwrap_or_default()
                .into_iter()
                .flat_map(|device| device.addrs),
        );
        Self {
            local: LocalBudget::new(slot),
            addrs,
        }
    }

    /// Whether a process of this host has that address.
    pub(super) fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.addrs.contains(&addr)
    }

    pub(super) fn with<'a>(&'a mut self, slot: &'a mut Slot) -> Asking<'a> {
        Asking { budget: self, slot }
    }

    pub(super) fn sent(&mut self, segment_size: usize, total: usize) {
        self.local.sent(segment_size, total);
    }

    pub(super) fn release(&mut self) {
        self.local.release();
    }

    pub(super) fn on_board(&mut self, from: u8, memfd: &OwnedFd) {
        if let Err(error) = self.local.on_board(from, memfd) {
            tracing::debug!(from, %error, "not a board");
        }
    }
}

impl TxBudget for Asking<'_> {
    fn available(&mut self, path: &Path, dest_qpn: u32) -> usize {
        match u8::try_from(dest_qpn >> 16) {
            Ok(to) if to != 0 && to != u8::MAX && self.budget.is_local(path.dst) => {
                self.budget.local.available(self.slot, to, path.dst)
            }
            _ => MAX_BATCH_BYTES,
        }
    }
}
