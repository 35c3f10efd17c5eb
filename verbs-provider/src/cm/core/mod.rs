//! The connection manager core: the kernel's `rdma_ucm`, `rdma_cm` and `ib_cm` as one sans-I/O state machine.
//!
//! ```text
//!  commands (files, ids) ──► id.rs ── listen / resolve / connect / accept / disconnect / sidr / mcast
//!                                          │  asks                       │ sends
//!                                     state.rs (table)              poll_mad ──► peer
//!  MADs ──► receive.rs ────────────────────┘                             │
//!  time ──► timer.rs (repetitions, TIMEWAIT)                        next_event ──► application
//! ```
//!
//! Inputs: [`Core::command`], [`Core::receive`], [`Core::handle_timeout`], [`Core::close_file`]. After any of them ask
//! [`Core::poll_mad`], [`Core::poll_touched`] (channels whose queue changed), [`Core::poll_change`] (for the guardian)
//! and [`Core::next_timeout`].
//!
//! Invariants: an id belongs to one file; a connection to at most one id; communication ids carry their device's slot in
//! the top byte and are unique in the process; every connection that is not idle has an answer to every message.
//!
//! InfiniBand specification, chapter 12 and annex A11.

mod accept;
pub mod command;
mod connect;
mod connection;
mod disconnect;
pub mod environment;
pub mod event;
mod id;
mod listen;
mod mcast;
pub mod path;
mod ports;
pub mod qp_attr;
mod receive;
mod resolve;
mod sidr;
pub mod state;
mod table;
mod timer;

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use nic_model::time::Time;

use command::{Command, FileId, Response};
pub use connection::{ConnectionRecord, RegistryChange};
use environment::Timing;
pub use environment::{Device, Environment, Errno};
use event::File;
pub use receive::Received;

/// A management datagram with its addresses.
#[derive(Clone, PartialEq, Eq)]
pub struct Mad {
    /// Address of this host.
    pub local: IpAddr,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The MAD.
    pub bytes: [u8; 256],
}

impl fmt::Debug for Mad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = roce_wire::cm::Message::parse(&self.bytes).map(|(_, message)| message);
        write!(f, "{} > {} {message:?}", self.local, self.peer)
    }
}

/// The connection manager of a process.
pub struct Core {
    env: Arc<dyn Environment>,
    timing: Timing,
    now: Time,
    next_file: u64,
    next_tid: u32,
    files: BTreeMap<FileId, File>,
    ids: table::Table<id::Id>,
    groups: table::Table<mcast::Membership>,
    connections: connection::Connections,
    requests: BTreeMap<u32, sidr::Request>,
    replies: BTreeMap<sidr::RemoteRequest, sidr::Reply>,
    ports: ports::Ports,
    timers: BTreeSet<(Time, timer::Timer)>,
    outbox: VecDeque<Mad>,
    touched: BTreeSet<FileId>,
    changes: VecDeque<RegistryChange>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("files", &self.files.len())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// A connection manager without files.
    #[must_use]
    pub fn new(env: Arc<dyn Environment>, timing: Timing) -> Self {
        let next_tid = env.random();
        Self {
            env,
            timing,
            now: Time::ZERO,
            next_file: 1,
            next_tid,
            files: BTreeMap::new(),
            ids: table::Table::default(),
            groups: table::Table::default(),
            connections: connection::Connections::default(),
            requests: BTreeMap::new(),
            replies: BTreeMap::new(),
            ports: ports::Ports::default(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            touched: BTreeSet::new(),
            changes: VecDeque::new(),
        }
    }

    /// Open the device: a new event channel.
    pub fn open_file(&mut self) -> FileId {
        let file = FileId(self.next_file);
        self.next_file += 1;
        self.files.insert(file, File::default());
        file
    }

    /// Close a channel: its ids are destroyed, live connections disconnected.
    pub fn close_file(&mut self, now: Time, file: FileId) {
        self.now = now;
        let ids: Vec<u32> = self
            .ids
            .iter()
            .filter(|(_, id)| id.file == file)
            .map(|(handle, _)| handle)
            .collect();
        for handle in ids {
            // One destroyed listener takes the requests in its queue along.
            let _ = self.destroy_id(handle);
        }
        self.files.remove(&file);
        self.touched.remove(&file);
    }

    /// Execute a command of a file.
    ///
    /// # Errors
    /// The error number for the application.
    pub fn command(&mut self, now: Time, file: FileId, command: Command) -> Result<Response, Errno> {
        self.now = now;
        if !self.files.contains_key(&file) {
            return Err(libc::ENODEV);
        }
        if let Some(handle) = Self::subject(&command) {
            self.id(file, handle)?;
            if !matches!(command, Command::Query { .. }) {
                self.taken_up(handle);
            }
        }
        match command {
            Command::CreateId { uid, space, qp_type } => self.create_id(file, uid, space, qp_type),
            Command::DestroyId { id } => self.destroy_id(id),
            Command::Bind { id, addr } => self.bind(id, addr),
            Command::ResolveAddr { id, src, dst } => self.resolve_addr(id, src, dst),
            Command::ResolveRoute { id } => self.resolve_route(id),
            Command::Query { id } => self.query(id),
            Command::Connect { id, param, ece } => self.connect(id, &param, ece),
            Command::Listen { id, backlog } => self.listen(id, backlog),
            Command::Accept { id, uid, param, ece } => self.accept(id, uid, param.as_ref(), ece),
            Command::Reject {
                id,
                reason,
                private_data,
            } => self.reject(id, reason, &private_data),
            Command::Disconnect { id } => self.disconnect(id),
            Command::InitQpAttr { id, qp_state } => self.init_qp_attr(id, qp_state),
            Command::SetOption { id, option } => self.set_option(id, option),
            Command::Notify { id, event } => self.notify(id, event),
            Command::JoinMulticast { id, uid, group } => self.join_multicast(id, uid, group),
            Command::LeaveMulticast { group } => self.leave_multicast(file, group),
            Command::MigrateId { id, from } => self.migrate(id, from, file).map(Response::EventsReported),
        }
    }

    /// The next MAD to send.
    pub fn poll_mad(&mut self) -> Option<Mad> {
        self.outbox.pop_front()
    }

    /// The next channel whose queue may have become empty or no longer is.
    pub fn poll_touched(&mut self) -> Option<FileId> {
        self.touched.pop_first()
    }

    /// The next connection that came to need closing on process death, or no longer does.
    pub fn poll_change(&mut self) -> Option<RegistryChange> {
        self.changes.pop_front()
    }

    /// Whether a connection with this communication id, or a datagram request with this number, is known here.
    #[must_use]
    pub fn knows(&self, comm_id: u32) -> bool {
        self.connections.contains(comm_id) || self.requests.contains_key(&comm_id)
    }

    /// A transaction id: unlike every other of this process, and most likely of every other process.
    fn new_tid(&mut self, comm_id: u32) -> u64 {
        self.next_tid = self.next_tid.wrapping_add(1);
        u64::from(self.next_tid) << 32 | u64::from(comm_id)
    }
}
