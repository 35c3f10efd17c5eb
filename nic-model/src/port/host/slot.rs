//! Slots: what tells the processes of one host apart, and how they talk.
//!
//! A slot is the abstract Unix datagram socket `adverb/<n>`, n in 1..=255. Holding the name is holding the number: the
//! kernel refuses a second holder in the network namespace, whatever its user or container, and frees it at death. The
//! number is the top byte of the process's QPNs and CM communication ids. The socket is the process's mailbox
//! ([`Message`]).
//!
//! A Unix datagram socket queues only `net.unix.max_dgram_qlen` (10) messages, so what the receiver has no room for yet
//! waits here, bounded, until [`Slot::flush`]; it must be called again by [`Slot::next_flush`].

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, recvmsg,
    sendmsg, socket,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::message::{MAX_MESSAGE, Message};
use super::sys;

/// Most bytes kept for receivers without room.
const BACKLOG_BYTES: usize = 4 << 20;
/// How long a message waits for room before it is given up.
const BACKLOG_PATIENCE: Duration = Duration::from_millis(500);
/// How often the backlog is tried again.
const FLUSH_INTERVAL: Duration = Duration::from_micros(200);
/// Most messages taken in one [`Slot::receive`], so that the device gets its turn.
const RECEIVE_BUDGET: usize = 64;

/// Who sent a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The process that holds this slot.
    Slot(u8),
    /// Another named socket, such as the one `adverb stat` asks from.
    Name(Vec<u8>),
    /// A socket without a name; it cannot be answered.
    Unnamed,
}

/// A claimed slot, or an anonymous correspondent of slots.
#[derive(Debug)]
pub struct Slot {
    number: u8,
    socket: OwnedFd,
    buffer: Box<[u8]>,
    /// Messages set aside while steering waited for probe replies.
    stash: VecDeque<(Sender, Vec<u8>, Option<OwnedFd>)>,
    backlog: VecDeque<Waiting>,
    backlog_bytes: usize,
    scratch: Vec<u8>,
    flush_at: Option<Instant>,
    given_up: u64,
}

#[derive(Debug)]
struct Waiting {
    to: UnixAddr,
    bytes: Vec<u8>,
    since: Instant,
}

/// A generator seeded by the kernel.
pub(super) fn rng() -> SmallRng {
    SmallRng::from_os_rng()
}

fn slot_address(number: u8) -> io::Result<UnixAddr> {
    abstract_address(&format!("adverb/{number}"))
}

/// The abstract address called `name`.
pub(super) fn abstract_address(name: &str) -> io::Result<UnixAddr> {
    UnixAddr::new_abstract(name.as_bytes()).map_err(io::Error::from)
}

/// An unnamed, nonblocking datagram socket that execs close.
pub(super) fn datagram_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Datagram, flags, None).map_err(io::Error::from)
}

/// Whether a datagram socket called `name` exists now.
pub(super) fn name_is_taken(name: &str) -> bool {
    let Ok(address) = abstract_address(name) else {
        return false;
    };
    datagram_socket().is_ok_and(|probe| connect(probe.as_raw_fd(), &address).is_ok())
}

impl Slot {
    /// Claims a free slot, starting the search at a random number so that numbers are not reused at once.
    ///
    /// # Errors
    /// `AddrInUse` when all 255 slots of the network namespace are taken, or what socket and bind report.
    pub fn claim() -> io::Result<Self> {
        let start = rng().random_range(0..255u16);
        for offset in 0..255u16 {
            let number = u8::try_from((start + offset) % 255 + 1).unwrap_or(1);
            if let Some(slot) = Self::claim_number(number)? {
                return Ok(slot);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "all 255 process slots of this network namespace are in use",
        ))
    }

    /// Claims slot `number`; `None` when it is taken.
    ///
    /// # Errors
    /// What socket and bind report, other than the name being in use.
    pub fn claim_number(number: u8) -> io::Result<Option<Self>> {
        let socket = datagram_socket()?;
        match bind(socket.as_raw_fd(), &slot_address(number)?) {
            Ok(()) => Ok(Some(Self::over(number, socket))),
            Err(Errno::EADDRINUSE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A correspondent without a slot, named by the kernel so that slots can answer it. Its number is 0.
    ///
    /// # Errors
    /// What socket and bind report.
    pub fn anonymous() -> io::Result<Self> {
        let socket = datagram_socket()?;
        // Binding to no name at all makes the kernel choose one (unix(7), autobind).
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed())?;
        Ok(Self::over(0, socket))
    }

    /// Speaks for slot `number` over a descriptor of its socket that another process passed on.
    pub(super) fn over(number: u8, socket: OwnedFd) -> Self {
        Self {
            number,
            socket,
            buffer: vec![0; MAX_MESSAGE].into_boxed_slice(),
            stash: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            scratch: Vec::new(),
            flush_at: None,
            given_up: 0,
        }
    }

    /// The slot's number, 1..=255; 0 for an anonymous one.
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// The socket, to wait for messages with epoll.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The socket, to be duplicated for the guardian.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends to the holder of slot `to`.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody holds it; `OutOfMemory` when the backlog is full.
    pub fn send(&mut self, to: u8, message: &Message<'_>) -> io::Result<()> {
        self.send_to(slot_address(to)?, message, None)
    }

    /// Sends to whoever sent a message.
    ///
    /// # Errors
    /// As [`Self::send`]; `NotFound` for an unnamed sender.
    pub fn answer(&mut self, to: &Sender, message: &Message<'_>, attachment: Option<RawFd>) -> io::Result<()> {
        let address = match to {
            Sender::Slot(number) => slot_address(*number)?,
            Sender::Name(name) => UnixAddr::new_abstract(name)?,
            Sender::Unnamed => return Err(io::ErrorKind::NotFound.into()),
        };
        self.send_to(address, message, attachment)
    }

    /// Sends to the abstract name `to`.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_to_name(&mut self, to: &str, message: &Message<'_>) -> io::Result<()> {
        self.send_to(abstract_address(to)?, message, None)
    }

    fn send_to(&mut self, to: UnixAddr, message: &Message<'_>, attachment: Option<RawFd>) -> io::Result<()> {
        message.emit(&mut self.scratch);
        // Order matters within one destination: packets of a QP must not overtake each other.
        let must_wait = attachment.is_none() && self.backlog.iter().any(|waiting| waiting.to == to);
        let sent = if must_wait {
            Err(Errno::EAGAIN)
        } else {
            self.transmit(&to, &self.scratch, attachment)
        };
        match sent {
            Ok(()) => Ok(()),
            Err(Errno::EAGAIN) if attachment.is_none() => {
                if self.backlog_bytes + self.scratch.len() > BACKLOG_BYTES {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                self.backlog_bytes += self.scratch.len();
                let now = Instant::now();
                self.backlog.push_back(Waiting {
                    to,
                    bytes: self.scratch.clone(),
                    since: now,
                });
                self.flush_at.get_or_insert(now + FLUSH_INTERVAL);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn transmit(&self, to: &UnixAddr, bytes: &[u8], attachment: Option<RawFd>) -> Result<(), Errno> {
        let fds: Vec<RawFd> = attachment.into_iter().collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let control = if fds.is_empty() { &rights[..0] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg(self.fd(), &[IoSlice::new(bytes)], control, flags, Some(to)) {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Tries the waiting messages again.
    pub fn flush(&mut self) {
        let now = Instant::now();
        let mut still_full: Vec<UnixAddr> = Vec::new();
        for _ in 0..self.backlog.len() {
            let Some(waiting) = self.backlog.pop_front() else { break };
            let full = still_full.contains(&waiting.to);
            let result = if full {
                Err(Errno::EAGAIN)
            } else {
                self.transmit(&waiting.to, &waiting.bytes, None)
            };
            if result == Err(Errno::EAGAIN) && now.duration_since(waiting.since) < BACKLOG_PATIENCE {
                if !full {
                    still_full.push(waiting.to);
                }
                self.backlog.push_back(waiting);
            } else {
                self.backlog_bytes -= waiting.bytes.len();
                self.given_up += u64::from(result.is_err());
            }
        }
        self.flush_at = (!self.backlog.is_empty()).then(|| now + FLUSH_INTERVAL);
    }

    /// When [`Self::flush`] is due; `None` while nothing waits.
    pub const fn next_flush(&self) -> Option<Instant> {
        self.flush_at
    }

    /// Messages that waited in vain or lost their receiver.
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Hands up to 64 messages to `sink`, with the descriptor that came along; returns how many. What is no message is
    /// dropped. Never blocks.
    ///
    /// # Errors
    /// What recvmsg reports, other than there being nothing to read.
    pub fn receive(&mut self, sink: &mut dyn FnMut(&Sender, Message<'_>, Option<OwnedFd>)) -> io::Result<usize> {
        let mut count = 0;
        while let Some((sender, bytes, attachment)) = self.stash.pop_front() {
            if let Some(message) = Message::parse(&bytes) {
                sink(&sender, message, attachment);
                count += 1;
            }
        }
        for _ in 0..RECEIVE_BUDGET {
            let Some((sender, len, attachment)) = receive_datagram(self.socket.as_raw_fd(), &mut self.buffer)? else {
                break;
            };
            if let Some(message) = Message::parse(&self.buffer[..len]) {
                sink(&sender, message, attachment);
                count += 1;
            }
        }
        if self.flush_at.is_some_and(|due| due <= Instant::now()) {
            self.flush();
        }
        Ok(count)
    }

    /// Reads one message for a caller that waits for a certain kind; others are kept for [`Self::receive`].
    pub(super) fn receive_only<T>(&mut self, mut wanted: impl FnMut(Message<'_>) -> Option<T>) -> Option<T> {
        loop {
            let (sender, len, attachment) = receive_datagram(self.socket.as_raw_fd(), &mut self.buffer).ok()??;
            let bytes = &self.buffer[..len];
            if let Some(found) = Message::parse(bytes).and_then(&mut wanted) {
                return Some(found);
            }
            self.stash.push_back((sender, bytes.to_vec(), attachment));
        }
    }
}

/// One datagram, `None` when there is none. A truncated one counts as empty.
pub(super) fn receive_datagram(
    socket: RawFd,
    buffer: &mut [u8],
) -> io::Result<Option<(Sender, usize, Option<OwnedFd>)>> {
    let mut control = nix::cmsg_space!([RawFd; 4]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let mut buffers = [IoSliceMut::new(buffer)];
    // The socket never blocks, so no signal interrupts the call.
    let received = match recvmsg::<UnixAddr>(socket, &mut buffers, Some(&mut control), flags) {
        Err(Errno::EAGAIN) => return Ok(None),
        result => result?,
    };
    let mut attachments = Vec::new();
    if let Ok(messages) = received.cmsgs() {
        for message in messages {
            if let ControlMessageOwned::ScmRights(fds) = message {
                attachments.extend(sys::adopt(&fds));
            }
        }
    }
    let truncated = received.flags.contains(MsgFlags::MSG_TRUNC);
    let name = received.address.as_ref().and_then(UnixAddr::as_abstract);
    let sender = name.map_or(Sender::Unnamed, |name| match slot_of_name(name) {
        Some(number) => Sender::Slot(number),
        None => Sender::Name(name.to_vec()),
    });
    Ok(Some((
        sender,
        if truncated { 0 } else { received.bytes },
        attachments.into_iter().next(),
    )))
}

fn slot_of_name(name: &[u8]) -> Option<u8> {
    let digits = core::str::from_utf8(name.strip_prefix(b"adverb/")?).ok()?;
    let number = digits.parse::<u8>().ok().filter(|&number| number != 0)?;
    // "+7" and "07" parse as well but name other sockets.
    (number.to_string() == digits).then_some(number)
}

/// The names of abstract Unix sockets in this network namespace that start with `prefix`, without the leading NUL.
pub(super) fn abstract_names(prefix: &str) -> io::Result<Vec<String>> {
    let table = std::fs::read("/proc/net/unix")?;
    let table = String::from_utf8_lossy(&table);
    let names = table
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(7)?.strip_prefix('@'));
    Ok(names
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect())
}

/// The slots in use in this network namespace, of all users, ascending.
///
/// # Errors
/// When /proc is not mounted.
pub fn live_slots() -> io::Result<Vec<u8>> {
    let mut slots: Vec<u8> = abstract_names("adverb/")?
        .iter()
        .filter_map(|name| slot_of_name(name.as_bytes()))
        .collect();
    slots.sort_unstable();
    slots.dedup();
    Ok(slots)
}

/// Whether somebody holds slot `number`; cheaper than [`live_slots`] for one.
pub fn is_live(number: u8) -> bool {
    name_is_taken(&format!("adverb/{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_one(slot: &mut Slot) -> Option<(Sender, String)> {
        let mut got = None;
        slot.receive(&mut |sender, message, _| {
            if let Message::StatsReply { json } = message {
                got = Some((sender.clone(), json.to_owned()));
            }
        })
        .unwrap();
        got
    }

    #[test]
    fn a_slot_is_exclusive_and_free_after_drop() {
        let slot = Slot::claim().unwrap();
        let number = slot.number();
        assert_ne!(number, 0);
        assert!(live_slots().unwrap().contains(&number));
        assert!(Slot::claim_number(number).unwrap().is_none());
        assert_ne!(Slot::claim().unwrap().number(), number);
        assert!(is_live(number));
        drop(slot);
        // Another test may hold the number for a moment.
        let again = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Slot::claim_number(number).unwrap()
        });
        assert!(again.is_some());
    }

    #[test]
    fn messages_arrive_with_their_sender() {
        let mut a = Slot::claim().unwrap();
        let mut b = Slot::claim().unwrap();
        a.send(b.number(), &Message::StatsReply { json: "x" }).unwrap();
        assert_eq!(receive_one(&mut b), Some((Sender::Slot(a.number()), "x".into())));
        let mut anonymous = Slot::anonymous().unwrap();
        anonymous.send(a.number(), &Message::StatsRequest).unwrap();
        let mut asker = None;
        a.receive(&mut |sender, message, _| {
            assert_eq!(message, Message::StatsRequest);
            asker = Some(sender.clone());
        })
        .unwrap();
        a.answer(&asker.unwrap(), &Message::StatsReply { json: "y" }, None)
            .unwrap();
        assert_eq!(receive_one(&mut anonymous).unwrap().1, "y");
    }

    #[test]
    fn a_full_queue_delays_but_keeps_order() {
        let mut a = Slot::claim().unwrap();
        let mut b = Slot::claim().unwrap();
        for i in 0..100 {
            a.send(b.number(), &Message::StatsReply { json: &i.to_string() })
                .unwrap();
        }
        assert!(a.next_flush().is_some());
        let mut got = Vec::new();
        while got.len() < 100 {
            b.receive(&mut |_, message, _| {
                if let Message::StatsReply { json } = message {
                    got.push(json.parse::<u32>().unwrap());
                }
            })
            .unwrap();
            a.flush();
        }
        assert!(got.is_sorted() && a.next_flush().is_none() && a.given_up() == 0);
    }

    #[test]
    fn sending_to_nobody_is_refused() {
        let mut a = Slot::claim().unwrap();
        let refused = a.send_to_name("adverb/nobody", &Message::BoardRequest).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_canonical_names_are_slots() {
        assert_eq!(slot_of_name(b"adverb/7"), Some(7));
        for name in [
            "adverb/0",
            "adverb/07",
            "adverb/+7",
            "adverb/256",
            "adverb/cm/262/*/7",
            "adverb/",
        ] {
            assert_eq!(slot_of_name(name.as_bytes()), None, "{name}");
        }
    }
}
