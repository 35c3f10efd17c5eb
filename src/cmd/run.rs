//! `adverb run`: checks, environment, exec.
//!
//! The command replaces this process, so its exit status and signals are its own. The library is preloaded, so that it
//! comes before libc (its descriptor hooks must) and before private copies of libibverbs that some packages carry, and
//! its usual names stand first on the library path for programs that open it by name.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::errors::{Failure, Result};
use crate::settings::{Flags, Settings};
use crate::{checks, locate, netdev, shelf};

/// Arguments of `adverb run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The settings.
    #[command(flatten)]
    pub flags: Flags,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Becomes the command; returns only on failure.
pub fn main(args: Args) -> Result<Infallible> {
    let settings = Settings::resolve(&args.flags, |name| env::var_os(name))?;
    checks::place(&settings, &netdev::list()?)?;
    if let Some(warning) = checks::contention(&settings)? {
        eprintln!("adverb: warning: {warning}");
    }

    let Some((name, arguments)) = args.command.split_first() else {
        return Err(Failure::Usage(
            "CMD is missing; usage: adverb run [FLAGS] [--] CMD [ARGS]…".to_owned(),
        ));
    };
    let program = checks::command(name, env::var_os("PATH").as_deref())?;
    let library_path = env::var_os("LD_LIBRARY_PATH");
    checks::connection_manager(&program, library_path.as_deref())?;
    if let Some(warning) = checks::secure_mode(&program) {
        eprintln!("adverb: warning: {warning}");
    }

    let exe = env::current_exe().map_err(|error| {
        Failure::Machine(format!(
            "cannot find out where adverb itself is: {error}; is /proc mounted?"
        ))
    })?;
    let library = locate::library(&exe, env::var_os("ADVERB_LIB").as_deref())?;
    let shelf = shelf::prepare(&library, env::var_os("XDG_RUNTIME_DIR").as_deref().map(Path::new))?;
    let preload = if shelf::splits_cleanly(&library) {
        library
    } else {
        shelf.join("libibverbs.so.1")
    };

    let error = Command::new(name)
        .args(arguments)
        .envs(settings.environment())
        .env("ADVERB_EXE", exe)
        .env("LD_PRELOAD", prepend(preload.as_os_str(), env::var_os("LD_PRELOAD")))
        .env("LD_LIBRARY_PATH", prepend(shelf.as_os_str(), library_path))
        .exec();
    Err(Failure::NotExecutable(format!("{}: {error}", name.to_string_lossy())))
}

/// `first:rest`, without repeating `first` when runs are nested. An empty element would mean the current directory.
fn prepend(first: &OsStr, rest: Option<OsString>) -> OsString {
    let mut list = first.to_owned();
    let rest = rest.unwrap_or_default();
    let others = rest
        .as_encoded_bytes()
        .split(|byte| *byte == b':')
        .filter(|element| !element.is_empty() && *element != first.as_encoded_bytes());
    for element in others {
        use std::os::unix::ffi::OsStrExt;
        list.push(":");
        list.push(OsStr::from_bytes(element));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepending_keeps_the_rest_once() {
        let first = OsStr::new("/a");
        assert_eq!(prepend(first, None), "/a");
        assert_eq!(prepend(first, Some("/b:/c".into())), "/a:/b:/c");
        assert_eq!(prepend(first, Some("/a:/b::/a".into())), "/a:/b");
    }
}
