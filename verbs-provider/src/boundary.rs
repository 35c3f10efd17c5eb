//! The line between C and Rust: how every exported function is entered and how it answers.
//!
//! An entry is written with `entry!`: it decodes its arguments, calls the driver half, and gives back a `Result`; the
//! return shape named in its signature says how C hears of it. Around the body stand the three things every entry
//! needs: the once-only start of the library, a trace line, and a barrier that turns a panic into an error, as
//! unwinding must not reach C frames.
//!
//! ```text
//! C caller ──► trampoline (exports.rs) ──► extern "C" fn made by entry! ──► enter::<Shape>(body) ──► Shape::C
//! ```
//!
//! **Entries that block** (`ibv_get_cq_event`, `ibv_get_async_event`) are not made with the macro. A thread cancelled by
//! `pthread_cancel` is unwound by force from inside `read` or `poll`, and that unwinding may cross neither a
//! `catch_unwind` nor a frame with something to drop. They are plain `unsafe extern "C"` functions that call
//! [`first_call`], then block holding nothing, then report with [`set_errno`].

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// An error number of the C library; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(c_int);

impl Errno {
    /// A request the interface does not allow.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// No memory, or no room in a queue.
    pub const NOMEM: Self = Self(libc::ENOMEM);
    /// The object is still in use.
    pub const BUSY: Self = Self(libc::EBUSY);
    /// The device does not offer this.
    pub const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// An empty table slot.
    pub const NODATA: Self = Self(libc::ENODATA);
    /// No such object.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// No such device.
    pub const NODEV: Self = Self(libc::ENODEV);
    /// An address that is not mapped.
    pub const FAULT: Self = Self(libc::EFAULT);
    /// Not allowed.
    pub const PERM: Self = Self(libc::EPERM);
    /// The library itself failed.
    pub const IO: Self = Self(libc::EIO);
    /// Nothing there yet.
    pub const AGAIN: Self = Self(libc::EAGAIN);

    /// The error with this number; zero and negative numbers, which are no errors, become `EIO`.
    #[must_use]
    pub const fn new(number: c_int) -> Self {
        if number > 0 { Self(number) } else { Self::IO }
    }

    /// What the last failed C library call left.
    #[must_use]
    pub fn last() -> Self {
        std::io::Error::last_os_error().into()
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> c_int {
        self.0
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

/// How a C function reports: the value it returns and what it leaves in `errno`.
pub trait ReturnShape {
    /// What the body of the entry gives when it succeeds.
    type Value;
    /// What C receives.
    type C;
    /// Converts, setting `errno` on failure.
    fn encode(result: Result<Self::Value, Errno>) -> Self::C;
}

/// Zero, or the error number itself as a positive value (most verbs). `errno` is set as well, as many callers print it.
#[derive(Debug)]
pub struct ErrnoInt;

impl ReturnShape for ErrnoInt {
    type Value = ();
    type C = c_int;
    fn encode(result: Result<(), Errno>) -> c_int {
        result.map_or_else(|error| fail(error, error.get()), |()| 0)
    }
}

/// A non-negative number (0 where there is nothing to count), or −1 with `errno`.
#[derive(Debug)]
pub struct MinusOne;

impl ReturnShape for MinusOne {
    type Value = c_int;
    type C = c_int;
    fn encode(result: Result<c_int, Errno>) -> c_int {
        result.unwrap_or_else(|error| fail(error, -1))
    }
}

/// A count, or the negated error number (`_ibv_query_gid_table`).
#[derive(Debug)]
pub struct NegatedErrno;

impl ReturnShape for NegatedErrno {
    type Value = isize;
    type C = isize;
    fn encode(result: Result<isize, Errno>) -> isize {
        result.unwrap_or_else(|error| fail(error, -(error.get() as isize)))
    }
}

/// A pointer, or null with `errno`.
#[derive(Debug)]
pub struct Ptr<T>(std::marker::PhantomData<*mut T>);

impl<T> ReturnShape for Ptr<T> {
    type Value = *mut T;
    type C = *mut T;
    fn encode(result: Result<*mut T, Errno>) -> *mut T {
        result.unwrap_or_else(|error| fail(error, std::ptr::null_mut()))
    }
}

/// Nothing: failures are only traced.
#[derive(Debug)]
pub struct Void;

impl ReturnShape for Void {
    type Value = ();
    type C = ();
    fn encode(result: Result<(), Errno>) {
        result.unwrap_or_else(|error| fail(error, ()));
    }
}

/// A value that needs no encoding and cannot fail; on a panic its default (0, null) goes out.
#[derive(Debug)]
pub struct Plain<T>(std::marker::PhantomData<T>);

impl<T: Default> ReturnShape for Plain<T> {
    type Value = T;
    type C = T;
    fn encode(result: Result<T, Errno>) -> T {
        result.unwrap_or_else(|error| fail(error, T::default()))
    }
}

fn fail<T>(error: Errno, value: T) -> T {
    set_errno(error);
    value
}

/// Sets the calling thread's `errno`.
pub fn set_errno(error: Errno) {
    // SAFETY: libc gives a valid pointer to the calling thread's own errno, for as long as the thread lives.
    unsafe { *libc::__errno_location() = error.get() };
}

/// What the library does before the first call of a process is served, in this order.
///
/// Being preloaded into every child of a run, it must do nothing at all before that. None of these may call an exported
/// function.
const FIRST_CALL: &[fn()] = &[start_runtime];

/// Starts the library if this is the first call. Every entry does this; so must functions not made with `entry!`.
pub fn first_call() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| FIRST_CALL.iter().for_each(|start| start()));
}

/// Reads the configuration, starts the log, lists the devices.
fn start_runtime() {
    crate::runtime::Runtime::get();
}

/// Runs the body of an entry and encodes what it gives; see the module's notes.
pub fn enter<S: ReturnShape>(name: &'static str, body: impl FnOnce() -> Result<S::Value, Errno>) -> S::C {
    // The library's state is consistent between two statements or guarded by locks that do not poison, so a caught
    // panic leaves nothing half done that a later call could trip over unsafely.
    let result = catch_unwind(AssertUnwindSafe(|| {
        first_call();
        body()
    }));
    let result = result.unwrap_or_else(|_| {
        tracing::error!(target: "adverb::verbs", entry = name, "internal error: the call panicked");
        Err(Errno::IO)
    });
    match &result {
        Ok(_) => tracing::trace!(target: "adverb::verbs", entry = name),
        Err(error) => tracing::debug!(target: "adverb::verbs", entry = name, %error),
    }
    S::encode(result)
}

/// Makes exported functions: `fn name(args) -> Shape { body }`, the body giving `Result<Shape::Value, Errno>`.
///
/// ```ignore
/// entry! {
///     /// Frees a protection domain.
///     ///
///     /// # Safety
///     /// `pd` came from `ibv_alloc_pd` and is not used afterwards.
///     fn ibv_dealloc_pd(pd: *mut ibv_pd) -> ErrnoInt {
///         // SAFETY: the caller vouches for `pd`.
///         let pd = unsafe { Pd::take(pd) }?;
///         pd.context.command(Command::DeallocPd(pd.handle))
///     }
/// }
/// ```
///
/// The name must also be listed in `exports.rs`.
macro_rules! entry {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $shape:ty $body:block)*) => {
        $($(#[$meta])*
        pub unsafe extern "C" fn $name($($arg: $type),*) -> <$shape as $crate::boundary::ReturnShape>::C {
            $crate::boundary::enter::<$shape>(stringify!($name), move || $body)
        })*
    };
}
pub(crate) use entry;

#[cfg(test)]
#[allow(unreachable_pub, reason = "entries are public")]
mod tests {
    use super::*;

    fn errno() -> c_int {
        Errno::last().get()
    }

    entry! {
        /// Fails or succeeds as told.
        fn number(value: c_int) -> MinusOne {
            if value < 0 { Err(Errno::new(-value)) } else { Ok(value) }
        }
        /// Panics.
        fn panics() -> ErrnoInt {
            std::panic::resume_unwind(Box::new("told to"))
        }
    }

    #[test]
    fn shapes_encode_as_c_expects() {
        assert_eq!(ErrnoInt::encode(Ok(())), 0);
        assert_eq!(ErrnoInt::encode(Err(Errno::BUSY)), libc::EBUSY);
        assert_eq!(errno(), libc::EBUSY);
        assert_eq!(NegatedErrno::encode(Err(Errno::INVAL)), -(libc::EINVAL as isize));
        assert!(Ptr::<u8>::encode(Err(Errno::NOMEM)).is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert_eq!(Plain::<u32>::encode(Err(Errno::IO)), 0);
        Void::encode(Err(Errno::NODEV));
        assert_eq!(errno(), libc::ENODEV);
    }

    #[test]
    fn entries_report_values_errors_and_panics() {
        // SAFETY: both functions take any argument.
        unsafe {
            assert_eq!(number(7), 7);
            assert_eq!(number(-libc::EPERM), -1);
            assert_eq!(errno(), libc::EPERM);
            assert_eq!(panics(), libc::EIO);
        }
    }

    #[test]
    fn no_errno_is_zero() {
        assert_eq!(Errno::new(0), Errno::IO);
        assert_eq!(Errno::new(-5), Errno::IO);
        assert_eq!(
            Errno::from(std::io::Error::from_raw_os_error(libc::ENOENT)),
            Errno::NOENT
        );
        assert_eq!(Errno::from(std::io::Error::other("x")), Errno::IO);
    }
}
