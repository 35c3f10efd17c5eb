//! The system calls behind verbs objects.
//!
//! Tokens go in and out through `syscall(2)`: `write` and `readv` are cancellation points, and a thread cancelled while
//! it delivers an event would leave locks behind.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A new semaphore descriptor at zero.
pub fn semaphore() -> io::Result<OwnedFd> {
    // SAFETY: eventfd takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Add one token to a semaphore descriptor.
pub fn post_token(fd: RawFd) {
    let one = 1u64;
    loop {
        // SAFETY: `one` is eight readable bytes that outlive the call.
        let written = unsafe { libc::syscall(libc::SYS_write, fd, &raw const one, size_of::<u64>()) };
        if written >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Take one token back without blocking, whatever the descriptor's `O_NONBLOCK` says. When the kernel cannot do that,
/// or a reader was faster, the reader finds no event for its token and reads again.
pub fn take_token(fd: RawFd) {
    let mut token = 0u64;
    let buffer = libc::iovec {
        iov_base: (&raw mut token).cast(),
        iov_len: size_of::<u64>(),
    };
    // Offset -1 is "no position", split over two arguments.
    let offset: libc::c_long = -1;
    // SAFETY: `buffer` describes eight writable bytes that outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd,
            &raw const buffer,
            1,
            offset,
            offset,
            libc::RWF_NOWAIT,
        )
    };
}

/// Write `bytes` to a descriptor, as far as it takes them.
pub fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length during the call.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Bytes in a page.
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096).max(1)
}

/// Fault in `length` bytes of whole pages at `start`, for writing or for reading; the error is the errno.
pub fn populate(start: u64, length: u64, writable: bool) -> Result<(), i32> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    let (Ok(address), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return Err(libc::ENOMEM);
    };
    loop {
        // SAFETY: populating changes no contents and no mapping; a range that is not mapped is refused by the kernel.
        let result = unsafe { libc::madvise(std::ptr::without_provenance_mut(address), length, advice) };
        if result == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            Some(errno) => return Err(errno),
            None => return Err(libc::EFAULT),
        }
    }
}
