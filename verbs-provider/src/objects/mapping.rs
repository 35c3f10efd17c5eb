//! Whether a range of the process's memory may be registered.
//!
//! A real NIC pins the pages and fails when there are none. Here nothing needs pinning, but the device copies through
//! raw pointers, so a range must be mapped, and writable when it is registered for writing, at registration. The kernel
//! is asked to fault the pages in, which checks and pre-faults in one call; ranges over [`POPULATE_LIMIT`], whose
//! memory the application may never touch, and kernels that do not know the advice (before 5.14), are checked against
//! the list of mappings instead.

use super::sys;
use std::io::Read;

/// Largest range that is faulted in at registration.
pub const POPULATE_LIMIT: u64 = 64 << 20;

/// Whether `length` bytes at `addr` are mapped readable, and writable if asked. An empty range always is.
pub fn is_mapped(addr: u64, length: u64, writable: bool) -> bool {
    if length == 0 {
        return true;
    }
    let page = sys::page_size();
    let Some(end) = addr
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(page))
    else {
        return false;
    };
    let start = addr - addr % page;
    if end - start <= POPULATE_LIMIT {
        match sys::populate(start, end - start, writable) {
            Ok(()) => return true,
            // No page behind the address, or one past the end of its file: nothing to find out.
            Err(libc::ENOMEM | libc::EFAULT) => return false,
            // The advice or the kind of mapping is unknown to it, or it protects the range.
            Err(_) => {}
        }
    }
    let mut maps = String::new();
    match std::fs::File::open("/proc/self/maps").and_then(|mut file| file.read_to_string(&mut maps)) {
        Ok(_) => covers(&maps, start, end, writable),
        Err(_) => false,
    }
}

/// Whether the mappings listed in `maps` (format of proc_pid_maps(5), ascending) cover `start..end` without a hole.
fn covers(maps: &str, start: u64, end: u64, writable: bool) -> bool {
    let mut reached = start;
    for line in maps.lines() {
        let Some((from, to, protection)) = mapping(line) else {
            continue;
        };
        if to <= reached {
            continue;
        }
        if from > reached || !protection.contains('r') || (writable && !protection.contains('w')) {
            return false;
        }
        reached = to;
        if reached >= end {
            return true;
        }
    }
    false
}

fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let mut fields = line.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    Some((
        u64::from_str_radix(from, 16).ok()?,
        u64::from_str_radix(to, 16).ok()?,
        fields.next()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-4000 r--p 00000000 08:01 12 /lib/x y
5000-6000 rw-p 00000000 00:00 0 [heap]
7000-8000 ---p 00000000 00:00 0
";

    #[test]
    fn coverage_needs_contiguous_mappings_with_the_rights() {
        assert!(covers(MAPS, 0x1000, 0x3000, true));
        assert!(covers(MAPS, 0x2000, 0x4000, false), "two mappings in a row");
        assert!(!covers(MAPS, 0x2000, 0x4000, true), "the second is read-only");
        assert!(!covers(MAPS, 0x3000, 0x6000, false), "hole at 0x4000");
        assert!(!covers(MAPS, 0x0, 0x2000, false), "starts before");
        assert!(!covers(MAPS, 0x5000, 0x7000, false), "ends after");
        assert!(!covers(MAPS, 0x7000, 0x8000, false), "no access");
        assert!(!covers("", 0x1000, 0x2000, false));
    }

    #[test]
    fn own_memory_is_mapped_and_null_is_not() {
        let heap = vec![0u8; 3 << 20];
        let address = heap.as_ptr().addr() as u64;
        assert!(is_mapped(address + 5, (3 << 20) - 5, true));
        assert!(is_mapped(0, 0, true));
        assert!(!is_mapped(0, 1, false));
        assert!(!is_mapped(u64::MAX - 4, 100, false));
        assert!(!is_mapped(16, u64::MAX - 16, true));
    }

    #[test]
    fn constants_are_readable_only() {
        static TABLE: [u8; 64] = [7; 64];
        let address = TABLE.as_ptr().addr() as u64;
        assert!(is_mapped(address, 64, false));
        assert!(!is_mapped(address, 64, true));
    }

    #[test]
    fn large_ranges_are_judged_by_the_list_of_mappings() {
        let length = usize::try_from(POPULATE_LIMIT + (1 << 20)).unwrap();
        let heap: Vec<u8> = Vec::with_capacity(length);
        assert!(is_mapped(heap.as_ptr().addr() as u64, length as u64, true));
        assert!(!is_mapped(heap.as_ptr().addr() as u64, 1 << 46, true));
    }
}
