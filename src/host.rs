//! What the command asks of the NIC model: live counters, the guardian, and the grammar of a fault specification.
//!
//! Counters come from the processes themselves. Each holds an abstract Unix socket named after its slot and answers a
//! request on it with JSON; whoever does not answer in time (stopped in a debugger, just ending) is left out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nic_model::port::FaultConfig;
use nic_model::port::host::{Message, Slot, guardian, live_slots};

use crate::errors::{Failure, Result};

/// How long the processes have to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long between two looks at the mailbox.
const LOOK: Duration = Duration::from_millis(1);

/// One process that has a device open, and its counters.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ProcessCounters {
    /// Process id.
    pub pid: u32,
    /// Name of the program.
    pub command: String,
    /// Its slot: the top byte of its QP numbers.
    pub slot: u8,
    /// The device's addresses.
    pub addresses: Vec<IpAddr>,
    /// Seconds since it opened the device.
    pub seconds: f64,
    /// Counters, named as Soft-RoCE's `hw_counters`.
    pub counters: BTreeMap<String, u64>,
}

/// Asks every process of this network namespace for its counters; in the order of their slots.
pub fn counters() -> Result<Vec<ProcessCounters>> {
    let failed = |error: std::io::Error| Failure::Machine(format!("cannot ask the running processes: {error}"));
    let mut correspondent = Slot::anonymous().map_err(failed)?;
    let mut awaited = 0_usize;
    for slot in live_slots().map_err(failed)? {
        // Gone in the meantime: nothing to wait for.
        awaited += usize::from(correspondent.send(slot, &Message::StatsRequest).is_ok());
    }
    let deadline = Instant::now() + PATIENCE;
    let mut processes: Vec<ProcessCounters> = Vec::new();
    let mut answers = 0;
    while answers < awaited {
        let heard = correspondent
            .receive(&mut |_, message, _| {
                if let Message::StatsReply { json } = message {
                    answers += 1;
                    // A process of another version may say something else.
                    processes.extend(serde_json::from_str::<ProcessCounters>(json).ok());
                }
            })
            .map_err(failed)?;
        if Instant::now() > deadline {
            break;
        }
        if heard == 0 {
            std::thread::sleep(LOOK);
        }
    }
    processes.sort_by_key(|process| process.slot);
    Ok(processes)
}

/// Runs as the guardian until it has nobody left to answer for.
pub fn guardian() -> Result<()> {
    guardian::run().map_err(|error| Failure::Machine(format!("the guardian cannot run: {error}")))
}

/// Whether `spec` is a fault specification; otherwise what is wrong with it and what is allowed.
pub fn check_faults(spec: &str) -> std::result::Result<(), String> {
    match spec.parse::<FaultConfig>() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "{error}; allowed: drop=P,reorder=P,dup=P,corrupt=P,ecn=P,delay=T,seed=N, P from 0 to 1, T as 50us"
        )),
    }
}
