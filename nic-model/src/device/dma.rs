//! DMA: copies between packets and the process's memory.
//!
//! The only file of the device with `unsafe`. Addresses come from [`super::memory`], which has checked them against a
//! registered region; the driver has checked at registration that the region is mapped with the rights asked for. The
//! copies use raw pointers, never references, as the application may write the same bytes at any time, exactly as with
//! a hardware NIC.
//!
//! Order: bytes land before the call returns, and with [`write_last`] the final bytes become visible after all others,
//! because applications spin on the last byte of a WRITE.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A range of process memory that a memory region check has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostRange {
    addr: u64,
    length: usize,
}

impl HostRange {
    /// For [`super::memory`] only: the range lies inside a registered region.
    pub(super) const fn admitted(addr: u64, length: usize) -> Self {
        Self { addr, length }
    }

    /// Bytes in the range.
    pub(super) const fn len(self) -> usize {
        self.length
    }
}

/// The address of process memory as a pointer; the application has exposed it by registering it.
#[inline]
fn pointer(addr: u64) -> *mut u8 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses of this process fit its pointers"
    )]
    core::ptr::with_exposed_provenance_mut(addr as usize)
}

/// Append the range to `out`.
pub(super) fn read(range: HostRange, out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(range.length);
    // SAFETY: `range` was admitted by a region check, so its bytes are mapped and readable (the application keeps a
    // registered region mapped until it deregisters it); `out` has `length` spare bytes after `reserve`, which the copy
    // initialises before the length covers them.
    unsafe {
        core::ptr::copy_nonoverlapping(
            pointer(range.addr).cast_const(),
            out.as_mut_ptr().add(start),
            range.length,
        );
        out.set_len(start + range.length);
    }
}

/// Copy `data` into the range; the shorter of both counts.
pub(super) fn write(range: HostRange, data: &[u8]) {
    let length = data.len().min(range.length);
    // SAFETY: `range` was admitted for writing by a region check; `length` bounds both sides; a packet buffer is never
    // part of a registered region of its own process while the device holds it.
    unsafe { core::ptr::copy(data.as_ptr(), pointer(range.addr), length) }
}

/// Copy `data`, its last bytes after all others and with release ordering.
pub(super) fn write_last(range: HostRange, data: &[u8]) {
    let length = data.len().min(range.length);
    let tail = match length {
        0 => return,
        n if (range.addr + n as u64).is_multiple_of(8) => n.min(8),
        _ => 1,
    };
    let body = length - tail;
    write(HostRange::admitted(range.addr, body), &data[..body]);
    let target = range.addr + body as u64;
    if tail == 8 {
        let value = u64::from_ne_bytes(data[body..length].try_into().unwrap_or_default());
        // SAFETY: inside the admitted range, eight bytes long and eight-byte aligned, since the range ends on a multiple
        // of eight and the tail is its last eight bytes.
        unsafe { AtomicU64::from_ptr(pointer(target).cast()) }.store(value, Ordering::Release);
    } else {
        for (offset, byte) in data[body..length].iter().enumerate() {
            // SAFETY: inside the admitted range; bytes have no alignment.
            unsafe { AtomicU8::from_ptr(pointer(target + offset as u64)) }.store(*byte, Ordering::Release);
        }
    }
}

/// Atomically replace the 64-bit word of the range by `f` of it and return the old value; `None` unless the range is
/// eight bytes long and aligned.
pub(super) fn atomic(range: HostRange, f: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    if range.length != 8 || !range.addr.is_multiple_of(8) {
        return None;
    }
    // SAFETY: admitted for reading and writing, eight bytes, aligned; concurrent users of the word must use atomics, as
    // with a NIC of atomicity level HCA.
    let word = unsafe { AtomicU64::from_ptr(pointer(range.addr).cast()) };
    Some(match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, f) {
        Ok(old) | Err(old) => old,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_written_for_every_length_and_alignment() {
        for offset in 0..9usize {
            for length in 0..40usize {
                let mut memory = vec![0u64; 8];
                let base = memory.as_mut_ptr() as u64 + offset as u64;
                let data: Vec<u8> = (1..=u8::try_from(length).unwrap()).collect();
                write_last(HostRange::admitted(base, length), &data);
                let mut out = Vec::new();
                read(HostRange::admitted(base, length), &mut out);
                assert_eq!(out, data, "offset {offset} length {length}");
            }
        }
    }

    #[test]
    fn atomics_refuse_misaligned_words() {
        let mut memory = [7u64, 0];
        let base = memory.as_mut_ptr() as u64;
        assert_eq!(atomic(HostRange::admitted(base, 8), |old| Some(old + 1)), Some(7));
        assert_eq!(atomic(HostRange::admitted(base + 4, 8), |old| Some(old + 1)), None);
        assert_eq!(atomic(HostRange::admitted(base, 8), |_| None), Some(8));
    }
}
