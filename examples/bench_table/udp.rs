//! Raw UDP over loopback: what the kernel moves when there is no protocol on top.
//!
//! The sender hands the kernel as many datagrams a call as segmentation offload takes and the receiver takes them
//! coalesced: the same system calls that Adverb makes, with nothing between them. What counts is what arrives.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt, sockopt};

/// BTH and ICRC: what a RoCEv2 packet adds to its payload in the middle of a message.
pub(crate) const OVERHEAD: usize = 12 + 4;
/// RETH: what the only packet of a WRITE adds to that.
pub(crate) const RETH: usize = 16;
/// Most bytes and segments of one send with offload.
const BATCH: (usize, usize) = (65_000, 64);
const RCVBUF: usize = 4 << 20;

/// What arrived.
pub(crate) struct Rate {
    /// Gbit/s of UDP payload.
    pub(crate) gbits: f64,
    /// Million datagrams a second.
    pub(crate) mpps: f64,
    /// Share that the receiver's socket dropped.
    pub(crate) lost: f64,
}

/// Sends datagrams of that size as fast as one thread can to another thread.
pub(crate) fn blast(size: usize, span: Duration) -> io::Result<Rate> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    setsockopt(&receiver, sockopt::RcvBuf, &RCVBUF)?;
    setsockopt(&receiver, sockopt::UdpGroSegment, &true)?;
    receiver.set_read_timeout(Some(Duration::from_millis(100)))?;
    let address = receiver.local_addr()?;
    let done = Arc::new(AtomicBool::new(false));

    let stop = Arc::clone(&done);
    let sink = thread::spawn(move || -> io::Result<u64> {
        let mut buffer = vec![0_u8; 65_536];
        let mut received = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            match recvmsg::<SockaddrIn>(receiver.as_raw_fd(), &mut parts, None, MsgFlags::empty()) {
                Ok(message) => received += message.bytes as u64,
                Err(nix::errno::Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(received)
    });

    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let std::net::SocketAddr::V4(v4) = address else {
        return Err(io::Error::other("not IPv4"));
    };
    let to = SockaddrIn::from(v4);
    let batch = vec![7_u8; size * (BATCH.0 / size).clamp(1, BATCH.1)];
    let segment = u16::try_from(size).map_err(io::Error::other)?;
    let started = Instant::now();
    let mut sent = 0_u64;
    while started.elapsed() < span {
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        let parts = [IoSlice::new(&batch)];
        sent += sendmsg(sender.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&to))? as u64;
    }
    let seconds = started.elapsed().as_secs_f64();
    thread::sleep(Duration::from_millis(50));
    done.store(true, Ordering::Relaxed);
    let received = sink.join().map_err(|_| io::Error::other("the receiver panicked"))??;
    Ok(Rate {
        gbits: received as f64 * 8.0 / seconds / 1e9,
        mpps: received as f64 / size as f64 / seconds / 1e6,
        lost: 1.0 - received as f64 / sent as f64,
    })
}

/// Half the round trip of a datagram between two threads that spin, in microseconds.
pub(crate) fn ping_pong(size: usize, span: Duration) -> io::Result<f64> {
    let (here, there) = (
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
    );
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0_u8; 2048];
        while let Some(count) = receive(&there, &mut buffer, &stop)? {
            there.send(&buffer[..count])?;
        }
        Ok(())
    });
    let message = vec![7_u8; size];
    let mut buffer = [0_u8; 2048];
    let started = Instant::now();
    let mut rounds = 0_u32;
    while started.elapsed() < span {
        here.send(&message)?;
        receive(&here, &mut buffer, &done)?;
        rounds += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    echo.join().map_err(|_| io::Error::other("the echo panicked"))??;
    Ok(seconds * 1e6 / f64::from(rounds) / 2.0)
}

/// Spins until a datagram is there, or until told to stop.
fn receive(socket: &UdpSocket, buffer: &mut [u8], stop: &AtomicBool) -> io::Result<Option<usize>> {
    loop {
        match socket.recv(buffer) {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}
