//! The functions behind the hooks: the next definitions in the loader's search order.
//!
//! Each hook jumps through a slot of [`NEXT`]. A slot starts out at a resolver that looks the symbol up, fills the slot
//! and jumps on, so that a hook works before any constructor of the library has run.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library that is hooked; the number of its slot.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Function {
    Open,
    Open64,
    OpenAt,
    OpenAt64,
    Open2,
    Open642,
    Fstat,
    Fstat64,
    Fxstat,
    Fxstat64,
    Write,
    Close,
}

const NAMES: [&CStr; 12] = [
    c"open",
    c"open64",
    c"openat",
    c"openat64",
    c"__open_2",
    c"__open64_2",
    c"fstat",
    c"fstat64",
    c"__fxstat",
    c"__fxstat64",
    c"write",
    c"close",
];

/// Where each hook goes on to.
pub(super) static NEXT: [AtomicPtr<c_void>; NAMES.len()] = [
    resolver(resolve_0),
    resolver(resolve_1),
    resolver(resolve_2),
    resolver(resolve_3),
    resolver(resolve_4),
    resolver(resolve_5),
    resolver(resolve_6),
    resolver(resolve_7),
    resolver(resolve_8),
    resolver(resolve_9),
    resolver(resolve_10),
    resolver(resolve_11),
];

const fn resolver(function: unsafe extern "C" fn()) -> AtomicPtr<c_void> {
    AtomicPtr::new(function as *const () as *mut c_void)
}

/// Look a function up and remember it.
extern "C" fn resolve(function: usize) -> *mut c_void {
    let errno = super::errno();
    // SAFETY: a NUL-terminated name; RTLD_NEXT searches after the object this code is in.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[function].as_ptr()) };
    // A C library without the function has no callers for it either.
    let target = if found.is_null() {
        missing as *const () as *mut c_void
    } else {
        found
    };
    NEXT[function].store(target, Ordering::Relaxed);
    super::set_errno(errno);
    target
}

/// Stands in for a function the C library lacks.
extern "C" fn missing() -> c_int {
    super::set_errno(libc::ENOSYS);
    -1
}

macro_rules! resolvers {
    ($($name:ident = $index:literal),* $(,)?) => {
        $(
            /// Keeps the arguments, resolves, goes on as if nothing had been in between. The seven pushes leave the stack
            /// aligned for the call.
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    concat!("mov edi, ", $index),
                    "call {resolve}",
                    "mov r11, rax",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    resolve = sym resolve,
                )
            }
        )*
    };
}
resolvers!(
    resolve_0 = 0,
    resolve_1 = 1,
    resolve_2 = 2,
    resolve_3 = 3,
    resolve_4 = 4,
    resolve_5 = 5,
    resolve_6 = 6,
    resolve_7 = 7,
    resolve_8 = 8,
    resolve_9 = 9,
    resolve_10 = 10,
    resolve_11 = 11,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_names_agree() {
        for (function, name) in [
            (Function::Open, c"open"),
            (Function::Open642, c"__open64_2"),
            (Function::Fxstat64, c"__fxstat64"),
            (Function::Write, c"write"),
            (Function::Close, c"close"),
        ] {
            assert_eq!(NAMES[function as usize], name);
        }
    }
}
