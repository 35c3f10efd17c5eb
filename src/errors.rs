//! What can go wrong before the command runs, and the exit status that tells it from the command's own.
//!
//! The numbers are those of `env(1)`: 125 the launcher itself failed, 126 the command cannot be executed, 127 it was
//! not found; 2 is a wrong flag or environment value. Every message is one line and says what to do next.

use std::process::ExitCode;

/// A failure of `adverb` itself.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A flag or an environment variable has a value it cannot have.
    #[error("{0}")]
    Usage(String),
    /// Something on this machine is missing or in the way.
    #[error("{0}")]
    Machine(String),
    /// The command exists and cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// There is no such command.
    #[error("{0}")]
    NotFound(String),
    /// A demonstration or benchmark ran and something in it failed; already reported.
    #[error("{0}")]
    Unsuccessful(String),
}

impl Failure {
    /// The exit status that stands for it.
    pub const fn status(&self) -> u8 {
        match self {
            Self::Unsuccessful(_) => 1,
            Self::Usage(_) => 2,
            Self::Machine(_) => 125,
            Self::NotExecutable(_) => 126,
            Self::NotFound(_) => 127,
        }
    }

    /// Prints it and gives the exit status.
    pub fn report(&self) -> ExitCode {
        eprintln!("adverb: {self}");
        ExitCode::from(self.status())
    }
}

/// The result of a subcommand.
pub type Result<T> = std::result::Result<T, Failure>;
