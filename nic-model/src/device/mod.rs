//! The device: one function of the NIC, sans I/O.
//!
//! Doors: [`Nic::handle_command`], [`Nic::handle_doorbells`], [`Nic::handle_packet`], [`Nic::handle_timeout`] in;
//! [`Nic::poll_transmit`], [`Nic::flush_completions`], [`Nic::poll_event`], [`Nic::poll_mad`], [`Nic::poll_timeout`]
//! out. Time is a parameter, nothing here reads a clock, opens a socket or starts a thread, so the same code runs under
//! a real port and under virtual time.
//!
//! [`Nic`] only dispatches. [`requester`] and [`responder`] own the halves of a connected QP, [`ud`] datagrams, [`cq`]
//! completions, [`memory`] protection, Tonic the choice of every data segment.

mod batch;
mod commands;
mod counters;
mod cq;
mod dma;
mod gsi;
mod memory;
mod parts;
mod path;
mod qp;
mod receive;
mod receive_queue;
mod requester;
mod responder;
mod timers;
mod tombstone;
mod transmit;
mod ud;
mod wqe;

pub use counters::Counters;
pub use gsi::{GSI_QKEY, GSI_QPN, MAD_LEN, Mad};
pub use path::GID_TABLE_LEN;
pub use tombstone::{LINGER, Tombstone};

use crate::host_if::caps::DeviceCaps;
use crate::host_if::command::ObjectId;
use crate::host_if::doorbell::DoorbellPage;
use crate::host_if::event::{AsyncEventKind, Event};
use crate::host_if::qp_attr::QpState;
use crate::time::{Duration, Time};
use crate::tonic::{FlowId, Program, Tonic, TonicConfig};
use cq::CqTable;
use gsi::Gsi;
use memory::Memory;
use parts::Parts;
use path::GidTable;
use qp::state::{Fault, on_fault};
use qp::table::QpTable;
use qp::{Qp, Service};
use std::collections::VecDeque;
use std::sync::Arc;
use timers::Timers;
use tombstone::Graveyard;
use transmit::BurstCursor;
use ud::AhTable;

/// What a function is configured with.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Top byte of its QPNs, 1..=255.
    pub slot: u8,
    /// Index of its first QPN; random for each claim of a slot, or peers take new QPs for stale ones.
    pub first_qp: u16,
    /// Limits.
    pub caps: DeviceCaps,
    /// PMTU code of the port, 1 = 256 … 5 = 4096.
    pub port_mtu: u8,
    /// Line rate in bit/s, 0 = unlimited.
    pub line_rate: u64,
    /// Transport program of reliable flows.
    pub program: &'static dyn Program,
    /// Most segments of one QP in one turn of the scheduler.
    pub quantum: u16,
}

/// Which half of a QP a Tonic flow serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Requester,
    Responder,
}

/// One function of the NIC.
#[derive(Debug)]
pub struct Nic {
    config: NicConfig,
    parts: Parts,
    qps: QpTable,
    doorbells: Arc<DoorbellPage>,
    /// Owner of each Tonic flow.
    flows: Vec<Option<(u16, Role)>>,
    burst: Option<BurstCursor>,
    /// Flows blocked by back-pressure, and when to try again.
    stalled: Vec<FlowId>,
    stalled_until: Option<Time>,
    graveyard: Graveyard,
    scratch: Vec<u16>,
}

/// How long a flow rests when its destination takes nothing.
const STALL: Duration = Duration::from_micros(20);

impl Nic {
    /// A function without objects.
    pub fn new(config: NicConfig) -> Self {
        let caps = &config.caps;
        let parts = Parts {
            now: Time::ZERO,
            caps: caps.clone(),
            memory: Memory::new(caps.max_pd, caps.max_mr),
            cqs: CqTable::new(caps.max_cq, caps.max_cqe),
            ahs: AhTable::new(caps.max_ah),
            gids: GidTable::default(),
            tonic: Tonic::new(TonicConfig::default()),
            gsi: Gsi::default(),
            control: VecDeque::new(),
            ack_due: VecDeque::new(),
            ud_ready: VecDeque::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            events: VecDeque::new(),
        };
        let qps = QpTable::new(config.slot, config.first_qp, caps.max_qp);
        Self {
            config,
            parts,
            qps,
            doorbells: Arc::new(DoorbellPage::new()),
            flows: Vec::new(),
            burst: None,
            stalled: Vec::new(),
            stalled_until: None,
            graveyard: Graveyard::default(),
            scratch: Vec::new(),
        }
    }

    /// The doorbell page, for the driver.
    pub fn doorbells(&self) -> Arc<DoorbellPage> {
        Arc::clone(&self.doorbells)
    }

    /// Counters so far.
    pub const fn counters(&self) -> &Counters {
        &self.parts.counters
    }

    /// Count packets the engine dropped before the device saw them.
    pub const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.parts.counters
    }

    /// Look at every QP whose doorbell rang. [`Self::poll_transmit`], [`Self::poll_timeout`] and completions may change.
    pub fn handle_doorbells(&mut self, now: Time) {
        self.parts.now = now;
        let mut rung = core::mem::take(&mut self.scratch);
        self.doorbells.take(|index| rung.push(index));
        for index in rung.drain(..) {
            self.parts.counters.doorbells += 1;
            self.on_doorbell(index);
        }
        self.scratch = rung;
        self.settle_overruns();
    }

    fn on_doorbell(&mut self, index: u16) {
        let Some(qp) = self.qps.at(index) else { return };
        let cx = &mut self.parts;
        let mut outcome = requester::Outcome::Live;
        match (&mut qp.service, qp.info.state()) {
            (Service::Rc(requester, responder), QpState::Err) => {
                requester.flush(&qp.info, cx);
                responder.flush(&qp.info, cx);
            }
            (Service::Rc(requester, _), QpState::Rts) => outcome = requester.fetch(&qp.info, cx),
            (Service::Ud(datagram), QpState::Rts) => datagram.list(&qp.info, cx),
            (Service::Ud(datagram), QpState::Err) => {
                datagram.flush_sends(&qp.info, cx);
                datagram.flush_receives(&qp.info, cx);
            }
            (Service::Ud(datagram), QpState::Sqe) => datagram.flush_sends(&qp.info, cx),
            _ => {}
        }
        if outcome == requester::Outcome::Failed {
            self.fail(index, Fault::Send, None);
        }
    }

    /// A fault moves a QP to the state its table says, flushes what that state flushes, and raises an event.
    fn fail(&mut self, index: u16, fault: Fault, event: Option<AsyncEventKind>) {
        let Some(qp) = self.qps.at(index) else { return };
        let next = on_fault(qp.info.qp_type, qp.info.state(), fault);
        if next == qp.info.state() && fault != Fault::CqOverrun {
            return;
        }
        if let Some(stone) = commands::tombstone_of(qp).filter(|_| next == QpState::Err) {
            self.graveyard.bury(self.parts.now, stone);
        }
        qp.info.attr.qp_state = next;
        if let Some(kind) = event {
            self.parts.raise(kind, qp.info.cookie);
        }
        // What was asked for before the request that failed is still answered: the NAK comes after it (IBTA 9.9.3).
        self.flush(index, fault != Fault::Receive);
    }

    /// Flush a QP that has entered ERR or SQE and take its flows from Tonic, that of the responses if it `abandons` them.
    fn flush(&mut self, index: u16, abandons: bool) {
        let Some(qp) = self.qps.at(index) else { return };
        let cx = &mut self.parts;
        let state = qp.info.state();
        let mut retired: [Option<FlowId>; 2] = [None; 2];
        match &mut qp.service {
            Service::Rc(requester, responder) => {
                requester.flush(&qp.info, cx);
                responder.flush(&qp.info, cx);
                retired[0] = requester.take_flow();
                if abandons {
                    responder.abandon_responses(&qp.info, cx);
                    retired[1] = responder.take_flow();
                }
            }
            Service::Ud(datagram) => {
                datagram.flush_sends(&qp.info, cx);
                if state == QpState::Err {
                    datagram.flush_receives(&qp.info, cx);
                }
            }
        }
        retired.into_iter().flatten().for_each(|flow| self.remove_flow(flow));
    }

    fn remove_flow(&mut self, flow: FlowId) {
        self.parts.tonic.remove_flow(flow);
        if let Some(owner) = self.flows.get_mut(flow as usize) {
            *owner = None;
        }
        if self.burst.as_ref().is_some_and(|burst| burst.flow == flow) {
            self.burst = None;
        }
        self.stalled.retain(|stalled| *stalled != flow);
    }

    /// Bring QPs of overrun CQs to ERR.
    fn settle_overruns(&mut self) {
        while self.parts.cqs.has_overruns() {
            let overruns = self.parts.cqs.take_overruns(&mut self.parts.events);
            self.parts.counters.cq_overruns += overruns.len() as u64;
            let hit = |qp: &&Qp| overruns.contains(&qp.info.send_cq) || overruns.contains(&qp.info.recv_cq);
            let victims: Vec<u16> = self.qps.iter().filter(hit).map(|qp| qp.info.index()).collect();
            for index in victims {
                self.fail(index, Fault::CqOverrun, Some(AsyncEventKind::QpFatal));
            }
        }
    }

    /// Run every timer that has expired.
    pub fn handle_timeout(&mut self, now: Time) {
        self.parts.now = now;
        while let Some(index) = self.parts.timers.pop(now) {
            if let Some(Qp {
                service: Service::Rc(requester, _),
                ..
            }) = self.qps.at(index)
            {
                requester.on_rnr_timer(&mut self.parts);
            }
        }
        if self.stalled_until.is_some_and(|until| until <= now) {
            self.resume_stalled(now);
        }
        if self.parts.tonic.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut expired = core::mem::take(&mut self.scratch);
            let flows = &self.flows;
            self.parts.tonic.handle_timeout(now, &mut |flow| {
                if let Some(Some((index, Role::Requester))) = flows.get(flow as usize) {
                    expired.push(*index);
                }
            });
            for index in expired.drain(..) {
                self.on_ack_timeout(index);
            }
            self.scratch = expired;
        }
        self.settle_overruns();
    }

    fn on_ack_timeout(&mut self, index: u16) {
        let Some(qp) = self.qps.at(index) else { return };
        if let Service::Rc(requester, _) = &mut qp.service
            && requester.on_timeout(&qp.info, &mut self.parts) == requester::Outcome::Failed
        {
            self.fail(index, Fault::Send, None);
        }
    }

    fn resume_stalled(&mut self, now: Time) {
        self.stalled_until = None;
        for flow in core::mem::take(&mut self.stalled) {
            let Some(Some((index, role))) = self.flows.get(flow as usize).copied() else {
                continue;
            };
            let waits = match self.qps.at(index) {
                Some(Qp {
                    service: Service::Rc(requester, _),
                    ..
                }) => role == Role::Requester && requester.is_waiting(),
                _ => false,
            };
            if !waits {
                self.parts.tonic.unblock(now, flow);
            }
        }
    }

    /// When [`Self::handle_timeout`] wants to run next. May change after any other door.
    pub fn poll_timeout(&self) -> Option<Time> {
        [
            self.parts.timers.next(),
            self.parts.tonic.next_deadline(),
            self.stalled_until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Make completions visible; the packets of the same turn must have left first. Returns how many there were.
    pub fn flush_completions(&mut self) -> usize {
        self.parts.cqs.flush(&mut self.parts.events)
    }

    /// Whether more completions may come to `cq` by themselves: a send in flight or a receive posted. With many QPs the
    /// answer is yes without looking.
    pub fn awaits_completions(&self, cq: ObjectId) -> bool {
        const LOOK_AT: u32 = 64;
        self.qps.len() > LOOK_AT
            || self.qps.iter().any(|qp| {
                let (sending, receiving) = match &qp.service {
                    Service::Rc(requester, responder) => (!requester.is_drained(), responder.posted() > 0),
                    Service::Ud(datagram) => (false, datagram.posted() > 0),
                };
                (sending && qp.info.send_cq == cq) || (receiving && qp.info.recv_cq == cq)
            })
    }

    /// The next event for the driver. May change after any door that completes or fails something.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.parts.events.pop_front()
    }

    /// The next MAD received on QP1.
    pub fn poll_mad(&mut self) -> Option<Mad> {
        self.parts.gsi.take_received()
    }

    /// Queue a MAD for sending from QP1.
    pub fn send_mad(&mut self, mad: Mad) {
        self.parts.gsi.send(mad);
    }

    /// Tombstones of QPs closed since the last call, for whoever answers after this function is gone.
    pub fn take_tombstones(&mut self) -> Vec<Tombstone> {
        self.graveyard.take_fresh()
    }

    /// Tombstones of all QPs still open, as if they were closed now.
    pub fn living_tombstones(&self) -> Vec<Tombstone> {
        self.qps.iter().filter_map(commands::tombstone_of).collect()
    }
}
