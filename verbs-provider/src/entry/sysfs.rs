//! The part of sysfs that other libraries read through the verbs library.
//!
//! The device has no kernel object, so there is no sysfs directory of it. What can be asked is answered from here;
//! everything else fails as for a missing file. librdmacm asks for the interface version of `rdma_cm` and takes a
//! failure for the version that the emulated device speaks.

use std::ffi::{CStr, c_char, c_int};

use crate::boundary::{Errno, MinusOne, entry};

/// Where the devices would have their directories; a device's `ibdev_path` is this and its name.
pub const CLASS_DIRECTORY: &str = "/sys/class/infiniband/";
/// What the names of all devices begin with.
pub const DEVICE_PREFIX: &str = "adverb";

/// The files of a device's directory.
const FILES: [(&str, &str); 4] = [
    ("fw_ver", env!("CARGO_PKG_VERSION")),
    ("board_id", "ADVERB0000001"),
    ("hca_type", "adverb"),
    ("hw_rev", "1"),
];

/// Where sysfs is.
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

fn contents(directory: &[u8], file: &[u8]) -> Option<&'static str> {
    let device = directory.strip_prefix(CLASS_DIRECTORY.as_bytes())?;
    if !device.starts_with(DEVICE_PREFIX.as_bytes()) || device.contains(&b'/') {
        return None;
    }
    FILES
        .iter()
        .find(|(name, _)| name.as_bytes() == file)
        .map(|(_, text)| *text)
}

entry! {
    /// Reads a file of a device's directory into `buf` and gives its length; a zero byte follows if there is room.
    ///
    /// # Safety
    /// `dir` and `file` are C strings, and `buf` has room for `size` bytes.
    fn ibv_read_sysfs_file(dir: *const c_char, file: *const c_char, buf: *mut c_char, size: usize) -> MinusOne {
        // SAFETY: the caller vouches for both strings.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let text = contents(dir.to_bytes(), file.to_bytes()).ok_or(Errno::NOENT)?;
        let length = text.len().min(size);
        // SAFETY: `length` is within `text` and within `buf`, which the caller vouches for; the zero is within as well.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), length);
            if length < size {
                buf.add(length).write(0);
            }
        }
        c_int::try_from(length).map_err(|_| Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dir: &CStr, file: &CStr, size: usize) -> (c_int, [u8; 16]) {
        let mut buf = [0xff; 16];
        // SAFETY: the strings are C strings and `size` is at most the buffer's length.
        let length = unsafe { ibv_read_sysfs_file(dir.as_ptr(), file.as_ptr(), buf.as_mut_ptr().cast(), size) };
        (length, buf)
    }

    #[test]
    fn known_files_of_our_devices_are_there() {
        let (length, buf) = read(c"/sys/class/infiniband/adverb0", c"hca_type", 16);
        assert_eq!((length, &buf[..8]), (6, &b"adverb\0\xff"[..]));
        let (length, buf) = read(c"/sys/class/infiniband/adverb0", c"hca_type", 3);
        assert_eq!((length, &buf[..4]), (3, &b"adv\xff"[..]));
    }

    #[test]
    fn nothing_else_is() {
        for (dir, file) in [
            (c"/sys", c"class/misc/rdma_cm/abi_version"),
            (c"/sys/class/infiniband/mlx5_0", c"board_id"),
            (c"/sys/class/infiniband/adverb0/ports", c"fw_ver"),
            (c"/sys/class/infiniband/adverb0", c"nothing"),
        ] {
            assert_eq!(read(dir, file, 16).0, -1);
        }
    }
}
