//! What a [`FaultPort`](super::FaultPort) does, and its text form `drop=0.01,reorder=0.01,delay=50us,seed=1`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Faults to inject. Probabilities are per packet; the default injects none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Probability that a packet is lost.
    pub drop: f64,
    /// Probability that a packet is held back until later ones have overtaken it.
    pub reorder: f64,
    /// Probability that a packet is sent twice.
    pub dup: f64,
    /// Probability that one bit of a packet, anywhere in the UDP payload, is flipped.
    pub corrupt: f64,
    /// Probability that a packet is marked Congestion Experienced.
    pub ecn: f64,
    /// Time that every packet is kept, on top of what the network takes.
    pub delay: Duration,
    /// Seed of the random numbers: the same packets meet the same faults.
    pub seed: u64,
}

impl FaultConfig {
    /// Whether it changes nothing, so that no port need be wrapped.
    pub fn is_none(&self) -> bool {
        let Self {
            drop,
            reorder,
            dup,
            corrupt,
            ecn,
            delay,
            seed: _,
        } = *self;
        [drop, reorder, dup, corrupt, ecn]
            .iter()
            .all(|&probability| probability == 0.0)
            && delay.is_zero()
    }
}

/// A fault description that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultConfigError {
    /// No such fault.
    #[error("unknown fault \"{0}\"; known are drop, reorder, dup, corrupt, ecn, delay and seed")]
    UnknownKey(String),
    /// A fault without a value.
    #[error("fault \"{0}\" has no value; write for example drop=0.01,seed=1")]
    NoValue(String),
    /// Not a probability.
    #[error("fault {key}={value}: the value must be a probability from 0 to 1, for example 0.01")]
    Probability {
        /// Which fault.
        key: String,
        /// What was given.
        value: String,
    },
    /// Not a duration.
    #[error("fault delay={0}: the value must be a number with unit ns, us, ms or s, for example 50us")]
    Delay(String),
    /// Not a seed.
    #[error("fault seed={0}: the value must be a whole number below 2^64")]
    Seed(String),
}

impl FromStr for FaultConfig {
    type Err = FaultConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut config = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (key, value) = entry
                .split_once('=')
                .ok_or_else(|| FaultConfigError::NoValue(entry.to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            match key {
                "drop" => config.drop = probability(key, value)?,
                "reorder" => config.reorder = probability(key, value)?,
                "dup" => config.dup = probability(key, value)?,
                "corrupt" => config.corrupt = probability(key, value)?,
                "ecn" => config.ecn = probability(key, value)?,
                "delay" => {
                    config.delay = duration(value).ok_or_else(|| FaultConfigError::Delay(value.to_owned()))?;
                }
                "seed" => config.seed = value.parse().map_err(|_| FaultConfigError::Seed(value.to_owned()))?,
                _ => return Err(FaultConfigError::UnknownKey(key.to_owned())),
            }
        }
        Ok(config)
    }
}

impl fmt::Display for FaultConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            drop,
            reorder,
            dup,
            corrupt,
            ecn,
            delay,
            seed,
        } = self;
        let nanos = delay.as_nanos();
        write!(
            f,
            "drop={drop},reorder={reorder},dup={dup},corrupt={corrupt},ecn={ecn},delay={nanos}ns,seed={seed}"
        )
    }
}

fn probability(key: &str, value: &str) -> Result<f64, FaultConfigError> {
    let bad = || FaultConfigError::Probability {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    // The comparison also refuses NaN.
    value
        .parse()
        .ok()
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(bad)
}

fn duration(value: &str) -> Option<Duration> {
    let unit_at = value.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(value.len());
    let (number, unit) = value.split_at(unit_at);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        // "0" needs no unit.
        "" if number.parse() == Ok(0.0) => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let config: FaultConfig = "drop=0.01,reorder=0.02,dup=1,corrupt=1e-3,ecn=.5,delay=50us,seed=7"
            .parse()
            .unwrap();
        let expected = FaultConfig {
            drop: 0.01,
            reorder: 0.02,
            dup: 1.0,
            corrupt: 0.001,
            ecn: 0.5,
            delay: Duration::from_micros(50),
            seed: 7,
        };
        assert_eq!(config, expected);
        assert_eq!(config.to_string().parse(), Ok(config));
        assert_eq!(" drop = 0.5 , ".parse::<FaultConfig>().unwrap().drop, 0.5);
        assert!("".parse::<FaultConfig>().unwrap().is_none());
        assert!("seed=3,delay=0".parse::<FaultConfig>().unwrap().is_none());
        assert!(!config.is_none());
    }

    #[test]
    fn errors_name_the_entry_and_what_is_allowed() {
        let cases = [
            ("lose=1", ["lose", "corrupt"]),
            ("drop", ["drop", "drop=0.01"]),
            ("drop=1.5", ["drop=1.5", "0 to 1"]),
            ("ecn=-1", ["ecn=-1", "0 to 1"]),
            ("dup=NaN", ["dup=NaN", "0 to 1"]),
            ("corrupt=", ["corrupt=", "0 to 1"]),
            ("seed=x", ["seed=x", "whole number"]),
            ("delay=5", ["delay=5", "ms"]),
            ("delay=-1us", ["delay=-1us", "ms"]),
            ("delay=1h", ["delay=1h", "ms"]),
        ];
        for (text, parts) in cases {
            let message = text.parse::<FaultConfig>().unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }
}
