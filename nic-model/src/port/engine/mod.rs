//! The engine: one function of the NIC at work under a real clock.
//!
//! It owns the device, its port and the process's place on the host behind one lock, and is driven from two sides: by
//! application threads inline ([`Engine::kick`] after a doorbell, [`Engine::poll`] from an empty CQ), and by a thread of
//! its own that sleeps until a packet, a deadline or a message from another process needs it. Whoever gets the lock does
//! all the work there is; whoever does not need not wait, as the holder looks at the doorbells again after it lets go.
//!
//! While an application polls without pause, the thread leaves the sockets to it (like NAPI: interrupts first, polling
//! under load) and comes back when the polling stops.

mod application;
mod backpressure;
mod core;
mod receive;
mod sealing;
#[cfg(test)]
mod tests;
mod thread;

use self::application::Application;
use self::core::Core;
use super::fault::FaultConfig;
use super::host::guardian;
use super::netdev::NetDevice;
use crate::device::Counters;
pub use crate::device::Mad;
use crate::host_if::command::{Command, CommandError, ObjectId, Reply};
use crate::host_if::doorbell::DoorbellPage;
use crate::host_if::event::{AsyncEvent, Event};
use crate::time::Time;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thread::Waiter;

/// What the engine tells the driver. Called without the engine's lock, from whichever thread drove it.
pub trait Service: Send + Sync {
    /// An armed CQ with that cookie has a new completion.
    fn completion(&self, cookie: u64);
    /// An asynchronous event.
    fn async_event(&self, event: AsyncEvent);
    /// A MAD arrived on QP1.
    fn mad(&self, mad: Mad);
    /// When [`Self::handle_timeout`] wants to run next.
    fn next_timeout(&self) -> Option<Time>;
    /// That time has come.
    fn handle_timeout(&self, now: Time);
}

/// How an engine is opened.
#[derive(Clone)]
pub struct EngineConfig {
    /// The interface the device stands for.
    pub netdev: NetDevice,
    /// Only this address instead of all of the interface's.
    pub addr: Option<IpAddr>,
    /// Faults to inject into what is sent.
    pub faults: Option<FaultConfig>,
    /// Capture file.
    pub pcap: Option<PathBuf>,
    /// Receive buffer of the sockets, as the kernel accounts it.
    pub rcvbuf: Option<usize>,
    /// Line rate in bit/s, 0 = unlimited.
    pub line_rate: u64,
    /// The `adverb` program, which serves as guardian; without it closed connections end with the process.
    pub guardian: Option<PathBuf>,
    /// Who is told of events.
    pub service: Arc<dyn Service>,
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("netdev", &self.netdev.name)
            .field("addr", &self.addr)
            .field("faults", &self.faults)
            .field("pcap", &self.pcap)
            .field("rcvbuf", &self.rcvbuf)
            .field("line_rate", &self.line_rate)
            .field("guardian", &self.guardian)
            .finish_non_exhaustive()
    }
}

/// From this many outstanding WQEs on a queue counts as deep.
const DEEP: u32 = 32;
/// Longest wait of a WQE in a deep queue for others to be sent with.
const COMPANY: Duration = Duration::from_micros(100);

/// How long an exiting process waits for the device.
const LEAVE_PATIENCE: Duration = Duration::from_millis(200);

/// A function of the NIC at work.
pub struct Engine {
    core: Mutex<Core>,
    doorbells: Arc<DoorbellPage>,
    service: Arc<dyn Service>,
    waiter: Waiter,
    clock: Instant,
    slot: u8,
    gids: Vec<IpAddr>,
    application: Application,
    /// Messages to other processes wait, or steering is being repaired: only the thread sees to that.
    host_waits: AtomicBool,
    /// Sockets, slot and what the thread waits with.
    descriptors: Vec<RawFd>,
    /// The parent's engine in a forked child: nothing may be touched.
    inert: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("slot", &self.slot)
            .field("gids", &self.gids)
            .finish_non_exhaustive()
    }
}

/// Events taken out of the device, to be told once the lock is free.
#[derive(Debug, Default)]
struct Told {
    events: Vec<Event>,
    mads: Vec<Mad>,
}

impl Engine {
    /// Open a function: claim a slot, bind the sockets, join the host's steering, start the thread.
    ///
    /// # Errors
    /// What the operating system refused; `AddrInUse` when another user has the address.
    pub fn open(config: EngineConfig) -> io::Result<Arc<Self>> {
        let clock = Instant::now();
        let core = Core::open(&config)?;
        let fds = core.fds();
        let waiter = Waiter::new(&fds)?;
        let descriptors = fds
            .sockets
            .iter()
            .copied()
            .chain([fds.slot])
            .chain(waiter.descriptors())
            .collect();
        let engine = Arc::new(Self {
            doorbells: core.nic.doorbells(),
            slot: core.slot.number(),
            gids: core.addrs.clone(),
            core: Mutex::new(core),
            service: config.service,
            waiter,
            clock,
            application: Application::default(),
            host_waits: AtomicBool::new(false),
            descriptors,
            inert: AtomicBool::new(false),
        });
        thread::spawn(&engine)?;
        Ok(engine)
    }

    /// Device time.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The slot, the top byte of the function's QPNs.
    pub const fn slot(&self) -> u8 {
        self.slot
    }

    /// The function's addresses in GID-table order.
    pub fn addrs(&self) -> &[IpAddr] {
        &self.gids
    }

    /// The doorbell page.
    pub fn doorbells(&self) -> &DoorbellPage {
        &self.doorbells
    }

    fn lock(&self) -> Option<MutexGuard<'_, Core>> {
        if self.inert.load(Ordering::Relaxed) {
            None
        } else {
            Some(self.core.lock())
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        if self.inert.load(Ordering::Relaxed) {
            None
        } else {
            self.core.try_lock()
        }
    }

    /// Run a command. Waits for the device.
    ///
    /// # Errors
    /// As the device answers; [`CommandError::Invalid`] in a forked child of the process that opened the engine.
    pub fn command(&self, command: Command) -> Result<Reply, CommandError> {
        let mut core = self.lock().ok_or(CommandError::Invalid)?;
        let now = self.now();
        let reply = core.command(now, command);
        self.finish(core, now);
        reply
    }

    /// After ringing a doorbell: send what can be sent now.
    ///
    /// `outstanding` is the number of WQEs in that queue whose completion has not been polled. Behind a deep queue one
    /// more packet gains nothing by leaving alone, so it waits for company: for the next multiple of [`DEEP`], for
    /// the application's next look at an empty CQ, for the next packet, at most for [`COMPANY`].
    pub fn kick(&self, outstanding: u32) {
        self.application.on_post();
        if outstanding >= DEEP && !outstanding.is_multiple_of(DEEP) {
            let now = self.now();
            self.waiter.alarm_by(now + COMPANY, now);
            return;
        }
        self.try_drive(false);
    }

    /// From `cq`, found empty: receive, send, complete.
    pub fn poll(&self, cq: ObjectId) {
        if self.application.on_poll(cq) {
            self.waiter.watch_sockets(false);
        }
        let Some(mut core) = self.try_lock() else { return };
        let now = self.now();
        let done = core.drive(now, true);
        // An application that has all it waited for may now spin on memory instead, which a peer writes.
        let satisfied = done.completed > 0
            && !self.waiter.is_watching_sockets()
            && !self
                .application
                .recently_polled()
                .any(|cq| core.nic.awaits_completions(cq));
        self.finish(core, now);
        if satisfied {
            self.take_sockets_back();
        }
    }

    /// After arming a CQ: the application will wait, so the thread must watch again; completions already there fire.
    pub fn arm(&self) {
        self.take_sockets_back();
        self.try_drive(true);
    }

    /// The application polls no more: the thread watches the sockets.
    fn take_sockets_back(&self) {
        self.application.on_rest();
        self.waiter.watch_sockets(true);
    }

    fn try_drive(&self, receive: bool) {
        if let Some(mut core) = self.try_lock() {
            let now = self.now();
            core.drive(now, receive);
            self.finish(core, now);
        }
    }

    /// Send a MAD from QP1.
    pub fn send_mad(&self, mad: Mad) {
        if let Some(mut core) = self.lock() {
            let now = self.now();
            core.nic.send_mad(mad);
            core.drive(now, false);
            self.finish(core, now);
        }
    }

    /// Give a MAD to the process that owns a CM port, see [`super::host::ports::deliver`]. Returns whether one does.
    pub fn deliver_to_port(&self, space: u16, port: u16, mad: &Mad) -> bool {
        self.lock()
            .is_some_and(|mut core| core.deliver_to_port(space, port, mad))
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.lock().map(|core| core.nic.counters().clone()).unwrap_or_default()
    }

    /// The CM connections the guardian must close if the process dies.
    pub fn with_guardian(&self, f: impl FnOnce(&mut guardian::Guardian)) {
        if let Some(mut core) = self.lock()
            && let Some(guardian) = &mut core.guardian
        {
            f(guardian);
        }
    }

    /// Call `ready` from the thread whenever `fd` is readable.
    pub fn watch(&self, fd: RawFd, ready: Box<dyn Fn() + Send + Sync>) {
        self.waiter.watch(fd, ready);
    }

    /// Stop watching `fd`.
    pub fn unwatch(&self, fd: RawFd) {
        self.waiter.unwatch(fd);
    }

    /// The service's next timeout may have come nearer.
    pub fn wake(&self) {
        if let Some(next) = self.service.next_timeout() {
            self.waiter.alarm_by(next, self.now());
        }
    }

    /// The process exits: leave its open QPs to the guardian. Does not wait long for a thread that has the device.
    pub fn leave(&self) {
        if self.inert.load(Ordering::Relaxed) {
            return;
        }
        if let Some(mut core) = self.core.try_lock_for(LEAVE_PATIENCE) {
            core.leave();
        }
    }

    /// In a forked child: the parent's sockets are not its own. They are closed, or the parent would seem alive after its
    /// end, and nothing of the engine is touched afterwards.
    pub fn after_fork_in_child(&self) {
        if self.inert.swap(true, Ordering::Relaxed) {
            return;
        }
        let guardian: Vec<RawFd> = match self.core.try_lock() {
            Some(core) => core.guardian.iter().flat_map(guardian::Guardian::descriptors).collect(),
            // A thread that does not exist here holds the lock for ever.
            None => Vec::new(),
        };
        for fd in self.descriptors.iter().copied().chain(guardian) {
            let _ = nix::unistd::close(fd);
        }
    }

    /// Let go of the lock, see to the next deadline, tell the service. A doorbell that rang while the lock was held,
    /// whose ringer did not wait for it, is answered here.
    /// Returns whether there was anything to tell.
    fn finish<'a>(&'a self, mut core: MutexGuard<'a, Core>, mut now: Time) -> bool {
        let mut told_anything = false;
        loop {
            let told = core.take_told();
            told_anything |= !told.events.is_empty() || !told.mads.is_empty();
            let deadline = core.next_deadline(self.clock);
            self.host_waits.store(core.host_waits(), Ordering::Relaxed);
            drop(core);
            if let Some(deadline) = deadline {
                self.waiter.alarm_by(deadline, now);
            }
            self.tell(told);
            if !self.doorbells.is_pending() {
                return told_anything;
            }
            let Some(next) = self.try_lock() else {
                return told_anything;
            };
            core = next;
            now = self.now();
            core.drive(now, false);
        }
    }

    fn tell(&self, told: Told) {
        for event in told.events {
            match event {
                Event::Completion { cookie } => self.service.completion(cookie),
                Event::Async(event) => self.service.async_event(event),
            }
        }
        for mad in told.mads {
            self.service.mad(mad);
        }
    }
}
