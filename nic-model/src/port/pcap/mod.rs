//! A port wrapper that records what passes, for Wireshark and tcpdump.
//!
//! The packets lack their IP and UDP headers here; `roce_wire::pcap` puts them back. The IPv4 identification is that of
//! the packet on the wire, so that its ICRC verifies: known for what is sent, recovered from the ICRC for what is
//! received. (A capture taken on loopback by other means shows segmentation-offload trains uncut.)
//!
//! A packet is recorded once: one that the process sends to itself when sent. The file is complete after every call,
//! since a program may end at any time. An error in writing ends the recording, never the traffic.
//!
//! Naming: see [`discard_stale`] and the rules in `pcap/name.rs`. In short, `%p` is the process id, the first process
//! gets the plain name, later ones have their process id put in.

mod name;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::RawFd;
use std::path::{Path as FilePath, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use roce_wire::icrc::IcrcContext;
use roce_wire::pcap::Capture;

use self::name::Claim;
pub use self::name::discard_stale;
use super::{Port, ROCE_PORT, SendOutcome, Sink};
use crate::frame::{Path, RxMeta, TxBatch};
use crate::time::Time;

/// Records what passes through `P`.
#[derive(Debug)]
pub struct PcapPort<P> {
    inner: P,
    recorder: Recorder,
}

impl<P: Port> PcapPort<P> {
    /// Record what passes through `inner` in a file named after `path`: classic pcap if it ends in `.pcap`, else pcapng.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(inner: P, path: &FilePath) -> io::Result<Self> {
        let claim = Claim::new(path, std::process::id())?;
        let capture = Some(Capture::create(&claim.path)?);
        tracing::info!(path = %claim.path.display(), "recording packets");
        Ok(Self {
            inner,
            recorder: Recorder {
                capture,
                claim,
                own: OwnPackets::default(),
            },
        })
    }

    /// The file that is written.
    pub fn path(&self) -> PathBuf {
        self.recorder.claim.path.clone()
    }

    /// The wrapped port.
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: Port> Port for PcapPort<P> {
    fn send(&mut self, batch: &TxBatch) -> SendOutcome {
        // Before the packet leaves, or its answer may be older than itself.
        let timestamp = now();
        let outcome = self.inner.send(batch);
        if matches!(outcome, SendOutcome::Sent) {
            let sport = self.inner.source_port(&batch.path);
            self.recorder
                .sent(timestamp, batch, sport, self.inner.segments_have_ids());
        }
        outcome
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> io::Result<usize> {
        let Self { inner, recorder } = self;
        let mut timestamp = None;
        let packets = inner.receive(&mut |meta, packet, hint| {
            // Steering probes pass between the processes of one host and are no packets of the network.
            if !super::host::probe::is_probe(packet) {
                recorder.received(*timestamp.get_or_insert_with(now), meta, packet, hint);
            }
            sink(meta, packet, hint);
        })?;
        if timestamp.is_some() {
            recorder.flush();
        }
        Ok(packets)
    }

    fn fds(&self) -> Vec<RawFd> {
        self.inner.fds()
    }

    fn source_port(&self, path: &Path) -> u16 {
        self.inner.source_port(path)
    }

    fn segments_have_ids(&self) -> bool {
        self.inner.segments_have_ids()
    }

    fn poll(&mut self, now: Time) {
        self.inner.poll(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.inner.next_deadline()
    }

    fn flush(&mut self) {
        self.inner.flush();
        self.recorder.flush();
    }
}

#[derive(Debug)]
struct Recorder {
    /// `None` after an error.
    capture: Option<Capture>,
    claim: Claim,
    own: OwnPackets,
}

impl Recorder {
    fn sent(&mut self, timestamp: u64, batch: &TxBatch, sport: u16, have_ids: bool) {
        let Path {
            src,
            dst,
            traffic_class,
            hop_limit,
            ..
        } = batch.path;
        // 0 asks for the kernel's default.
        let hop_limit = if hop_limit == 0 { 64 } else { hop_limit };
        for (index, packet) in (0_u16..).zip(batch.segments()) {
            let id = if have_ids { index } else { 0 };
            self.own.remember(packet);
            self.write(|capture| {
                capture.packet(timestamp, src, dst, sport, traffic_class, hop_limit, id, packet, None)
            });
        }
        self.flush();
    }

    fn received(&mut self, timestamp: u64, meta: &RxMeta, packet: &[u8], hint: u16) {
        if self.own.recall(packet) {
            return;
        }
        let RxMeta {
            src,
            dst,
            sport,
            traffic_class,
            hop_limit,
        } = *meta;
        let (id, comment) = match IcrcContext::new(src, dst, sport, ROCE_PORT).verify(hint, packet) {
            Ok(id) => (id, None),
            Err(_) => (hint, Some("the ICRC does not match; identification unknown")),
        };
        self.write(|capture| {
            capture.packet(
                timestamp,
                src,
                dst,
                sport,
                traffic_class,
                hop_limit,
                id,
                packet,
                comment,
            )
        });
    }

    fn flush(&mut self) {
        self.write(Capture::flush);
    }

    fn write(&mut self, write: impl FnOnce(&mut Capture) -> io::Result<()>) {
        if let Some(Err(error)) = self.capture.as_mut().map(write) {
            tracing::error!(path = %self.claim.path.display(), %error, "recording ends");
            self.capture = None;
        }
    }
}

/// Packets sent lately, to tell those that come back to this process.
///
/// A table by ICRC with one place each: a packet that has lost its place is recorded a second time, no more.
#[derive(Debug)]
struct OwnPackets(Vec<u64>);

impl OwnPackets {
    const PLACES: usize = 4096;

    fn remember(&mut self, packet: &[u8]) {
        if let Some((place, key)) = self.place(packet) {
            *place = key;
        }
    }

    /// Whether `packet` is one that was sent; forgets it.
    fn recall(&mut self, packet: &[u8]) -> bool {
        self.place(packet)
            .is_some_and(|(place, key)| *place == key && std::mem::take(place) != 0)
    }

    /// ICRC, which covers addresses and all content, and PSN.
    fn place(&mut self, packet: &[u8]) -> Option<(&mut u64, u64)> {
        let icrc = u32::from_le_bytes(*packet.last_chunk()?);
        let psn = u32::from_be_bytes(*packet.get(8..)?.first_chunk()?);
        let index = usize::try_from(icrc).unwrap_or(0) % Self::PLACES;
        let key = u64::from(icrc) << 32 | u64::from(psn);
        Some((self.0.get_mut(index)?, key))
    }
}

impl Default for OwnPackets {
    fn default() -> Self {
        Self(vec![0; Self::PLACES])
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
