//! The operating system's side of the device: everything that names a socket, a thread or a clock.
//!
//! ```text
//!   engine ──TxBatch, sealed──► FaultPort ──► PcapPort ──► UdpPort ──sendmsg + UDP_SEGMENT──► kernel
//!   engine ◄──one packet a call── FaultPort ◄── PcapPort ◄── UdpPort ◄──recvmmsg + UDP_GRO───── kernel
//! ```
//!
//! A [`Port`] moves batches of equal-sized packets of one path. [`udp`] is the wire: one UDP socket for each address of
//! the device. [`fault`] and [`pcap`] wrap any port, in either order. [`netdev`] finds the network devices that become
//! RDMA devices. [`sys`] holds their system calls, and the `unsafe`.
//!
//! # The IP identification and the ICRC
//! The ICRC covers the IPv4 identification (IBTA annex A17.3.3), which a UDP socket neither sets nor shows. What is
//! known: an unconnected socket with path-MTU discovery `PROBE` sends identification 0, and segment `k` of a
//! segmentation-offload send gets `k`. So a batch is sealed with identifications `0, 1, 2 …` when
//! [`Port::segments_have_ids`] says so and with 0 throughout when not, and a received packet comes with the likeliest
//! identification as a hint, its index in the coalesced buffer.

use std::io;
use std::os::fd::RawFd;

use crate::frame::{Path, RxMeta, TxBatch};
use crate::time::Time;

pub mod engine;
pub mod fault;
pub mod host;
pub mod netdev;
pub mod pcap;
pub mod sys;
pub mod udp;

pub use fault::{FaultConfig, FaultPort};
pub use pcap::PcapPort;
pub use udp::{UdpConfig, UdpPort};

/// The UDP port of RoCEv2 (IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;

/// Takes received packets: addressing, UDP payload with its ICRC, likeliest IPv4 identification.
pub type Sink<'a> = dyn FnMut(&RxMeta, &[u8], u16) + 'a;

/// What became of a batch. A port takes a batch whole or not at all.
#[derive(Debug)]
pub enum SendOutcome {
    /// The port has it.
    Sent,
    /// No room now: nothing was taken. Try again when a descriptor is writable or a little time has passed.
    WouldBlock,
    /// Nothing was taken, and [`Port::segments_have_ids`] has just changed: seal the batch again and send it again.
    Reseal,
    /// The kernel refuses this batch; the packets are lost.
    Failed(io::Error),
}

/// Something that carries RoCEv2 packets.
///
/// One caller at a time, which calls [`poll`](Self::poll) with the current time at the start of each turn.
pub trait Port: Send {
    /// Send the packets of `batch` in order. It must be sealed for [`source_port`](Self::source_port) and by the rule
    /// of [`segments_have_ids`](Self::segments_have_ids).
    fn send(&mut self, batch: &TxBatch) -> SendOutcome;

    /// Take what has arrived, up to a bounded amount, and call `sink` for every packet, in place. Returns the number
    /// of packets; zero means that nothing was waiting, any other number that more may be.
    ///
    /// # Errors
    /// The socket is beyond use. Errors that concern one packet or one peer are not reported here.
    fn receive(&mut self, sink: &mut Sink<'_>) -> io::Result<usize>;

    /// Descriptors that become readable when packets arrive.
    fn fds(&self) -> Vec<RawFd>;

    /// The UDP source port that packets of `path` carry on the wire. The ICRC covers it.
    fn source_port(&self, path: &Path) -> u16;

    /// Whether segment `k` of a batch carries IPv4 identification `k`; otherwise all carry 0. The answer changes only
    /// when `send` returns [`SendOutcome::Reseal`].
    fn segments_have_ids(&self) -> bool;

    /// The time is `now`: send what was held back until now. The answer of [`next_deadline`](Self::next_deadline) may
    /// change in here and in `send`.
    fn poll(&mut self, _now: Time) {}

    /// When [`poll`](Self::poll) must be called next, at the latest.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Send everything held back now, whatever its time: the device is about to close.
    fn flush(&mut self) {}
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn send(&mut self, batch: &TxBatch) -> SendOutcome {
        (**self).send(batch)
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> io::Result<usize> {
        (**self).receive(sink)
    }

    fn fds(&self) -> Vec<RawFd> {
        (**self).fds()
    }

    fn source_port(&self, path: &Path) -> u16 {
        (**self).source_port(path)
    }

    fn segments_have_ids(&self) -> bool {
        (**self).segments_have_ids()
    }

    fn poll(&mut self, now: Time) {
        (**self).poll(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        (**self).next_deadline()
    }

    fn flush(&mut self) {
        (**self).flush();
    }
}
