//! The wire: RoCEv2 over unprivileged UDP sockets, one for each address of the device.
//!
//! A batch leaves in one `sendmsg` that the kernel cuts into datagrams (UDP_SEGMENT), as late as it can: over loopback
//! and between network namespaces not at all. Received trains arrive coalesced (UDP_GRO) and are handed on one packet
//! at a time, in place. Where the kernel or the network device cannot cut, the port falls back to one datagram a
//! packet, whose identifications are all 0 instead of 0, 1, 2 …; the batch at hand has to be sealed again then.
//!
//! The source port is 4791, the port the sockets are bound to: RoCEv2 receivers do not look at it.

mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use self::socket::RoceSocket;
use super::sys::{self, Datagrams, Receiver, SendOptions};
use super::{Port, ROCE_PORT, SendOutcome, Sink};
use crate::frame::{MAX_BATCH_BYTES, MAX_BATCH_SEGMENTS, Path, RxMeta, TxBatch};
use crate::time::{Duration, Time};

/// The other sockets are looked at once in so many calls while one socket has traffic.
const TURNS_BEFORE_OTHERS: u8 = 8;
/// How soon a backlog is tried again when nothing else is sent.
const RETRY: Duration = Duration::from_micros(200);
/// The kernel's default TTL and hop limit, which need not be asked for.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// What a [`UdpPort`] binds.
#[derive(Clone, Debug, Default)]
pub struct UdpConfig {
    /// The device's addresses, the first of which must be available.
    pub addrs: Vec<IpAddr>,
    /// The interface they belong to; names the link of link-local addresses.
    pub ifindex: u32,
    /// Receive buffer of each socket as the kernel accounts it: the figure of `getsockopt(SO_RCVBUF)` and
    /// `net.core.rmem_default`, twice what an application passes to `setsockopt`. The kernel caps it.
    pub rcvbuf: Option<usize>,
}

/// How far UDP_SEGMENT is known to work here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segmentation {
    /// Not tried yet.
    Untried,
    /// A batch has gone through.
    Works,
    /// The first batch was refused with EINVAL, which may also mean that its packets are too long for the route.
    Suspect,
    /// The kernel or the network device cannot.
    Missing,
}

/// The rest of a batch that a socket took only in part, when sending datagram by datagram.
#[derive(Debug, Default)]
struct Backlog {
    path: Option<Path>,
    segment_size: usize,
    bytes: Vec<u8>,
    start: usize,
}

/// A device's UDP sockets.
#[derive(Debug)]
pub struct UdpPort {
    sockets: Vec<RoceSocket>,
    receiver: Receiver,
    segmentation: Segmentation,
    backlog: Backlog,
    now: Time,
    /// The socket that had traffic last.
    hot: usize,
    turns: u8,
}

impl UdpPort {
    /// Bind the sockets.
    ///
    /// # Errors
    /// The first address cannot be bound, or a later one is taken. A later one that is not available (any more, or
    /// not yet) is left out.
    pub fn bind(config: &UdpConfig) -> io::Result<Self> {
        let mut sockets: Vec<RoceSocket> = Vec::with_capacity(config.addrs.len());
        for &addr in &config.addrs {
            match RoceSocket::bind(addr, config.ifindex, config.rcvbuf) {
                Ok(socket) => sockets.push(socket),
                Err(error) if sockets.is_empty() || error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(error) => tracing::warn!(%addr, %error, "address left out"),
            }
        }
        let first = sockets.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let segmentation = if first.can_segment() {
            Segmentation::Untried
        } else {
            Segmentation::Missing
        };
        let receiver = Receiver::default();
        Ok(Self {
            sockets,
            receiver,
            segmentation,
            backlog: Backlog::default(),
            now: Time::ZERO,
            hot: 0,
            turns: 0,
        })
    }

    /// The sockets and the addresses they are bound to, in the order of the configuration.
    pub fn sockets(&self) -> impl Iterator<Item = (IpAddr, BorrowedFd<'_>)> {
        self.sockets.iter().map(|socket| (socket.addr(), socket.as_fd()))
    }

    /// The receive buffer that each socket really has, in the kernel's accounting (see [`UdpConfig::rcvbuf`]).
    pub fn recv_buffer(&self) -> usize {
        let sizes = self
            .sockets()
            .map(|(_, fd)| sys::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF));
        sizes
            .filter_map(|size| usize::try_from(size.ok()?).ok())
            .min()
            .unwrap_or(0)
    }

    /// Packets that the kernel dropped because a receive buffer was full, over all sockets.
    pub fn receive_drops(&self) -> u64 {
        self.sockets()
            .filter_map(|(_, fd)| sys::socket_memory(fd).ok())
            .map(|memory| u64::from(memory.drops))
            .sum()
    }

    fn socket_for(&self, path: &Path) -> io::Result<&RoceSocket> {
        self.sockets
            .iter()
            .find(|socket| socket.addr() == path.src)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
    }

    /// Send what is left of the backlog; true if none remains.
    fn drain_backlog(&mut self) -> bool {
        let Some(path) = self.backlog.path else { return true };
        let Backlog {
            segment_size, start, ..
        } = self.backlog;
        match self.send_singles(&path, segment_size, &self.backlog.bytes[start..]) {
            Ok(0) => {}
            // Refused now: nobody waits for an answer any more, so the rest is lost, as on a wire.
            Err(_) => self.backlog.path = None,
            Ok(sent) => {
                self.backlog.start += sent * segment_size;
                if self.backlog.start >= self.backlog.bytes.len() {
                    self.backlog.path = None;
                }
            }
        }
        self.backlog.path.is_none()
    }

    /// Send datagram by datagram; the number the socket took, 0 if it has no room.
    fn send_singles(&self, path: &Path, segment_size: usize, bytes: &[u8]) -> io::Result<usize> {
        let socket = self.socket_for(path)?;
        let options = options_for(path);
        let peer = socket.peer(path.dst);
        retry_pending_errors(|| sys::send_each(socket.as_fd(), &peer, bytes, segment_size, &options))
    }

    fn send_datagram_by_datagram(&mut self, batch: &TxBatch) -> SendOutcome {
        match self.send_singles(&batch.path, batch.segment_size, &batch.bytes) {
            Ok(0) => SendOutcome::WouldBlock,
            Ok(sent) => {
                let rest = batch.bytes.get(sent * batch.segment_size.max(1)..).unwrap_or(&[]);
                if !rest.is_empty() {
                    self.backlog.path = Some(batch.path);
                    self.backlog.segment_size = batch.segment_size;
                    self.backlog.start = 0;
                    self.backlog.bytes.clear();
                    self.backlog.bytes.extend_from_slice(rest);
                }
                SendOutcome::Sent
            }
            Err(error) => {
                // So the packets were too long, and segmentation is not to blame.
                if self.segmentation == Segmentation::Suspect && error.raw_os_error() == Some(libc::EMSGSIZE) {
                    self.segmentation = Segmentation::Untried;
                }
                SendOutcome::Failed(error)
            }
        }
    }

    fn send_segmented(&mut self, batch: &TxBatch) -> SendOutcome {
        let Ok(segment_size) = u16::try_from(batch.segment_size) else {
            return SendOutcome::Failed(io::Error::from_raw_os_error(libc::EMSGSIZE));
        };
        let options = SendOptions {
            segment_size: Some(segment_size),
            ..options_for(&batch.path)
        };
        match self.send_message(batch, &options) {
            Ok(0) => SendOutcome::WouldBlock,
            Ok(_) => {
                self.segmentation = Segmentation::Works;
                SendOutcome::Sent
            }
            Err(error) => {
                self.segmentation = match error.raw_os_error() {
                    // No checksum offload on the way out, or no support at all.
                    Some(libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => Segmentation::Missing,
                    Some(libc::EINVAL) if self.segmentation == Segmentation::Untried => Segmentation::Suspect,
                    _ => return SendOutcome::Failed(error),
                };
                tracing::debug!(%error, "no UDP segmentation; sending packets one by one");
                SendOutcome::Reseal
            }
        }
    }

    /// Send in one message; the number of bytes taken, 0 if there is no room.
    fn send_message(&self, batch: &TxBatch, options: &SendOptions) -> io::Result<usize> {
        let socket = self.socket_for(&batch.path)?;
        let peer = socket.peer(batch.path.dst);
        retry_pending_errors(|| sys::send(socket.as_fd(), &peer, &batch.bytes, options))
    }

    fn receive_from(&mut self, index: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let socket = &self.sockets[index];
        let received = match retry_pending_errors(|| self.receiver.receive(socket.as_fd())) {
            Err(error) if is_transient(&error) => 0,
            other => other?,
        };
        let mut packets = 0;
        for slot in 0..received {
            if let Some(datagrams) = self.receiver.datagrams(slot) {
                packets += deliver(&datagrams, socket.addr(), sink);
            }
        }
        // A lone datagram without payload is no packet, yet it was taken and more may wait.
        Ok(packets.max(received))
    }
}

impl Port for UdpPort {
    fn send(&mut self, batch: &TxBatch) -> SendOutcome {
        if batch.is_empty() {
            return SendOutcome::Sent;
        }
        if batch.len() > MAX_BATCH_SEGMENTS || batch.bytes.len() > MAX_BATCH_BYTES {
            return SendOutcome::Failed(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        if !self.drain_backlog() {
            return SendOutcome::WouldBlock;
        }
        if batch.len() == 1 {
            return match self.send_message(batch, &options_for(&batch.path)) {
                Ok(0) => SendOutcome::WouldBlock,
                Ok(_) => SendOutcome::Sent,
                Err(error) => SendOutcome::Failed(error),
            };
        }
        if self.segments_have_ids() {
            self.send_segmented(batch)
        } else {
            self.send_datagram_by_datagram(batch)
        }
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> io::Result<usize> {
        let mut packets = self.receive_from(self.hot, sink)?;
        if self.sockets.len() == 1 {
            return Ok(packets);
        }
        self.turns += 1;
        if packets == 0 || self.turns >= TURNS_BEFORE_OTHERS {
            self.turns = 0;
            let ready = sys::readable(self.sockets.iter().map(AsFd::as_fd));
            for index in (0..self.sockets.len()).filter(|index| ready.contains(*index)) {
                let more = self.receive_from(index, sink)?;
                if packets == 0 && more > 0 {
                    self.hot = index;
                }
                packets += more;
            }
        }
        Ok(packets)
    }

    fn fds(&self) -> Vec<RawFd> {
        self.sockets.iter().map(|socket| socket.as_fd().as_raw_fd()).collect()
    }

    fn source_port(&self, _: &Path) -> u16 {
        ROCE_PORT
    }

    fn segments_have_ids(&self) -> bool {
        matches!(self.segmentation, Segmentation::Untried | Segmentation::Works)
    }

    fn poll(&mut self, now: Time) {
        self.now = now;
        self.drain_backlog();
    }

    fn next_deadline(&self) -> Option<Time> {
        self.backlog.path.map(|_| self.now + RETRY)
    }

    fn flush(&mut self) {
        self.drain_backlog();
    }
}

fn options_for(path: &Path) -> SendOptions {
    SendOptions {
        segment_size: None,
        traffic_class: (path.traffic_class != 0).then_some(path.traffic_class),
        hop_limit: (path.hop_limit != 0 && path.hop_limit != DEFAULT_HOP_LIMIT).then_some(path.hop_limit),
    }
}

/// Do `call` until it gives an answer of its own: an interruption, or an error that an earlier packet caused (an ICMP
/// message that came back), says nothing about this call. No room, or nothing there, is 0.
fn retry_pending_errors(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    // A pending error is reported once, so that this ends; the bound is for a peer that answers every packet with ICMP.
    for _ in 0..16 {
        match call() {
            Ok(count) => return Ok(count),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Ok(0),
                _ => return Err(error),
            },
        }
    }
    Ok(0)
}

/// Whether a receive error tells of the network and not of the socket.
fn is_transient(error: &io::Error) -> bool {
    let transient = [
        libc::EHOSTUNREACH,
        libc::EHOSTDOWN,
        libc::ENETUNREACH,
        libc::ENETDOWN,
        libc::EMSGSIZE,
        libc::EPROTO,
    ];
    error.raw_os_error().is_some_and(|code| transient.contains(&code))
}

fn deliver(datagrams: &Datagrams<'_>, bound: IpAddr, sink: &mut Sink<'_>) -> usize {
    let meta = RxMeta {
        src: datagrams.from.ip(),
        dst: datagrams.to.unwrap_or(bound),
        sport: datagrams.from.port(),
        traffic_class: datagrams.traffic_class,
        hop_limit: datagrams.hop_limit,
    };
    let mut packets = 0;
    for (id, packet) in (0_u16..).zip(datagrams.bytes.chunks(datagrams.segment_size.max(1))) {
        sink(&meta, packet, id);
        packets += 1;
    }
    packets
}
