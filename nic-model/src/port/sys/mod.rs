//! System calls that the safe crates lack: batched datagrams with control messages, socket memory, interface MTU.
//!
//! The files here are the only ones of the port that hold `unsafe`, and that is the system calls alone: control messages
//! and socket addresses are encoded and decoded as bytes, in safe code. Every block's pointers are to buffers that the
//! same function borrows or owns for the whole call.

mod datagram;
mod encoding;

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

pub use self::datagram::{Datagrams, Receiver, send, send_each};
pub use self::encoding::SendOptions;

/// Ask the scheduler for short time slices for the calling thread, in exchange for being run soon after it wakes: from
/// Linux 6.12 on such a thread preempts one that spins. Best effort; older kernels ignore it.
pub fn prefer_latency() {
    /// `struct sched_attr`, first version.
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    /// The shortest slice the kernel grants, in nanoseconds.
    const SLICE: u64 = 100_000;
    // SAFETY: takes two integers and touches no memory. 0 is the calling thread, which exists, so it cannot fail.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attr = SchedAttr {
        size: 48,
        policy: 0,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of `attr`, which is that long and lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "the scheduler keeps its usual time slices");
    }
}

/// A descriptor that its owner keeps open for as long as the borrower uses it: one in an epoll set, which its owner takes
/// out before closing it. A descriptor closed all the same makes the call fail, no more.
pub fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: not -1, as every caller got it from an open descriptor; it is passed to epoll_ctl only, which checks it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// `value` as the length type of socket calls; all lengths here are small constants.
fn socklen(value: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(value).unwrap_or(libc::socklen_t::MAX)
}

/// Turn the result of a system call into the number it stands for, or `errno`.
fn checked<T: TryInto<usize>>(result: T) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}

/// Set an integer socket option.
pub fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option value is a live i32 of the length given; the descriptor is borrowed.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            socklen(size_of::<i32>()),
        )
    };
    checked(rc).map(drop)
}

/// An integer socket option's value.
pub fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut len = socklen(size_of::<i32>());
    // SAFETY: value and len are live and len is the size of value, beyond which the kernel does not write.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut len) };
    checked(rc).map(|_| value)
}

/// A socket's memory as the kernel accounts it (`SO_MEMINFO`), in bytes of buffers including their overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Held by received packets that nobody has read yet.
    pub receive_queue: u32,
    /// The most `receive_queue` may come to before arriving packets are dropped.
    pub receive_buffer: u32,
    /// Held by packets on their way out.
    pub send_queue: u32,
    /// The most `send_queue` may come to.
    pub send_buffer: u32,
    /// Packets dropped for want of receive buffer since the socket was made.
    pub drops: u32,
}

/// The socket's memory use now.
pub fn socket_memory(fd: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    const VALUES: usize = 9;
    let mut values = [0_u32; VALUES];
    let mut len = socklen(mem::size_of_val(&values));
    // SAFETY: values and len are live and len is the size of values, beyond which the kernel does not write.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut len,
        )
    };
    checked(rc)?;
    // Order of linux/sock_diag.h, SK_MEMINFO_*.
    let [
        receive_queue,
        receive_buffer,
        send_queue,
        send_buffer,
        _,
        _,
        _,
        _,
        drops,
    ] = values;
    Ok(SocketMemory {
        receive_queue,
        receive_buffer,
        send_queue,
        send_buffer,
        drops,
    })
}

/// The MTU of a network interface, by name, from the kernel (works where `/sys` is absent or another namespace's).
pub fn interface_mtu(name: &str) -> io::Result<u32> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One byte stays zero: the name is a C string.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: SIOCGIFMTU reads the name from and writes the MTU to the ifreq, which is live and of the right type.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, ptr::from_mut(&mut request)) };
    checked(rc)?;
    // SAFETY: SIOCGIFMTU succeeded, so ifru_mtu is the member the kernel wrote.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A set of positions in a list of up to [`Positions::MAX`] entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions(u64);

impl Positions {
    /// Positions beyond are never in the set.
    pub const MAX: usize = 64;

    /// Whether `position` is in the set.
    pub const fn contains(self, position: usize) -> bool {
        position < Self::MAX && self.0 >> position & 1 == 1
    }
}

/// Which of the descriptors have something to read now.
pub fn readable<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> Positions {
    let mut entries = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; Positions::MAX];
    let mut count = 0;
    for (entry, fd) in entries.iter_mut().zip(fds) {
        entry.fd = fd.as_raw_fd();
        count += 1;
    }
    // SAFETY: the first `count` entries are filled in with descriptors borrowed for the call, which writes revents only.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), count, 0) };
    let mut positions = Positions::default();
    if ready > 0 {
        for (position, entry) in entries.iter().enumerate() {
            positions.0 |= u64::from(entry.revents != 0) << position;
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_mtu() {
        assert!(interface_mtu("lo").unwrap() >= 1500);
        assert!(interface_mtu("no-such-device-x").is_err());
    }
}
