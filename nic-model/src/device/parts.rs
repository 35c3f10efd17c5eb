//! What all QPs of a function share, handed to them while they work.

use super::counters::Counters;
use super::cq::CqTable;
use super::gsi::Gsi;
use super::memory::Memory;
use super::path::GidTable;
use super::timers::Timers;
use super::ud::AhTable;
use crate::frame::Path;
use crate::host_if::caps::DeviceCaps;
use crate::host_if::event::{AsyncEvent, AsyncEventKind, Event};
use crate::time::Time;
use crate::tonic::Tonic;
use std::collections::VecDeque;

/// A small packet outside Tonic: CNP or the like, complete but for its ICRC.
#[derive(Clone, Debug)]
pub(super) struct ControlPacket {
    pub(super) path: Path,
    pub(super) dest_qpn: u32,
    pub(super) bytes: [u8; 48],
    pub(super) length: usize,
}

/// Shared parts of a function.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) now: Time,
    pub(super) caps: DeviceCaps,
    pub(super) memory: Memory,
    pub(super) cqs: CqTable,
    pub(super) ahs: AhTable,
    pub(super) gids: GidTable,
    pub(super) tonic: Tonic,
    pub(super) gsi: Gsi,
    pub(super) control: VecDeque<ControlPacket>,
    /// QPs whose responder has an ACK, NAK or atomic acknowledgement to send.
    pub(super) ack_due: VecDeque<u16>,
    /// UD QPs with datagrams to send.
    pub(super) ud_ready: VecDeque<u16>,
    pub(super) timers: Timers,
    pub(super) counters: Counters,
    pub(super) events: VecDeque<Event>,
}

impl Parts {
    /// Raise an asynchronous event.
    pub(super) fn raise(&mut self, kind: AsyncEventKind, cookie: u64) {
        self.events.push_back(Event::Async(AsyncEvent { kind, cookie }));
    }
}
