//! The `adverb` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    adverb::cli::main()
}
