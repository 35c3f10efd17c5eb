//! Back-pressure towards processes of this host: how much may go to a socket now.
//!
//! Before a batch is formed, room for it is reserved in the receiver's board (`board`). Until the board has come, a
//! window applies that is small enough for many senders at once.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::board::Page;
use super::message::Message;
use super::slot::Slot;
use super::truesize;
use crate::frame::MAX_BATCH_BYTES;

/// How long a sender waits for the receiver's board before it sends without.
const BLIND_AFTER: Duration = Duration::from_millis(10);
/// Charge a sender may cause without the board: one full packet, so that sixteen senders fit a stock buffer.
const BLIND_WINDOW: usize = 8_704;
/// A request without answer is repeated, and the blind window renewed, after this time.
const REQUEST_AGAIN: Duration = Duration::from_millis(100);
/// How soon to ask again for room where there was none.
const RETRY: Duration = Duration::from_micros(50);
/// A sender without room for so long asks for the board again: the receiver may have been replaced.
const STARVED: Duration = Duration::from_millis(20);
/// Less room than this is none: one full packet, so that small packets do not starve large ones.
const LEAST_GRANT: u64 = truesize::of_datagram(4200) as u64;

#[derive(Debug)]
enum Peer {
    Unknown,
    /// Asked for its board at `since`; `left` of the blind window, `blind` sent in all to `dst` without a board.
    Asked {
        since: Instant,
        left: usize,
        blind: usize,
        dst: IpAddr,
    },
    /// Sharing its board.
    Known {
        page: Page,
        starved: Option<Instant>,
    },
    /// Nobody held the slot at `since`.
    Gone {
        since: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    /// Towards a process whose board is not shared.
    Unknown {
        to: u8,
    },
    Room {
        to: u8,
        socket: usize,
        grant: u32,
    },
}

/// Room at the sockets of this host's processes.
#[derive(Debug)]
pub struct LocalBudget {
    own: u8,
    peers: Box<[Peer; 256]>,
    held: Held,
    retry_at: Option<Instant>,
}

impl LocalBudget {
    /// For the process of slot `own`.
    pub fn new(own: u8) -> Self {
        Self {
            own,
            peers: Box::new([const { Peer::Unknown }; 256]),
            held: Held::Nothing,
            retry_at: None,
        }
    }

    /// Reserves room at the socket that the process of slot `to` has at `dst`, and returns how many payload bytes may be
    /// sent there now, in one batch. Must be followed by [`Self::sent`] or [`Self::release`]; another call releases.
    /// After a zero ask again by [`Self::retry_at`]: nobody tells when there is room. Own slot included: its board is
    /// asked for like any other.
    pub fn available(&mut self, slot: &mut Slot, to: u8, dst: IpAddr) -> usize {
        self.release();
        let now = Instant::now();
        let most = match &self.peers[usize::from(to)] {
            Peer::Known { .. } => self.reserve(slot, to, dst, now),
            Peer::Asked { since, left, .. } if now.duration_since(*since) < REQUEST_AGAIN => {
                let blind = now.duration_since(*since) >= BLIND_AFTER;
                if blind {
                    truesize::payload_within(*left, true)
                } else {
                    0
                }
            }
            // Nobody there to be flooded.
            Peer::Gone { since } if now.duration_since(*since) < REQUEST_AGAIN => MAX_BATCH_BYTES,
            Peer::Asked { blind, .. } => {
                let blind = *blind;
                self.ask(slot, to, dst, blind, now)
            }
            Peer::Unknown | Peer::Gone { .. } => self.ask(slot, to, dst, 0, now),
        };
        if most == 0 {
            self.retry_at = Some(now + RETRY);
        } else if matches!(self.held, Held::Nothing) {
            self.held = Held::Unknown { to };
        }
        most
    }

    /// When to look again for room that was missing since the last call of this; `None` if none was.
    pub fn retry_at(&mut self) -> Option<Instant> {
        self.retry_at.take()
    }

    /// Room at a process whose board is shared.
    fn reserve(&mut self, slot: &mut Slot, to: u8, dst: IpAddr, now: Instant) -> usize {
        let peer = &mut self.peers[usize::from(to)];
        let Peer::Known { page, starved } = peer else { return 0 };
        let Some(socket) = page.socket_at(dst) else {
            // Its process has ended and its guardian says so; the slot's next holder has another board.
            *peer = Peer::Gone { since: now };
            return MAX_BATCH_BYTES;
        };
        let usable = page.usable(socket);
        let most = (usable / 4)
            .max(LEAST_GRANT)
            .min(truesize::of_batch(1, MAX_BATCH_BYTES, true) as u64);
        let grant = page.reserve(socket, self.own, LEAST_GRANT.min(usable), most);
        if grant == 0 {
            let since = *starved.get_or_insert(now);
            if now.duration_since(since) < STARVED {
                return 0;
            }
            *starved = Some(now);
            if slot.send(to, &Message::BoardRequest).is_err() {
                *peer = Peer::Gone { since: now };
            }
            return 0;
        }
        *starved = None;
        self.held = Held::Room { to, socket, grant };
        let payload = truesize::payload_within(usize::try_from(grant).unwrap_or(0), page.coalesces(socket));
        // A buffer too small for the estimate of one packet still gets one when it is empty.
        let least = if u64::from(grant) == usable { 4200 } else { 0 };
        payload.clamp(least, MAX_BATCH_BYTES)
    }

    /// Asks a process for its board; what may be sent meanwhile.
    fn ask(&mut self, slot: &mut Slot, to: u8, dst: IpAddr, blind: usize, now: Instant) -> usize {
        if slot.send(to, &Message::BoardRequest).is_err() {
            self.peers[usize::from(to)] = Peer::Gone { since: now };
            return MAX_BATCH_BYTES;
        }
        self.peers[usize::from(to)] = Peer::Asked {
            since: now,
            left: BLIND_WINDOW,
            blind,
            dst,
        };
        0
    }

    /// What was available has been sent: `total` bytes in packets of `segment_size`.
    pub fn sent(&mut self, segment_size: usize, total: usize) {
        match core::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => {}
            Held::Unknown { to } => {
                if let Peer::Asked { left, blind, .. } = &mut self.peers[usize::from(to)] {
                    let charge = truesize::of_batch(segment_size, total, true);
                    *left = left.saturating_sub(charge);
                    *blind += charge;
                }
            }
            Held::Room { to, socket, grant } => {
                if let Peer::Known { page, .. } = &self.peers[usize::from(to)] {
                    let charge = truesize::of_batch(segment_size, total, page.coalesces(socket));
                    page.commit(socket, self.own, grant, charge as u64);
                }
            }
        }
    }

    /// Nothing was sent of what was available.
    pub fn release(&mut self) {
        if let Held::Room { to, socket, grant } = core::mem::replace(&mut self.held, Held::Nothing)
            && let Peer::Known { page, .. } = &self.peers[usize::from(to)]
        {
            page.commit(socket, self.own, grant, 0);
        }
    }

    /// The board of slot `from` has come (`Message::BoardReply`). Unasked-for boards are ignored.
    ///
    /// # Errors
    /// When it is not one; the peer is asked again later.
    pub fn on_board(&mut self, from: u8, memfd: &OwnedFd) -> io::Result<()> {
        let peer = &mut self.peers[usize::from(from)];
        let asked = matches!(peer, Peer::Asked { .. } | Peer::Known { starved: Some(_), .. });
        if !asked || matches!(self.held, Held::Room { to, .. } if to == from) {
            return Ok(());
        }
        let page = Page::map(memfd)?;
        page.clear_lane(self.own);
        if let Peer::Asked { blind, dst, .. } = peer
            && let Some(socket) = page.socket_at(*dst)
        {
            page.add_sent(socket, *blind as u64);
        }
        *peer = Peer::Known { page, starved: None };
        Ok(())
    }

    /// Whether the board of slot `to` is shared.
    pub fn knows(&self, to: u8) -> bool {
        matches!(self.peers[usize::from(to)], Peer::Known { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nix::sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    };
    use rand::Rng;

    use super::super::board::Board;
    use super::super::slot::{Sender, rng};
    use super::super::sys::socket_memory;
    use super::*;

    /// Takes the boards out of the mailbox.
    fn collect_boards(slot: &mut Slot, budget: &mut LocalBudget) {
        slot.receive(&mut |sender, message, memfd| {
            if let (Sender::Slot(from), Message::BoardReply, Some(memfd)) = (sender, message, memfd) {
                budget.on_board(*from, &memfd).unwrap();
            }
        })
        .unwrap();
    }

    fn send_batch(socket: RawFd, to: SocketAddr, segment: usize, bytes: &[u8]) -> bool {
        let size = u16::try_from(segment).unwrap();
        let control = [ControlMessage::UdpGsoSegments(&size)];
        let control = if bytes.len() > segment { &control[..] } else { &[] };
        let to = SockaddrStorage::from(to);
        sendmsg(socket, &[IoSlice::new(bytes)], control, MsgFlags::empty(), Some(&to)).is_ok()
    }

    /// One sender's life: `goal` bytes in batches of random shape, never more than available.
    fn flood(to_slot: u8, to: SocketAddr, goal: usize) -> usize {
        let mut slot = Slot::claim().unwrap();
        let mut budget = LocalBudget::new(slot.number());
        let socket = UdpSocket::bind((to.ip(), 0)).unwrap();
        let bytes = vec![0; MAX_BATCH_BYTES];
        let mut rng = rng();
        let mut done = 0;
        while done < goal {
            collect_boards(&mut slot, &mut budget);
            let segment = [80, 280, 1072, 4116][rng.random_range(0..4)];
            let most = budget.available(&mut slot, to_slot, to.ip());
            let count = (most / segment).min(64).min(MAX_BATCH_BYTES / segment);
            let count = if count > 1 && rng.random_bool(0.3) { 1 } else { count };
            let total = count * segment;
            if total == 0 {
                budget.release();
                std::thread::yield_now();
            } else if send_batch(socket.as_raw_fd(), to, segment, &bytes[..total]) {
                budget.sent(segment, total);
                done += total;
            }
        }
        done
    }

    fn receive_flood(senders: usize, goal: usize) {
        let mut slot = Slot::claim().unwrap();
        let number = slot.number();
        let addr: IpAddr = "127.74.0.2".parse().unwrap();
        let socket = UdpSocket::bind((addr, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        setsockopt(&socket, sockopt::UdpGroSegment, &true).unwrap();
        // The kernel doubles it: the buffer of a stock system that sets nothing.
        setsockopt(&socket, sockopt::RcvBuf, &106_496).unwrap();
        let fd = socket.as_raw_fd();
        let rcvbuf = usize::try_from(socket_memory(fd).unwrap().rcvbuf).unwrap();
        assert_eq!(rcvbuf, 212_992);
        let to = socket.local_addr().unwrap();
        let mut board = Board::new().unwrap();
        board.add_socket(addr, rcvbuf, true).unwrap();
        let sent = AtomicUsize::new(0);
        let running = AtomicUsize::new(senders);
        let mut got = 0;
        std::thread::scope(|scope| {
            for _ in 0..senders {
                scope.spawn(|| {
                    sent.fetch_add(flood(number, to, goal), Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let mut buffer = vec![0; 65_536];
            let mut rng = rng();
            loop {
                let mut requests = Vec::new();
                slot.receive(&mut |sender, message, _| {
                    if message == Message::BoardRequest {
                        requests.push(sender.clone());
                    }
                })
                .unwrap();
                for sender in requests {
                    board.audit();
                    slot.answer(&sender, &Message::BoardReply, Some(board.fd())).unwrap();
                }
                let over = running.load(Ordering::SeqCst) == 0;
                let mark = board.mark(0);
                let mut control = nix::cmsg_space!(i32);
                let mut buffers = [IoSliceMut::new(&mut buffer)];
                match recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut control), MsgFlags::empty()) {
                    Ok(received) => {
                        let segment = received.cmsgs().unwrap().find_map(|message| match message {
                            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
                            _ => None,
                        });
                        board.received(0, segment.unwrap_or(received.bytes), received.bytes);
                        got += received.bytes;
                    }
                    Err(_) => {
                        board.emptied(0, mark);
                        if over {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
                // A receiver that is busy elsewhere now and then.
                if rng.random_bool(0.005) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        assert_eq!(
            (socket_memory(fd).unwrap().drops, got),
            (0, sent.load(Ordering::SeqCst))
        );
        assert_eq!(board.occupancy(0), 0);
    }

    #[test]
    fn four_senders_flood_a_stock_buffer_without_a_loss() {
        receive_flood(4, 8 << 20);
    }

    #[test]
    fn sixteen_senders_flood_a_stock_buffer_without_a_loss() {
        receive_flood(16, 2 << 20);
    }

    #[test]
    fn without_an_answer_the_blind_window_holds() {
        let mut slot = Slot::claim().unwrap();
        let silent = Slot::claim().unwrap();
        let mut budget = LocalBudget::new(slot.number());
        let dst: IpAddr = "127.74.0.3".parse().unwrap();
        assert_eq!(
            budget.available(&mut slot, silent.number(), dst),
            0,
            "there may be an answer in no time"
        );
        assert!(budget.retry_at().is_some() && budget.retry_at().is_none());
        std::thread::sleep(BLIND_AFTER);
        let mut charged = 0;
        for _ in 0..100 {
            let most = budget.available(&mut slot, silent.number(), dst);
            if most == 0 {
                break;
            }
            budget.sent(most, most);
            charged += truesize::of_datagram(most);
        }
        // Nothing at all when the machine slept through the window.
        assert!(charged <= BLIND_WINDOW, "{charged}");
    }

    #[test]
    fn towards_nobody_nothing_is_held_back() {
        let mut slot = Slot::claim().unwrap();
        let mut budget = LocalBudget::new(slot.number());
        let dst: IpAddr = "127.74.0.4".parse().unwrap();
        // Nobody has slot 0.
        for _ in 0..3 {
            assert_eq!(budget.available(&mut slot, 0, dst), MAX_BATCH_BYTES);
            budget.sent(1024, MAX_BATCH_BYTES);
        }
    }

    #[test]
    fn a_board_without_the_address_is_that_of_a_dead_process() {
        let mut slot = Slot::claim().unwrap();
        let mut other = Slot::claim().unwrap();
        let mut budget = LocalBudget::new(slot.number());
        let dst: IpAddr = "127.74.0.5".parse().unwrap();
        assert_eq!(budget.available(&mut slot, other.number(), dst), 0);
        let board = Board::new().unwrap();
        other
            .answer(&Sender::Slot(slot.number()), &Message::BoardReply, Some(board.fd()))
            .unwrap();
        collect_boards(&mut slot, &mut budget);
        assert!(budget.knows(other.number()));
        assert_eq!(budget.available(&mut slot, other.number(), dst), MAX_BATCH_BYTES);
        assert!(!budget.knows(other.number()), "to be asked again");
    }
}
