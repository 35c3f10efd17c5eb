//! Events: what an application takes from its channel, and the queues they wait in.
//!
//! An event belongs to an id. It counts as reported once taken, and DESTROY_ID answers with that count, so that the
//! application can wait until it has acknowledged them all. Events not taken die with their id; a connection request
//! that dies this way takes the connection with it.
//!
//! Connection requests of one listener are given out at a pace: the next one waits until the application has begun to
//! deal with the last, or [`PACE`] has passed. Requests from a wire come apart; here many processes can ask within the
//! same microseconds, and servers that hand a request to another thread in one variable (rping) would lose some.

use std::collections::VecDeque;
use std::time::Duration;

use nic_model::time::Time;

use super::command::{Ece, FileId};
use super::path::AddressHandle;
use super::timer::Timer;
use super::{Core, Errno};

/// Longest wait of a connection request for the one before.
const PACE: Duration = Duration::from_millis(200);

/// `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of rdma_cma.h")]
pub enum EventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    RouteError = 3,
    ConnectRequest = 4,
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    MulticastError = 13,
    AddrChange = 14,
    TimewaitExit = 15,
}

/// Private data as events carry it: always the full length the message has room for, whatever was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateData(pub Vec<u8>);

/// Event parameters of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParam {
    /// Peer's QP.
    pub qp_num: u32,
    /// The peer's bytes.
    pub private_data: PrivateData,
    /// Whether the peer's QP has a shared receive queue.
    pub srq: bool,
    /// Reads and atomics this side may be asked to serve.
    pub responder_resources: u8,
    /// Reads and atomics this side may send.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
}

/// Event parameters of a datagram exchange or a multicast group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramParam {
    /// Peer's QP.
    pub qp_num: u32,
    /// Its queue key.
    pub qkey: u32,
    /// The way there.
    pub ah: AddressHandle,
    /// The peer's bytes.
    pub private_data: PrivateData,
}

/// Event parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Param {
    /// None.
    #[default]
    None,
    /// Of a connection.
    Connection(Box<ConnectionParam>),
    /// Of a datagram exchange.
    Datagram(Box<DatagramParam>),
}

/// An event as the application takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The application's name for the object: the id, the listener of a request, or the multicast membership.
    pub uid: u64,
    /// The handle: the id, the new id of a request, or the multicast membership.
    pub id: u32,
    /// What happened.
    pub kind: EventKind,
    /// 0, a negative error number, or the reason of a REJ.
    pub status: i32,
    /// Parameters.
    pub param: Param,
    /// Enhanced connection establishment options of the peer.
    pub ece: Ece,
}

/// An event waiting to be taken.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) event: Event,
    /// The id it counts for.
    pub(super) owner: u32,
    /// The multicast membership it counts for too.
    pub(super) group: Option<u32>,
}

impl Queued {
    /// The id a connection request brings.
    pub(super) fn request(&self) -> Option<u32> {
        (self.event.kind == EventKind::ConnectRequest).then_some(self.event.id)
    }
}

/// An open channel.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) events: VecDeque<Queued>,
}

impl Core {
    /// Take the next event of a channel.
    pub fn next_event(&mut self, now: Time, file: FileId) -> Option<Event> {
        self.now = now;
        let due = self
            .files
            .get(&file)?
            .events
            .iter()
            .position(|queued| self.is_due(queued))?;
        let queued = self.files.get_mut(&file)?.events.remove(due)?;
        self.touched.insert(file);
        if let Some(child) = queued.request()
            && let Some(id) = self.ids.get_mut(child)
        {
            id.file = file;
            id.announced = true;
            id.listener = Some(queued.owner);
            if let Some(listener) = self.ids.get_mut(queued.owner) {
                listener.room += 1;
                let until = now + PACE;
                listener.pace = Some((child, until));
                self.timers.insert((until, Timer::Pace(queued.owner)));
            }
        }
        if let Some(id) = self.ids.get_mut(queued.owner) {
            id.events_reported += 1;
        }
        if let Some(group) = queued.group.and_then(|group| self.groups.get_mut(group)) {
            group.events_reported += 1;
        }
        Some(queued.event)
    }

    /// Whether a channel has an event to take now.
    #[must_use]
    pub fn has_event(&self, file: FileId) -> bool {
        self.files
            .get(&file)
            .is_some_and(|file| file.events.iter().any(|queued| self.is_due(queued)))
    }

    fn is_due(&self, queued: &Queued) -> bool {
        queued.request().is_none()
            || self
                .ids
                .get(queued.owner)
                .is_none_or(|listener| listener.pace.is_none())
    }

    /// The application deals with an id: if it came from a listener, that listener's next request may follow.
    pub(super) fn taken_up(&mut self, handle: u32) {
        let Some(listener) = self.ids.get_mut(handle).and_then(|id| id.listener.take()) else {
            return;
        };
        if self
            .ids
            .get(listener)
            .and_then(|id| id.pace)
            .is_some_and(|(child, _)| child == handle)
        {
            self.end_pace(listener);
        }
    }

    /// The next request of a listener may be taken.
    pub(super) fn end_pace(&mut self, listener: u32) {
        let Some(id) = self.ids.get_mut(listener) else { return };
        if let Some((_, until)) = id.pace.take() {
            self.timers.remove(&(until, Timer::Pace(listener)));
        }
        self.touched.insert(id.file);
    }

    /// Queue an event of an id. Ids the application does not know yet get none: its ACCEPT will fail instead.
    pub(super) fn report(&mut self, owner: u32, kind: EventKind, status: i32, param: Param) {
        self.report_with(owner, kind, status, param, Ece::default());
    }

    /// [`Self::report`] with the peer's enhanced connection establishment options.
    pub(super) fn report_with(&mut self, owner: u32, kind: EventKind, status: i32, param: Param, ece: Ece) {
        let Some(id) = self.ids.get(owner) else { return };
        if id.uid == 0 {
            return;
        }
        let event = Event {
            uid: id.uid,
            id: owner,
            kind,
            status,
            param,
            ece,
        };
        let file = id.file;
        self.push(
            file,
            Queued {
                event,
                owner,
                group: None,
            },
        );
    }

    /// Queue an event as it is.
    pub(super) fn push(&mut self, file: FileId, queued: Queued) {
        if let Some(channel) = self.files.get_mut(&file) {
            channel.events.push_back(queued);
            self.touched.insert(file);
        }
    }

    /// Remove the events an id has not taken; returns the ids its pending connection requests brought.
    pub(super) fn purge_events(&mut self, owner: u32) -> Vec<u32> {
        let Some(file) = self.ids.get(owner).map(|id| id.file) else {
            return Vec::new();
        };
        let Some(channel) = self.files.get_mut(&file) else {
            return Vec::new();
        };
        let children = channel
            .events
            .iter()
            .filter(|q| q.owner == owner)
            .filter_map(Queued::request)
            .collect();
        channel.events.retain(|queued| queued.owner != owner);
        self.touched.insert(file);
        children
    }

    /// MIGRATE_ID: move an id and its waiting events to another channel.
    pub(super) fn migrate(&mut self, handle: u32, from: FileId, to: FileId) -> Result<u32, Errno> {
        self.taken_up(handle);
        let id = self
            .ids
            .get_mut(handle)
            .filter(|id| id.file == from)
            .ok_or(libc::ENOENT)?;
        id.file = to;
        let reported = id.events_reported;
        if from != to
            && let Some(channel) = self.files.get_mut(&from)
        {
            let (moved, kept) = channel.events.drain(..).partition(|queued| queued.owner == handle);
            channel.events = kept;
            let moved: VecDeque<Queued> = moved;
            for queued in moved {
                if let Some(child) = queued.request().and_then(|child| self.ids.get_mut(child)) {
                    child.file = to;
                }
                self.push(to, queued);
            }
            self.touched.insert(from);
        }
        Ok(reported)
    }
}
