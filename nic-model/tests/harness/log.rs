//! The last events of a run, printed when a scenario fails.

use nic_model::host_if::{Cqe, Event};
use nic_model::sim::SimFrame;
use nic_model::time::Time;
use roce_wire::opcode::Opcode;
use roce_wire::packet::Packet;
use std::collections::VecDeque;

const KEPT: usize = 200;

/// A request or response packet as a scenario wants to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) at: Time,
    /// Sending host.
    pub(crate) from: usize,
    pub(crate) opcode: Opcode,
    pub(crate) dest_qpn: u32,
    pub(crate) psn: u32,
    pub(crate) ack_req: bool,
    pub(crate) mig_req: bool,
    pub(crate) payload: usize,
    /// AETH syndrome byte, if there is one.
    pub(crate) syndrome: Option<u8>,
    pub(crate) msn: Option<u32>,
}

impl Sighting {
    /// What a packet of the device looks like; the device sends nothing that does not parse.
    pub(crate) fn of(at: Time, from: usize, frame: &SimFrame) -> Self {
        let packet = Packet::parse(&frame.bytes).expect("the device sent a malformed packet");
        let bth = packet.headers.bth;
        Self {
            at,
            from,
            opcode: bth.opcode,
            dest_qpn: bth.dest_qpn,
            psn: bth.psn.get(),
            ack_req: bth.ack_req,
            mig_req: bth.mig_req,
            payload: packet.payload.len(),
            syndrome: packet.headers.aeth.map(|aeth| aeth.syndrome.to_u8()),
            msn: packet.headers.aeth.map(|aeth| aeth.msn),
        }
    }
}

#[derive(Clone, Debug)]
enum Entry {
    Sent(Sighting),
    Delivered(Sighting),
    Damaged(Time, usize),
    Completed(Time, usize, Cqe),
    Raised(Time, usize, Event),
}

/// Ring of the last events.
#[derive(Debug)]
pub(crate) struct Log {
    seed: u64,
    entries: VecDeque<Entry>,
}

impl Log {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            entries: VecDeque::new(),
        }
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn sent(&mut self, sighting: Sighting) {
        self.push(Entry::Sent(sighting));
    }

    pub(crate) fn delivered(&mut self, sighting: Sighting) {
        self.push(Entry::Delivered(sighting));
    }

    pub(crate) fn damaged(&mut self, at: Time, to: usize) {
        self.push(Entry::Damaged(at, to));
    }

    pub(crate) fn completed(&mut self, at: Time, host: usize, cqe: Cqe) {
        self.push(Entry::Completed(at, host, cqe));
    }

    pub(crate) fn raised(&mut self, at: Time, host: usize, event: Event) {
        self.push(Entry::Raised(at, host, event));
    }

    fn print(&self) {
        eprintln!("seed {}; last {} events:", self.seed, self.entries.len());
        let name = |host: &usize| ["A", "B"][*host];
        for entry in &self.entries {
            match entry {
                Entry::Sent(s) | Entry::Delivered(s) => {
                    let verb = if matches!(entry, Entry::Sent(_)) {
                        "sends"
                    } else {
                        "'s packet arrives:"
                    };
                    eprintln!(
                        "{:>12} {} {verb} {:?} psn {:#x} to {:#x} payload {} ack_req {} syndrome {:x?} msn {:?}",
                        s.at.0,
                        name(&s.from),
                        s.opcode,
                        s.psn,
                        s.dest_qpn,
                        s.payload,
                        s.ack_req,
                        s.syndrome,
                        s.msn
                    );
                }
                Entry::Damaged(at, to) => eprintln!("{:>12} a damaged packet reaches {}", at.0, name(to)),
                Entry::Completed(at, host, cqe) => eprintln!(
                    "{:>12} {} completes wr {} qp {:#x} opcode {} status {} len {} flags {:#x}",
                    at.0,
                    name(host),
                    cqe.wr_id,
                    cqe.qpn,
                    cqe.opcode,
                    cqe.status,
                    cqe.byte_len,
                    cqe.flags
                ),
                Entry::Raised(at, host, event) => eprintln!("{:>12} {} raises {event:?}", at.0, name(host)),
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print();
        }
    }
}
