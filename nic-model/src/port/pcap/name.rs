//! Which file a process writes its capture to.
//!
//! `adverb run --pcap FILE` gives the same name to every process of a program, and one process may open several
//! devices. No two captures may share a file, and none may destroy an earlier one, so:
//! * `%p` in the name stands for the process id;
//! * the first to create FILE owns it; an existing FILE is left alone;
//! * who comes later writes `FILE` with `.<process id>` before the extension, and a second device of that process
//!   `.<process id>-2`, and so on. Such a file from an earlier run is replaced, as is one named with `%p`.
//!
//! An owner holds a lock (`flock`) on its file for as long as it writes. A wrapper that starts a run removes the last
//! run's FILE with [`discard_stale`], which leaves a file alone that is being written.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// A capture file's name, and the lock that makes it ours.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) path: PathBuf,
    _lock: Flock<File>,
}

impl Claim {
    /// A file for process `pid` by the rules above.
    pub(super) fn new(wanted: &Path, pid: u32) -> io::Result<Self> {
        let substituted = wanted.to_string_lossy().contains("%p");
        let first = if substituted {
            PathBuf::from(wanted.to_string_lossy().replace("%p", &pid.to_string()))
        } else {
            match OpenOptions::new().write(true).create_new(true).open(wanted) {
                Ok(file) => return Self::lock(wanted.to_owned(), file).ok_or_else(|| io::ErrorKind::WouldBlock.into()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(explain(wanted, &error)),
            }
            with_suffix(wanted, &pid.to_string())
        };
        for number in 1..1000 {
            let path = match number {
                1 => first.clone(),
                _ if substituted => with_suffix(&first, &number.to_string()),
                _ => with_suffix(wanted, &format!("{pid}-{number}")),
            };
            // Not truncated before it is ours.
            let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = open.map_err(|error| explain(&path, &error))?;
            if let Some(claim) = Self::lock(path, file) {
                return Ok(claim);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("too many captures named {}", wanted.display()),
        ))
    }

    fn lock(path: PathBuf, file: File) -> Option<Self> {
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
        Some(Self { path, _lock: lock })
    }
}

/// Remove the capture file `path` of an earlier run, unless a process is still writing it.
///
/// # Errors
/// The file exists and cannot be opened or removed.
pub fn discard_stale(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(_lock) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// `path` with `.suffix` before its extension.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(".");
    name.push(suffix);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot create capture file {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(claims: &[Claim]) -> Vec<String> {
        claims
            .iter()
            .map(|claim| claim.path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn later_processes_and_devices_get_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("run.pcap");
        let claims: Vec<_> = [7, 7, 7, 8]
            .into_iter()
            .map(|pid| Claim::new(&wanted, pid).unwrap())
            .collect();
        assert_eq!(names(&claims), ["run.pcap", "run.7.pcap", "run.7-2.pcap", "run.8.pcap"]);
        drop(claims);
        // The plain name may hold an earlier process's packets; a name with our process id cannot.
        assert_eq!(names(&[Claim::new(&wanted, 7).unwrap()]), ["run.7.pcap"]);
    }

    #[test]
    fn process_id_in_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("a-%p.pcapng");
        let claims: Vec<_> = [7, 7, 8]
            .into_iter()
            .map(|pid| Claim::new(&wanted, pid).unwrap())
            .collect();
        assert_eq!(names(&claims), ["a-7.pcapng", "a-7.2.pcapng", "a-8.pcapng"]);
        drop(claims);
        assert_eq!(names(&[Claim::new(&wanted, 7).unwrap()]), ["a-7.pcapng"]);
    }

    #[test]
    fn only_stale_files_are_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("x");
        discard_stale(&wanted).unwrap();
        let claim = Claim::new(&wanted, 7).unwrap();
        discard_stale(&wanted).unwrap();
        assert!(wanted.exists());
        drop(claim);
        discard_stale(&wanted).unwrap();
        assert!(!wanted.exists());
    }

    #[test]
    fn errors_name_the_file() {
        let error = Claim::new(Path::new("/nonexistent/x.pcap"), 7).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x.pcap"), "{error}");
    }
}
