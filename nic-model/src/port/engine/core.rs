//! What the engine's lock protects: device, port and the process's place on the host.

use super::backpressure::HostBudget;
use super::sealing::Sealer;
use super::{EngineConfig, Told};
use crate::device::{Mad, Nic, NicConfig};
use crate::frame::{RxMeta, TxBatch};
use crate::host_if::caps::DeviceCaps;
use crate::host_if::command::{Command, CommandError, Reply};
use crate::host_if::qp_attr::Gid;
use crate::port::host::guardian::{self, Guardian};
use crate::port::host::{Board, Slot, Steering, ports};
use crate::port::netdev::{active_mtu_code, roce_addrs};
use crate::port::{FaultPort, PcapPort, Port, SendOutcome, UdpConfig, UdpPort};
use crate::time::Time;
use crate::tonic;
use rand::{Rng, SeedableRng};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// Batches sent before received packets get their turn.
const TX_TURN: usize = 16;
/// Turns of one call, so that an application thread gets back to its own work.
const TURNS: usize = 8;
/// Most segments of one QP in one burst: as many as one batch takes.
const QUANTUM: u16 = 64;
/// Transport program of reliable flows.
const DEFAULT_PROGRAM: &str = "roce-dcqcn";
/// How often the guardian is looked after.
const GUARDIAN_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait for another process that is joining the same address.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Device, port, slot, steering, board, guardian.
pub(super) struct Core {
    pub(super) nic: Nic,
    pub(super) port: Box<dyn Port>,
    pub(super) slot: Slot,
    pub(super) steering: Vec<Steering>,
    pub(super) board: Board,
    pub(super) budget: HostBudget,
    pub(super) sealer: Sealer,
    pub(super) guardian: Option<Guardian>,
    pub(super) addrs: Vec<IpAddr>,
    batch: TxBatch,
    /// The batch was refused by a full socket and is to be sent before any other.
    held: bool,
    /// The last turn ended with packets left to send.
    more: bool,
    guardian_due: Time,
    started: Instant,
}

impl Core {
    pub(super) fn open(config: &EngineConfig) -> io::Result<Self> {
        let addrs = roce_addrs(&config.netdev, config.addr);
        let mut slot = Slot::claim()?;
        let locks: Vec<_> = addrs.iter().map(|addr| Steering::lock(*addr, LOCK_PATIENCE)).collect();
        let udp = UdpConfig {
            addrs: addrs.clone(),
            ifindex: config.netdev.ifindex,
            rcvbuf: config.rcvbuf,
        };
        let mut udp = UdpPort::bind(&udp)?;
        let sockets: Vec<(IpAddr, RawFd)> = udp.sockets().map(|(addr, fd)| (addr, fd.as_raw_fd())).collect();
        let rcvbuf = udp.recv_buffer();
        let mut board = Board::new()?;
        let mut steering = Vec::new();
        for (addr, fd) in &sockets {
            board.add_socket(*addr, rcvbuf, true)?;
            let lock = addrs
                .iter()
                .position(|other| other == addr)
                .and_then(|index| locks.get(index));
            let Some(Ok(lock)) = lock else { continue };
            let mut pump = |show: &mut dyn FnMut(&[u8]) -> bool| {
                // Data cannot be for this process before it has a QP; what comes is other processes' and is retried.
                let _ = udp.receive(&mut |_, packet, _| {
                    show(packet);
                });
            };
            steering.push(Steering::join(lock, &mut slot, *addr, *fd, &mut pump)?);
        }
        drop(locks);
        let guardian = config.guardian.as_ref().and_then(|exe| {
            let fds: Vec<BorrowedFd<'_>> = udp.sockets().map(|(_, fd)| fd).collect();
            Guardian::attach(exe, &slot, &fds)
                .inspect_err(|error| tracing::warn!(%error, "no guardian: connections end with the process"))
                .ok()
        });
        let bound: Vec<IpAddr> = sockets.iter().map(|(addr, _)| *addr).collect();
        let nic = Self::open_nic(config, slot.number(), &bound);
        let budget = HostBudget::new(slot.number(), &config.netdev);
        let port = wrap(udp, config)?;
        Ok(Self {
            nic,
            port,
            slot,
            steering,
            board,
            budget,
            sealer: Sealer::default(),
            guardian,
            addrs: bound,
            batch: TxBatch::new(),
            held: false,
            more: false,
            guardian_due: Time::ZERO,
            started: Instant::now(),
        })
    }

    fn open_nic(config: &EngineConfig, slot: u8, addrs: &[IpAddr]) -> Nic {
        let mut nic = Nic::new(NicConfig {
            slot,
            first_qp: rand::rngs::SmallRng::from_os_rng().random(),
            caps: DeviceCaps::default(),
            port_mtu: active_mtu_code(config.netdev.mtu),
            line_rate: config.line_rate,
            program: tonic::program(DEFAULT_PROGRAM).expect("the default program is registered"),
            quantum: QUANTUM,
        });
        for (index, addr) in (0u8..).zip(addrs) {
            // More addresses than the table holds stay without GID.
            let _ = nic.handle_command(
                Time::ZERO,
                Command::SetGid {
                    index,
                    gid: Gid::from_ip(*addr),
                },
            );
        }
        nic
    }

    /// Descriptors the thread waits for.
    pub(super) fn fds(&self) -> Fds {
        Fds {
            sockets: self.port.fds(),
            slot: self.slot.fd(),
        }
    }

    pub(super) fn command(&mut self, now: Time, command: Command) -> Result<Reply, CommandError> {
        let reply = self.nic.handle_command(now, command);
        for stone in self.nic.take_tombstones() {
            if let Some(guardian) = &mut self.guardian {
                guardian.tombstone(grave(&stone));
            }
        }
        self.drive(now, false);
        reply
    }

    pub(super) fn leave(&mut self) {
        if let Some(guardian) = &mut self.guardian {
            for stone in self.nic.living_tombstones() {
                guardian.tombstone(grave(&stone));
            }
        }
        self.port.flush();
    }

    /// Doorbells, received packets, timers, packets to send, completions, in turns until there is no more to send or the
    /// caller's share is used up. `receive` also looks for packets.
    pub(super) fn drive(&mut self, now: Time, receive: bool) -> Done {
        self.port.poll(now);
        self.nic.handle_doorbells(now);
        let mut done = Done::default();
        for _ in 0..TURNS {
            if receive {
                done.received += self.receive(now);
            }
            if self.nic.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.nic.handle_timeout(now);
            }
            self.more = self.transmit(now);
            done.completed += self.nic.flush_completions();
            if !self.more || self.held {
                break;
            }
        }
        done
    }

    /// Send what the device has, up to a turn's worth. Returns whether there may be more.
    fn transmit(&mut self, now: Time) -> bool {
        for _ in 0..TX_TURN {
            if !self.held {
                self.budget.release();
                let mut budget = self.budget.with(&mut self.slot);
                if !self.nic.poll_transmit(now, &mut budget, &mut self.batch) {
                    self.budget.release();
                    return false;
                }
                self.sealer.seal(&*self.port, &mut self.batch);
            }
            self.held = false;
            match self.port.send(&self.batch) {
                SendOutcome::Sent => self.budget.sent(self.batch.segment_size, self.batch.bytes.len()),
                SendOutcome::WouldBlock => {
                    self.held = true;
                    return true;
                }
                SendOutcome::Reseal => {
                    self.sealer.seal(&*self.port, &mut self.batch);
                    self.held = true;
                }
                SendOutcome::Failed(error) => {
                    self.budget.release();
                    tracing::debug!(%error, dst = %self.batch.path.dst, "packets lost");
                }
            }
        }
        true
    }

    pub(super) fn take_told(&mut self) -> Told {
        let mut told = Told::default();
        while let Some(event) = self.nic.poll_event() {
            told.events.push(event);
        }
        while let Some(mad) = self.nic.poll_mad() {
            told.mads.push(mad);
        }
        told
    }

    pub(super) fn deliver_to_port(&mut self, space: u16, port: u16, mad: &Mad) -> bool {
        let meta = RxMeta {
            src: mad.peer,
            dst: mad.local,
            sport: 0,
            traffic_class: mad.traffic_class,
            hop_limit: mad.hop_limit,
        };
        ports::deliver(&mut self.slot, space, mad.local, port, &meta, &mad.bytes)
    }

    /// When the thread must look again at the latest.
    pub(super) fn next_deadline(&self, clock: Instant) -> Option<Time> {
        let host = [self.slot.next_flush()]
            .into_iter()
            .chain(self.steering.iter().map(Steering::next_timeout));
        let host = host.flatten().min().map(|at| {
            let since = at.saturating_duration_since(clock).as_nanos();
            Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
        });
        let retry = (self.held || self.more).then(|| {
            let now = clock.elapsed()
                + if self.held {
                    Duration::from_micros(50)
                } else {
                    Duration::ZERO
                };
            Time::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
        });
        [self.nic.poll_timeout(), self.port.next_deadline(), host, retry]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether messages to other processes wait for room, or steering is being repaired.
    pub(super) fn host_waits(&self) -> bool {
        self.slot.next_flush().is_some() || self.steering.iter().any(|steering| steering.next_timeout().is_some())
    }

    /// See now and then whether the guardian is still there.
    pub(super) fn poll_guardian(&mut self, now: Time) {
        if let Some(guardian) = self.guardian.as_mut().filter(|_| now >= self.guardian_due) {
            self.guardian_due = now + GUARDIAN_INTERVAL;
            guardian.poll();
        }
    }

    /// Live counters as JSON, for `adverb stat`.
    pub(super) fn stats_json(&self) -> String {
        let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let stats = serde_json::json!({
            "pid": std::process::id(),
            "command": command.trim_end(),
            "slot": self.slot.number(),
            "addresses": self.addrs,
            "seconds": self.started.elapsed().as_secs_f64(),
            "counters": self.nic.counters(),
        });
        stats.to_string()
    }
}

/// What a turn achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Packets received.
    pub(super) received: usize,
    /// Completions published.
    pub(super) completed: usize,
}

/// Descriptors of a core.
#[derive(Debug)]
pub(super) struct Fds {
    pub(super) sockets: Vec<RawFd>,
    pub(super) slot: RawFd,
}

/// Faults on top, so that a capture shows what the wire sees.
fn wrap(udp: UdpPort, config: &EngineConfig) -> io::Result<Box<dyn Port>> {
    let faults = config.faults.filter(|faults| !faults.is_none());
    Ok(match (&config.pcap, faults) {
        (None, None) => Box::new(udp),
        (None, Some(faults)) => Box::new(FaultPort::new(udp, faults)),
        (Some(path), None) => Box::new(PcapPort::create(udp, path)?),
        (Some(path), Some(faults)) => Box::new(FaultPort::new(PcapPort::create(udp, path)?, faults)),
    })
}

/// A tombstone in the guardian's words.
fn grave(stone: &crate::device::Tombstone) -> guardian::Tombstone {
    guardian::Tombstone {
        qpn: stone.qpn,
        local: stone.path.src,
        peer: stone.path.dst,
        peer_qpn: stone.dest_qpn,
        expected_psn: stone.expected_psn,
        msn: stone.msn,
        linger: crate::device::LINGER,
    }
}
