//! The emulated `/dev/infiniband/rdma_cm`: what its open, fstat, write and close do.
//!
//! Called by the stubs, in the application's thread. Everything but the wait for an event runs with cancellation off:
//! it takes locks, and a thread that dies with one would stop the process. The wait is a plain `recv` with nothing held
//! and nothing to drop, so that `pthread_cancel` works as on the kernel's device; the kernel restarts it, or not, after a
//! signal as the handler asked.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::descriptors;
use super::{errno, set_errno};
use crate::cm::host;
use crate::cm::service::{self, Outcome};

const PATH: &CStr = c"/dev/infiniband/rdma_cm";
/// The kernel's number of the device when it has none: misc device 10, minor of the last dynamic one.
const DEVICE_NUMBER: (u32, u32) = (10, 58);
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

fn set_cancel_state(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: `old` is writable; the states passed are PTHREAD_CANCEL_DISABLE and what this function gave back.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// Run `body` out of reach of cancellation; a panic becomes `EIO`, an error sets `errno`, success leaves it alone.
fn guarded<T>(body: impl FnOnce() -> Result<T, c_int>) -> Result<T, ()> {
    let saved = errno();
    let old = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(libc::EIO));
    set_cancel_state(old);
    set_errno(*result.as_ref().err().unwrap_or(&saved));
    result.map_err(drop)
}

/// Whether a path is the device's.
pub(super) extern "C" fn is_device(path: *const c_char) -> bool {
    // SAFETY: the stub calls this only for a path that starts with "/dev/infiniband", so it is a string.
    !path.is_null() && unsafe { CStr::from_ptr(path) } == PATH
}

/// Open the device.
pub(super) extern "C" fn open(flags: c_int) -> c_int {
    guarded(|| {
        let fd = host::service().open(flags & libc::O_NONBLOCK != 0)?;
        if descriptors::claim(fd) {
            return Ok(fd);
        }
        host::service().close(fd);
        close_descriptor(fd);
        Err(libc::EMFILE)
    })
    .unwrap_or(-1)
}

/// Close one of its descriptors.
pub(super) extern "C" fn close(fd: c_int) -> c_int {
    descriptors::release(fd);
    let closed = guarded(|| {
        if let Some(service) = service::current() {
            service.close(fd);
        }
        Ok(())
    });
    close_descriptor(fd);
    if closed.is_ok() { 0 } else { -1 }
}

fn close_descriptor(fd: c_int) {
    // SAFETY: the descriptor is one of ours, and the caller gives it up.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Describe one of its descriptors: a character device.
///
/// # Safety
/// `stat` is what the application passed to fstat: room for a `struct stat`.
pub(super) unsafe extern "C" fn fstat(fd: c_int, stat: *mut libc::stat) -> c_int {
    let Some(mut status) = descriptors::status(fd) else {
        return -1;
    };
    if stat.is_null() {
        set_errno(libc::EFAULT);
        return -1;
    }
    status.st_mode = libc::S_IFCHR | 0o666;
    status.st_rdev = guarded(|| Ok(device_number())).unwrap_or(0);
    status.st_size = 0;
    // SAFETY: the caller promises room for the structure.
    unsafe { stat.write(status) };
    0
}

/// librdmacm compares with the number the kernel announces, where the kernel has RDMA.
fn device_number() -> libc::dev_t {
    let text = std::fs::read_to_string("/sys/class/misc/rdma_cm/dev").unwrap_or_default();
    let parsed = text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (major, minor) = parsed.unwrap_or(DEVICE_NUMBER);
    libc::makedev(major, minor)
}

/// Execute a command.
///
/// # Safety
/// `buffer` is what the application passed to write: `len` readable bytes, a command whose response pointer it owns.
pub(super) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: usize) -> isize {
    loop {
        let outcome = guarded(|| {
            if buffer.is_null() {
                return Err(libc::EFAULT);
            }
            // SAFETY: the caller promises `len` readable bytes, which nobody changes during the call.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) };
            service::current().ok_or(libc::ENODEV)?.command(fd, bytes)
        });
        match outcome {
            Ok(Outcome::Done) => return isize::try_from(len).unwrap_or(isize::MAX),
            Ok(Outcome::Wait) => {
                let mut byte = 0u8;
                // SAFETY: one writable byte. Looking at it leaves it there. Nothing is held: if the thread is cancelled in
                // here, its stack is dropped without missing anything.
                match unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK) } {
                    1 => {}
                    -1 if errno() != libc::EBADF => return -1,
                    // Another thread closed the channel. In the kernel a waiting thread keeps the file alive, and waits on
                    // for an event that cannot come; programs end in this state, and must not see an error before they do.
                    _ => {
                        // SAFETY: takes nothing, holds nothing; a cancellation point too.
                        unsafe { libc::pause() };
                        set_errno(libc::EINTR);
                        return -1;
                    }
                }
            }
            Err(()) => return -1,
        }
    }
}
