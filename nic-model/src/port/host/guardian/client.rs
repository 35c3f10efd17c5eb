//! A process's side of its guardian.
//!
//! Only [`Guardian::attach`] waits. Afterwards nothing blocks or fails: what is told is kept here too, so that after the
//! loss of a guardian the next one, started in passing, learns it again.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, connect, recv, sendmsg, socket};
use nix::unistd::{AccessFlags, access};

use super::record::{Connection, Record, Tombstone};
use super::server::WELCOME;
use super::{default_name, is_same_user};
use crate::port::host::Slot;
use crate::port::host::slot::abstract_address;
use crate::port::host::sys;

/// How long [`Guardian::attach`] tries.
const ATTACH_PATIENCE: Duration = Duration::from_secs(2);
/// How long between attempts to find or start another one.
const RETRY: Duration = Duration::from_millis(100);
/// Records kept for a guardian that does not read.
const MOST_PENDING: usize = 4096;

/// How to start a guardian, and under which name to find it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub exe: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<String>,
    /// Its whole environment, as NAME=value.
    pub env: Vec<String>,
    /// Its abstract socket name.
    pub name: String,
}

impl Launch {
    /// `exe guardian`, with an empty environment: nothing preloaded there, no settings of one client for all.
    pub fn new(exe: &Path) -> Self {
        Self {
            exe: exe.to_owned(),
            args: vec!["guardian".to_owned()],
            env: Vec::new(),
            name: default_name(),
        }
    }

    fn start(&self) -> io::Result<()> {
        // Exec fails after the last moment at which we could hear of it.
        access(&self.exe, AccessFlags::X_OK)?;
        let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let strings = |list: &[String]| {
            list.iter()
                .map(|s| c_string(s.as_bytes()))
                .collect::<io::Result<Vec<_>>>()
        };
        let exe = c_string(self.exe.as_os_str().as_bytes())?;
        let mut args = strings(&self.args)?;
        args.insert(0, exe.clone());
        sys::spawn_daemon(&exe, &args, &strings(&self.env)?)
    }
}

/// The tie of this process to its guardian. Dropping it is this function of the NIC's end: what is still open gets its
/// DREQ then.
#[derive(Debug)]
pub struct Guardian {
    launch: Launch,
    slot: u8,
    /// Duplicates of the slot socket and the UDP sockets, for the next guardian.
    sockets: Vec<OwnedFd>,
    stream: Option<OwnedFd>,
    retry_at: Instant,
    connections: BTreeMap<u32, Connection>,
    tombstones: VecDeque<(Instant, Tombstone)>,
    pending: VecDeque<Vec<u8>>,
}

impl Guardian {
    /// The descriptors it holds open, which a forked child must close: they would make the parent seem alive.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.sockets.iter().chain(&self.stream).map(AsRawFd::as_raw_fd)
    }

    /// Finds the guardian of this user, or starts `exe guardian`, and entrusts it with `slot` and the UDP sockets.
    /// Tries for up to two seconds.
    ///
    /// # Errors
    /// When `exe` cannot be run, the guardian does not come up, or its name is held by another user. The process works
    /// without one; only nobody speaks for it after its end.
    pub fn attach(exe: &Path, slot: &Slot, udp_fds: &[BorrowedFd<'_>]) -> io::Result<Self> {
        Self::attach_with(Launch::new(exe), slot, udp_fds)
    }

    /// [`Self::attach`] with another program or name.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_with(launch: Launch, slot: &Slot, udp_fds: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let mut sockets = vec![slot.socket().try_clone_to_owned()?];
        for fd in udp_fds {
            sockets.push(fd.try_clone_to_owned()?);
        }
        let mut guardian = Self {
            launch,
            slot: slot.number(),
            sockets,
            stream: None,
            retry_at: Instant::now(),
            connections: BTreeMap::new(),
            tombstones: VecDeque::new(),
            pending: VecDeque::new(),
        };
        let deadline = Instant::now() + ATTACH_PATIENCE;
        let mut start_at = Instant::now();
        loop {
            match guardian.greet() {
                Ok(stream) if welcomed(&stream, deadline) => {
                    guardian.stream = Some(stream);
                    return Ok(guardian);
                }
                // It ended while we spoke, or has yet to be started.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Err(_) if Instant::now() >= start_at => {
                    guardian.launch.start()?;
                    start_at = Instant::now() + ATTACH_PATIENCE / 2;
                }
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the guardian process does not answer",
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A connection was established.
    pub fn opened(&mut self, connection: Connection) {
        self.connections.insert(connection.local_comm_id, connection);
        self.tell(&Record::Opened(connection));
    }

    /// A connection was closed, by either side.
    pub fn closed(&mut self, local_comm_id: u32) {
        self.connections.remove(&local_comm_id);
        self.tell(&Record::Closed { local_comm_id });
    }

    /// A reliable QP was closed.
    pub fn tombstone(&mut self, tombstone: Tombstone) {
        let now = Instant::now();
        while self.tombstones.front().is_some_and(|(until, _)| *until <= now) || self.tombstones.len() >= MOST_PENDING {
            self.tombstones.pop_front();
        }
        self.tombstones.push_back((now + tombstone.linger, tombstone));
        self.tell(&Record::Tombstone(tombstone));
    }

    /// Whether a guardian is there, as far as is known.
    pub const fn is_attached(&self) -> bool {
        self.stream.is_some()
    }

    /// Sends what could not be sent before, and looks for another guardian when there is none. The other calls do so
    /// too; this is for a quiet process, now and then. Never blocks.
    pub fn poll(&mut self) {
        if let Some(stream) = &self.stream {
            // It says nothing after its welcome, so there is only its end to be read.
            let mut byte = [0; 1];
            let end = recv(stream.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT);
            if !matches!(end, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR)) {
                self.lost();
            }
        }
        if self.stream.is_none() && !self.reattach() {
            return;
        }
        while let (Some(stream), Some(record)) = (&self.stream, self.pending.front()) {
            match transmit(stream, record, &[]) {
                Ok(()) => {
                    self.pending.pop_front();
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(_) => self.lost(),
            }
        }
    }

    /// Process id of the guardian, to be ended by tests.
    #[cfg(test)]
    pub(super) fn server_pid(&self) -> Option<libc::pid_t> {
        let stream = self.stream.as_ref()?;
        let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials);
        peer.ok().map(|peer| peer.pid())
    }

    /// Records not sent yet.
    #[cfg(test)]
    pub(super) fn pending_records(&self) -> usize {
        self.pending.len()
    }

    fn tell(&mut self, record: &Record) {
        self.pending.push_back(record.emit());
        if self.pending.len() > MOST_PENDING {
            // It does not read. The next one learns the state as it is then.
            self.lost();
        }
        self.poll();
    }

    fn lost(&mut self) {
        tracing::debug!("guardian lost");
        self.stream = None;
        self.pending.clear();
    }

    /// One attempt to reach a guardian, or to start one for the next attempt.
    fn reattach(&mut self) -> bool {
        let now = Instant::now();
        // Everything to tell is in the tables.
        self.pending.clear();
        if now < self.retry_at {
            return false;
        }
        self.retry_at = now + RETRY;
        match self.greet() {
            Ok(stream) => {
                self.stream = Some(stream);
                let connections = self.connections.values().map(|connection| Record::Opened(*connection));
                let tombstones = self.tombstones.iter().filter(|(until, _)| *until > now);
                let tombstones = tombstones.map(|(_, tombstone)| Record::Tombstone(*tombstone));
                self.pending
                    .extend(connections.chain(tombstones).map(|record| record.emit()));
                true
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::PermissionDenied
                    && let Err(error) = self.launch.start()
                {
                    tracing::debug!(%error, "cannot start a guardian");
                    self.retry_at = now + 50 * RETRY;
                }
                false
            }
        }
    }

    /// Connects and says Hello; nonblocking.
    fn greet(&self) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let stream = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        connect(stream.as_raw_fd(), &abstract_address(&self.launch.name)?)?;
        if !is_same_user(&stream) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the guardian belongs to another user",
            ));
        }
        let fds: Vec<RawFd> = self.sockets.iter().map(AsRawFd::as_raw_fd).collect();
        transmit(&stream, &Record::Hello { slot: self.slot }.emit(), &fds)?;
        Ok(stream)
    }
}

/// Waits for the answer to our Hello.
fn welcomed(stream: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let mut answer = [0; 1];
        match recv(stream.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT) {
            Ok(1) => return answer == WELCOME,
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < deadline => {
                sys::wait_readable(
                    &[stream.as_raw_fd()],
                    deadline.saturating_duration_since(Instant::now()),
                );
            }
            _ => return false,
        }
    }
}

fn transmit(stream: &OwnedFd, record: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &rights[..0] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(record)], control, flags, None).map(drop)
}
