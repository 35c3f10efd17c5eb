//! The exported symbols, in assembly.
//!
//! Each keeps every argument register as it found it until it jumps: `r10` and `r11` are the only ones a function may
//! spoil, and `rax` carries the number of vector registers of a variadic call. The descriptor test is one `bt` in a
//! bitmap; the path test compares byte by byte, so that it never reads behind the string.

use super::descriptors::{BITMAP, confirm};
use super::device;
use super::next::{Function, NEXT};
use crate::exports::libc_hook;

const SLOT: usize = size_of::<*const ()>();

/// A hook of a function whose descriptor is in `$fd` (32-bit name), or goes on to `$ours` after `$shift`.
macro_rules! descriptor_hook {
    ($(#[$doc:meta])* $name:ident, $function:ident, $fd:literal, $shift:literal, $ours:path) => {
        libc_hook! {
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C library's function.
            $name,
            concat!("cmp ", $fd, ", 65536"),
            "jae 2f",
            "lea r11, [rip + {bitmap}]",
            concat!("bt dword ptr [r11], ", $fd),
            "jc 3f",
            "2:",
            "jmp qword ptr [rip + {next} + {slot}]",
            "3:",
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
            concat!("mov edi, ", $fd),
            "call {confirm}",
            "mov r11d, eax",
            "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "test r11b, r11b",
            "jz 2b",
            $shift,
            "jmp {ours}",
            bitmap = sym BITMAP,
            next = sym NEXT,
            slot = const Function::$function as usize * SLOT,
            confirm = sym confirm,
            ours = sym $ours,
        }
    };
}

/// A hook of a function whose path is in `$path` (64-bit name) and whose flags are in `$flags` (32-bit name).
macro_rules! path_hook {
    ($(#[$doc:meta])* $name:ident, $function:ident, $path:literal, $flags:literal) => {
        libc_hook! {
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C library's function.
            $name,
            concat!("test ", $path, ", ", $path),
            "jz 2f",
            // "/dev/infiniband", a byte at a time.
            path_hook!(@byte $path, 0, 47),
            path_hook!(@byte $path, 1, 100),
            path_hook!(@byte $path, 2, 101),
            path_hook!(@byte $path, 3, 118),
            path_hook!(@byte $path, 4, 47),
            path_hook!(@byte $path, 5, 105),
            path_hook!(@byte $path, 6, 110),
            path_hook!(@byte $path, 7, 102),
            path_hook!(@byte $path, 8, 105),
            path_hook!(@byte $path, 9, 110),
            path_hook!(@byte $path, 10, 105),
            path_hook!(@byte $path, 11, 98),
            path_hook!(@byte $path, 12, 97),
            path_hook!(@byte $path, 13, 110),
            path_hook!(@byte $path, 14, 100),
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
            concat!("mov rdi, ", $path),
            "call {is_device}",
            "mov r11d, eax",
            "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            "test r11b, r11b",
            "jz 2f",
            concat!("mov edi, ", $flags),
            "jmp {open}",
            "2:",
            "jmp qword ptr [rip + {next} + {slot}]",
            next = sym NEXT,
            slot = const Function::$function as usize * SLOT,
            is_device = sym device::is_device,
            open = sym device::open,
        }
    };
    (@byte $path:literal, $offset:literal, $value:literal) => {
        concat!("cmp byte ptr [", $path, " + ", $offset, "], ", $value, "\n jne 2f")
    };
}

path_hook!(
    /// `open`.
    open, Open, "rdi", "esi"
);
path_hook!(
    /// `open64`.
    open64, Open64, "rdi", "esi"
);
path_hook!(
    /// `openat`; the device's path is absolute.
    openat, OpenAt, "rsi", "edx"
);
path_hook!(
    /// `openat64`.
    openat64, OpenAt64, "rsi", "edx"
);
path_hook!(
    /// `open` of a program built with `_FORTIFY_SOURCE`.
    __open_2, Open2, "rdi", "esi"
);
path_hook!(
    /// `open64` of a program built with `_FORTIFY_SOURCE`.
    __open64_2, Open642, "rdi", "esi"
);
descriptor_hook!(
    /// `fstat`.
    fstat, Fstat, "edi", "", device::fstat
);
descriptor_hook!(
    /// `fstat64`.
    fstat64, Fstat64, "edi", "", device::fstat
);
descriptor_hook!(
    /// `fstat` of a program built for glibc before 2.33: a version comes first.
    __fxstat, Fxstat, "esi", "mov edi, esi\n mov rsi, rdx", device::fstat
);
descriptor_hook!(
    /// `fstat64` of a program built for glibc before 2.33.
    __fxstat64, Fxstat64, "esi", "mov edi, esi\n mov rsi, rdx", device::fstat
);
descriptor_hook!(
    /// `write`.
    write, Write, "edi", "", device::write
);
descriptor_hook!(
    /// `close`.
    close, Close, "edi", "", device::close
);
