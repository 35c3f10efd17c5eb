//! The engine's thread: asleep until a packet, a message or a deadline needs it.

use super::Engine;
use super::core::Fds;
use crate::time::Time;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Tokens of the descriptors in the epoll set; watched descriptors use their own number above these.
const TIMER: u64 = 0;
const SLOT: u64 = 1;
const SOCKET: u64 = 2;
const WATCHED: u64 = 1 << 32;

/// How often the thread looks whether an application that polls still does.
const POLLING_CHECK: Duration = Duration::from_micros(200);

type Callback = Arc<dyn Fn() + Send + Sync>;

/// What the thread waits for.
pub(super) struct Waiter {
    epoll: Epoll,
    timer: TimerFd,
    /// Deadline the timer is set to, in nanoseconds of device time.
    alarm: AtomicU64,
    sockets: Vec<RawFd>,
    watching_sockets: AtomicBool,
    watched: Mutex<BTreeMap<RawFd, Callback>>,
}

/// Borrow a descriptor that its owner keeps open for the waiter's life.
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    super::super::sys::borrow(fd)
}

impl Waiter {
    pub(super) fn new(fds: &Fds) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        epoll.add(borrow(fds.slot), EpollEvent::new(EpollFlags::EPOLLIN, SLOT))?;
        for socket in &fds.sockets {
            epoll.add(borrow(*socket), EpollEvent::new(EpollFlags::EPOLLIN, SOCKET))?;
        }
        Ok(Self {
            epoll,
            timer,
            alarm: AtomicU64::new(u64::MAX),
            sockets: fds.sockets.clone(),
            watching_sockets: AtomicBool::new(true),
            watched: Mutex::new(BTreeMap::new()),
        })
    }

    /// The descriptors it waits with.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.epoll.0.as_raw_fd(), self.timer.as_fd().as_raw_fd()]
    }

    /// Watch the sockets, or leave them to an application that polls.
    pub(super) fn watch_sockets(&self, watch: bool) {
        if self.watching_sockets.swap(watch, Ordering::AcqRel) == watch {
            return;
        }
        let flags = if watch {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::empty()
        };
        for socket in &self.sockets {
            let _ = self.epoll.modify(borrow(*socket), &mut EpollEvent::new(flags, SOCKET));
        }
        if !watch {
            // The thread must notice when the polling stops.
            let _ = self.timer.set(
                Expiration::OneShot(TimeSpec::from_duration(POLLING_CHECK)),
                TimerSetTimeFlags::empty(),
            );
            self.alarm.store(0, Ordering::Release);
        }
    }

    /// Whether the thread watches the sockets, not the application.
    pub(super) fn is_watching_sockets(&self) -> bool {
        self.watching_sockets.load(Ordering::Acquire)
    }

    /// Wake the thread at `deadline` unless something wakes it earlier.
    pub(super) fn alarm_by(&self, deadline: Time, now: Time) {
        if deadline.as_nanos() >= self.alarm.load(Ordering::Acquire) {
            return;
        }
        self.alarm.store(deadline.as_nanos(), Ordering::Release);
        let delay = i64::try_from(deadline.since(now).as_nanos()).unwrap_or(i64::MAX).max(1);
        let _ = self.timer.set(
            Expiration::OneShot(TimeSpec::nanoseconds(delay)),
            TimerSetTimeFlags::empty(),
        );
    }

    pub(super) fn watch(&self, fd: RawFd, ready: Box<dyn Fn() + Send + Sync>) {
        self.watched.lock().insert(fd, Arc::from(ready));
        let token = WATCHED | u64::from(fd.unsigned_abs());
        if let Err(error) = self.epoll.add(borrow(fd), EpollEvent::new(EpollFlags::EPOLLIN, token)) {
            tracing::error!(%error, fd, "cannot watch a descriptor");
        }
    }

    pub(super) fn unwatch(&self, fd: RawFd) {
        if self.watched.lock().remove(&fd).is_some() {
            let _ = self.epoll.delete(borrow(fd));
        }
    }
}

/// Start the thread. It ends when the engine is dropped.
pub(super) fn spawn(engine: &Arc<Engine>) -> io::Result<()> {
    let weak = Arc::downgrade(engine);
    // Signals are the application's: the thread inherits a full mask.
    let mut previous = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut previous))?;
    let spawned = std::thread::Builder::new()
        .name("adverb".into())
        .spawn(move || run(&weak));
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&previous), None)?;
    spawned.map(drop)
}

fn run(engine: &Weak<Engine>) {
    super::super::sys::prefer_latency();
    let mut events = [EpollEvent::empty(); 32];
    let mut seen_calls = 0;
    // An application that posts and polls between two packets has threads that need the processor.
    let mut last_calls = 0;
    while let Some(engine) = engine.upgrade() {
        let count = match engine.waiter.epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => {
                tracing::error!(%error, "the engine's thread cannot wait");
                return;
            }
        };
        let mut messages = false;
        let mut wanted = false;
        for event in &events[..count] {
            match event.data() {
                TIMER => wanted |= engine.on_timer(&mut seen_calls),
                SLOT => messages = true,
                SOCKET => wanted = true,
                token => {
                    let fd = RawFd::try_from(token & 0xffff_ffff).unwrap_or(-1);
                    let callback = engine.waiter.watched.lock().get(&fd).cloned();
                    if let Some(callback) = callback {
                        callback();
                    }
                }
            }
        }
        if !wanted && !messages {
            continue;
        }
        let calls = engine.application.calls();
        if engine.work(messages) && calls == last_calls {
            engine.linger();
        }
        last_calls = calls;
    }
}

impl Engine {
    /// The timer went off: see whether an application still polls, run the service's timers. Returns whether the device
    /// may need the thread; one that an application drives does not.
    fn on_timer(&self, seen_calls: &mut u32) -> bool {
        let mut driven = false;
        let _ = self.waiter.timer.wait();
        self.waiter.alarm.store(u64::MAX, Ordering::Release);
        let calls = self.application.calls();
        if !self.waiter.is_watching_sockets() {
            if calls == *seen_calls {
                self.take_sockets_back();
            } else {
                driven = true;
                let again = self.now() + POLLING_CHECK;
                self.waiter.alarm_by(again, self.now());
            }
        }
        *seen_calls = calls;
        let now = self.now();
        if self.service.next_timeout().is_some_and(|due| due <= now) {
            self.service.handle_timeout(now);
        }
        self.wake();
        !driven || self.host_waits.load(Ordering::Relaxed)
    }

    /// Do what there is to do. Returns whether packets came that nobody here waits for: the process is a passive target.
    fn work(&self, messages: bool) -> bool {
        let receive = self.waiter.is_watching_sockets();
        let Some(mut core) = self.lock() else { return false };
        let now = self.now();
        if messages || core.host_waits() {
            core.receive_messages(now);
        }
        core.poll_guardian(now);
        let done = core.drive(now, receive);
        let told = self.finish(core, now);
        done.received > 0 && !told
    }

    /// A passive target's next packet is likely near: look for it for a little while before going to sleep, which costs
    /// more. Other threads that can run come first.
    fn linger(&self) {
        let calls = self.application.calls();
        let mut until = self.now() + LINGER;
        loop {
            std::thread::yield_now();
            let now = self.now();
            if now >= until || self.application.calls() != calls || !self.waiter.is_watching_sockets() {
                return;
            }
            let Some(mut core) = self.try_lock() else { return };
            let done = core.drive(now, true);
            if self.finish(core, now) {
                return;
            }
            if done.received > 0 {
                until = now + LINGER;
            }
        }
    }
}

/// How long a passive target looks for its next packet.
const LINGER: Duration = Duration::from_micros(50);
