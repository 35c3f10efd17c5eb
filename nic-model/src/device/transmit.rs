//! Packets out: one batch at a time.
//!
//! Order: acknowledgements, then other control packets and MADs, then datagrams and Tonic's bursts by turns. A burst may
//! need several batches, since packets of different length cannot share one; the cursor remembers where it stands.

use super::batch;
use super::qp::{Qp, Service};
use super::requester::{self, Emitted};
use super::responder::AckEmitted;
use super::ud::Turn;
use super::{Nic, Role, STALL};
use crate::frame::{TxBatch, TxBudget};
use crate::host_if::event::AsyncEventKind;
use crate::time::Time;
use crate::tonic::{FlowId, SegNo};

/// A burst being sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct BurstCursor {
    pub(super) flow: FlowId,
    next: SegNo,
    end: SegNo,
}

impl Nic {
    /// Fill `batch` with the next packets to one destination; returns whether there are any. May change after any door.
    pub fn poll_transmit(&mut self, now: Time, budget: &mut dyn TxBudget, batch: &mut TxBatch) -> bool {
        self.parts.now = now;
        batch.clear();
        let filled = self.emit_acks(batch)
            || self.emit_control(batch)
            || self.emit_datagrams(budget, batch)
            || self.emit_bursts(budget, batch);
        if filled {
            self.parts.counters.sent_pkts += batch.len() as u64;
            self.parts.counters.sent_bytes += batch.bytes.len() as u64;
        }
        filled
    }

    fn emit_acks(&mut self, batch: &mut TxBatch) -> bool {
        while let Some(index) = self.parts.ack_due.front().copied() {
            let done = match self.qps.at(index) {
                Some(Qp {
                    info,
                    service: Service::Rc(_, responder),
                }) => match info.path {
                    Some(path) => responder.emit_ack(info, &mut self.parts, &path, batch),
                    None => AckEmitted::Done,
                },
                _ => AckEmitted::Done,
            };
            match done {
                AckEmitted::Done => {
                    self.parts.ack_due.pop_front();
                }
                AckEmitted::More => {}
                AckEmitted::Full => break,
            }
        }
        !batch.is_empty()
    }

    fn emit_control(&mut self, batch: &mut TxBatch) -> bool {
        while let Some(packet) = self.parts.control.front() {
            if !batch::admits(batch, &packet.path, packet.dest_qpn, packet.length) {
                return true;
            }
            if batch.is_empty() {
                batch.path = packet.path;
                batch.dest_qpn = packet.dest_qpn;
                batch.segment_size = packet.length;
            }
            batch.bytes.extend_from_slice(&packet.bytes[..packet.length]);
            self.parts.control.pop_front();
        }
        !batch.is_empty() || self.parts.gsi.emit(batch)
    }

    fn emit_datagrams(&mut self, budget: &mut dyn TxBudget, batch: &mut TxBatch) -> bool {
        for _ in 0..self.parts.ud_ready.len() {
            let Some(index) = self.parts.ud_ready.pop_front() else {
                break;
            };
            let Some(Qp {
                info,
                service: Service::Ud(datagram),
            }) = self.qps.at(index)
            else {
                continue;
            };
            if info.state() != crate::host_if::QpState::Rts {
                datagram.unlist();
                continue;
            }
            match datagram.transmit(info, &mut self.parts, budget, batch) {
                Turn::Idle => {}
                Turn::More => self.parts.ud_ready.push_back(index),
                Turn::Stalled => {
                    self.parts.counters.backpressure_stalls += 1;
                    self.parts.ud_ready.push_back(index);
                    self.rest();
                }
                Turn::Failed => {
                    datagram.unlist();
                    self.fail(index, super::Fault::Send, None);
                }
            }
            if !batch.is_empty() {
                return true;
            }
        }
        false
    }

    /// Try again after a short rest.
    fn rest(&mut self) {
        let until = self.parts.now + STALL;
        self.stalled_until = Some(self.stalled_until.map_or(until, |earlier| earlier.min(until)));
    }

    fn next_burst(&mut self) -> Option<BurstCursor> {
        if let Some(burst) = self.burst.take() {
            return Some(burst);
        }
        let (flows, qps) = (&self.flows, &self.qps);
        let mut lengths = |flow: FlowId, seg: SegNo| {
            let Some(Some((index, role))) = flows.get(flow as usize) else {
                return 0;
            };
            match qps.peek(*index) {
                Some(Qp {
                    info,
                    service: Service::Rc(requester, responder),
                }) => match role {
                    Role::Requester => requester.segment_length(info, seg),
                    Role::Responder => responder.response_length(info, seg),
                },
                _ => 0,
            }
        };
        let burst = self.parts.tonic.poll(self.parts.now, &mut lengths)?;
        Some(BurstCursor {
            flow: burst.flow,
            next: burst.first,
            end: burst.first + SegNo::from(burst.count),
        })
    }

    fn emit_bursts(&mut self, budget: &mut dyn TxBudget, batch: &mut TxBatch) -> bool {
        while let Some(mut burst) = self.next_burst() {
            let Some(Some((index, role))) = self.flows.get(burst.flow as usize).copied() else {
                continue;
            };
            let Some(Qp {
                info,
                service: Service::Rc(requester, responder),
            }) = self.qps.at(index)
            else {
                continue;
            };
            let Some(path) = info.path else { continue };
            let allowed = budget.available(&path, info.attr.dest_qp_num);
            let largest = info.mtu as usize + 64;
            let mut failed = None;
            let mut faulty = false;
            while burst.next < burst.end {
                if batch.bytes.len() + largest > allowed {
                    if !batch.is_empty() {
                        // This batch is as large as it may get; what the next may hold is asked anew.
                        self.burst = Some(burst);
                    }
                    break;
                }
                let emitted = match role {
                    Role::Requester => Ok(requester.emit(info, &mut self.parts, &path, burst.next, batch)),
                    Role::Responder => responder.emit_response(info, &mut self.parts, &path, burst.next, batch),
                };
                match emitted {
                    Ok(Emitted::Packet) => {}
                    Ok(Emitted::Nothing) => faulty = true,
                    Ok(Emitted::Full) => {
                        self.burst = Some(burst);
                        break;
                    }
                    Err(outcome) => {
                        failed = Some(outcome);
                        break;
                    }
                }
                burst.next += 1;
            }
            if let Some(outcome) = failed {
                self.on_responder(index, outcome);
            } else if burst.next < burst.end && self.burst.is_none() {
                self.stall(burst);
            }
            if faulty && role == Role::Requester {
                self.settle_requester(index);
            }
            if !batch.is_empty() {
                return true;
            }
        }
        false
    }

    /// The destination takes no more: give the rest of the burst back.
    fn stall(&mut self, burst: BurstCursor) {
        let count = u16::try_from(burst.end - burst.next).unwrap_or(u16::MAX);
        self.parts.counters.backpressure_stalls += 1;
        self.parts.tonic.returned(self.parts.now, burst.flow, burst.next, count);
        self.parts.tonic.block(burst.flow);
        self.stalled.push(burst.flow);
        self.rest();
    }

    /// A segment was not sent: if its message is faulty and the oldest, it fails now.
    fn settle_requester(&mut self, index: u16) {
        let Some(Qp {
            info,
            service: Service::Rc(requester, _),
        }) = self.qps.at(index)
        else {
            return;
        };
        if requester.settle_fault(info, &mut self.parts) == requester::Outcome::Failed {
            self.fail(index, super::Fault::Send, None::<AsyncEventKind>);
        }
    }
}
