//! System calls of host sharing that have no safe wrapper, the only `unsafe` below `port/host`.
//!
//! Each function states what the kernel needs and offers a safe signature; callers hold no raw pointer.

use core::mem::size_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Takes ownership of descriptors the kernel just installed for us (SCM_RIGHTS).
pub(super) fn adopt(fds: &[RawFd]) -> Vec<OwnedFd> {
    // SAFETY: recvmsg created these descriptors for this call; nobody else knows their numbers yet.
    fds.iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

/// Sleeps until one of `fds` is readable or has hung up, or `timeout` has passed; tells which. A signal ends the sleep
/// early.
pub(super) fn wait_readable(fds: &[RawFd], timeout: Duration) -> Vec<bool> {
    let mut set: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // Rounded up, or the last fraction of a millisecond would be spent spinning.
    let millis = libc::c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX);
    let count = libc::nfds_t::try_from(set.len()).unwrap_or(0);
    // SAFETY: `set` holds `count` initialised entries for the whole call. Descriptors are only looked up by number.
    let ready = unsafe { libc::poll(set.as_mut_ptr(), count, millis) };
    set.iter().map(|entry| ready > 0 && entry.revents != 0).collect()
}

/// Makes `program` select the socket within the SO_REUSEPORT group of `socket`.
pub(super) fn attach_reuseport_filter(socket: RawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // The kernel copies the instructions; the field is `*mut` only because sock_fprog is also used for reading back.
    let filter = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &filter)
}

fn set_option<T>(socket: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "option structures are a few bytes")]
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is live for the call and `len` is its size; the kernel only reads it.
    let result = unsafe { libc::setsockopt(socket, level, name, core::ptr::from_ref(value).cast(), len) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Number of values SO_MEMINFO returns.
const MEMINFO_VALUES: usize = 9;

/// Memory of a socket as the kernel accounts it (SO_MEMINFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes charged to the receive queue.
    pub rmem: u32,
    /// Limit of the receive queue.
    pub rcvbuf: u32,
    /// Datagrams dropped, for lack of room or a bad checksum.
    pub drops: u32,
}

/// Reads the receive accounting of `socket`.
///
/// # Errors
/// What getsockopt reports; ENOPROTOOPT on kernels before 4.12.
pub fn socket_memory(socket: RawFd) -> io::Result<SocketMemory> {
    let mut values = [0u32; MEMINFO_VALUES];
    #[expect(clippy::cast_possible_truncation, reason = "36 bytes")]
    let mut len = size_of::<[u32; MEMINFO_VALUES]>() as libc::socklen_t;
    // SAFETY: `values` has `len` writable bytes; the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let [rmem, rcvbuf, _, _, _, _, _, _, drops] = values;
    Ok(SocketMemory { rmem, rcvbuf, drops })
}

/// A page of a memfd mapped shared and seen only as atomics, since other processes write to it at any time.
#[derive(Debug)]
pub(super) struct SharedPage {
    base: NonNull<libc::c_void>,
}

// SAFETY: the mapping is process-wide, is unmapped only by Drop, and is reached only through atomics.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

/// Size of a [`SharedPage`].
pub(super) const PAGE: usize = 4096;

impl SharedPage {
    /// Maps the first page of `memfd`, which must be at least that long and sealed against shrinking: its owner could
    /// otherwise cut it and have every reader killed by SIGBUS.
    pub(super) fn map(memfd: &OwnedFd) -> io::Result<Self> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let seals = nix::fcntl::fcntl(memfd.as_raw_fd(), nix::fcntl::FcntlArg::F_GET_SEALS)?;
        let long_enough = usize::try_from(nix::sys::stat::fstat(memfd.as_raw_fd())?.st_size).is_ok_and(|n| n >= PAGE);
        if seals & libc::F_SEAL_SHRINK == 0 || !long_enough {
            return Err(bad());
        }
        // SAFETY: a fresh mapping of PAGE bytes at an address the kernel chooses; it cannot alias Rust memory.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                memfd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base).map(|base| Self { base }).ok_or_else(bad)
    }

    /// The 32-bit word at byte `offset`.
    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= PAGE,
            "board field outside its page"
        );
        // SAFETY: in bounds and aligned (asserted), mapped for the life of self, and accessed only atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().byte_add(offset).cast()) }
    }

    /// The 64-bit word at byte `offset`.
    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= PAGE,
            "board field outside its page"
        );
        // SAFETY: in bounds and aligned (asserted), mapped for the life of self, and accessed only atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().byte_add(offset).cast()) }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; the borrows handed out end with self.
        unsafe { libc::munmap(self.base.as_ptr(), PAGE) };
    }
}

/// Ignores the signals a terminal or a session leader sends to whole groups, and SIGPIPE.
pub(super) fn ignore_group_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE] {
        // SAFETY: installing SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Starts `exe args…` as a daemon that shares nothing with this process: own session, no descriptor but /dev/null on
/// the standard three, default signal handling, environment `env`, and no SIGCHLD or zombie for the application.
///
/// Raw clone instead of fork: no atfork handler of the application runs, and a child without SIGCHLD is invisible to
/// its `wait()`. Both children run only async-signal-safe system calls, with every signal blocked until exec.
pub(super) fn spawn_daemon(exe: &CString, args: &[CString], env: &[CString]) -> io::Result<()> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([core::ptr::null()]).collect()
    };
    let argv = pointers(args);
    let envp = pointers(env);
    // SAFETY: sigset_t is plain data; sigfillset initialises it and pthread_sigmask reads and writes live sets.
    let old_mask = unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    // SAFETY: clone without CLONE_VM is fork: the child has its own copy of memory and only this thread.
    let child = unsafe { raw_fork() };
    if child == 0 {
        // SAFETY: in the child, before exec, only async-signal-safe calls; the pointers are copies made above.
        unsafe { become_daemon(exe.as_ptr(), argv.as_ptr(), envp.as_ptr()) }
    }
    let error = io::Error::last_os_error();
    // SAFETY: restores the mask read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old_mask, core::ptr::null_mut()) };
    if child < 0 {
        return Err(error);
    }
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child; __WALL since it was cloned without SIGCHLD.
        let done = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
        if done == child {
            break;
        }
        // ECHILD: the application ignores SIGCHLD and the kernel has reaped the child already.
        if done < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Ok(());
        }
    }
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        Ok(())
    } else {
        Err(io::Error::other("cannot start the guardian process"))
    }
}

/// fork without SIGCHLD and without atfork handlers.
///
/// # Safety
/// The child may only make async-signal-safe calls and must end in exec or `_exit`.
unsafe fn raw_fork() -> libc::pid_t {
    // SAFETY: all-zero arguments: new process, copied memory, no exit signal (caller's contract for the rest).
    let result = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    libc::pid_t::try_from(result).unwrap_or(-1)
}

/// The first child: leaves the session and clones the daemon, which execs.
///
/// # Safety
/// Only in a child of [`raw_fork`]; the pointers are valid NUL-terminated strings and NULL-terminated arrays.
unsafe fn become_daemon(
    exe: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> ! {
    // SAFETY: the caller's contract; every call below is async-signal-safe and touches only this process.
    unsafe {
        libc::setsid();
        let daemon = raw_fork();
        if daemon != 0 {
            libc::_exit(libc::c_int::from(daemon < 0));
        }
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            if null < 0 {
                libc::close(standard);
            } else if null != standard {
                libc::dup2(null, standard);
            }
        }
        if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) != 0 {
            let limit = libc::c_int::try_from(libc::sysconf(libc::_SC_OPEN_MAX)).unwrap_or(65_536);
            for fd in 3..limit.min(1 << 20) {
                libc::close(fd);
            }
        }
        libc::chdir(c"/".as_ptr());
        let mut none: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, core::ptr::null_mut());
        libc::execve(exe, argv, envp);
        libc::_exit(127)
    }
}
