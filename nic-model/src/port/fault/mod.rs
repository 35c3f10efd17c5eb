//! A port wrapper that loses, reorders, duplicates, damages, marks and delays what is sent through it.
//!
//! Every packet draws its fate from a seeded generator. A batch that meets no fault goes on whole. Otherwise it is cut
//! where a fault strikes: the runs of packets between go on as batches of their own, sealed again, since their
//! identifications start from 0 once more. So moderate fault rates keep the speed of segmentation offload.
//!
//! ```text
//!   batch:   p0 p1 p2 p3 p4 p5          p2 is dropped, p4 held back
//!   sent:   [p0 p1] [p3] [p5]           … and [p4] after a few more packets, or after a millisecond
//! ```
//!
//! What is held back is sent by [`Port::poll`], which [`Port::next_deadline`] asks for, or by [`Port::flush`]. The
//! packets in `queue` are in wire order, and each is sealed by the inner port's rule.

mod config;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use roce_wire::icrc::IcrcContext;

pub use self::config::{FaultConfig, FaultConfigError};
use super::{Port, ROCE_PORT, SendOutcome, Sink};
use crate::frame::{Path, TxBatch};
use crate::time::{Duration, Time};

/// A held packet is overtaken by one to so many packets.
const MAX_OVERTAKERS: u32 = 8;
/// A held packet goes out after this time even if nothing overtakes it: less than any ACK timeout.
const MAX_HOLD: Duration = Duration::from_millis(1);
/// How soon a send is tried again that the inner port had no room for.
const RETRY: Duration = Duration::from_micros(200);
/// With a delay: most batches under way, as in a router with a finite queue.
const MAX_QUEUE: usize = 4096;

/// What a [`FaultPort`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Packets that drew their fate.
    pub packets: u64,
    /// Packets lost.
    pub dropped: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets marked Congestion Experienced.
    pub marked: u64,
}

/// A packet's fate. Whether it is marked besides is drawn apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Drop,
    Corrupt { bit: usize },
    Hold { overtakers: u32 },
    Duplicate,
}

/// A packet held back, as a batch of one.
#[derive(Debug)]
struct Held {
    batch: TxBatch,
    overtakers: u32,
    until: Time,
}

/// Injects faults into what is sent through `P`; what is received is left alone.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    config: FaultConfig,
    rng: SmallRng,
    now: Time,
    /// To be sent in this order, each not before its time; times never decrease.
    queue: VecDeque<(Time, TxBatch)>,
    held: Vec<Held>,
    fates: Vec<(Fate, bool)>,
    /// Memory of batches that are gone.
    spare: Vec<TxBatch>,
    counters: FaultCounters,
}

impl<P: Port> FaultPort<P> {
    /// Faults as `config` says between the caller and `inner`.
    pub fn new(inner: P, config: FaultConfig) -> Self {
        Self {
            inner,
            rng: SmallRng::seed_from_u64(config.seed),
            config,
            now: Time::ZERO,
            queue: VecDeque::new(),
            held: Vec::new(),
            fates: Vec::new(),
            spare: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// What it has done so far.
    pub const fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// The wrapped port.
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// Draw the fate of a packet of `len` bytes. The same number of random numbers for every packet, so that one
    /// fault's probability does not change which packets meet another.
    fn draw(&mut self, len: usize) -> (Fate, bool) {
        let FaultConfig {
            drop,
            reorder,
            dup,
            corrupt,
            ecn,
            ..
        } = self.config;
        let rolls: [f64; 5] = self.rng.random();
        let detail: u64 = self.rng.random();
        self.counters.packets += 1;
        let fate = if rolls[0] < drop {
            self.counters.dropped += 1;
            return (Fate::Drop, false);
        } else if rolls[1] < corrupt {
            self.counters.corrupted += 1;
            let bits = (len * 8).max(1) as u64;
            Fate::Corrupt {
                bit: usize::try_from(detail % bits).unwrap_or(0),
            }
        } else if rolls[2] < reorder {
            self.counters.reordered += 1;
            let extra = detail % u64::from(MAX_OVERTAKERS);
            Fate::Hold {
                overtakers: 1 + u32::try_from(extra).unwrap_or(0),
            }
        } else if rolls[3] < dup {
            self.counters.duplicated += 1;
            Fate::Duplicate
        } else {
            Fate::Pass
        };
        let mark = rolls[4] < ecn;
        self.counters.marked += u64::from(mark);
        (fate, mark)
    }

    /// Packets `range` of `batch` as a batch of their own, sealed afresh.
    fn cut(&mut self, batch: &TxBatch, range: std::ops::Range<usize>, mark: bool) -> TxBatch {
        let mut piece = self.spare.pop().unwrap_or_else(|| TxBatch {
            bytes: Vec::new(),
            ..*batch
        });
        piece.path = batch.path;
        if mark {
            // A switch marks packets of ECN-capable senders only; this marks all, so that a test need not care.
            piece.path.traffic_class |= 3;
        }
        piece.dest_qpn = batch.dest_qpn;
        piece.segment_size = batch.segment_size;
        piece.bytes.clear();
        let end = (range.end * batch.segment_size).min(batch.bytes.len());
        piece
            .bytes
            .extend_from_slice(&batch.bytes[range.start * batch.segment_size..end]);
        if range.start > 0 && self.inner.segments_have_ids() {
            seal(&self.inner, &mut piece);
        }
        piece
    }

    fn enqueue(&mut self, batch: TxBatch) {
        self.queue.push_back((self.now + self.config.delay, batch));
    }

    /// Cut `batch` by the fates drawn for it and queue the pieces in order.
    fn scatter(&mut self, batch: &TxBatch) {
        let fates = std::mem::take(&mut self.fates);
        let mut run: Option<(usize, bool)> = None;
        for (index, &(fate, mark)) in fates.iter().enumerate() {
            let joins = matches!(fate, Fate::Pass | Fate::Duplicate);
            if let Some((start, marked)) = run.filter(|&(_, marked)| !joins || marked != mark) {
                let piece = self.cut(batch, start..index, marked);
                self.enqueue(piece);
                run = None;
            }
            match fate {
                Fate::Drop => continue,
                Fate::Pass => run = run.or(Some((index, mark))),
                Fate::Duplicate => {
                    let start = run.map_or(index, |(start, _)| start);
                    let piece = self.cut(batch, start..index + 1, mark);
                    self.enqueue(piece);
                    run = Some((index, mark));
                }
                Fate::Corrupt { bit } => {
                    let mut piece = self.cut(batch, index..index + 1, mark);
                    if let Some(byte) = piece.bytes.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                    self.enqueue(piece);
                }
                Fate::Hold { overtakers } => {
                    let batch = self.cut(batch, index..index + 1, mark);
                    self.held.push(Held {
                        batch,
                        overtakers,
                        until: self.now + MAX_HOLD,
                    });
                    continue;
                }
            }
            if self.count_overtaker() {
                if let Some((start, marked)) = run.take() {
                    let piece = self.cut(batch, start..index + 1, marked);
                    self.enqueue(piece);
                }
                self.release(|held| held.overtakers == 0);
            }
        }
        if let Some((start, marked)) = run {
            let piece = self.cut(batch, start..fates.len(), marked);
            self.enqueue(piece);
        }
        self.fates = fates;
    }

    /// A packet overtakes all held ones; true if one of them has now waited enough.
    fn count_overtaker(&mut self) -> bool {
        let mut any = false;
        for held in &mut self.held {
            held.overtakers = held.overtakers.saturating_sub(1);
            any |= held.overtakers == 0;
        }
        any
    }

    /// Queue the held packets that `when` chooses.
    fn release(&mut self, when: impl Fn(&Held) -> bool) {
        let mut index = 0;
        while index < self.held.len() {
            if when(&self.held[index]) {
                let held = self.held.remove(index);
                self.enqueue(held.batch);
            } else {
                index += 1;
            }
        }
    }

    /// Send what is due by `deadline`; false if the inner port has no room for the rest of it.
    fn drain(&mut self, deadline: Time) -> bool {
        while let Some((due, batch)) = self.queue.front_mut() {
            if *due > deadline {
                break;
            }
            match self.inner.send(batch) {
                SendOutcome::WouldBlock => return false,
                // The rule has changed, and with it the seal of every batch waiting. Damaged packets travel alone, with
                // identification 0 by either rule, and must stay damaged.
                SendOutcome::Reseal => {
                    let several = self
                        .queue
                        .iter_mut()
                        .map(|(_, batch)| batch)
                        .filter(|batch| batch.len() > 1);
                    several.for_each(|batch| seal(&self.inner, batch));
                    continue;
                }
                SendOutcome::Failed(error) => tracing::debug!(%error, "packets of a cut batch are lost"),
                SendOutcome::Sent => {}
            }
            if let Some((_, batch)) = self.queue.pop_front() {
                self.spare.push(batch);
                self.spare.truncate(64);
            }
        }
        true
    }
}

impl<P: Port> Port for FaultPort<P> {
    fn send(&mut self, batch: &TxBatch) -> SendOutcome {
        if !self.drain(self.now) || self.queue.len() >= MAX_QUEUE {
            return SendOutcome::WouldBlock;
        }
        let mut fates = std::mem::take(&mut self.fates);
        fates.clear();
        fates.extend(batch.segments().map(|segment| self.draw(segment.len())));
        let clean = fates.iter().all(|&fate| fate == (Fate::Pass, false));
        self.fates = fates;
        if clean && self.queue.is_empty() && self.held.is_empty() && self.config.delay.is_zero() {
            return match self.inner.send(batch) {
                // Its fate is drawn, so it is ours: a second draw would count it twice.
                SendOutcome::WouldBlock => {
                    self.scatter(batch);
                    SendOutcome::Sent
                }
                outcome => outcome,
            };
        }
        self.scatter(batch);
        self.drain(self.now);
        SendOutcome::Sent
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> io::Result<usize> {
        self.inner.receive(sink)
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
        self.now = now;
        self.inner.poll(now);
        self.release(|held| held.until <= now);
        self.drain(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        let queued = self
            .queue
            .front()
            .map(|&(due, _)| if due > self.now { due } else { self.now + RETRY });
        let held = self.held.iter().map(|held| held.until).min();
        [self.inner.next_deadline(), queued, held].into_iter().flatten().min()
    }

    fn flush(&mut self) {
        self.release(|_| true);
        self.drain(Time::NEVER);
        self.inner.flush();
    }
}

/// Seal `batch` as `port` will send it.
fn seal(port: &impl Port, batch: &mut TxBatch) {
    let context = IcrcContext::new(batch.path.src, batch.path.dst, port.source_port(&batch.path), ROCE_PORT);
    if port.segments_have_ids() {
        context.seal(0, batch.segment_size, &mut batch.bytes);
    } else {
        batch
            .segments_mut()
            .for_each(|segment| context.seal(0, segment.len(), segment));
    }
}
