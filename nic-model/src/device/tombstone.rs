//! Closed QPs that stay answerable.
//!
//! The peer of a QP that was destroyed or moved to ERR may still lack the last ACK. For its retry budget a tombstone
//! acknowledges duplicates of what had arrived, and nothing else.

use super::parts::ControlPacket;
use crate::frame::Path;
use crate::time::{Duration, Time};
use roce_wire::bth::Bth;
use roce_wire::ext::Aeth;
use roce_wire::opcode::{Kind, Opcode};
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;
use roce_wire::syndrome::Syndrome;
use std::collections::VecDeque;

/// How long a closed QP answers.
pub const LINGER: Duration = Duration::from_secs(10);
/// Tombstones kept; the oldest goes first.
const MAX_TOMBSTONES: usize = 4096;

/// What is remembered of a closed QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Its QPN.
    pub qpn: u32,
    /// Path to the peer.
    pub path: Path,
    /// Peer's QPN.
    pub dest_qpn: u32,
    /// PSN it expected next.
    pub expected_psn: u32,
    /// Its MSN.
    pub msn: u32,
}

/// Tombstones of one function.
#[derive(Debug, Default)]
pub(super) struct Graveyard {
    stones: VecDeque<(Time, Tombstone)>,
    fresh: Vec<Tombstone>,
}

impl Graveyard {
    pub(super) fn bury(&mut self, now: Time, stone: Tombstone) {
        self.stones
            .retain(|(until, other)| *until > now && other.qpn != stone.qpn);
        if self.stones.len() == MAX_TOMBSTONES {
            self.stones.pop_front();
        }
        self.stones.push_back((now + LINGER, stone));
        self.fresh.push(stone);
    }

    /// Tombstones made since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<Tombstone> {
        core::mem::take(&mut self.fresh)
    }

    /// Forget a QPN that lives again.
    pub(super) fn exhume(&mut self, qpn: u32) {
        self.stones.retain(|(_, stone)| stone.qpn != qpn);
    }

    /// The acknowledgement for a duplicate request to a closed QP.
    pub(super) fn answer(&self, now: Time, packet: &Packet<'_>) -> Option<ControlPacket> {
        let bth = &packet.headers.bth;
        let stone = self
            .stones
            .iter()
            .find(|(until, stone)| *until > now && stone.qpn == bth.dest_qpn);
        let stone = stone.map(|(_, stone)| stone)?;
        let expected = Psn::new(stone.expected_psn);
        if !matches!(bth.opcode.info().kind, Kind::Send | Kind::Write) || !bth.psn.is_before(expected) {
            return None;
        }
        let mut headers = Headers::new(Bth::new(Opcode::RcAck, stone.dest_qpn, expected.previous()));
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: stone.msn,
        });
        let mut bytes = [0; 48];
        let length = headers.emit(&mut bytes) + super::batch::ICRC_LEN;
        Some(ControlPacket {
            path: stone.path,
            dest_qpn: stone.dest_qpn,
            bytes,
            length,
        })
    }
}
