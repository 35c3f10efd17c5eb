//! One side of a pair: a program, its arguments, and the `adverb run` in front of it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::running::Running;
use super::stage::{NOBODY, Stage};

/// What to run.
#[derive(Clone, Debug)]
pub struct Tool {
    program: OsString,
    arguments: Vec<OsString>,
    launcher: Option<Vec<OsString>>,
    environment: Vec<(OsString, OsString)>,
    namespace: Option<String>,
}

impl Tool {
    /// A program under `adverb run --`, with its arguments separated by blanks.
    pub fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(OsString::from);
        let program = words.next().unwrap_or_default();
        Self {
            program,
            arguments: words.collect(),
            launcher: Some(Vec::new()),
            environment: Vec::new(),
            namespace: None,
        }
    }

    /// With further arguments, separated by blanks.
    pub fn args(mut self, line: &str) -> Self {
        self.arguments.extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// With one further argument, taken as it is.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Without `adverb run` in front.
    pub fn bare(mut self) -> Self {
        self.launcher = None;
        self
    }

    /// With a flag of `adverb run`.
    pub fn flag(mut self, name: &str, value: impl Into<OsString>) -> Self {
        if let Some(flags) = &mut self.launcher {
            flags.push(name.into());
            flags.push(value.into());
        }
        self
    }

    /// On the device with this address.
    pub fn addr(self, address: IpAddr) -> Self {
        self.flag("--addr", address.to_string())
    }

    /// With faults injected into what it sends.
    pub fn faults(self, specification: &str) -> Self {
        self.flag("--faults", specification)
    }

    /// With its packets captured.
    pub fn pcap(self, file: &Path) -> Self {
        self.flag("--pcap", file)
    }

    /// With an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Inside a network namespace made by `ip netns add`; needs root.
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Starts it, as an unprivileged user when we are root, bound to end with this thread.
    pub fn spawn(&self, stage: &Stage) -> io::Result<Running> {
        let words = self.command_line(stage);
        let output = tempfile::tempdir()?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(File::create(output.path().join("stdout"))?)
            .stderr(File::create(output.path().join("stderr"))?)
            .current_dir("/tmp")
            // The caller's directory need not be ours to use.
            .env_remove("XDG_RUNTIME_DIR")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        if stage.drops_root() {
            // Root's own may lead through directories that are closed to others.
            command
                .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
                .env("HOME", "/tmp");
        }
        let child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error}; run `make setup`", words[0].to_string_lossy()),
            )
        })?;
        Ok(Running::new(self.to_line(stage), child, output))
    }

    fn command_line(&self, stage: &Stage) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |line: &str| words.extend(line.split_whitespace().map(OsString::from));
        if let Some(namespace) = &self.namespace {
            say(&format!("ip netns exec {namespace}"));
        }
        // Every step is an exec, so the process id stays the tool's.
        say("setpriv --pdeathsig KILL");
        if stage.drops_root() {
            say(&format!(
                "--reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs"
            ));
        }
        say("--");
        words.extend(self.launched(stage));
        words
    }

    fn launched(&self, stage: &Stage) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some(flags) = &self.launcher {
            words.push(stage.path("adverb").into_os_string());
            words.push("run".into());
            words.extend(flags.iter().cloned());
            words.push("--".into());
        }
        words.push(self.program.clone());
        words.extend(self.arguments.iter().cloned());
        words
    }

    fn to_line(&self, stage: &Stage) -> String {
        let words: Vec<String> = self
            .launched(stage)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words.join(" ")
    }
}
