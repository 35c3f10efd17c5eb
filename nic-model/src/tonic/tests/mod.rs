//! Tests of the engines as a whole, driven through the facade.

mod dcqcn;
mod defects;
mod go_back_n;
mod merge;
mod model;
mod rate;
mod schedule;

use super::*;
use crate::time::{Duration, Time};

/// Full segments of the tests are this long on the wire.
const WIRE: u32 = 1_000;

const fn us(micros: u64) -> Time {
    Time::from_micros(micros)
}

/// Sends until nothing more may leave.
fn drain(tonic: &mut Tonic, now: Time) -> Vec<Burst> {
    std::iter::from_fn(|| tonic.poll(now, &mut |_, _| WIRE)).collect()
}

/// Segments of the bursts in order.
fn segments(bursts: &[Burst]) -> Vec<SegNo> {
    bursts
        .iter()
        .flat_map(|burst| burst.first..burst.first + u64::from(burst.count))
        .collect()
}

/// Runs what is due at `now`; the flows whose ACK timeout ended.
fn expire(tonic: &mut Tonic, now: Time) -> Vec<FlowId> {
    let mut flows = Vec::new();
    tonic.handle_timeout(now, &mut |flow| flows.push(flow));
    flows
}

/// A flow of the default program with `sent` segments in flight.
fn in_flight(config: FlowConfig, sent: u64) -> (Tonic, FlowId) {
    let mut tonic = Tonic::new(TonicConfig::default());
    let id = tonic.add_flow(Time::ZERO, config);
    tonic.available(Time::ZERO, id, sent);
    assert_eq!(segments(&drain(&mut tonic, Time::ZERO)), (0..sent).collect::<Vec<_>>());
    (tonic, id)
}

/// No early probes, ACK timeout of one millisecond.
fn plain() -> FlowConfig {
    FlowConfig {
        timeout: Some(Duration::from_millis(1)),
        early_retransmit: false,
        ..FlowConfig::default()
    }
}

/// A program that marks what the test tells it to: `NackSegment` marks one segment, `Nack` everything from there,
/// a timeout everything, and the `marked` field of `EcnEcho` is the new window. `RATE` is its rate, 0 for windows.
struct Marker<const RATE: u64>;

impl<const RATE: u64> TransportProgram for Marker<RATE> {
    type State = [u64; 1];
    const NAME: &'static str = "marker";
    const CREDIT: CreditScheme = if RATE == 0 {
        CreditScheme::Window
    } else {
        CreditScheme::WindowAndRate
    };

    fn init(&self, _params: &FlowParams) -> ([u64; 1], Initial) {
        (
            [0],
            Initial {
                rate_bps: Some(RATE),
                ..Initial::default()
            },
        )
    }

    fn incoming(&self, view: &FlowView<'_>, event: &Incoming, _state: &mut [u64; 1]) -> Actions {
        let mut actions = Actions {
            timer: TimerAction::Reset,
            ..Actions::default()
        };
        match *event {
            Incoming::Nack { cum } => actions.marks.add(cum..view.next_new()),
            Incoming::NackSegment { seg, .. } => actions.marks.add(seg..seg + 1),
            Incoming::EcnEcho { marked, .. } => actions.window = Some(marked),
            _ => {}
        }
        actions
    }

    fn periodic(&self, view: &FlowView<'_>, _wake: Wake, state: &mut [u64; 1]) -> Actions {
        state[0] += 1;
        let mut actions = Actions::default();
        actions.marks.add(view.una()..view.next_new());
        actions
    }
}
