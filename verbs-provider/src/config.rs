//! The process's configuration: the `ADVERB_*` environment variables.
//!
//! Read once, at the first verbs or rdma_cm call. A value that cannot be understood is an error that names the variable
//! and what it accepts; the runtime prints it on one line and ends the process with status 2, because a program that
//! runs on with another configuration than its user asked for is worse than one that does not start.

use nic_model::port::fault::FaultConfig;
use std::net::IpAddr;
use std::path::PathBuf;
use thiserror::Error;

/// What the environment asks for.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `ADVERB_NETDEV`: only the device of this network interface.
    pub netdev: Option<String>,
    /// `ADVERB_ADDR`: the only address, hence GID 0, of the device whose interface has it.
    pub addr: Option<IpAddr>,
    /// `ADVERB_FAULTS`: what to do to packets that are sent.
    pub faults: Option<FaultConfig>,
    /// `ADVERB_PCAP`: where to capture packets.
    pub pcap: Option<PathBuf>,
    /// `ADVERB_RCVBUF`: receive buffer of the UDP sockets in bytes.
    pub rcvbuf: Option<usize>,
    /// `ADVERB_EXE`: the `adverb` program, which serves as guardian of connections whose process ends.
    pub guardian: Option<PathBuf>,
    /// `ADVERB_LOG`: filter directives for messages.
    pub log: Option<String>,
    /// `ADVERB_LOG_FILE`: where messages go instead of stderr.
    pub log_file: Option<PathBuf>,
}

/// A variable whose value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("adverb: {variable}={value}: expected {expected}")]
pub struct InvalidValue {
    /// Name of the variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it accepts.
    pub expected: String,
}

impl Config {
    /// The configuration of this process.
    pub fn from_env() -> Result<Self, InvalidValue> {
        Self::parse(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The configuration that `lookup` describes. An empty value is as good as none.
    pub fn parse(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidValue> {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let log = get("ADVERB_LOG");
        if let Some(value) = &log
            && tracing_subscriber::EnvFilter::try_new(value).is_err()
        {
            return Err(InvalidValue::new(
                "ADVERB_LOG",
                value,
                "error, warn, info, debug, trace or target=level,…",
            ));
        }
        Ok(Self {
            netdev: get("ADVERB_NETDEV"),
            addr: parsed(
                &get,
                "ADVERB_ADDR",
                "an IPv4 or IPv6 address of an interface that is up",
            )?,
            faults: parsed(
                &get,
                "ADVERB_FAULTS",
                "drop=P,reorder=P,dup=P,corrupt=P,seed=N with P from 0 to 1",
            )?,
            pcap: get("ADVERB_PCAP").map(PathBuf::from),
            rcvbuf: parsed(&get, "ADVERB_RCVBUF", "a number of bytes")?,
            guardian: get("ADVERB_EXE").map(PathBuf::from),
            log,
            log_file: get("ADVERB_LOG_FILE").map(PathBuf::from),
        })
    }
}

impl InvalidValue {
    /// `variable` is `value` but should be `expected`.
    pub fn new(variable: &'static str, value: &str, expected: &str) -> Self {
        Self {
            variable,
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

fn parsed<T: std::str::FromStr>(
    get: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    expected: &str,
) -> Result<Option<T>, InvalidValue> {
    let Some(value) = get(variable) else { return Ok(None) };
    match value.parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(_) => Err(InvalidValue::new(variable, &value, expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Config, InvalidValue> {
        Config::parse(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        let config = parse(&[("ADVERB_ADDR", "")]).unwrap();
        assert!(config.addr.is_none() && config.netdev.is_none() && config.rcvbuf.is_none());
    }

    #[test]
    fn values_are_understood() {
        let config = parse(&[
            ("ADVERB_ADDR", "127.0.0.7"),
            ("ADVERB_NETDEV", "lo"),
            ("ADVERB_RCVBUF", "212992"),
            ("ADVERB_FAULTS", "drop=0.01,seed=1"),
            ("ADVERB_LOG", "nic_model=debug,warn"),
        ])
        .unwrap();
        assert_eq!(config.addr, Some("127.0.0.7".parse().unwrap()));
        assert_eq!(config.rcvbuf, Some(212_992));
        assert!(config.faults.is_some());
    }

    #[test]
    fn a_wrong_value_names_variable_and_alternatives() {
        for (variable, value) in [
            ("ADVERB_ADDR", "localhost"),
            ("ADVERB_RCVBUF", "-1"),
            ("ADVERB_FAULTS", "loss=1"),
            ("ADVERB_LOG", "nic_model=loud"),
        ] {
            let error = parse(&[(variable, value)]).unwrap_err();
            assert_eq!(error.variable, variable);
            let line = error.to_string();
            assert!(
                line.starts_with(&format!("adverb: {variable}={value}: expected ")),
                "{line}"
            );
            assert!(!line.contains('\n'));
        }
    }
}
