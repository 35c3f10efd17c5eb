//! `roce-dcqcn`: go-back-N of RoCEv2 with DCQCN rate control (SIGCOMM 2015), the default transport.
//!
//! Rate control follows the authors' ns-3 code: alpha is updated before the cut, Rt is clamped to Rc at a cut, the
//! stages are fast recovery, additive and hyper increase. It departs from it in that Rt is capped at the line rate
//! (a parameter), and that no timer runs while no reduction is in force: alpha decays lazily until the next CNP, and
//! a flow at line rate is not limited at all.
//! Loss recovery is that of [`super::go_back_n`], which knows no congestion.

use super::super::actions::{Actions, RateAction, VisitAction};
use super::super::event::Incoming;
use super::super::program::{CreditScheme, FlowParams, Initial, TransportProgram, Wake};
use super::super::view::FlowView;
use super::go_back_n::GoBackN;
use crate::time::{Duration, Time};

/// Fraction bits of alpha: as many as keep its product with 400 Gbit/s within 64 bits.
const ALPHA_BITS: u32 = 24;
const ALPHA_ONE: u64 = 1 << ALPHA_BITS;
/// Line rate taken when it is not known.
const ASSUMED_LINE_RATE: u64 = 100_000_000_000;
/// Within this of the line rate a reduction has ended.
const RATE_UNIT: u64 = 1_562_500;
/// Ticks of each timer that a late visit makes good.
const CATCH_UP: u32 = 64;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceDcqcn {
    /// Alpha decays once in this time.
    pub alpha_timer: Duration,
    /// The rate increases once in this time.
    pub increase_timer: Duration,
    /// And once for so many bytes sent.
    pub byte_counter: u64,
    /// Weight of a CNP in alpha is 1/2^g_shift.
    pub g_shift: u32,
    /// First alpha, in 2⁻²⁴.
    pub first_alpha: u32,
    /// Additive increase in bits a second.
    pub additive: u64,
    /// Hyper increase in bits a second.
    pub hyper: u64,
    /// Least rate in bits a second.
    pub min_rate: u64,
    /// Steps of fast recovery.
    pub fast_steps: u8,
    /// Whether the target rate is capped at the line rate.
    pub cap_target: bool,
}

impl RoceDcqcn {
    /// The defaults of the DCQCN authors' simulation.
    pub const DEFAULT: Self = Self {
        alpha_timer: Duration::from_micros(55),
        increase_timer: Duration::from_micros(60),
        byte_counter: 300_000_000,
        g_shift: 8,
        first_alpha: 1 << (ALPHA_BITS - 1),
        additive: 40_000_000,
        hyper: 200_000_000,
        min_rate: 100_000_000,
        fast_steps: 5,
        cap_target: true,
    };
}

/// Per-flow state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct State {
    /// Rt.
    target: u64,
    /// Rc.
    rate: u64,
    /// Transmissions at the last event of the byte counter.
    counted: u64,
    /// Next decay of alpha, in nanoseconds.
    alpha_due: u64,
    /// Next increase by the timer.
    increase_due: u64,
    /// Loss recovery.
    loss: GoBackN,
    alpha: u32,
    /// One of [`LINE`], [`FAST`], [`ADDITIVE`], [`HYPER`].
    stage: u8,
    byte_stage: u8,
    time_stage: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<State>() == 64);

const LINE: u8 = 0;
const FAST: u8 = 1;
const ADDITIVE: u8 = 2;
const HYPER: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Timer,
    Bytes,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}

fn line_rate(params: &FlowParams) -> u64 {
    if params.line_rate_bps == 0 {
        ASSUMED_LINE_RATE
    } else {
        params.line_rate_bps
    }
}

impl RoceDcqcn {
    /// One decay of alpha.
    fn decayed(&self, alpha: u32) -> u32 {
        alpha - (alpha >> self.g_shift) - u32::from(alpha & ((1 << self.g_shift) - 1) != 0)
    }

    /// Decays alpha for the time in which no timer ran: (1 − g)ⁿ by squaring, in 2⁻³².
    fn decay_idle(&self, alpha: u32, ticks: u64) -> u32 {
        let (mut power, mut factor, mut left) = (1u64 << 32, (1u64 << 32) - (1 << (32 - self.g_shift)), ticks);
        while left > 0 && power > 0 {
            if left & 1 == 1 {
                power = (power * (factor >> 1)) >> 31;
            }
            factor = ((factor >> 1) * factor) >> 31;
            left >>= 1;
        }
        u32::try_from((u64::from(alpha) * power) >> 32).unwrap_or(alpha)
    }

    fn congestion(&self, view: &FlowView<'_>, state: &mut State) -> Actions {
        let (now, line) = (view.now().0, line_rate(view.params()));
        if state.stage == LINE {
            state.rate = line;
            if state.alpha_due != 0 && now >= state.alpha_due {
                let ticks = (now - state.alpha_due) / nanos(self.alpha_timer) + 1;
                state.alpha = self.decay_idle(state.alpha, ticks);
            }
        }
        let alpha = u64::from(state.alpha);
        let raised = ((alpha << self.g_shift) - alpha + ALPHA_ONE) >> self.g_shift;
        state.alpha = u32::try_from(raised).unwrap_or(u32::MAX);
        state.target = state.rate;
        // At 400 Gbit/s the product takes 62 bits.
        let cut = (state.rate * (raised >> 1)) >> ALPHA_BITS;
        state.rate = (state.rate - cut.min(state.rate)).max(self.min_rate.min(line));
        state.stage = FAST;
        (state.byte_stage, state.time_stage) = (0, 0);
        state.counted = view.total_sent();
        state.alpha_due = now + nanos(self.alpha_timer);
        state.increase_due = now + nanos(self.increase_timer);
        self.reduced(state)
    }

    /// The actions while a reduction is in force.
    fn reduced(&self, state: &State) -> Actions {
        Actions {
            rate: RateAction::Set(state.rate),
            visit: VisitAction::At(Time(state.alpha_due.min(state.increase_due))),
            ..Actions::default()
        }
    }

    fn increase(&self, step: Step, line: u64, state: &mut State) {
        let own = match step {
            Step::Timer => &mut state.time_stage,
            Step::Bytes => &mut state.byte_stage,
        };
        *own = own.saturating_add(1);
        let own = *own;
        let least = state.byte_stage.min(state.time_stage);
        let hyper = least >= self.fast_steps && (step == Step::Timer || state.stage == HYPER);
        let more = if hyper {
            state.stage = HYPER;
            self.hyper * u64::from(least - self.fast_steps + 1)
        } else if state.stage == FAST && own < self.fast_steps {
            0
        } else {
            state.stage = ADDITIVE;
            self.additive
        };
        let fresh = state.byte_stage == 1 || state.time_stage == 1;
        if fresh && state.target > 10 * state.rate {
            state.target /= 8;
        } else {
            state.target += more;
        }
        if self.cap_target {
            state.target = state.target.min(line);
        }
        state.rate = (state.rate + state.target).div_ceil(2).min(line);
    }

    /// Does what is due of alpha timer, increase timer and byte counter.
    fn visit(&self, view: &FlowView<'_>, state: &mut State) -> Actions {
        if state.stage == LINE {
            return Actions {
                visit: VisitAction::Never,
                ..Actions::default()
            };
        }
        let (now, line) = (view.now().0, line_rate(view.params()));
        for _ in 0..CATCH_UP {
            if now < state.alpha_due {
                break;
            }
            state.alpha = self.decayed(state.alpha);
            state.alpha_due += nanos(self.alpha_timer);
        }
        for _ in 0..CATCH_UP {
            if now < state.increase_due {
                break;
            }
            self.increase(Step::Timer, line, state);
            let halved = u32::from(state.stage == HYPER);
            state.increase_due += (nanos(self.increase_timer) >> halved).max(1);
        }
        for _ in 0..CATCH_UP {
            let threshold = self.byte_counter >> u32::from(state.stage == HYPER);
            let segments = (threshold / u64::from(view.params().segment_size.max(1))).max(1);
            if view.total_sent().saturating_sub(state.counted) < segments {
                break;
            }
            state.counted += segments;
            self.increase(Step::Bytes, line, state);
        }
        state.alpha_due = state.alpha_due.max(now + 1);
        state.increase_due = state.increase_due.max(now + 1);
        if state.rate + RATE_UNIT <= line {
            return self.reduced(state);
        }
        state.stage = LINE;
        Actions {
            rate: RateAction::Unlimited,
            visit: VisitAction::Never,
            ..Actions::default()
        }
    }
}

impl TransportProgram for RoceDcqcn {
    type State = State;
    const NAME: &'static str = "roce-dcqcn";
    const CREDIT: CreditScheme = CreditScheme::Rate;

    fn init(&self, _params: &FlowParams) -> (State, Initial) {
        (
            State {
                alpha: self.first_alpha,
                ..State::default()
            },
            Initial::default(),
        )
    }

    fn incoming(&self, view: &FlowView<'_>, event: &Incoming, state: &mut State) -> Actions {
        match event {
            Incoming::Cnp => self.congestion(view, state),
            _ => state.loss.incoming(view, event),
        }
    }

    fn periodic(&self, view: &FlowView<'_>, wake: Wake, state: &mut State) -> Actions {
        match wake {
            Wake::Visit => self.visit(view, state),
            Wake::Probe | Wake::Timeout => state.loss.expired(view, wake),
        }
    }
}
