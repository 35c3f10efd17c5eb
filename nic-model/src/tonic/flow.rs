//! One flow: its program, its state in both engines, and its flags.

use super::config::{FlowConfig, FlowStats};
use super::credit::Credit;
use super::credit::rate::Pacing;
use super::delivery::incoming::Outcome;
use super::delivery::timer::RetransmitTimer;
use super::delivery::{Delivery, RttProbe};
use super::program::{FlowParams, Program, StateBytes, Wake};
use super::ring::SendRing;
use super::segments::{Block, SegmentPool};
use super::view::FlowView;
use super::{Actions, Incoming, MAX_WINDOW, TonicConfig};
use crate::time::Time;

/// State of one flow, beside its links in the sets and timers and a block of segment state while it recovers.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) delivery: Delivery,
    pub(crate) credit: Credit,
    state: StateBytes,
    program: &'static dyn Program,
    params: FlowParams,
    /// Instant of the last event the program saw.
    pub(crate) last_incoming: Time,
    pub(crate) live: bool,
    pub(crate) blocked: bool,
}

const _: () = assert!(size_of::<Flow>() <= 384);
// With its segment state a flow stays within one kibibyte.
const _: () = assert!(size_of::<Flow>() + size_of::<super::segments::SegmentState>() <= 1_000);

impl Flow {
    pub(crate) fn new(now: Time, config: &FlowConfig, tonic: &TonicConfig) -> Self {
        let max_window = config.window.clamp(1, MAX_WINDOW);
        let quantum = config.quantum.clamp(1, tonic.ring);
        let params = FlowParams {
            segment_size: config.segment_size,
            line_rate_bps: config.line_rate_bps,
            max_window,
        };
        let mut state = StateBytes::default();
        let initial = config.program.init(&params, &mut state);
        let pacing = Pacing {
            burst: tonic.pacing_burst,
            lateness: tonic.lateness,
            quantum,
        };
        Self {
            delivery: Delivery {
                una: 0,
                next_new: 0,
                sent_end: 0,
                available: 0,
                window: initial.window.unwrap_or(max_window).clamp(1, max_window),
                max_window,
                quantum,
                reliable: config.reliable,
                block: Block::NONE,
                ring: SendRing::default(),
                timer: RetransmitTimer::new(config.timeout, config.early_retransmit),
                rtt: RttProbe::new(),
                head_resent: Time::NEVER,
                total_sent: 0,
                retransmitted: 0,
            },
            credit: Credit::new(config.program.credit(), &params, &initial, pacing, now),
            state,
            program: config.program,
            params,
            last_incoming: Time::NEVER,
            live: true,
            blocked: false,
        }
    }

    /// Calls the program's `incoming`.
    #[inline]
    pub(crate) fn run_incoming(
        &mut self,
        pool: &SegmentPool,
        now: Time,
        event: &Incoming,
        outcome: Outcome,
    ) -> Actions {
        let segments = pool.get(self.delivery.block);
        let view = FlowView {
            now,
            flow: &self.delivery,
            params: &self.params,
            segments,
            outcome,
        };
        self.program.incoming(&view, event, &mut self.state)
    }

    /// Calls the program's `periodic`.
    pub(crate) fn run_periodic(&mut self, pool: &SegmentPool, now: Time, wake: Wake) -> Actions {
        let segments = pool.get(self.delivery.block);
        let outcome = Outcome {
            old_una: self.delivery.una,
            ..Outcome::default()
        };
        let view = FlowView {
            now,
            flow: &self.delivery,
            params: &self.params,
            segments,
            outcome,
        };
        self.program.periodic(&view, wake, &mut self.state)
    }

    pub(crate) fn stats(&self, pool: &SegmentPool) -> FlowStats {
        let flow = &self.delivery;
        let marked = pool.get(flow.block).map_or(0, |segments| {
            segments.marked.count_range(flow.una, flow.una + u64::from(MAX_WINDOW))
        });
        FlowStats {
            window: flow.window,
            rate_bps: match &self.credit {
                Credit::Rate(rate) => rate.rate(),
                Credit::Window | Credit::Grant(_) => 0,
            },
            una: flow.una,
            next_new: flow.next_new,
            sent_end: flow.sent_end,
            outstanding: flow.ring.len(),
            marked: u16::try_from(marked).unwrap_or(u16::MAX),
            total_sent: flow.total_sent,
            retransmitted: flow.retransmitted,
            smoothed_rtt: match flow.rtt.smoothed {
                0 => None,
                nanos => Some(core::time::Duration::from_nanos(u64::from(nanos))),
            },
        }
    }
}
