//! A connection: its record, the tables that find it, and the messages it repeats until they are answered.
//!
//! Connections live apart from the ids that own them: when an application destroys an id, its connection still says
//! DREQ until the peer has heard it, and stays in TIMEWAIT to answer duplicates.
//!
//! Invariant: a connection is in `by_remote` from the moment its peer's communication id is known until it is idle, and
//! in `by_qpn` likewise unless it was refused.

use core::net::IpAddr;
use std::collections::BTreeMap;

use roce_wire::cm::Message;
use roce_wire::mad::MadHeader;

use super::command::Ece;
use super::environment::Device;
use super::path::PathRecord;
use super::state::{Event, State, Transition, transition};
use super::timer::Timer;
use super::{Core, Mad};

/// One connection, from its first REQ to the end of TIMEWAIT.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// The id it belongs to, until that is destroyed.
    pub(super) owner: Option<u32>,
    pub(super) device: Device,
    pub(super) path: PathRecord,
    /// Addresses of the packets, which a REQ may name differently.
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
    pub(super) remote_comm_id: u32,
    pub(super) remote_guid: u64,
    pub(super) remote_qpn: u32,
    pub(super) local_qpn: u32,
    pub(super) tid: u64,
    pub(super) qp_type: u8,
    /// First PSN of the peer's requests, chosen here.
    pub(super) own_psn: u32,
    /// First PSN of this side's requests, chosen by the peer.
    pub(super) peer_psn: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// Local ACK timeout exponent of the QP.
    pub(super) ack_timeout: u8,
    pub(super) ece: Ece,
    /// The last message worth repeating.
    pub(super) sent: Option<Box<[u8; 256]>>,
    /// Repetitions so far, and how many there may be.
    pub(super) attempt: u32,
    pub(super) attempts: u32,
    pub(super) deadline: Option<nic_model::time::Time>,
    /// Whether the owner has heard of the end.
    pub(super) end_reported: bool,
}

/// Connections by local communication id, by the peer's, and by the peer's QP.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_id: BTreeMap<u32, Connection>,
    by_remote: BTreeMap<(u64, u32), u32>,
    by_qpn: BTreeMap<(u64, u32), u32>,
}

impl Connections {
    pub(super) fn insert(&mut self, comm_id: u32, connection: Connection) {
        self.by_id.insert(comm_id, connection);
    }

    pub(super) fn contains(&self, comm_id: u32) -> bool {
        self.by_id.contains_key(&comm_id)
    }

    pub(super) fn get(&self, comm_id: u32) -> Option<&Connection> {
        self.by_id.get(&comm_id)
    }

    pub(super) fn get_mut(&mut self, comm_id: u32) -> Option<&mut Connection> {
        self.by_id.get_mut(&comm_id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Remember the peer's names, now that they are known.
    pub(super) fn index(&mut self, comm_id: u32) {
        if let Some(connection) = self.by_id.get(&comm_id) {
            let guid = connection.remote_guid;
            self.by_remote.insert((guid, connection.remote_comm_id), comm_id);
            self.by_qpn.entry((guid, connection.remote_qpn)).or_insert(comm_id);
        }
    }

    /// The connection a peer calls by this id.
    pub(super) fn by_remote(&self, guid: u64, remote_comm_id: u32) -> Option<u32> {
        self.by_remote.get(&(guid, remote_comm_id)).copied()
    }

    /// The connection to this QP.
    pub(super) fn by_qpn(&self, guid: u64, qpn: u32) -> Option<u32> {
        self.by_qpn.get(&(guid, qpn)).copied()
    }

    /// Let the peer's QP be used for another connection.
    pub(super) fn forget_qpn(&mut self, comm_id: u32) {
        if let Some(connection) = self.by_id.get(&comm_id) {
            let key = (connection.remote_guid, connection.remote_qpn);
            if self.by_qpn.get(&key) == Some(&comm_id) {
                self.by_qpn.remove(&key);
            }
        }
    }

    fn forget_peer(&mut self, comm_id: u32) {
        self.forget_qpn(comm_id);
        if let Some(connection) = self.by_id.get(&comm_id) {
            let key = (connection.remote_guid, connection.remote_comm_id);
            if self.by_remote.get(&key) == Some(&comm_id) {
                self.by_remote.remove(&key);
            }
        }
    }
}

/// What the guardian must know to close a connection for a process that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// This side's communication id.
    pub local_comm_id: u32,
    /// The peer's.
    pub remote_comm_id: u32,
    /// This side's QP.
    pub local_qpn: u32,
    /// The peer's QP, which a DREQ must name.
    pub remote_qpn: u32,
    /// Own address.
    pub local: IpAddr,
    /// Peer's address.
    pub peer: IpAddr,
    /// Transaction id for that DREQ.
    pub tid: u64,
}

/// A connection came to need closing, or no longer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryChange {
    /// Opened.
    Opened(ConnectionRecord),
    /// Closed; the local communication id.
    Closed(u32),
}

/// Whether the peer would have to be told if this process died now.
const fn is_open(state: State) -> bool {
    matches!(
        state,
        State::RepSent
            | State::MraRepReceived
            | State::RepReceived
            | State::Established
            | State::DreqSent
            | State::DreqReceived
    )
}

impl Core {
    /// A communication id nobody has: the slot of the device on top, the rest random and not zero.
    pub(super) fn new_comm_id(&self, device: &Device) -> u32 {
        loop {
            let low = self.env.random() & 0x00FF_FFFF;
            let comm_id = u32::from(device.slot) << 24 | low;
            if low != 0 && !self.connections.contains(comm_id) && !self.requests.contains_key(&comm_id) {
                return comm_id;
            }
        }
    }

    /// Ask the table.
    pub(super) fn peek(&self, comm_id: u32, event: Event) -> Transition {
        self.connections
            .get(comm_id)
            .map_or(Transition::Refuse, |connection| transition(connection.state, event))
    }

    /// Ask the table; if it says so, go to the next state. Whatever was being repeated no longer is.
    pub(super) fn step(&mut self, comm_id: u32, event: Event) -> Transition {
        let answer = self.peek(comm_id, event);
        if let Transition::Go(next) = answer {
            self.enter(comm_id, next);
        }
        answer
    }

    fn enter(&mut self, comm_id: u32, next: State) {
        self.set_deadline(comm_id, None);
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        let before = connection.state;
        connection.state = next;
        connection.attempt = 0;
        connection.attempts = u32::from(self.timing.retries);
        if is_open(before) && !is_open(next) {
            self.changes.push_back(RegistryChange::Closed(comm_id));
        }
        match next {
            State::TimeWait => self.set_deadline(comm_id, Some(self.now + self.timing.time_wait)),
            State::Idle => {
                let orphan = connection.owner.is_none();
                self.connections.forget_peer(comm_id);
                if orphan {
                    self.connections.by_id.remove(&comm_id);
                }
            }
            _ => {}
        }
        if !is_open(before) && is_open(next) {
            self.register(comm_id);
        }
    }

    fn register(&mut self, comm_id: u32) {
        let tid = self.new_tid(comm_id);
        if let Some(connection) = self.connections.get(comm_id) {
            self.changes.push_back(RegistryChange::Opened(ConnectionRecord {
                local_comm_id: comm_id,
                remote_comm_id: connection.remote_comm_id,
                local_qpn: connection.local_qpn,
                remote_qpn: connection.remote_qpn,
                local: connection.local,
                peer: connection.peer,
                tid,
            }));
        }
    }

    /// Remove a connection nobody owns and nobody needs.
    pub(super) fn drop_idle(&mut self, comm_id: u32) {
        if self.connections.get(comm_id).is_some_and(|c| c.state == State::Idle) {
            self.connections.forget_peer(comm_id);
            self.connections.by_id.remove(&comm_id);
        }
    }

    pub(super) fn set_deadline(&mut self, comm_id: u32, deadline: Option<nic_model::time::Time>) {
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        if let Some(old) = core::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(old, Timer::Connection(comm_id)));
        }
        if let Some(new) = deadline {
            self.timers.insert((new, Timer::Connection(comm_id)));
        }
    }

    /// Send a message of a connection.
    pub(super) fn send(&mut self, comm_id: u32, tid: u64, message: &Message) -> Option<[u8; 256]> {
        let connection = self.connections.get(comm_id)?;
        let attr_mod = if matches!(message, Message::Req(_) | Message::Rep(_)) {
            connection.ece.attr_mod
        } else {
            0
        };
        let bytes = message.emit(&MadHeader {
            attr_mod,
            ..MadHeader::cm(tid)
        });
        self.outbox.push_back(connection.mad(bytes));
        Some(bytes)
    }

    /// Send a message and keep it for duplicates.
    pub(super) fn send_kept(&mut self, comm_id: u32, tid: u64, message: &Message) {
        let bytes = self.send(comm_id, tid, message);
        if let Some(connection) = self.connections.get_mut(comm_id) {
            connection.sent = bytes.map(Box::new);
        }
    }

    /// Send a message and repeat it until the state changes.
    pub(super) fn send_repeated(&mut self, comm_id: u32, tid: u64, message: &Message) {
        self.send_kept(comm_id, tid, message);
        self.set_deadline(comm_id, Some(self.now + self.timing.wait(0)));
    }

    /// Send the kept message once more.
    pub(super) fn send_again(&mut self, comm_id: u32) {
        if let Some(connection) = self.connections.get(comm_id)
            && let Some(sent) = &connection.sent
        {
            self.outbox.push_back(connection.mad(**sent));
        }
    }
}

impl Connection {
    fn mad(&self, bytes: [u8; 256]) -> Mad {
        Mad {
            local: self.local,
            peer: self.peer,
            traffic_class: self.path.traffic_class,
            hop_limit: self.path.hop_limit,
            bytes,
        }
    }
}
