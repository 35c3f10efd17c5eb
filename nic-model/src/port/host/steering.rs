//! Keeps an address's filter in step with its group of sockets.
//!
//! The kernel numbers the sockets of a group in the order of their binds, and moves the last into the place of one that
//! closes; it does not tell who sits where. So whoever joins, or sees packets that are not its own, asks: a round of
//! [`Probe`]s by index, answered over the slot sockets, yields the table of [`super::filter`]. One process at a time
//! does so per address, under a name that the kernel frees at death. A member too slow to answer is left out until
//! somebody sees its packets and repairs; until then they reach it by hand-over.
//!
//! ```text
//!  bind ─► join ─► Probing ─ all answered, or out of patience ─► attach ─► settled ─ misdelivered ─► Probing …
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, bind, sendto};
use rand::Rng;

use super::filter::{Table, program};
use super::message::Message;
use super::probe::Probe;
use super::slot::{Slot, abstract_address, datagram_socket, live_slots, rng};
use super::{ROCE_PORT, sys};

/// Indices asked at once: few enough not to fill the receive buffer of a member that gets them all.
const CHUNK: usize = 16;
/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_millis(60);
/// A probe may be dropped by a full receive buffer, so it is repeated.
const REPEAT: Duration = Duration::from_millis(15);
/// Least time between two repairs by one process.
const REPAIR_INTERVAL: Duration = Duration::from_millis(100);

/// The right to change the group and filter of one address; given back when dropped or at death.
#[derive(Debug)]
pub struct AddressLock {
    _socket: OwnedFd,
}

impl AddressLock {
    fn try_lock(addr: IpAddr) -> io::Result<Option<Self>> {
        let socket = datagram_socket()?;
        match bind(socket.as_raw_fd(), &abstract_address(&format!("adverb/lock/{addr}"))?) {
            Ok(()) => Ok(Some(Self { _socket: socket })),
            Err(Errno::EADDRINUSE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the packets waiting at the process's UDP sockets and shows each to the callee, which answers whether it was a
/// probe; the others are the caller's to keep.
pub type Pump<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]) -> bool);

/// A process's part in the steering of one address.
#[derive(Debug)]
pub struct Steering {
    addr: IpAddr,
    slot: u8,
    socket: RawFd,
    table: Table,
    round_number: u16,
    round: Option<Round>,
    repair_after: Instant,
    repairs: u64,
}

#[derive(Debug)]
struct Round {
    /// Slot seen at each index; 0 where nobody has answered yet. As long as what has been asked.
    seen: Vec<u8>,
    /// No more indices than there are processes.
    most: usize,
    patience_ends: Instant,
    repeat_at: Instant,
    _lock: Option<AddressLock>,
}

impl Steering {
    /// Waits up to `timeout` for the right to change the group of `addr`. Take it before binding, keep it until
    /// [`Self::join`] has returned.
    ///
    /// # Errors
    /// `TimedOut`: the holder hangs; joining without the lock risks only a table that needs repair.
    pub fn lock(addr: IpAddr, timeout: Duration) -> io::Result<AddressLock> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(lock) = AddressLock::try_lock(addr)? {
                return Ok(lock);
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Joins the group with `socket`, which the caller has bound to (`addr`, 4791) with SO_REUSEPORT and keeps open for
    /// the life of this: finds out who sits where and attaches the filter. Returns after the round, at most about 60 ms
    /// per 16 members that do not answer. Messages for `slot` that arrive meanwhile wait for its next receive.
    ///
    /// # Errors
    /// What attaching reports.
    pub fn join(_lock: &AddressLock, slot: &mut Slot, addr: IpAddr, socket: RawFd, pump: Pump<'_>) -> io::Result<Self> {
        let mut steering = Self::new(slot.number(), addr, socket);
        steering.begin(None);
        while let Some(due) = steering.next_timeout() {
            sys::wait_readable(&[slot.fd(), socket], due.saturating_duration_since(Instant::now()));
            pump(&mut |packet| steering.handle_probe(packet, slot));
            while let Some((seen, index, round, addr)) = slot.receive_only(|message| match message {
                Message::ProbeReply {
                    slot,
                    index,
                    round,
                    addr,
                } => Some((slot, index, round, addr)),
                _ => None,
            }) {
                steering.on_reply(seen, index, round, addr);
            }
            steering.poll()?;
        }
        Ok(steering)
    }

    /// A member that only answers probes: it never attaches a filter unless it repairs.
    pub fn new(slot: u8, addr: IpAddr, socket: RawFd) -> Self {
        Self {
            addr,
            slot,
            socket,
            table: Table::default(),
            round_number: rng().random(),
            round: None,
            repair_after: Instant::now(),
            repairs: 0,
        }
    }

    /// The address.
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The table last attached by this process.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Rounds finished.
    pub const fn repairs(&self) -> u64 {
        self.repairs
    }

    /// To be called with each packet that may be a probe; returns whether it was one, in which case it has been
    /// answered.
    pub fn handle_probe(&mut self, packet: &[u8], slot: &mut Slot) -> bool {
        let Some(probe) = Probe::parse(packet) else {
            return false;
        };
        if probe.prober == self.slot {
            self.on_reply(self.slot, probe.index, probe.round, self.addr);
        } else {
            let reply = Message::ProbeReply {
                slot: self.slot,
                index: probe.index,
                round: probe.round,
                addr: self.addr,
            };
            // Lost only when the prober is gone or hopelessly behind: it will do without.
            if let Err(error) = slot.send(probe.prober, &reply) {
                tracing::debug!(prober = probe.prober, %error, "cannot answer a steering probe");
            }
        }
        true
    }

    /// To be called with each [`Message::ProbeReply`]; those of other rounds or addresses are ignored.
    pub fn on_reply(&mut self, slot: u8, index: u8, round: u16, addr: IpAddr) {
        if round != self.round_number || addr != self.addr {
            return;
        }
        if let Some(seen) = self
            .round
            .as_mut()
            .and_then(|round| round.seen.get_mut(usize::from(index)))
        {
            *seen = slot;
        }
    }

    /// To be called when packets of others arrive here: starts a repair, unless one was done a moment ago or another
    /// process is at it. Never blocks.
    pub fn repair(&mut self) {
        if self.round.is_some() || Instant::now() < self.repair_after {
            return;
        }
        self.repair_after = Instant::now() + REPAIR_INTERVAL;
        match AddressLock::try_lock(self.addr) {
            Ok(Some(lock)) => self.begin(Some(lock)),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot take the steering lock"),
        }
    }

    /// When [`Self::poll`] is due; `None` while nothing is going on.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.round
            .as_ref()
            .map(|round| round.patience_ends.min(round.repeat_at))
    }

    /// Carries the round on: to be called after probes and replies were handled, and by [`Self::next_timeout`].
    ///
    /// # Errors
    /// What attaching the filter reports; the round is over then too.
    pub fn poll(&mut self) -> io::Result<()> {
        let Some(round) = &mut self.round else { return Ok(()) };
        let now = Instant::now();
        let answered = round.seen.iter().all(|&slot| slot != 0);
        if !answered && now < round.patience_ends {
            if now >= round.repeat_at {
                round.repeat_at = now + REPEAT;
                self.ask(0);
            }
            return Ok(());
        }
        let asked = round.seen.len();
        // A slot seen twice: the second answer came for an index beyond the group.
        let mut members: Vec<u8> = round.seen.iter().copied().filter(|&slot| slot != 0).collect();
        members.sort_unstable();
        let repeated = members.windows(2).any(|pair| pair[0] == pair[1]);
        if !repeated && asked < round.most {
            round.patience_ends = now + PATIENCE;
            round.repeat_at = now + REPEAT;
            round.seen.resize(round.most.min(asked + CHUNK), 0);
            self.ask(asked);
            return Ok(());
        }
        self.finish()
    }

    fn begin(&mut self, lock: Option<AddressLock>) {
        let now = Instant::now();
        let most = live_slots().map_or(255, |slots| slots.len().clamp(1, 255));
        self.round_number = self.round_number.wrapping_add(1);
        self.round = Some(Round {
            seen: vec![0; most.min(CHUNK)],
            most,
            patience_ends: now + PATIENCE,
            repeat_at: now + REPEAT,
            _lock: lock,
        });
        self.ask(0);
    }

    /// Sends probes for the unanswered indices from `first` on.
    fn ask(&self, first: usize) {
        let Some(round) = &self.round else { return };
        let to = SockaddrStorage::from(SocketAddr::new(self.addr, ROCE_PORT));
        let unanswered = round
            .seen
            .iter()
            .enumerate()
            .skip(first)
            .filter(|(_, slot)| **slot == 0);
        for index in unanswered.filter_map(|(index, _)| u8::try_from(index).ok()) {
            let probe = Probe {
                index,
                prober: self.slot,
                round: self.round_number,
            }
            .emit();
            if let Err(error) = sendto(
                self.socket,
                &probe,
                &to,
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            ) {
                tracing::debug!(%error, index, "cannot send a steering probe");
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(round) = self.round.take() else { return Ok(()) };
        let seen = round.seen.iter().enumerate();
        self.table = Table::from_answers(seen.filter_map(|(index, &slot)| Some((slot, u8::try_from(index).ok()?))));
        self.repairs += 1;
        tracing::debug!(addr = %self.addr, table = ?self.table, "steering");
        sys::attach_reuseport_filter(self.socket, &program(&self.table))
        // The round's lock ends here, after the filter is in place.
    }
}

#[cfg(test)]
mod tests;
