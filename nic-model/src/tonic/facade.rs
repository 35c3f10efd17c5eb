//! The engines as the device drives them: events in, bursts out.

use super::config::{Burst, FlowConfig, FlowStats, TonicConfig};
use super::credit::rate::Pacing;
use super::credit::{Credit, Verdict};
use super::delivery::apply::{mark, recall, returned};
use super::delivery::generate::generate;
use super::delivery::incoming::stage0;
use super::delivery::timer::{Fired, in_flight};
use super::delivery::transmitted::transmitted;
use super::flow::Flow;
use super::program::Wake;
use super::ring::Run;
use super::sched::FlowFifo;
use super::segments::SegmentPool;
use super::timers::{Kind, Timers};
use super::{Actions, FlowId, Incoming, RateAction, SegNo, TimerAction, VisitAction};
use crate::time::{Duration, Time};

/// Data delivery and credit engines for all flows of one NIC.
///
/// A flow id that names no flow is ignored everywhere. Time never goes back: an instant before the last one given
/// counts as the last one.
#[derive(Debug)]
pub struct Tonic {
    config: TonicConfig,
    flows: Vec<Flow>,
    free: Vec<FlowId>,
    pool: SegmentPool,
    active: FlowFifo,
    ready: FlowFifo,
    timers: Timers,
    clock: Time,
}

impl Tonic {
    /// Engines without flows.
    pub fn new(config: TonicConfig) -> Self {
        let config = TonicConfig {
            ring: config.ring.clamp(1, super::MAX_WINDOW),
            ..config
        };
        Self {
            config,
            flows: Vec::new(),
            free: Vec::new(),
            pool: SegmentPool::default(),
            active: FlowFifo::default(),
            ready: FlowFifo::default(),
            timers: Timers::default(),
            clock: Time::ZERO,
        }
    }

    /// Adds a flow whose first segment is 0.
    pub fn add_flow(&mut self, now: Time, config: FlowConfig) -> FlowId {
        let now = self.tick(now);
        let flow = Flow::new(now, &config, &self.config);
        if let Some(id) = self.free.pop() {
            self.flows[id as usize] = flow;
            return id;
        }
        self.flows.push(flow);
        let flows = self.flows.len();
        self.active.grow(flows);
        self.ready.grow(flows);
        self.timers.grow(flows);
        self.free.reserve(flows - self.free.len());
        self.pool.reserve(flows.next_power_of_two().min(self.config.recovering));
        u32::try_from(flows - 1).unwrap_or(u32::MAX)
    }

    /// Removes a flow; its id will be given to another.
    pub fn remove_flow(&mut self, id: FlowId) {
        let Some(flow) = live(&mut self.flows, id) else { return };
        flow.live = false;
        self.pool.release(&mut flow.delivery.block);
        self.active.remove(id);
        self.ready.remove(id);
        for kind in [Kind::Delivery, Kind::Credit, Kind::Program] {
            self.timers.cancel(id, kind);
        }
        self.free.push(id);
    }

    /// Changes the ACK timeout. A running timer starts again.
    pub fn set_timeout(&mut self, now: Time, id: FlowId, timeout: Option<Duration>) {
        let now = self.tick(now);
        let Some(flow) = live(&mut self.flows, id) else { return };
        flow.delivery.timer.set_length(timeout);
        if flow.delivery.timer.is_running() {
            let rtt = flow.delivery.rtt.smoothed;
            flow.delivery.timer.start(&mut self.timers, id, now, rtt);
        }
    }

    /// Segments below `upto` may be sent. Never goes back.
    #[inline]
    pub fn available(&mut self, now: Time, id: FlowId, upto: SegNo) {
        self.tick(now);
        let Some(flow) = live(&mut self.flows, id) else { return };
        flow.delivery.available = flow.delivery.available.max(upto);
        self.activate(id);
    }

    /// Excludes a flow from selection and stops its timer (receiver not ready, SQ drained, no room to send).
    pub fn block(&mut self, id: FlowId) {
        let Some(flow) = live(&mut self.flows, id) else { return };
        flow.blocked = true;
        recall(&mut flow.delivery, &mut self.pool);
        flow.delivery.timer.stop(&mut self.timers, id);
        self.active.remove(id);
        self.settle(id);
    }

    /// Ends [`block`](Self::block). What is in flight gets a whole ACK timeout again.
    pub fn unblock(&mut self, now: Time, id: FlowId) {
        let now = self.tick(now);
        let Some(flow) = live(&mut self.flows, id) else { return };
        if !flow.blocked {
            return;
        }
        flow.blocked = false;
        if flow.delivery.reliable && in_flight(flow.delivery.una, flow.delivery.sent_end) {
            let rtt = flow.delivery.rtt.smoothed;
            flow.delivery.timer.start(&mut self.timers, id, now, rtt);
        }
        self.activate(id);
    }

    /// A signal of the peer. Stale ones and acknowledgements of what was never sent change nothing.
    #[inline]
    pub fn incoming(&mut self, now: Time, id: FlowId, event: Incoming) {
        let now = self.tick(now);
        let Some(flow) = live(&mut self.flows, id) else { return };
        match event {
            Incoming::Pull { counter } => {
                if let Credit::Grant(grant) = &mut flow.credit
                    && grant.pull(counter)
                    && !flow.blocked
                {
                    self.ready.push(id);
                }
            }
            Incoming::Progress => flow.delivery.timer.progress(),
            _ => {}
        }
        let queued = !flow.delivery.ring.is_empty();
        let Some(outcome) = stage0(&mut flow.delivery, &mut self.pool, now, &event) else {
            return;
        };
        flow.last_incoming = now;
        let actions = flow.run_incoming(&self.pool, now, &event, outcome);
        self.apply(now, id, &actions);
        if queued {
            self.settle(id);
        }
    }

    /// The next burst to send: neighbouring segments of one flow, all new or all sent before, with credit.
    ///
    /// `lengths` tells the wire bytes of a segment; it is asked only about flows whose credit counts bytes. `None`
    /// until [`available`](Self::available), [`incoming`](Self::incoming), [`unblock`](Self::unblock),
    /// [`returned`](Self::returned) or [`handle_timeout`](Self::handle_timeout) changes something.
    #[inline]
    pub fn poll(&mut self, now: Time, lengths: &mut dyn FnMut(FlowId, SegNo) -> u32) -> Option<Burst> {
        let now = self.tick(now);
        loop {
            let generated = self.active.pop();
            if let Some(id) = generated
                && let Some(burst) = self.generate(now, id, lengths)
            {
                return Some(burst);
            }
            if let Some(id) = self.ready.pop() {
                if let Some(burst) = self.transmit(now, id, lengths) {
                    return Some(burst);
                }
            } else if generated.is_none() {
                return None;
            }
        }
    }

    /// The device could not send these segments of the last burst: they are selected again, in order.
    ///
    /// Call [`block`](Self::block) too, or they are selected at once.
    pub fn returned(&mut self, now: Time, id: FlowId, first: SegNo, count: u16) {
        self.tick(now);
        let Some(flow) = live(&mut self.flows, id) else { return };
        returned(
            &mut flow.delivery,
            &mut self.pool,
            first,
            first.saturating_add(u64::from(count)),
        );
        flow.credit.refund(count);
        if !in_flight(flow.delivery.una, flow.delivery.sent_end) {
            flow.delivery.timer.stop(&mut self.timers, id);
        }
        self.settle(id);
        self.activate(id);
    }

    /// The earliest instant at which [`handle_timeout`](Self::handle_timeout) has something to do.
    ///
    /// May change after every call that takes `&mut self`.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Does what is due: visits programs, makes flows ready whose credit suffices, and reports ACK timeouts to
    /// `expired` after the program has marked what to resend.
    ///
    /// A flow that had an incoming event at this very instant has its timeout one nanosecond later, unless the event
    /// has stopped or restarted the timer: acknowledgement and timeout exclude each other.
    pub fn handle_timeout(&mut self, now: Time, expired: &mut dyn FnMut(FlowId)) {
        let now = self.tick(now);
        while let Some((id, kind)) = self.timers.pop_due(now) {
            let Some(flow) = live(&mut self.flows, id) else {
                continue;
            };
            let wake = match kind {
                Kind::Credit => {
                    if !flow.blocked && !flow.delivery.ring.is_empty() {
                        self.ready.push(id);
                    }
                    continue;
                }
                Kind::Program => Wake::Visit,
                Kind::Delivery if flow.last_incoming == now => {
                    self.timers.set(id, Kind::Delivery, now + Duration::from_nanos(1));
                    continue;
                }
                Kind::Delivery => {
                    let rtt = flow.delivery.rtt.smoothed;
                    match flow.delivery.timer.fire(&mut self.timers, id, now, rtt) {
                        Fired::Nothing => continue,
                        Fired::Probe => Wake::Probe,
                        Fired::Timeout => Wake::Timeout,
                    }
                }
            };
            let actions = flow.run_periodic(&self.pool, now, wake);
            self.apply(now, id, &actions);
            if wake == Wake::Timeout {
                expired(id);
            }
        }
    }

    /// A flow at this instant; all zero when there is no such flow.
    pub fn stats(&self, id: FlowId) -> FlowStats {
        match self.flows.get(id as usize) {
            Some(flow) if flow.live => flow.stats(&self.pool),
            _ => FlowStats::default(),
        }
    }

    /// The latest instant given.
    #[cfg(test)]
    pub(super) const fn clock(&self) -> Time {
        self.clock
    }

    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Inserts a flow in the active set if it could generate a segment.
    #[inline]
    fn activate(&mut self, id: FlowId) {
        let flow = &self.flows[id as usize];
        if !flow.blocked
            && !self.active.contains(id)
            && flow.delivery.has_room(self.config.ring)
            && flow.delivery.has_work(&self.pool)
        {
            self.active.push(id);
        }
    }

    /// Takes a flow whose ring has become empty out of the credit engine.
    #[inline]
    fn settle(&mut self, id: FlowId) {
        let flow = &mut self.flows[id as usize];
        if flow.delivery.ring.is_empty() {
            flow.credit.stop_waiting();
            self.ready.remove(id);
            self.timers.cancel(id, Kind::Credit);
        }
    }

    /// Segment generation and enqueue of one flow from the active set. What finds ring and ready set empty and has
    /// credit leaves at once: it would be the next anyway.
    #[inline]
    fn generate(&mut self, now: Time, id: FlowId, lengths: &mut dyn FnMut(FlowId, SegNo) -> u32) -> Option<Burst> {
        let flow = &mut self.flows[id as usize];
        let run = generate(&mut flow.delivery, &mut self.pool, self.config.ring)?;
        if !flow.delivery.ring.is_empty() {
            flow.delivery.ring.push(run);
            self.activate(id);
            return None;
        }
        match flow.credit.verdict(now, run, &mut |seg| lengths(id, seg)) {
            Verdict::Ready if self.ready.is_empty() => {
                let count = flow.credit.spend(now, run, run.count, &mut |seg| lengths(id, seg));
                if count == run.count {
                    return Some(self.sent(now, id, run, lengths));
                }
                flow.delivery.ring.push(run);
                if count > 0 {
                    flow.delivery.ring.take(count);
                    return Some(self.sent(now, id, Run { count, ..run }, lengths));
                }
                self.ready.push(id);
            }
            verdict => {
                flow.delivery.ring.push(run);
                match verdict {
                    Verdict::Ready => self.ready.push(id),
                    Verdict::At(at) => self.timers.set(id, Kind::Credit, at),
                    Verdict::Wait => {}
                }
            }
        }
        self.activate(id);
        None
    }

    /// Decides when the head of the ring may leave; answers whether it may now.
    #[inline]
    fn gate(&mut self, now: Time, id: FlowId, lengths: &mut dyn FnMut(FlowId, SegNo) -> u32) -> bool {
        let flow = &mut self.flows[id as usize];
        let Some(head) = flow.delivery.ring.front() else {
            return false;
        };
        match flow.credit.verdict(now, head, &mut |seg| lengths(id, seg)) {
            Verdict::Ready => return true,
            Verdict::At(at) => self.timers.set(id, Kind::Credit, at),
            Verdict::Wait => {}
        }
        false
    }

    /// Sends the head of a flow from the ready set.
    #[inline]
    fn transmit(&mut self, now: Time, id: FlowId, lengths: &mut dyn FnMut(FlowId, SegNo) -> u32) -> Option<Burst> {
        let flow = &mut self.flows[id as usize];
        let head = flow.delivery.ring.front()?;
        let count = flow
            .credit
            .spend(now, head, flow.delivery.quantum, &mut |seg| lengths(id, seg));
        if count == 0 {
            if self.gate(now, id, lengths) {
                self.ready.push(id);
            }
            return None;
        }
        flow.delivery.ring.take(count);
        Some(self.sent(now, id, Run { count, ..head }, lengths))
    }

    /// Segment transmitted, and what follows from it for the flow's next turn.
    #[inline]
    fn sent(&mut self, now: Time, id: FlowId, run: Run, lengths: &mut dyn FnMut(FlowId, SegNo) -> u32) -> Burst {
        let flow = &mut self.flows[id as usize];
        if transmitted(&mut flow.delivery, &mut self.pool, now, run) {
            let rtt = flow.delivery.rtt.smoothed;
            flow.delivery.timer.start(&mut self.timers, id, now, rtt);
        }
        if !flow.delivery.ring.is_empty() && self.gate(now, id, lengths) {
            self.ready.push(id);
        }
        self.activate(id);
        Burst {
            flow: id,
            first: run.first,
            count: run.count,
            retransmission: run.transmission > 0,
            transmission: run.transmission,
        }
    }

    /// Carries out what a program answered.
    #[inline]
    fn apply(&mut self, now: Time, id: FlowId, actions: &Actions) {
        let flow = &mut self.flows[id as usize];
        let mut recalled = false;
        if let Some(window) = actions.window {
            let window = window.clamp(1, flow.delivery.max_window);
            if window < flow.delivery.window && !flow.delivery.ring.is_empty() {
                // Nothing that waits for credit may be outside the window.
                recall(&mut flow.delivery, &mut self.pool);
                recalled = true;
            }
            flow.delivery.window = window;
        }
        if !actions.marks.ranges().is_empty() {
            recalled = true;
            mark(&mut flow.delivery, &mut self.pool, actions.marks.ranges());
        }
        let rtt = flow.delivery.rtt.smoothed;
        let timer = &mut flow.delivery.timer;
        let restart = match actions.timer {
            TimerAction::Keep => false,
            TimerAction::Reset => true,
            TimerAction::ResetTo(length) => {
                timer.set_length(Some(length));
                true
            }
            TimerAction::Disarm => {
                timer.stop(&mut self.timers, id);
                false
            }
            TimerAction::Backoff => {
                timer.back_off();
                true
            }
        };
        if !in_flight(flow.delivery.una, flow.delivery.sent_end) {
            timer.stop(&mut self.timers, id);
        } else if restart && flow.delivery.reliable && !flow.blocked {
            timer.start(&mut self.timers, id, now, rtt);
        }
        if recalled {
            self.settle(id);
        }
        self.apply_credit(now, id, actions);
        self.activate(id);
    }

    /// The part of [`apply`](Self::apply) that concerns the credit engine and the program's visits.
    #[inline]
    fn apply_credit(&mut self, now: Time, id: FlowId, actions: &Actions) {
        let flow = &mut self.flows[id as usize];
        match actions.visit {
            VisitAction::Keep => {}
            VisitAction::At(at) => self
                .timers
                .set(id, Kind::Program, at.max(now + Duration::from_nanos(1))),
            VisitAction::Never => self.timers.cancel(id, Kind::Program),
        }
        if actions.grant > 0
            && let Credit::Grant(grant) = &mut flow.credit
            && grant.add(u64::from(actions.grant))
        {
            self.ready.push(id);
        }
        let bps = match actions.rate {
            RateAction::Keep => return,
            RateAction::Set(bps) => bps.max(1),
            RateAction::Unlimited => 0,
        };
        let Credit::Rate(rate) = &mut flow.credit else { return };
        let quantum = flow.delivery.quantum;
        let pacing = Pacing {
            burst: self.config.pacing_burst,
            lateness: self.config.lateness,
            quantum,
        };
        match rate.set_rate(now, bps, pacing) {
            Some(Verdict::Ready) => {
                self.timers.cancel(id, Kind::Credit);
                self.ready.push(id);
            }
            Some(Verdict::At(at)) => self.timers.set(id, Kind::Credit, at),
            Some(Verdict::Wait) | None => {}
        }
    }
}

/// The flow of an id.
#[inline]
fn live(flows: &mut [Flow], id: FlowId) -> Option<&mut Flow> {
    flows.get_mut(id as usize).filter(|flow| flow.live)
}
