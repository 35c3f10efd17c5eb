//! The binaries, where an unprivileged user can run them.
//!
//! Run by root (CI, containers), the tools still have to run unprivileged, as uid 65534, which cannot look into root's
//! build tree: the launcher and the library are copied to a directory in /tmp that is named after their contents'
//! times and sizes, made once and shared by all processes of a run.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use nix::unistd::Uid;

use crate::locate;

/// The unprivileged user and group when started by root: `nobody`.
pub(super) const NOBODY: &str = "65534";
/// Older stages are removed when a new one is made.
const STALE: Duration = Duration::from_secs(3600);

/// Where the binaries are.
#[derive(Clone, Debug)]
pub struct Stage {
    directory: PathBuf,
    drops_root: bool,
}

impl Stage {
    /// A stage for the launcher in `bin_dir`, with its library and these further programs.
    pub fn new(bin_dir: &Path, programs: &[PathBuf]) -> io::Result<Self> {
        let adverb = bin_dir.join("adverb");
        let library = locate::library(&adverb, None).map_err(|failure| io::Error::other(failure.to_string()))?;
        let mut files = vec![adverb, library];
        files.extend_from_slice(programs);
        for file in &files {
            if !file.is_file() {
                return Err(io::Error::other(format!(
                    "{} is missing; run `make build`",
                    file.display()
                )));
            }
        }
        if Uid::effective().is_root() {
            Ok(Self {
                directory: copy(&files)?,
                drops_root: true,
            })
        } else if programs.is_empty() {
            Ok(Self {
                directory: bin_dir.to_owned(),
                drops_root: false,
            })
        } else {
            Ok(Self {
                directory: copy(&files)?,
                drops_root: false,
            })
        }
    }

    /// A staged file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether processes are started as another user.
    pub fn drops_root(&self) -> bool {
        self.drops_root
    }
}

fn copy(files: &[PathBuf]) -> io::Result<PathBuf> {
    let mut identity = String::new();
    for file in files {
        let meta = fs::metadata(file)?;
        identity += &format!(
            "{} {} {}.{}\n",
            file.display(),
            meta.size(),
            meta.mtime(),
            meta.mtime_nsec()
        );
    }
    let hash = identity.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let owner = Uid::effective().as_raw();
    let prefix = format!("adverb-stage-{owner}-");
    let directory = PathBuf::from(format!("/tmp/{prefix}{hash:016x}"));
    if directory.is_dir() && fs::symlink_metadata(&directory)?.uid() == owner {
        return Ok(directory);
    }
    remove_stale(&prefix, owner);
    let fresh = tempfile::Builder::new()
        .prefix(&format!(".{prefix}"))
        .tempdir_in("/tmp")?;
    // install(1) and not fs::copy: a descriptor open for writing that a concurrent fork inherits makes the exec of the
    // copy fail with ETXTBSY.
    let status = Command::new("install")
        .args(["-m", "755", "-t"])
        .arg(fresh.path())
        .args(files)
        .status()?;
    let opened = Command::new("chmod").arg("755").arg(fresh.path()).status()?;
    if !status.success() || !opened.success() {
        return Err(io::Error::other("cannot copy the binaries to /tmp"));
    }
    match fs::rename(fresh.path(), &directory) {
        Ok(()) => {
            let _ = fresh.keep();
            Ok(directory)
        }
        // Somebody else was faster.
        Err(_) if directory.is_dir() => Ok(directory),
        Err(error) => Err(error),
    }
}

fn remove_stale(prefix: &str, owner: u32) {
    let Ok(entries) = fs::read_dir("/tmp") else { return };
    for entry in entries.flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let old = meta
            .modified()
            .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > STALE));
        if entry.file_name().to_string_lossy().starts_with(prefix) && meta.is_dir() && meta.uid() == owner && old {
            // Best effort: the next run tries again.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
