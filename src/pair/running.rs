//! A started process: its output goes to files, its end is awaited with a time limit, and it does not outlive its
//! handle.
//!
//! Files and not pipes, so that a process that fills its output never waits for us, and so that a descendant which
//! keeps the descriptor open cannot delay the end.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long between two looks at a process.
const LOOK: Duration = Duration::from_millis(5);

/// A process that has been started.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    output: TempDir,
    started: Instant,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this status.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was killed at its time limit.
    TimedOut,
}

/// The end of a process, and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its command line.
    pub line: String,
    /// How it ended.
    pub status: Status,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Running {
    pub(super) fn new(line: String, child: Child, output: TempDir) -> Self {
        Self {
            line,
            child,
            output,
            started: Instant::now(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.pid()).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), signal).map_err(io::Error::from)
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        self.said("stdout")
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.said("stderr")
    }

    fn said(&self, stream: &str) -> String {
        let bytes = fs::read(self.output.path().join(stream)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `said` holds of what it has printed on both streams, it ends, or the limit passes.
    pub fn wait_until(&mut self, limit: Duration, said: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.has_ended();
            if said(&(self.stdout() + &self.stderr())) {
                return true;
            }
            if ended || Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for its end; kills it when the limit, counted from now, passes.
    pub fn wait(mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return self.outcome(ended(status)),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Ok(None) | Err(_) => {
                    self.kill();
                    return self.outcome(Status::TimedOut);
                }
            }
        }
    }

    /// Asks it to end, and kills it if it has not after `grace`.
    pub fn stop(self, grace: Duration) -> Outcome {
        // A process that is gone already has its status read by wait.
        let _ = self.signal(Signal::SIGTERM);
        self.wait(grace)
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn outcome(&self, status: Status) -> Outcome {
        Outcome {
            line: self.line.clone(),
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
            elapsed: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ended(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, Some(signal)) => Status::Signal(signal),
        (None, None) => Status::Code(-1),
    }
}

impl Outcome {
    /// Whether it exited with status 0.
    pub fn succeeded(&self) -> bool {
        self.status == Status::Code(0)
    }

    /// Both streams.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:?} after {:.2?}: {}", self.status, self.elapsed, self.line)?;
        for (stream, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            for line in tail(text, 60) {
                writeln!(out, "   {stream}: {line}")?;
            }
        }
        Ok(())
    }
}

/// The last lines of a long text.
fn tail(text: &str, lines: usize) -> impl Iterator<Item = &str> {
    let skip = text.lines().count().saturating_sub(lines);
    text.lines().skip(skip)
}
