//! The private directory that gives the library the names under which programs look for it.
//!
//! `LD_PRELOAD` alone reaches programs linked to libibverbs; those that call `dlopen("libibverbs.so")` need the name on
//! the library path as well. The directory holds nothing but symlinks, is ours alone (mode 0700; a directory somebody
//! else made is never used), is named after the library so that builds do not disturb each other, and is left for the
//! next run. Several runs may make it at the same time: every step is atomic and agrees with the others' result.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, getpid};

use crate::errors::{Failure, Result};

/// The names. librdmacm is the real one: it finds our libibverbs by itself.
const NAMES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

/// Makes the directory for `library`, or finds it made.
pub fn prepare(library: &Path, runtime_dir: Option<&Path>) -> Result<PathBuf> {
    let owner = Uid::effective().as_raw();
    let hash = fnv1a(library.as_os_str().as_encoded_bytes());
    let mut candidates = Vec::new();
    if let Some(runtime_dir) = runtime_dir.filter(|dir| usable_runtime_dir(dir, owner)) {
        candidates.push(runtime_dir.join(format!("adverb-{hash:016x}")));
    }
    candidates.push(PathBuf::from(format!("/tmp/adverb-{owner}-{hash:016x}")));

    let mut trouble = String::new();
    for directory in candidates {
        match fill(&directory, library, owner) {
            Ok(()) => return Ok(directory),
            Err(error) => trouble = format!("{}: {error}", directory.display()),
        }
    }
    Err(Failure::Machine(format!(
        "cannot make the library directory {trouble}; remove it or set XDG_RUNTIME_DIR"
    )))
}

/// `sudo` and `su` leave the caller's XDG_RUNTIME_DIR in place: it has to be ours, and a path the loader can split.
fn usable_runtime_dir(directory: &Path, owner: u32) -> bool {
    directory.is_absolute()
        && splits_cleanly(directory)
        && fs::metadata(directory).is_ok_and(|meta| meta.is_dir() && meta.uid() == owner)
}

/// Whether a path survives in `LD_PRELOAD` and `LD_LIBRARY_PATH`, which know no quoting.
pub fn splits_cleanly(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':' | b';' | b'$' | b'\t' | b'\n'))
}

fn fill(directory: &Path, library: &Path, owner: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // lstat: a symlink planted in /tmp is not a directory.
    let meta = fs::symlink_metadata(directory)?;
    if !meta.is_dir() || meta.uid() != owner || meta.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to somebody else, or others may write",
        ));
    }
    for name in NAMES {
        let link = directory.join(name);
        if fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        let fresh = directory.join(format!(".{name}.{}", getpid()));
        let _ = fs::remove_file(&fresh);
        symlink(library, &fresh)?;
        fs::rename(&fresh, &link)?;
    }
    Ok(())
}

/// FNV-1a: a name, not a secret; the directory's owner is what is trusted.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn setting() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("libverbs_provider.so");
        fs::write(&library, "").unwrap();
        (root, library)
    }

    #[test]
    fn holds_the_names_and_is_reused() {
        let (root, library) = setting();
        let first = prepare(&library, Some(root.path())).unwrap();
        let second = prepare(&library, Some(root.path())).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::symlink_metadata(&first).unwrap().mode() & 0o777, 0o700);
        for name in NAMES {
            assert_eq!(fs::read_link(first.join(name)).unwrap(), library);
        }
        assert_eq!(fs::read_dir(&first).unwrap().count(), NAMES.len());
    }

    #[test]
    fn many_at_once_agree() {
        let (root, library) = setting();
        std::thread::scope(|scope| {
            let made: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| prepare(&library, Some(root.path())).unwrap()))
                .collect();
            for directory in made.into_iter().map(|thread| thread.join().unwrap()) {
                assert_eq!(fs::read_link(directory.join("libibverbs.so.1")).unwrap(), library);
            }
        });
    }

    #[test]
    fn a_directory_open_to_others_is_not_used() {
        let (root, library) = setting();
        let owner = Uid::effective().as_raw();
        let planted = root.path().join("planted");
        fs::create_dir(&planted).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(fill(&planted, &library, owner).is_err());
        let link = root.path().join("link");
        symlink(root.path(), &link).unwrap();
        assert!(fill(&link, &library, owner).is_err());
    }

    #[test]
    fn a_stale_link_is_replaced() {
        let (root, library) = setting();
        let directory = prepare(&library, Some(root.path())).unwrap();
        fs::remove_file(directory.join("libibverbs.so")).unwrap();
        symlink("/elsewhere", directory.join("libibverbs.so")).unwrap();
        prepare(&library, Some(root.path())).unwrap();
        assert_eq!(fs::read_link(directory.join("libibverbs.so")).unwrap(), library);
    }
}
