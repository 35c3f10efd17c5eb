//! The command line: subcommands, and clap's errors made one line each.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::errors::{Failure, Result};

/// An RDMA NIC in software: runs unmodified verbs programs over RoCEv2, in user space.
#[derive(Debug, Parser)]
#[command(name = "adverb", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command with the emulated NIC in place of libibverbs
    Run(cmd::run::Args),
    /// List the devices a program under `adverb run` sees
    Devices,
    /// Show the live counters of the processes running now
    Stat(cmd::stat::Args),
    /// Run the distribution's RDMA tools between two processes and print a table
    Demo(cmd::demo::Args),
    /// Answer for processes that have ended (started by the NIC itself)
    #[command(hide = true)]
    Guardian,
}

/// Parses the command line, runs the subcommand and turns its result into an exit status.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done: Result<()> = match cli.command {
        Command::Run(args) => cmd::run::main(args).map(|never| match never {}),
        Command::Devices => cmd::devices::main(),
        Command::Stat(args) => cmd::stat::main(&args),
        Command::Demo(args) => cmd::demo::main(&args),
        Command::Guardian => cmd::guardian::main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Help and version go to stdout; anything else is one line on stderr and status 2.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed stdout is not worth a complaint.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => Failure::Usage(one_line(error)).report(),
    }
}

/// The first line of clap's message, and what is allowed instead when a flag or a subcommand is unknown.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let first = first.strip_suffix(':').unwrap_or(first);
    match error.kind() {
        ErrorKind::UnknownArgument => format!("{first}; allowed: {}", flags_of_invoked().join(", ")),
        ErrorKind::InvalidSubcommand => format!("{first}; allowed: {}", subcommands().join(", ")),
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => {
                format!("{} is missing; usage: {}", missing.join(", "), usage_of_invoked())
            }
            _ => first.to_owned(),
        },
        _ => first.to_owned(),
    }
}

/// The subcommand named first on the command line, or the program when there is none.
fn invoked() -> clap::Command {
    let command = Cli::command();
    let named = std::env::args().nth(1).unwrap_or_default();
    command.find_subcommand(&named).cloned().unwrap_or(command)
}

fn flags_of_invoked() -> Vec<String> {
    let mut flags: Vec<String> = invoked()
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(|long| format!("--{long}"))
        .collect();
    if !flags.iter().any(|flag| flag == "--help") {
        flags.push("--help".to_owned());
    }
    flags
}

fn usage_of_invoked() -> String {
    let name = invoked().get_name().to_owned();
    if name == "run" {
        "adverb run [FLAGS] [--] CMD [ARGS]…".to_owned()
    } else {
        format!("adverb {name} --help")
    }
}

fn subcommands() -> Vec<String> {
    Cli::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> std::result::Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_after_the_command_belong_to_it() {
        for line in ["adverb run rping -s --addr x", "adverb run -- rping -s --addr x"] {
            let Command::Run(args) = parse(line).unwrap().command else {
                panic!("{line}")
            };
            assert_eq!(args.command, ["rping", "-s", "--addr", "x"], "{line}");
            assert_eq!(args.flags.addr, None);
        }
    }

    #[test]
    fn an_unknown_flag_is_named_in_one_line() {
        let line = one_line(&parse("adverb run --bogus 1 true").unwrap_err());
        assert!(line.contains("--bogus") && line.contains("allowed: "), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_missing_command_is_named_in_one_line() {
        let line = one_line(&parse("adverb run").unwrap_err());
        assert!(line.contains("CMD"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
