//! The core at work: its lock, its clock, and a socket pair for every open channel.
//!
//! A channel's descriptor is one end of a socket pair. There is a byte in it exactly when the channel's queue is not
//! empty, so that poll, select and epoll tell the truth; the other end stays here.
//!
//! Lock order: the core's lock, then an engine's. Engines call in without their lock. MADs are sent after the lock is
//! released, since sending may deliver others to this very process. [`CmService::next_timeout`] takes no lock at all:
//! engines ask it while this one may be held. Nothing under the lock is a cancellation point: `syscall(2)` is none.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Instant;

use nic_model::time::Time;
use parking_lot::{Mutex, MutexGuard};

use super::core::command::{Command, FileId};
use super::core::environment::Timing;
use super::core::{ConnectionRecord, Core, Environment, Errno, Mad, Received, RegistryChange};
use super::uapi::{self, Request};

/// Who closes the connections of this process should it die.
pub trait ConnectionRegistry {
    /// A connection came to need closing. Called with the core's lock held, in order.
    fn opened(&self, connection: &ConnectionRecord);
    /// It no longer does; its local communication id.
    fn closed(&self, local_comm_id: u32);
}

/// The library and the host around the connection manager.
pub trait Host: Environment + ConnectionRegistry {
    /// Open the NICs a command will need; all of them for one that concerns every address (`everywhere`). Called without
    /// the core's lock.
    fn prepare(&self, command: &Command, everywhere: bool);
    /// Send a MAD. Called without the core's lock.
    fn send(&self, mad: Mad);
    /// Give a request to the process of this host that listens on the port. Called without the core's lock.
    fn deliver(&self, space: u16, to: IpAddr, port: u16, mad: &Mad) -> bool;
    /// The next timeout may have come nearer.
    fn wake(&self);
}

/// What a write to the device led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is done.
    Done,
    /// There is no event: wait until the descriptor is readable, and try again.
    Wait,
}

struct Channel {
    file: FileId,
    ours: OwnedFd,
    /// A byte is in the application's end.
    signalled: bool,
}

struct Inner {
    core: Core,
    /// By the application's descriptor.
    channels: BTreeMap<RawFd, Channel>,
    descriptors: BTreeMap<FileId, RawFd>,
}

/// The connection manager of this process.
pub struct CmService {
    host: Arc<dyn Host>,
    clock: Instant,
    inner: Mutex<Inner>,
    /// Nanoseconds of the core's next timeout; `u64::MAX` for none.
    next: AtomicU64,
}

impl fmt::Debug for CmService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmService").finish_non_exhaustive()
    }
}

/// The service of this process; the parent's is forgotten, not freed, in a forked child.
static CURRENT: AtomicPtr<CmService> = AtomicPtr::new(std::ptr::null_mut());

/// The connection manager, if it has been started in this process.
pub fn current() -> Option<&'static CmService> {
    // SAFETY: only leaked boxes get into CURRENT (see `current_or`), so the pointer is null or valid for ever.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// The connection manager, started now with the host that `make` gives if there is none.
pub fn current_or(make: impl FnOnce() -> Arc<dyn Host>) -> &'static CmService {
    if let Some(service) = current() {
        return service;
    }
    let fresh = Box::into_raw(Box::new(CmService::new(make())));
    match CURRENT.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just leaked and published; never freed from here on.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: `fresh` was made above and never published.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: what is published is never freed.
            unsafe { &*other }
        }
    }
}

/// In a forked child: what the parent had open is inert here.
pub fn after_fork_in_child() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
}

impl CmService {
    /// A connection manager on `host`.
    pub fn new(host: Arc<dyn Host>) -> Self {
        struct AsEnvironment(Arc<dyn Host>);
        impl Environment for AsEnvironment {
            fn device_for(&self, local: IpAddr) -> Option<super::core::Device> {
                self.0.device_for(local)
            }
            fn devices(&self) -> Vec<super::core::Device> {
                self.0.devices()
            }
            fn source_for(&self, destination: std::net::SocketAddr) -> Option<IpAddr> {
                self.0.source_for(destination)
            }
            fn claim(
                &self,
                request: &super::core::environment::PortRequest,
            ) -> Result<super::core::environment::PortGuard, Errno> {
                self.0.claim(request)
            }
            fn may_bind_privileged(&self) -> bool {
                self.0.may_bind_privileged()
            }
            fn random(&self) -> u32 {
                self.0.random()
            }
        }
        let core = Core::new(Arc::new(AsEnvironment(Arc::clone(&host))), Timing::default());
        Self {
            host,
            clock: Instant::now(),
            inner: Mutex::new(Inner {
                core,
                channels: BTreeMap::new(),
                descriptors: BTreeMap::new(),
            }),
            next: AtomicU64::new(u64::MAX),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Open the device; gives the application's descriptor, which stays the application's to close.
    ///
    /// # Errors
    /// What the socket pair was refused for.
    pub fn open(&self, nonblocking: bool) -> Result<RawFd, Errno> {
        let (theirs, ours) = socket_pair(nonblocking)?;
        let mut inner = self.inner.lock();
        self.sweep(&mut inner);
        let file = inner.core.open_file();
        // A descriptor of this number that was closed behind our back is gone for good.
        self.forget(&mut inner, theirs);
        inner.channels.insert(
            theirs,
            Channel {
                file,
                ours,
                signalled: false,
            },
        );
        inner.descriptors.insert(file, theirs);
        self.finish(inner);
        Ok(theirs)
    }

    /// The application closed a channel.
    pub fn close(&self, fd: RawFd) {
        let mut inner = self.inner.lock();
        self.forget(&mut inner, fd);
        self.finish(inner);
    }

    /// The application wrote to a channel.
    ///
    /// # Errors
    /// The error number for the application; `ENODEV` for a channel of this process's parent.
    pub fn command(&self, fd: RawFd, bytes: &[u8]) -> Result<Outcome, Errno> {
        let file_of = |fd| self.inner.lock().channels.get(&fd).map(|channel| channel.file);
        let file = file_of(fd).ok_or(libc::ENODEV)?;
        match uapi::parse(bytes, file_of)? {
            Request::NextEvent(reply) => {
                uapi::check_room(&reply)?;
                let mut inner = self.inner.lock();
                let event = inner.core.next_event(self.now(), file);
                if event.is_none() {
                    // A byte without an event would make waiting for the next one a busy loop.
                    inner.quieten(fd);
                }
                self.finish(inner);
                match event {
                    Some(event) => {
                        tracing::debug!(id = event.id, kind = ?event.kind, status = event.status, "event");
                        uapi::answer_event(&reply, &event).map(|()| Outcome::Done)
                    }
                    None => Ok(Outcome::Wait),
                }
            }
            Request::Command(command, reply) => {
                uapi::check_room(&reply)?;
                let everywhere = self.inner.lock().core.concerns_every_address(&command);
                self.host.prepare(&command, everywhere);
                tracing::debug!(?command, "command");
                let mut inner = self.inner.lock();
                let response = inner.core.command(self.now(), file, command);
                self.finish(inner);
                let response = response.inspect_err(|errno| tracing::debug!(errno, "refused"))?;
                uapi::answer(&reply, &response).map(|()| Outcome::Done)
            }
        }
    }

    /// A MAD arrived on QP 1, or, `forwarded`, through the mailbox of a port this process claims.
    pub fn receive(&self, mad: &Mad, forwarded: bool) {
        tracing::trace!(?mad, "received");
        let mut inner = self.inner.lock();
        let received = inner.core.receive(self.now(), mad);
        self.finish(inner);
        if let Received::NoListener { space, to, port } = received
            && (forwarded || !self.host.deliver(space, to, port, mad))
        {
            let mut inner = self.inner.lock();
            inner.core.refuse(self.now(), mad);
            self.finish(inner);
        }
    }

    /// When [`Self::handle_timeout`] has something to do, on another clock that shows `now`. In its past if it is overdue.
    /// Takes no lock.
    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        match self.next.load(Ordering::Acquire) {
            u64::MAX => None,
            at => {
                let own = self.now().as_nanos();
                Some(Time::from_nanos(now.as_nanos().saturating_add(at).saturating_sub(own)))
            }
        }
    }

    /// Do what is due.
    pub fn handle_timeout(&self) {
        let mut inner = self.inner.lock();
        inner.core.handle_timeout(self.now());
        self.finish(inner);
    }

    /// Close the channels whose descriptors are gone without a `close` that we saw.
    fn sweep(&self, inner: &mut Inner) {
        let gone: Vec<RawFd> = inner
            .channels
            .iter()
            .filter(|(_, channel)| is_hung_up(&channel.ours))
            .map(|(fd, _)| *fd)
            .collect();
        for fd in gone {
            self.forget(inner, fd);
        }
    }

    fn forget(&self, inner: &mut Inner, fd: RawFd) {
        if let Some(channel) = inner.channels.remove(&fd) {
            inner.descriptors.remove(&channel.file);
            inner.core.close_file(self.now(), channel.file);
        }
    }

    /// After any change: bytes where they belong, the guardian told, MADs sent.
    fn finish(&self, mut inner: MutexGuard<'_, Inner>) {
        while let Some(file) = inner.core.poll_touched() {
            let Some(&fd) = inner.descriptors.get(&file) else {
                continue;
            };
            if inner.core.has_event(file) {
                inner.signal(fd);
            } else {
                inner.quieten(fd);
            }
        }
        while let Some(change) = inner.core.poll_change() {
            match change {
                RegistryChange::Opened(record) => self.host.opened(&record),
                RegistryChange::Closed(comm_id) => self.host.closed(comm_id),
            }
        }
        let mut mads = Vec::new();
        while let Some(mad) = inner.core.poll_mad() {
            mads.push(mad);
        }
        let next = inner.core.next_timeout().map_or(u64::MAX, Time::as_nanos);
        let nearer = next < self.next.swap(next, Ordering::AcqRel);
        drop(inner);
        for mad in mads {
            tracing::trace!(?mad, "sent");
            self.host.send(mad);
        }
        if nearer {
            self.host.wake();
        }
    }
}

impl Inner {
    fn signal(&mut self, fd: RawFd) {
        let Some(channel) = self.channels.get_mut(&fd).filter(|channel| !channel.signalled) else {
            return;
        };
        channel.signalled = true;
        let byte = 1u8;
        // SAFETY: one readable byte. The socket buffer is empty, so the call neither blocks nor fails for lack of room.
        unsafe {
            libc::syscall(
                libc::SYS_sendto,
                channel.ours.as_raw_fd(),
                &raw const byte,
                1usize,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                std::ptr::null::<libc::sockaddr>(),
                0usize,
            );
        }
    }

    /// Take the byte back. Only from commands on this descriptor, which the hooks have just identified as ours.
    fn quieten(&mut self, fd: RawFd) {
        let Some(channel) = self.channels.get_mut(&fd).filter(|channel| channel.signalled) else {
            return;
        };
        channel.signalled = false;
        let mut byte = 0u8;
        // SAFETY: one writable byte; the call does not block.
        unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                fd,
                &raw mut byte,
                1usize,
                libc::MSG_DONTWAIT,
                std::ptr::null::<libc::sockaddr>(),
                std::ptr::null::<libc::socklen_t>(),
            );
        }
    }
}

fn socket_pair(nonblocking: bool) -> Result<(RawFd, OwnedFd), Errno> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: `pair` has room for the two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
    }
    // SAFETY: the second descriptor was just made and is nobody else's.
    Ok((pair[0], unsafe { OwnedFd::from_raw_fd(pair[1]) }))
}

fn is_hung_up(ours: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: ours.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one pollfd, a time-out, no signal mask; the call does not block.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut poll,
            1usize,
            &raw const now,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    ready == 1 && poll.revents & libc::POLLHUP != 0
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Weak;

    use super::*;
    use crate::cm::core::Device;
    use crate::cm::core::environment::{PortGuard, PortRequest};

    /// A host that keeps what is sent.
    #[derive(Default)]
    struct Quiet(Mutex<Vec<Mad>>);

    impl Environment for Quiet {
        fn device_for(&self, _: IpAddr) -> Option<Device> {
            Some(Device {
                guid: 0x0102_0304,
                index: 0,
                slot: 9,
                gid_index: 0,
                mtu: 3,
            })
        }
        fn devices(&self) -> Vec<Device> {
            Vec::new()
        }
        fn source_for(&self, destination: SocketAddr) -> Option<IpAddr> {
            Some(destination.ip())
        }
        fn claim(&self, _: &PortRequest) -> Result<PortGuard, Errno> {
            Ok(Arc::new(Weak::<()>::new()))
        }
        fn may_bind_privileged(&self) -> bool {
            true
        }
        fn random(&self) -> u32 {
            7
        }
    }
    impl ConnectionRegistry for Quiet {
        fn opened(&self, _: &ConnectionRecord) {}
        fn closed(&self, _: u32) {}
    }
    impl Host for Quiet {
        fn prepare(&self, _: &Command, _: bool) {}
        fn send(&self, mad: Mad) {
            self.0.lock().push(mad);
        }
        fn deliver(&self, _: u16, _: IpAddr, _: u16, _: &Mad) -> bool {
            false
        }
        fn wake(&self) {}
    }

    /// A command as librdmacm writes it: header, then the words of the structure.
    fn command(cmd: u32, out: usize, words: &[u32]) -> Vec<u8> {
        let len = u16::try_from(words.len() * 4).unwrap();
        let header = [
            cmd.to_ne_bytes(),
            (u32::from(len) | u32::try_from(out).unwrap() << 16).to_ne_bytes(),
        ];
        header
            .into_iter()
            .chain(words.iter().map(|word| word.to_ne_bytes()))
            .flatten()
            .collect()
    }

    fn halves<T>(place: &mut T) -> [u32; 2] {
        let address = std::ptr::from_mut(place).expose_provenance() as u64;
        [(address & 0xFFFF_FFFF) as u32, (address >> 32) as u32]
    }

    fn is_readable(fd: RawFd) -> bool {
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_channel_is_readable_while_it_has_events_and_timers_are_due_in_the_past() {
        let host = Arc::new(Quiet::default());
        let service = CmService::new(Arc::<Quiet>::clone(&host));
        let fd = service.open(false).unwrap();
        let mut id = u32::MAX;
        let [low, high] = halves(&mut id);
        let create = command(0, 4, &[5, 0, low, high, 0x0106, 0]);
        assert_eq!(service.command(fd, &create), Ok(Outcome::Done));
        assert_eq!(id, 0);
        let mut resolve = [0u32; 16];
        resolve[7] = u32::from_ne_bytes([2, 0, 0x1d, 0x2f]);
        resolve[8] = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(service.command(fd, &command(3, 0, &resolve)), Ok(Outcome::Done));
        let mut event = [0u32; 84];
        let [low, high] = halves(&mut event);
        let take = command(12, 336, &[low, high]);
        assert!(is_readable(fd));
        assert_eq!(service.command(fd, &take), Ok(Outcome::Done));
        assert_eq!(event[..5], [5, 0, 0, 0, 0], "ADDR_RESOLVED of id 0");
        assert!(!is_readable(fd));
        assert_eq!(service.command(fd, &take), Ok(Outcome::Wait));
        assert_eq!(service.command(fd, &command(4, 0, &[0, 2000])), Ok(Outcome::Done));
        let mut connect = [0u32; 72];
        connect[67] = u32::from_ne_bytes([0, 7, 7, 1]);
        assert_eq!(service.command(fd, &command(6, 0, &connect)), Ok(Outcome::Done));
        assert_eq!(host.0.lock().len(), 1, "the REQ");

        let far = Time::from_nanos(1 << 60);
        let due = service.next_timeout(far).unwrap();
        assert!(due > far);
        std::thread::sleep(std::time::Duration::from_millis(120));
        assert!(
            service.next_timeout(far).unwrap() < far,
            "overdue, so that `due <= now` holds for who asks"
        );
        service.handle_timeout();
        assert_eq!(host.0.lock().len(), 2, "the REQ again");

        service.close(fd);
        assert_eq!(service.command(fd, &take), Err(libc::ENODEV));
        // SAFETY: the application's end, which is this test's to close.
        unsafe { libc::close(fd) };
    }

    #[test]
    fn malformed_writes_are_refused() {
        let service = CmService::new(Arc::new(Quiet::default()));
        let fd = service.open(true).unwrap();
        assert_eq!(service.command(fd, &[]), Err(libc::EINVAL));
        assert_eq!(service.command(fd, &command(99, 0, &[])), Err(libc::EINVAL));
        assert_eq!(service.command(fd, &command(13, 0, &[])), Err(libc::ENOSYS));
        assert_eq!(
            service.command(fd, &command(0, 0, &[0; 6])),
            Err(libc::ENOSPC),
            "no room for the id"
        );
        assert_eq!(
            service.command(fd, &command(0, 4, &[0, 0, 0, 0, 0x0106, 0])),
            Err(libc::EFAULT)
        );
        let mut long = command(10, 0, &[0]);
        long[4] = 200;
        assert_eq!(
            service.command(fd, &long),
            Err(libc::EINVAL),
            "longer than what was written"
        );
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}
