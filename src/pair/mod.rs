//! Two processes of an RDMA tool, each under `adverb run`: what the tests, the demonstration and the benchmarks are
//! made of.
//!
//! ```text
//!  Stage  (binaries where an unprivileged user can run them)
//!    └─ Tool::new(..).args(..).faults(..)          what to run
//!         └─ spawn ─► Running ─► wait ─► Outcome   status, stdout, stderr
//!  Place  (an address and a port of its own)        Turn  (no more pairs at once than the machine has cores for)
//!  Pair   (server, wait until it listens, client) ─► Report
//! ```
//!
//! A pair never retries: the client is started once, when the server has a listener. Every process has a time limit
//! and is killed at it, or when its [`Running`] is dropped.

mod listen;
mod place;
pub mod results;
mod running;
mod stage;
mod tool;
mod turn;

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

pub use place::Place;
pub use running::{Outcome, Running, Status};
pub use stage::Stage;
pub use tool::Tool;
pub use turn::Turn;

/// How a server shows that a client may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// It listens on this TCP port (tools that exchange QP numbers over TCP).
    Tcp(u16),
    /// It holds a listener of the RDMA connection manager.
    ConnectionManager,
}

/// Whether a server ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// It exits when its client has gone.
    Exits,
    /// It serves for ever and is stopped with SIGTERM when the client has exited.
    Stopped,
}

/// A server and a client to be run against each other.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The passive side.
    pub server: Tool,
    /// The active side.
    pub client: Tool,
    /// When the client may start.
    pub listening: Listening,
    /// How the server ends.
    pub server_end: ServerEnd,
    /// Time limit of each process.
    pub limit: Duration,
}

/// A server that listens.
#[derive(Debug)]
pub struct Serving {
    server: Running,
    pair: Pair,
}

/// What both sides said.
#[derive(Debug)]
pub struct Report {
    /// The passive side's end.
    pub server: Outcome,
    /// The active side's end.
    pub client: Outcome,
    /// Whether the server was stopped by us, so that its status says nothing.
    pub server_stopped: bool,
}

impl Pair {
    /// A pair whose server exits by itself, with a minute for each side.
    pub fn new(server: Tool, client: Tool, listening: Listening) -> Self {
        Self {
            server,
            client,
            listening,
            server_end: ServerEnd::Exits,
            limit: Duration::from_secs(60),
        }
    }

    /// With another time limit.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// With a server that has to be stopped.
    pub fn stopping_server(mut self) -> Self {
        self.server_end = ServerEnd::Stopped;
        self
    }

    /// Applies the same change to both sides.
    pub fn both(mut self, change: impl Fn(Tool) -> Tool) -> Self {
        self.server = change(self.server);
        self.client = change(self.client);
        self
    }

    /// Runs it to the end.
    pub fn run(self, stage: &Stage) -> io::Result<Report> {
        self.serve(stage)?.finish(stage)
    }

    /// Starts the server and waits until it listens.
    pub fn serve(self, stage: &Stage) -> io::Result<Serving> {
        let mut server = self.server.spawn(stage)?;
        let patience = Instant::now() + Duration::from_secs(20);
        while !listen::listens(server.pid(), self.listening) && !server.has_ended() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.listening == Listening::ConnectionManager {
            // The port is claimed at bind; the listen follows at once.
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Serving { server, pair: self })
    }
}

impl Serving {
    /// The server.
    pub fn server(&mut self) -> &mut Running {
        &mut self.server
    }

    /// Runs the client, then waits for the server.
    pub fn finish(self, stage: &Stage) -> io::Result<Report> {
        let client = self.pair.client.spawn(stage)?.wait(self.pair.limit);
        Ok(self.close(client))
    }

    /// Starts one more client; the caller waits for it.
    pub fn client(&self, stage: &Stage) -> io::Result<Running> {
        self.pair.client.spawn(stage)
    }

    /// Ends the server after `client`, the last one, has ended.
    pub fn close(self, client: Outcome) -> Report {
        let Self { server, pair } = self;
        let server_stopped = pair.server_end == ServerEnd::Stopped;
        let server = if server_stopped {
            server.stop(Duration::from_secs(5))
        } else if client.status == Status::TimedOut {
            // Nothing more will come; keep what it has said.
            server.wait(Duration::from_secs(1))
        } else {
            server.wait(pair.limit)
        };
        Report {
            server,
            client,
            server_stopped,
        }
    }
}

impl Report {
    /// Whether both sides exited with status 0 (a server that never ends only has to be alive until it is stopped).
    pub fn succeeded(&self) -> bool {
        let server = if self.server_stopped {
            matches!(self.server.status, Status::Signal(_) | Status::Code(0))
        } else {
            self.server.status == Status::Code(0)
        };
        server && self.client.status == Status::Code(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "── server {}\n── client {}", self.server, self.client)
    }
}
