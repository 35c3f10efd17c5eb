//! Packets and messages in: probes answered, strays handed over, the rest verified and given to the device.

use super::core::Core;
use super::sealing::Sealer;
use crate::device::{GSI_QPN, Nic};
use crate::frame::RxMeta;
use crate::port::host::board::{MAX_SOCKETS, Mark};
use crate::port::host::probe::is_probe;
use crate::port::host::{Board, Message, Slot, Steering};
use crate::time::Time;
use arrayvec::ArrayVec;
use roce_wire::bth::Bth;
use roce_wire::ext::Deth;
use std::net::IpAddr;

/// Reads of the port in one turn, so that a flood does not keep the device from sending.
const RX_TURN: usize = 4;

/// Groups packets of one coalesced buffer, as the board counts buffers.
#[derive(Debug, Default)]
struct Run {
    segment_size: usize,
    total: usize,
    next_hint: u16,
    socket: usize,
}

impl Run {
    fn add(&mut self, board: &Board, socket: usize, length: usize, hint: u16) {
        if self.total > 0 && (hint == 0 || hint != self.next_hint || socket != self.socket) {
            self.finish(board);
        }
        if self.total == 0 {
            self.segment_size = length;
            self.socket = socket;
        }
        self.total += length;
        self.next_hint = hint.wrapping_add(1);
    }

    fn finish(&mut self, board: &Board) {
        if self.total > 0 {
            board.received(self.socket, self.segment_size, self.total);
        }
        self.total = 0;
    }
}

/// The parts of the core a received packet needs.
struct Inlet<'a> {
    nic: &'a mut Nic,
    slot: &'a mut Slot,
    steering: &'a mut [Steering],
    sealer: &'a mut Sealer,
    now: Time,
}

impl Inlet<'_> {
    fn packet(&mut self, meta: &RxMeta, bytes: &[u8], hint: u16) {
        let own = self.slot.number();
        match owner(bytes) {
            Owner::Slot(slot) if slot != own => self.hand_over(slot, meta, bytes, hint),
            _ => self.deliver(meta, bytes, hint),
        }
    }

    fn deliver(&mut self, meta: &RxMeta, bytes: &[u8], hint: u16) {
        if self.sealer.verify(meta, bytes, hint).is_err() {
            self.nic.counters_mut().icrc_errors += 1;
            return;
        }
        self.nic.handle_packet(self.now, meta, bytes);
    }

    /// The kernel gave us what belongs to another process of this host.
    fn hand_over(&mut self, to: u8, meta: &RxMeta, bytes: &[u8], hint: u16) {
        let segment_size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let message = Message::HandOver {
            meta: *meta,
            segment_size,
            first_id: hint,
            bytes,
        };
        if self.slot.send(to, &message).is_err() {
            // Nobody there: the QP is gone, or the message is for whoever answers unknown connections.
            self.deliver(meta, bytes, hint);
        }
        if let Some(steering) = self.steering.iter_mut().find(|steering| steering.addr() == meta.dst) {
            steering.repair();
        }
    }
}

/// Whose a packet is.
enum Owner {
    /// The process of that slot.
    Slot(u8),
    /// Whoever gets it.
    Anyone,
}

/// The owner by destination QPN; for QP1 by the communication id the message is addressed to.
fn owner(bytes: &[u8]) -> Owner {
    let Some(qpn) = Bth::peek_dest_qpn(bytes) else {
        return Owner::Anyone;
    };
    if qpn == GSI_QPN {
        return mad_owner(bytes).map_or(Owner::Anyone, Owner::Slot);
    }
    match u8::try_from(qpn >> 16) {
        Ok(slot) if slot != 0 => Owner::Slot(slot),
        _ => Owner::Anyone,
    }
}

impl Core {
    /// Take in what has arrived; gives the number of packets.
    pub(super) fn receive(&mut self, now: Time) -> usize {
        let mut total = 0;
        for _ in 0..RX_TURN {
            let marks: ArrayVec<Mark, MAX_SOCKETS> = (0..self.addrs.len().min(MAX_SOCKETS))
                .map(|i| self.board.mark(i))
                .collect();
            let Self {
                nic,
                port,
                slot,
                steering,
                sealer,
                board,
                addrs,
                budget,
                ..
            } = self;
            let mut inlet = Inlet {
                nic,
                slot,
                steering,
                sealer,
                now,
            };
            let mut run = Run::default();
            let received = port.receive(&mut |meta, bytes, hint| {
                if is_probe(bytes) {
                    let steering = inlet.steering.iter_mut().find(|steering| steering.addr() == meta.dst);
                    if steering.is_some_and(|steering| steering.handle_probe(bytes, inlet.slot)) {
                        return;
                    }
                }
                // Only siblings' data is in the board; their messages to QP1 are not.
                if Bth::peek_dest_qpn(bytes) != Some(GSI_QPN) && budget.is_local(meta.src) {
                    run.add(board, index_of(addrs, meta.dst), bytes.len(), hint);
                }
                inlet.packet(meta, bytes, hint);
            });
            run.finish(board);
            match received {
                Ok(0) => {
                    for (socket, mark) in marks.into_iter().enumerate() {
                        self.board.emptied(socket, mark);
                    }
                    return total;
                }
                Ok(count) => total += count,
                Err(error) => {
                    tracing::error!(%error, "the port is beyond use");
                    return total;
                }
            }
        }
        total
    }

    /// Take in messages of other processes.
    pub(super) fn receive_messages(&mut self, now: Time) {
        let mut board_requests = Vec::new();
        let mut stats_requests = Vec::new();
        let mut handed_over: Vec<(RxMeta, u16, u16, Vec<u8>)> = Vec::new();
        let mut mads = Vec::new();
        let (budget, steering) = (&mut self.budget, &mut self.steering);
        let received = self.slot.receive(&mut |sender, message, attachment| match message {
            Message::HandOver {
                meta,
                segment_size,
                first_id,
                bytes,
            } => {
                handed_over.push((meta, segment_size, first_id, bytes.to_vec()));
            }
            Message::ProbeReply {
                slot,
                index,
                round,
                addr,
            } => {
                for steering in steering.iter_mut().filter(|steering| steering.addr() == addr) {
                    steering.on_reply(slot, index, round, addr);
                }
            }
            Message::BoardRequest => board_requests.push(sender.clone()),
            Message::BoardReply => {
                if let (crate::port::host::Sender::Slot(from), Some(memfd)) = (sender, attachment) {
                    budget.on_board(*from, &memfd);
                }
            }
            Message::StatsRequest => stats_requests.push(sender.clone()),
            Message::StatsReply { .. } => {}
            Message::Mad { meta, bytes } => mads.push((meta, *bytes)),
        });
        if let Err(error) = received {
            tracing::debug!(%error, "reading the slot socket");
        }
        for (meta, segment_size, first_id, bytes) in handed_over {
            let socket = index_of(&self.addrs, meta.dst);
            self.board.received(socket, usize::from(segment_size), bytes.len());
            let Self {
                nic,
                slot,
                steering,
                sealer,
                ..
            } = self;
            let mut inlet = Inlet {
                nic,
                slot,
                steering,
                sealer,
                now,
            };
            for (hint, packet) in (first_id..).zip(bytes.chunks(usize::from(segment_size.max(1)))) {
                inlet.deliver(&meta, packet, hint);
            }
        }
        if !board_requests.is_empty() {
            self.board.audit();
        }
        for sender in board_requests {
            let _ = self.slot.answer(&sender, &Message::BoardReply, Some(self.board.fd()));
        }
        if !stats_requests.is_empty() {
            let json = self.stats_json();
            for sender in stats_requests {
                let _ = self.slot.answer(&sender, &Message::StatsReply { json: &json }, None);
            }
        }
        for steering in &mut self.steering {
            if let Err(error) = steering.poll() {
                tracing::warn!(%error, "cannot attach the steering filter");
            }
        }
    }
}

fn index_of(addrs: &[IpAddr], addr: IpAddr) -> usize {
    addrs.iter().position(|own| *own == addr).unwrap_or(0)
}

/// The slot in the communication id that a CM message is addressed to; none for REQ and SIDR_REQ, which look for a
/// listener, and for what is no CM message.
fn mad_owner(packet: &[u8]) -> Option<u8> {
    const MAD: usize = Bth::LEN + Deth::LEN;
    const BODY: usize = MAD + 24;
    let attribute = u16::from_be_bytes(packet.get(MAD + 16..MAD + 18)?.try_into().ok()?);
    let offset = match attribute {
        // REQ, SIDR_REQ
        0x10 | 0x17 => return None,
        // SIDR_REP: the request id comes first.
        0x18 => 0,
        _ => 4,
    };
    packet.get(BODY + offset).copied().filter(|slot| *slot != 0)
}
