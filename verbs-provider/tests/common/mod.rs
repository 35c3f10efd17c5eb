//! Where the library under test and rdma-core's own are.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

/// The library cargo built beside this test.
pub(crate) fn ours() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test is a program");
    path.set_file_name("libverbs_provider.so");
    assert!(path.exists(), "cargo builds {} along with the tests", path.display());
    path
}

/// A file of the system's library directories, if it is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ]
    .iter()
    .map(|directory| Path::new(directory).join(name))
    .find(|path| path.exists())
}
