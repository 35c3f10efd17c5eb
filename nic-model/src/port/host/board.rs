//! The board: how full this process's sockets are, kept in memory that its senders share.
//!
//! A UDP socket drops silently what does not fit its receive buffer. So senders of the same host reserve room before
//! they send, in the receiver's board, a page of a sealed memfd they ask for over the slot sockets:
//!
//! ```text
//!  sender                                            owner
//!  reserve: reserved += grant   (CAS, if it fits)    mark:    note sent, reserved
//!  sendmsg                                           recvmsg  dequeued += charge of what it read
//!  commit:  sent += charge; reserved -= grant        emptied: nothing left to read: dequeued := sent as noted
//!  room = usable(rcvbuf) − reserved − (sent − dequeued)
//! ```
//!
//! A send has not always reached the queue when sendmsg returns (the kernel may put loopback off to a softirq), so what
//! was sent is taken for lost only [`SETTLED`] after it was noted.
//!
//! Commit adds before it subtracts and reserving reads in the opposite order, so a race only makes the room look smaller.
//! The low half of the `reserved` word counts bytes, the high half changes, so that a stale sum never wins the CAS.
//! Everyone may write anything here: values are clamped, and the worst a liar gets is lost packets or a slow sender.
//! A sender that dies with a reservation is found by its lane, which names its slot; see [`Board::audit`].

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MemFdCreateFlag, memfd_create};

use super::slot::is_live;
use super::sys::{PAGE, SharedPage};
use super::truesize;

/// Most sockets of one process that a board describes.
pub const MAX_SOCKETS: usize = 32;

/// What was sent so long ago has reached the queue, or will never.
const SETTLED: Duration = Duration::from_millis(10);

// Layout of the page.
const MAGIC: u32 = u32::from_le_bytes(*b"AvB1");
const COUNT: usize = 4;
const LANES: usize = 1024;
const SOCKETS: usize = 2048;
const SOCKET_STRIDE: usize = 64;
// Fields of a socket.
const ADDR_HIGH: usize = 0;
const ADDR_LOW: usize = 8;
const RESERVED: usize = 16;
const SENT: usize = 24;
const DEQUEUED: usize = 32;
const RCVBUF: usize = 40;
const FLAGS: usize = 44;
const FLAG_GRO: u32 = 1;

const LANE_BYTES: u32 = 0x00ff_ffff;
const _: () = assert!(SOCKETS + MAX_SOCKETS * SOCKET_STRIDE <= PAGE && LANES + 256 * 4 <= SOCKETS);

fn address_words(addr: IpAddr) -> (u64, u64) {
    let bits = match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a 128-bit address")]
    ((bits >> 64) as u64, bits as u64)
}

/// The page as either side sees it.
#[derive(Debug)]
pub(super) struct Page(SharedPage);

impl Page {
    /// Maps a board another process sent.
    pub(super) fn map(memfd: &OwnedFd) -> io::Result<Self> {
        let page = Self(SharedPage::map(memfd)?);
        if page.0.u32(0).load(Acquire) == MAGIC {
            Ok(page)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn u64(&self, socket: usize, field: usize) -> &std::sync::atomic::AtomicU64 {
        self.0.u64(SOCKETS + socket * SOCKET_STRIDE + field)
    }

    fn u32(&self, socket: usize, field: usize) -> &std::sync::atomic::AtomicU32 {
        self.0.u32(SOCKETS + socket * SOCKET_STRIDE + field)
    }

    fn lane(&self, slot: u8) -> &std::sync::atomic::AtomicU32 {
        self.0.u32(LANES + 4 * usize::from(slot))
    }

    /// The socket bound to `addr`.
    pub(super) fn socket_at(&self, addr: IpAddr) -> Option<usize> {
        let count = usize::try_from(self.0.u32(COUNT).load(Acquire))
            .unwrap_or(0)
            .min(MAX_SOCKETS);
        let (high, low) = address_words(addr);
        (0..count).find(|&socket| {
            self.u64(socket, ADDR_HIGH).load(Relaxed) == high && self.u64(socket, ADDR_LOW).load(Relaxed) == low
        })
    }

    /// Whether the socket takes a segmented send whole.
    pub(super) fn coalesces(&self, socket: usize) -> bool {
        self.u32(socket, FLAGS).load(Relaxed) & FLAG_GRO != 0
    }

    /// What the socket's buffer may hold of counted traffic.
    pub(super) fn usable(&self, socket: usize) -> u64 {
        truesize::usable(usize::try_from(self.u32(socket, RCVBUF).load(Relaxed)).unwrap_or(0)) as u64
    }

    /// Reserves up to `most` bytes for the process of slot `own`, at least `least`; returns what it got, 0 if too little.
    pub(super) fn reserve(&self, socket: usize, own: u8, least: u64, most: u64) -> u32 {
        let word = self.u64(socket, RESERVED);
        let usable = self.usable(socket);
        let index = u32::try_from(socket).unwrap_or(0) + 1;
        loop {
            let seen = word.load(SeqCst);
            // After `reserved`: see the module's word on order.
            let sent = self.u64(socket, SENT).load(SeqCst);
            let dequeued = self.u64(socket, DEQUEUED).load(SeqCst);
            let queued = sent.wrapping_sub(dequeued).cast_signed().max(0).cast_unsigned();
            let room = usable.saturating_sub(seen & 0xffff_ffff).saturating_sub(queued);
            let grant = room.min(most).min(u64::from(LANE_BYTES));
            if grant < least || grant == 0 {
                self.lane(own).store(0, SeqCst);
                return 0;
            }
            let grant = u32::try_from(grant).unwrap_or(0);
            self.lane(own).store(index << 24 | grant, SeqCst);
            if word
                .compare_exchange(seen, changed(seen, i64::from(grant)), SeqCst, SeqCst)
                .is_ok()
            {
                return grant;
            }
        }
    }

    /// Ends a reservation of `grant`, of which `charge` was put to use.
    pub(super) fn commit(&self, socket: usize, own: u8, grant: u32, charge: u64) {
        self.u64(socket, SENT).fetch_add(charge, SeqCst);
        self.unreserve(socket, grant);
        self.lane(own).store(0, SeqCst);
    }

    fn unreserve(&self, socket: usize, grant: u32) {
        let update = |seen| Some(changed(seen, -i64::from(grant)));
        let _ = self.u64(socket, RESERVED).fetch_update(SeqCst, SeqCst, update);
    }

    /// Counts what was sent before this board was shared.
    pub(super) fn add_sent(&self, socket: usize, charge: u64) {
        self.u64(socket, SENT).fetch_add(charge, SeqCst);
    }

    /// Clears what a dead predecessor of slot `own` had reserved.
    pub(super) fn clear_lane(&self, own: u8) {
        let lane = self.lane(own).swap(0, SeqCst);
        if let Some(socket) = usize::try_from(lane >> 24).ok().and_then(|index| index.checked_sub(1))
            && socket < MAX_SOCKETS
        {
            self.unreserve(socket, lane & LANE_BYTES);
        }
    }
}

/// `word` with its low half changed by `delta`, clamped, and its high half counted up.
fn changed(word: u64, delta: i64) -> u64 {
    let bytes = (word & 0xffff_ffff).saturating_add_signed(delta).min(0xffff_ffff);
    (word >> 32).wrapping_add(1) << 32 | bytes
}

/// What [`Board::mark`] noted.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    sent: u64,
    idle: bool,
}

/// The owner's side of a board.
#[derive(Debug)]
pub struct Board {
    memfd: OwnedFd,
    page: Page,
    sockets: usize,
    /// For each socket what had been sent, and when that was noted, if it had not all been read then.
    noted: [Option<(u64, Instant)>; MAX_SOCKETS],
}

const NAME: &CStr = c"adverb-board";

impl Board {
    /// An empty board.
    ///
    /// # Errors
    /// What memfd_create and mmap report.
    pub fn new() -> io::Result<Self> {
        let memfd = memfd_create(NAME, MemFdCreateFlag::MFD_CLOEXEC | MemFdCreateFlag::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&memfd, i64::try_from(PAGE).unwrap_or(i64::MAX))?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(memfd.as_raw_fd(), FcntlArg::F_ADD_SEALS(seals))?;
        let shared = SharedPage::map(&memfd)?;
        shared.u32(0).store(MAGIC, Release);
        Ok(Self {
            memfd,
            page: Page(shared),
            sockets: 0,
            noted: [None; MAX_SOCKETS],
        })
    }

    /// Describes one more socket: bound to `addr`, receive buffer `rcvbuf` as getsockopt returns it, `gro` when UDP_GRO
    /// is set. Returns its number for the other calls.
    ///
    /// # Errors
    /// `OutOfMemory` beyond [`MAX_SOCKETS`].
    pub fn add_socket(&mut self, addr: IpAddr, rcvbuf: usize, gro: bool) -> io::Result<usize> {
        let socket = self.sockets;
        if socket == MAX_SOCKETS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (high, low) = address_words(addr);
        self.page.u64(socket, ADDR_HIGH).store(high, Relaxed);
        self.page.u64(socket, ADDR_LOW).store(low, Relaxed);
        self.page
            .u32(socket, RCVBUF)
            .store(u32::try_from(rcvbuf).unwrap_or(u32::MAX), Relaxed);
        self.page
            .u32(socket, FLAGS)
            .store(if gro { FLAG_GRO } else { 0 }, Relaxed);
        self.sockets += 1;
        self.page
            .0
            .u32(COUNT)
            .store(u32::try_from(self.sockets).unwrap_or(0), Release);
        Ok(socket)
    }

    /// The descriptor to send along with `Message::BoardReply`.
    pub fn fd(&self) -> RawFd {
        self.memfd.as_raw_fd()
    }

    /// To be taken before reading `socket`, for [`Self::emptied`].
    pub fn mark(&self, socket: usize) -> Mark {
        let idle = self.page.u64(socket, RESERVED).load(SeqCst) & 0xffff_ffff == 0;
        Mark {
            sent: self.page.u64(socket, SENT).load(SeqCst),
            idle,
        }
    }

    /// `total` bytes in packets of `segment_size` were read from `socket`, or handed over by a process that got them by
    /// mistake. Only for packets from this host; others are not counted by their senders.
    pub fn received(&self, socket: usize, segment_size: usize, total: usize) {
        let charge = truesize::of_batch(segment_size, total, self.page.coalesces(socket));
        self.page.u64(socket, DEQUEUED).fetch_add(charge as u64, SeqCst);
    }

    /// The read after `mark` found nothing: what had been sent well before is no longer queued, but read or lost.
    pub fn emptied(&mut self, socket: usize, mark: Mark) {
        let Some(noted) = self.noted.get_mut(socket) else {
            return;
        };
        let dequeued = self.page.u64(socket, DEQUEUED);
        let seen = dequeued.load(SeqCst);
        let is_behind = |sent: u64| sent.wrapping_sub(seen).cast_signed() > 0;
        // More read than sent, counted twice by somebody. While nothing is reserved all that was read has been
        // committed, so it is not just early.
        if mark.idle && seen.wrapping_sub(mark.sent).cast_signed() > 0 {
            dequeued.store(mark.sent, SeqCst);
            *noted = None;
            return;
        }
        match noted {
            None if is_behind(mark.sent) => *noted = Some((mark.sent, Instant::now())),
            None => {}
            Some((sent, at)) if at.elapsed() >= SETTLED => {
                if is_behind(*sent) {
                    dequeued.store(*sent, SeqCst);
                }
                *noted = is_behind(mark.sent).then(|| (mark.sent, Instant::now()));
            }
            Some(_) => {}
        }
    }

    /// Takes back what dead processes had reserved. To be called with each `Message::BoardRequest`: a starved sender
    /// repeats its request.
    pub fn audit(&self) {
        for slot in 1..=u8::MAX {
            if self.page.lane(slot).load(SeqCst) != 0 && !is_live(slot) {
                self.page.clear_lane(slot);
            }
        }
    }

    /// Estimated charge of what is queued at `socket` or reserved.
    pub fn occupancy(&self, socket: usize) -> u64 {
        let reserved = self.page.u64(socket, RESERVED).load(SeqCst) & 0xffff_ffff;
        let sent = self.page.u64(socket, SENT).load(SeqCst);
        let queued = sent.wrapping_sub(self.page.u64(socket, DEQUEUED).load(SeqCst));
        reserved + queued.cast_signed().max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 74, 0, 1));

    fn pair(rcvbuf: usize) -> (Board, Page) {
        let mut board = Board::new().unwrap();
        assert_eq!(board.add_socket(ADDR, rcvbuf, true).unwrap(), 0);
        let page = Page::map(&board.memfd).unwrap();
        assert_eq!(
            (page.socket_at(ADDR), page.socket_at("::1".parse().unwrap())),
            (Some(0), None)
        );
        (board, page)
    }

    /// Finds the socket empty, and again after what was sent by then has settled.
    fn settle(board: &mut Board) {
        for _ in 0..2 {
            let mark = board.mark(0);
            board.emptied(0, mark);
            std::thread::sleep(SETTLED);
        }
    }

    #[test]
    fn reservations_never_exceed_what_is_usable() {
        let (board, page) = pair(212_992);
        let mut total = 0;
        for slot in 1..=200 {
            total += u64::from(page.reserve(0, slot, 1000, 36_000));
        }
        assert!(total <= page.usable(0) && total > page.usable(0) - 1000);
        assert_eq!(board.occupancy(0), total);
    }

    #[test]
    fn reading_makes_room_and_emptiness_forgives_losses() {
        let (mut board, page) = pair(100_000);
        let charge = truesize::of_batch(1000, 10_000, true) as u64;
        let grant = page.reserve(0, 7, 1, 20_000);
        page.commit(0, 7, grant, charge);
        assert_eq!(board.occupancy(0), charge);
        board.received(0, 1000, 10_000);
        assert_eq!(board.occupancy(0), 0);

        // Sent but dropped on the way.
        let grant = page.reserve(0, 7, 1, 20_000);
        page.commit(0, 7, grant, charge);
        settle(&mut board);
        assert_eq!(board.occupancy(0), 0);

        // Received twice: once more than sent, until somebody looks while nothing is reserved.
        board.received(0, 1000, 10_000);
        let grant = page.reserve(0, 7, 1, 20_000);
        let mark = board.mark(0);
        board.emptied(0, mark);
        page.commit(0, 7, grant, charge);
        assert_eq!(board.occupancy(0), 0);
        board.received(0, 1000, 10_000);
        let mark = board.mark(0);
        board.emptied(0, mark);
        let grant = page.reserve(0, 7, 1, 20_000);
        page.commit(0, 7, grant, charge);
        assert_eq!(board.occupancy(0), charge);
    }

    #[test]
    fn a_dead_sender_keeps_no_room() {
        let (board, page) = pair(212_992);
        let live = crate::port::host::Slot::claim().unwrap();
        let kept = u64::from(page.reserve(0, live.number(), 1, 10_000));
        // 0 is nobody's slot, so nobody can hold it; it stands for a dead one by way of clear_lane.
        page.reserve(0, 0, 1, 30_000);
        board.audit();
        assert_eq!(board.occupancy(0), kept + 30_000);
        page.clear_lane(0);
        assert_eq!(board.occupancy(0), kept);
    }

    #[test]
    fn hostile_values_are_clamped() {
        let (board, page) = pair(212_992);
        page.u64(0, SENT).store(u64::MAX / 2, SeqCst);
        assert_eq!(page.reserve(0, 1, 1, 1000), 0);
        page.u64(0, DEQUEUED).store(u64::MAX, SeqCst);
        page.u64(0, RESERVED).store(u64::MAX, SeqCst);
        assert_eq!(page.reserve(0, 1, 1, 1000), 0);
        page.commit(0, 1, u32::MAX, u64::MAX);
        page.0.u32(COUNT).store(u32::MAX, SeqCst);
        assert_eq!(page.socket_at("9.9.9.9".parse().unwrap()), None);
        page.lane(3).store(u32::MAX, SeqCst);
        page.clear_lane(3);
        let _ = (board.occupancy(0), board.mark(0));
    }

    #[test]
    fn an_unsealed_or_foreign_memfd_is_refused() {
        let unsealed = memfd_create(NAME, MemFdCreateFlag::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&unsealed, i64::try_from(PAGE).unwrap()).unwrap();
        assert!(Page::map(&unsealed).is_err());
        let board = Board::new().unwrap();
        board.page.0.u32(0).store(1, SeqCst);
        assert!(Page::map(&board.memfd).is_err());
    }
}
