//! The guardian process: accepts clients, notes what they tell, and turns into their voice at their end.
//!
//! One thread, one poll loop. While a client lives its sockets are held and never read.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen,
    recvmsg, send, socket,
};

use super::departed::Departed;
use super::estate::Estate;
use super::record::{MAX_RECORD, Record};
use super::{LINGER, default_name, is_same_user};
use crate::port::host::Slot;
use crate::port::host::slot::abstract_address;
use crate::port::host::sys;

/// Most UDP sockets of one client.
const MOST_SOCKETS: usize = 64;
/// What a client gets back for its Hello.
pub(super) const WELCOME: [u8; 1] = [1];
const IDLE: Duration = Duration::from_secs(3600);

/// A connected client.
struct Client {
    stream: OwnedFd,
    /// After its Hello.
    identity: Option<(Estate, Slot, Vec<OwnedFd>)>,
}

enum Heard {
    Nothing,
    End,
}

/// Serves this effective user under the usual name: the whole life of `adverb guardian`.
///
/// # Errors
/// What socket, bind and listen report; another guardian being there already is none.
pub fn run() -> io::Result<()> {
    serve(&default_name())
}

/// Serves under `name` until nobody has needed it for [`LINGER`].
///
/// # Errors
/// As [`run`].
pub fn serve(name: &str) -> io::Result<()> {
    sys::ignore_group_signals();
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    match bind(listener.as_raw_fd(), &abstract_address(name)?) {
        // Two clients started one each at once; the other serves both.
        Err(Errno::EADDRINUSE) => return Ok(()),
        result => result?,
    }
    listen(&listener, Backlog::new(128)?)?;

    let mut clients: Vec<Client> = Vec::new();
    let mut departed: Vec<Departed> = Vec::new();
    let mut needed_at = Instant::now();
    loop {
        let now = Instant::now();
        if !clients.is_empty() || !departed.is_empty() {
            needed_at = now;
        } else if now.duration_since(needed_at) >= LINGER {
            return Ok(());
        }
        let timeout = departed.iter().map(Departed::next_timeout).min();
        let timeout = timeout.unwrap_or(if clients.is_empty() {
            needed_at + LINGER
        } else {
            now + IDLE
        });
        let mut fds: Vec<RawFd> = vec![listener.as_raw_fd()];
        fds.extend(clients.iter().map(|client| client.stream.as_raw_fd()));
        fds.extend(departed.iter().flat_map(Departed::fds));
        let ready = sys::wait_readable(&fds, timeout.saturating_duration_since(now));

        let now = Instant::now();
        let mut spoke = ready.iter().skip(1).copied();
        clients = clients
            .into_iter()
            .filter_map(|mut client| {
                if !spoke.next().unwrap_or(false) || matches!(client.listen(now), Heard::Nothing) {
                    return Some(client);
                }
                departed.extend(client.depart(now));
                None
            })
            .collect();
        for gone in &mut departed {
            gone.turn(now);
        }
        departed.retain(|gone| !gone.is_over(now));
        if ready.first() == Some(&true) {
            clients.extend(accept(&listener));
        }
    }
}

fn accept(listener: &OwnedFd) -> Option<Client> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK).ok()?;
    let stream = sys::adopt(&[fd]).pop()?;
    is_same_user(&stream).then_some(Client { stream, identity: None })
}

impl Client {
    /// Reads all the client has said.
    fn listen(&mut self, now: Instant) -> Heard {
        let mut buffer = [0; MAX_RECORD];
        loop {
            let (len, fds) = match receive(&self.stream, &mut buffer) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Heard::Nothing,
                // A client that ended with our welcome unread resets the stream; what it said before is still to be read.
                Err(Errno::EINTR | Errno::ECONNRESET) => continue,
                Err(_) => return Heard::End,
            };
            if len == 0 {
                return Heard::End;
            }
            match (Record::parse(&buffer[..len]), &mut self.identity) {
                (Some(Record::Hello { slot }), None) => {
                    let mut fds = fds.into_iter();
                    let Some(socket) = fds.next() else { return Heard::End };
                    self.identity = Some((Estate::new(slot), Slot::over(slot, socket), fds.collect()));
                    // The client may have ended already, which is no reason not to hear it out.
                    let _ = send(self.stream.as_raw_fd(), &WELCOME, MsgFlags::MSG_NOSIGNAL);
                }
                (Some(record), Some((estate, ..))) => estate.record(&record, now),
                // Out of order or of another version: nothing it says can be relied on.
                _ => return Heard::End,
            }
        }
    }

    /// What remains of it; nothing when no peer can have anything to say, and then its slot is free at once.
    fn depart(self, now: Instant) -> Option<Departed> {
        let (estate, slot, sockets) = self.identity?;
        estate.matters(now).then(|| Departed::new(estate, slot, sockets))
    }
}

fn receive(stream: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut control = nix::cmsg_space!([RawFd; MOST_SOCKETS + 1]);
    let mut buffers = [io::IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut buffers, Some(&mut control), flags)?;
    let mut fds = Vec::new();
    if let Ok(messages) = received.cmsgs() {
        for message in messages {
            if let ControlMessageOwned::ScmRights(rights) = message {
                fds.extend(sys::adopt(&rights));
            }
        }
    }
    Ok((received.bytes, fds))
}
