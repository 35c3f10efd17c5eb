//! Turns: how many pairs run at once on this machine.
//!
//! Many tools spin on their completion queue, two processes to a pair. More pairs than pairs of cores only measure the
//! scheduler, and time limits would have to allow for it. A turn is a lock on one of N files in /tmp, so it holds
//! across the processes of a test run whatever the test runner is.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

/// The right to run a pair; ends when dropped.
#[derive(Debug)]
pub struct Turn {
    _locks: Vec<Flock<File>>,
}

impl Turn {
    /// Waits for a turn.
    pub fn take() -> io::Result<Self> {
        loop {
            for slot in 0..slots() {
                if let Some(lock) = try_slot(slot)? {
                    return Ok(Self { _locks: vec![lock] });
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the whole machine: for tests that start many processes, and for measurements.
    pub fn take_all() -> io::Result<Self> {
        // In order, and waiting while holding: whoever holds slot 0 gets the others as their turns end.
        let mut locks = Vec::new();
        for slot in 0..slots() {
            loop {
                if let Some(lock) = try_slot(slot)? {
                    locks.push(lock);
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(Self { _locks: locks })
    }
}

fn slots() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

fn try_slot(slot: usize) -> io::Result<Option<Flock<File>>> {
    let path = PathBuf::from(format!("/tmp/adverb-turn-{}-{slot}", Uid::effective().as_raw()));
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}
