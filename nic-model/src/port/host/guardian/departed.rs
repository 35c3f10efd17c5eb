//! A client that has ended: its sockets are read now, and answered from its [`Estate`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, getsockname, recvmsg, sendto, setsockopt, sockopt};
use roce_wire::icrc::IcrcContext;

use roce_wire::packet::Packet;

use super::LINGER;
use super::estate::{Estate, Verdict, dreq_packet};
use crate::frame::RxMeta;
use crate::port::host::message::Message;
use crate::port::host::{Board, ROCE_PORT, Slot, Steering, live_slots, ports};

/// DREQs sent for a connection before giving its peer up.
const DREQ_ATTEMPTS: u32 = 3;
const DREQ_INTERVAL: Duration = Duration::from_millis(200);
/// Most packets taken from a socket in one turn.
const RECEIVE_BUDGET: usize = 256;

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    local: SocketAddr,
    steering: Steering,
}

/// A process that has ended and still has peers.
#[derive(Debug)]
pub(super) struct Departed {
    estate: Estate,
    slot: Slot,
    sockets: Vec<Socket>,
    /// Empty: tells senders that nobody needs their restraint.
    board: Option<Board>,
    ends_at: Instant,
    dreqs_sent: u32,
    next_dreq: Instant,
}

/// Of a packet read from a socket or handed over.
struct Arrival<'a> {
    meta: RxMeta,
    bytes: &'a [u8],
}

impl Departed {
    /// Takes over from a client at its end, and speaks up for it at once.
    pub(super) fn new(estate: Estate, slot: Slot, sockets: Vec<OwnedFd>) -> Self {
        let now = Instant::now();
        let number = slot.number();
        let sockets = sockets.into_iter().filter_map(|fd| {
            let local = local_address(&fd)?;
            // The option belongs to the socket, not the descriptor, and its other user is gone: one packet a read.
            let _ = setsockopt(&fd, sockopt::UdpGroSegment, &false);
            let steering = Steering::new(number, local.ip(), fd.as_raw_fd());
            Some(Socket { fd, local, steering })
        });
        let mut departed = Self {
            estate,
            slot,
            sockets: sockets.collect(),
            board: Board::new().ok(),
            ends_at: now + LINGER,
            dreqs_sent: 0,
            next_dreq: now,
        };
        departed.send_dreqs(now);
        departed
    }

    /// The descriptors to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets
            .iter()
            .map(|socket| socket.fd.as_raw_fd())
            .chain([self.slot.fd()])
    }

    /// When [`Self::turn`] is due at the latest.
    pub(super) fn next_timeout(&self) -> Instant {
        let dreq = if self.dreqs_sent < DREQ_ATTEMPTS {
            self.next_dreq
        } else {
            self.ends_at
        };
        dreq.min(self.ends_at)
            .min(self.slot.next_flush().unwrap_or(self.ends_at))
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.ends_at
    }

    /// Reads what has come, answers it, and repeats DREQs that are due.
    pub(super) fn turn(&mut self, now: Instant) {
        self.receive_udp(now);
        self.receive_messages(now);
        self.slot.flush();
        if now >= self.next_dreq {
            self.send_dreqs(now);
        }
    }

    fn send_dreqs(&mut self, now: Instant) {
        if self.dreqs_sent >= DREQ_ATTEMPTS {
            return;
        }
        self.dreqs_sent += 1;
        self.next_dreq = now + DREQ_INTERVAL;
        for connection in self.estate.connections() {
            if let Some(socket) = self.sockets.iter().find(|socket| socket.local.ip() == connection.local) {
                socket.send(connection.peer, dreq_packet(connection));
            }
        }
    }

    fn receive_udp(&mut self, now: Instant) {
        let mut buffer = [0; 9216];
        for index in 0..self.sockets.len() {
            for _ in 0..RECEIVE_BUDGET {
                let socket = &mut self.sockets[index];
                let Ok(Some((len, from))) = receive(socket.fd.as_raw_fd(), &mut buffer) else {
                    break;
                };
                let bytes = &buffer[..len];
                if socket.steering.handle_probe(bytes, &mut self.slot) {
                    continue;
                }
                let dst = socket.local.ip();
                let meta = RxMeta {
                    src: from.ip(),
                    dst,
                    sport: from.port(),
                    traffic_class: 0,
                    hop_limit: 64,
                };
                if IcrcContext::new(meta.src, dst, meta.sport, ROCE_PORT)
                    .verify(0, bytes)
                    .is_ok()
                {
                    self.handle(&Arrival { meta, bytes }, now);
                }
            }
        }
    }

    fn receive_messages(&mut self, now: Instant) {
        let mut packets: Vec<(RxMeta, Vec<u8>)> = Vec::new();
        let mut board_requests = Vec::new();
        let received = self.slot.receive(&mut |sender, message, _| match message {
            Message::HandOver {
                meta,
                segment_size,
                bytes,
                ..
            } => {
                packets.extend(bytes.chunks(segment_size.into()).map(|packet| (meta, packet.to_vec())));
            }
            Message::BoardRequest => board_requests.push(sender.clone()),
            _ => {}
        });
        if let Err(error) = received {
            tracing::debug!(%error, "slot socket");
        }
        for sender in board_requests {
            let fd = self.board.as_ref().map(Board::fd);
            let _ = self.slot.answer(&sender, &Message::BoardReply, fd);
        }
        for (meta, bytes) in packets {
            self.handle(&Arrival { meta, bytes: &bytes }, now);
        }
    }

    fn handle(&mut self, arrival: &Arrival<'_>, now: Instant) {
        let Arrival { meta, bytes } = arrival;
        match self.estate.handle(meta.src, meta.dst, bytes, now) {
            Verdict::Ignore => {}
            Verdict::Reply(reply) => {
                if let Some(socket) = self.sockets.iter().find(|socket| socket.local.ip() == meta.dst) {
                    socket.send(meta.src, reply);
                }
            }
            Verdict::HandOver(slot) => self.hand_over(slot, meta, bytes),
            Verdict::ForPort { space, port } => {
                let mad = Packet::parse(bytes)
                    .ok()
                    .and_then(|packet| <&[u8; 256]>::try_from(packet.payload).ok());
                let delivered = mad.is_some_and(|mad| ports::deliver(&mut self.slot, space, meta.dst, port, meta, mad));
                // Nobody listens: any living process will say so to the peer.
                let others = live_slots()
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|&slot| slot != self.slot.number());
                if !delivered && let Some(slot) = others.min() {
                    self.hand_over(slot, meta, bytes);
                }
            }
        }
    }

    fn hand_over(&mut self, slot: u8, meta: &RxMeta, bytes: &[u8]) {
        let Ok(segment_size) = u16::try_from(bytes.len()) else {
            return;
        };
        let message = Message::HandOver {
            meta: *meta,
            segment_size,
            first_id: 0,
            bytes,
        };
        if let Err(error) = self.slot.send(slot, &message) {
            tracing::debug!(slot, %error, "cannot hand a packet over");
        }
    }
}

impl Socket {
    /// Seals `packet` and sends it to `peer`. A failure is a lost packet.
    fn send(&self, peer: IpAddr, mut packet: Vec<u8>) {
        let len = packet.len();
        // These sockets send IP identification 0 and from the RoCEv2 port, to which they are bound.
        IcrcContext::new(self.local.ip(), peer, self.local.port(), ROCE_PORT).seal(0, len, &mut packet);
        let mut to = SocketAddr::new(peer, ROCE_PORT);
        if let (SocketAddr::V6(to), SocketAddr::V6(local)) = (&mut to, &self.local) {
            to.set_scope_id(local.scope_id());
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        if let Err(error) = sendto(self.fd.as_raw_fd(), &packet, &SockaddrStorage::from(to), flags) {
            tracing::debug!(%peer, %error, "cannot send for a departed process");
        }
    }
}

fn local_address(fd: &OwnedFd) -> Option<SocketAddr> {
    socket_address(&getsockname::<SockaddrStorage>(fd.as_raw_fd()).ok()?)
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    let mut buffers = [io::IoSliceMut::new(buffer)];
    loop {
        return match recvmsg::<SockaddrStorage>(fd, &mut buffers, None, MsgFlags::MSG_DONTWAIT) {
            Ok(received) => {
                let from = received.address.as_ref().and_then(socket_address);
                Ok(from.map(|from| (received.bytes, from)))
            }
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}
