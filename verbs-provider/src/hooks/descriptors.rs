//! Which descriptors are ours: one bit each for the stubs to test, and an identity to be sure.
//!
//! A descriptor number can change hands without a call we see (`dup2`, `close_range`, raw system calls). So a bit is only
//! a hint: before anything is done for it, [`confirm`] compares the socket's device and inode with those it had when it
//! was opened, and clears the bit if they differ. Inodes of sockets are not reused while one is open.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors from here on are never ours.
pub(super) const MAX: usize = 65_536;

/// One bit a descriptor; read by the stubs in assembly.
pub(super) static BITMAP: [AtomicU32; MAX / 32] = [const { AtomicU32::new(0) }; MAX / 32];
/// Inode of each descriptor of ours. Untouched pages of it cost nothing.
static INODES: [AtomicU64; MAX] = [const { AtomicU64::new(0) }; MAX];
/// Device of all of them: the kernel's socket file system.
static DEVICE: AtomicU64 = AtomicU64::new(0);

fn index(fd: c_int) -> Option<usize> {
    usize::try_from(fd).ok().filter(|fd| *fd < MAX)
}

/// The kernel's view of a descriptor, past every hook. Never a cancellation point.
pub(super) fn status(fd: c_int) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for the kernel's structure, which on this architecture is the C library's.
    let result = unsafe { libc::syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) };
    // SAFETY: a successful fstat has filled it.
    (result == 0).then(|| unsafe { stat.assume_init() })
}

/// Make a descriptor ours. False if it is out of range.
pub(super) fn claim(fd: c_int) -> bool {
    let (Some(index), Some(stat)) = (index(fd), status(fd)) else {
        return false;
    };
    INODES[index].store(stat.st_ino, Ordering::Relaxed);
    DEVICE.store(stat.st_dev, Ordering::Relaxed);
    BITMAP[index / 32].fetch_or(1 << (index % 32), Ordering::Release);
    true
}

/// Make a descriptor not ours.
pub(super) fn release(fd: c_int) {
    if let Some(index) = index(fd) {
        BITMAP[index / 32].fetch_and(!(1 << (index % 32)), Ordering::AcqRel);
    }
}

/// Whether a descriptor whose bit is set is still ours. `errno` is left alone.
pub(super) extern "C" fn confirm(fd: c_int) -> bool {
    let errno = super::errno();
    let ours = index(fd).is_some_and(|index| {
        status(fd).is_some_and(|stat| {
            stat.st_ino == INODES[index].load(Ordering::Relaxed) && stat.st_dev == DEVICE.load(Ordering::Relaxed)
        })
    });
    if !ours {
        release(fd);
    }
    super::set_errno(errno);
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_noticed() {
        let mut pair = [0; 2];
        // SAFETY: room for two descriptors; all descriptors below are this test's own.
        unsafe {
            assert_eq!(
                libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()),
                0
            );
            assert!(claim(pair[0]));
            assert!(confirm(pair[0]));
            assert_eq!(libc::dup2(pair[1], pair[0]), pair[0]);
            assert!(!confirm(pair[0]), "the number now belongs to another socket");
            assert_eq!(
                BITMAP[index(pair[0]).unwrap() / 32].load(Ordering::Relaxed) >> (pair[0] % 32) & 1,
                0
            );
            libc::close(pair[0]);
            libc::close(pair[1]);
        }
        assert!(!confirm(-1) && !claim(-1));
    }
}
