//! The rate scheme: exactness, rescaling, segments of any length.

use super::*;

/// Sends at the line rate it was given, or at the rate the `received` field of `EcnEcho` says in Mbit/s.
struct Fixed;

impl TransportProgram for Fixed {
    type State = [u64; 0];
    const NAME: &'static str = "fixed";
    const CREDIT: CreditScheme = CreditScheme::Rate;

    fn init(&self, params: &FlowParams) -> ([u64; 0], Initial) {
        (
            [],
            Initial {
                rate_bps: Some(params.line_rate_bps),
                ..Initial::default()
            },
        )
    }

    fn incoming(&self, _view: &FlowView<'_>, event: &Incoming, _state: &mut [u64; 0]) -> Actions {
        let rate = match *event {
            Incoming::EcnEcho { received: 0, .. } => RateAction::Unlimited,
            Incoming::EcnEcho { received, .. } => RateAction::Set(u64::from(received) * 1_000_000),
            _ => RateAction::Keep,
        };
        Actions {
            rate,
            ..Actions::default()
        }
    }

    fn periodic(&self, _view: &FlowView<'_>, _wake: Wake, _state: &mut [u64; 0]) -> Actions {
        Actions::default()
    }
}

fn exact() -> TonicConfig {
    TonicConfig {
        pacing_burst: Duration::ZERO,
        lateness: Duration::from_nanos(1),
        ..TonicConfig::default()
    }
}

fn flow(bps: u64) -> FlowConfig {
    FlowConfig {
        program: &Fixed,
        line_rate_bps: bps,
        reliable: false,
        quantum: 1,
        ..plain()
    }
}

fn set_rate(tonic: &mut Tonic, now: Time, id: FlowId, mbps: u16) {
    // The echo must not acknowledge anything.
    let cum = tonic.stats(id).una;
    tonic.incoming(
        now,
        id,
        Incoming::EcnEcho {
            cum,
            received: mbps,
            marked: 0,
        },
    );
}

#[test]
fn any_interval_is_within_one_segment_of_the_rate() {
    const MAX: u64 = 4_160;
    for mbps in [1, 3, 7, 100, 999, 10_000, 25_000, 40_000, 100_000, 333_333, 400_000] {
        let bps = mbps * 1_000_000;
        let mut tonic = Tonic::new(exact());
        let id = tonic.add_flow(
            Time::ZERO,
            FlowConfig {
                segment_size: 4_096,
                ..flow(bps)
            },
        );
        tonic.available(Time::ZERO, id, 2_000);
        let length = |seg: SegNo| u32::try_from(64 + seg * 1_103 % (MAX - 63)).unwrap();
        // Units of 10⁻⁹ bit sent minus those allowed, before and after each segment.
        let (mut low, mut high, mut sent) = (i128::MAX, i128::MIN, 0i128);
        while let Some(now) = {
            let burst = tonic.poll(tonic.clock(), &mut |_, seg| length(seg));
            if let Some(burst) = burst {
                assert_eq!(burst.count, 1);
                let allowed = i128::from(bps) * i128::from(tonic.clock().as_nanos());
                low = low.min(sent - allowed);
                sent += i128::from(length(burst.first)) * 8_000_000_000;
                high = high.max(sent - allowed);
                Some(tonic.clock())
            } else {
                tonic.next_deadline()
            }
        } {
            tonic.handle_timeout(now, &mut |_| {});
        }
        assert_eq!(tonic.stats(id).total_sent, 2_000);
        let error = high - low;
        let allowed = i128::from(MAX) * 8_000_000_000 * 2 + i128::from(bps);
        assert!(error <= allowed, "{mbps} Mbit/s: {} bytes", error / 8_000_000_000);
        // Over the whole trace the error is less than one segment.
        let total = sent - i128::from(bps) * i128::from(tonic.clock().as_nanos());
        assert!(
            total.abs() <= i128::from(MAX) * 8_000_000_000,
            "{mbps} Mbit/s: drift {total}"
        );
    }
}

#[test]
fn equal_segments_leave_at_exact_gaps() {
    // 128 bytes at 100 Gbit/s are 10.24 ns: 100 segments in 1,024 ns, whatever the rounding of each gap.
    let mut tonic = Tonic::new(exact());
    let id = tonic.add_flow(
        Time::ZERO,
        FlowConfig {
            segment_size: 128,
            ..flow(100_000_000_000)
        },
    );
    tonic.available(Time::ZERO, id, 1_001);
    let mut times = Vec::new();
    loop {
        let now = tonic.clock();
        match tonic.poll(now, &mut |_, _| 128) {
            Some(_) => times.push(now.as_nanos()),
            None => match tonic.next_deadline() {
                Some(next) => tonic.handle_timeout(next, &mut |_| {}),
                None => break,
            },
        }
    }
    assert_eq!(times.len(), 1_001);
    for (index, time) in times.iter().enumerate() {
        let exact = (index as u64 + 1) * 1_024;
        assert_eq!(*time, exact.div_ceil(100), "segment {index}");
    }
}

#[test]
fn a_rate_change_rescales_the_pending_wait_at_once() {
    let mut tonic = Tonic::new(exact());
    let id = tonic.add_flow(
        Time::ZERO,
        FlowConfig {
            reliable: true,
            timeout: None,
            ..flow(8_000_000)
        },
    );
    tonic.available(Time::ZERO, id, 4);
    assert!(tonic.poll(Time::ZERO, &mut |_, _| WIRE).is_none());
    assert_eq!(tonic.next_deadline(), Some(us(1_000)), "1,000 bytes at 1 byte/µs");
    set_rate(&mut tonic, us(500), id, 80);
    assert_eq!(
        tonic.next_deadline(),
        Some(us(550)),
        "the other half at ten times the rate"
    );
    set_rate(&mut tonic, us(510), id, 4);
    assert_eq!(tonic.next_deadline(), Some(us(1_310)), "400 bytes at half a byte/µs");
    set_rate(&mut tonic, us(520), id, 0);
    assert_eq!(segments(&drain(&mut tonic, us(520))), [0, 1, 2, 3], "no limit");
    assert_eq!(tonic.next_deadline(), None);
}

#[test]
fn bursts_form_at_high_rates_and_not_at_low_ones() {
    for (mbps, count) in [(10, 1), (1_000, 2), (10_000, 24), (100_000, 64)] {
        let mut tonic = Tonic::new(TonicConfig::default());
        let id = tonic.add_flow(
            Time::ZERO,
            FlowConfig {
                quantum: 64,
                ..flow(mbps * 1_000_000)
            },
        );
        tonic.available(Time::ZERO, id, 1_000);
        assert!(tonic.poll(Time::ZERO, &mut |_, _| 1_104).is_none());
        let now = tonic.next_deadline().unwrap();
        tonic.handle_timeout(now, &mut |_| {});
        assert_eq!(
            tonic.poll(now, &mut |_, _| 1_104).map(|burst| burst.count),
            Some(count),
            "{mbps} Mbit/s"
        );
    }
}

#[test]
fn a_late_poll_makes_up_for_its_lateness_and_an_idle_flow_saves_one_burst() {
    let mut tonic = Tonic::new(TonicConfig {
        pacing_burst: Duration::ZERO,
        ..TonicConfig::default()
    });
    let id = tonic.add_flow(
        Time::ZERO,
        FlowConfig {
            quantum: 64,
            ..flow(1_000_000_000)
        },
    );
    tonic.available(Time::ZERO, id, 100);
    assert!(drain(&mut tonic, Time::ZERO).is_empty());
    // One segment takes 8 µs; the poll comes 40 µs late, so five more have been earned.
    assert_eq!(tonic.next_deadline(), Some(us(8)));
    tonic.handle_timeout(us(48), &mut |_| {});
    assert_eq!(segments(&drain(&mut tonic, us(48))), [0, 1, 2, 3, 4, 5]);
    // The rest, then a second of idling.
    for _ in 6..100 {
        let now = tonic.next_deadline().unwrap();
        tonic.handle_timeout(now, &mut |_| {});
        assert_eq!(drain(&mut tonic, now).len(), 1);
    }
    tonic.available(us(2_000_000), id, 200);
    assert_eq!(segments(&drain(&mut tonic, us(2_000_000))), [100]);
}

#[test]
fn returned_segments_are_refunded() {
    let mut tonic = Tonic::new(TonicConfig::default());
    let id = tonic.add_flow(
        Time::ZERO,
        FlowConfig {
            quantum: 64,
            ..flow(10_000_000_000)
        },
    );
    tonic.available(Time::ZERO, id, 64);
    assert!(drain(&mut tonic, Time::ZERO).is_empty());
    let now = tonic.next_deadline().unwrap();
    tonic.handle_timeout(now, &mut |_| {});
    let burst = tonic.poll(now, &mut |_, _| WIRE).unwrap();
    tonic.returned(now, id, burst.first, burst.count);
    let again = tonic.poll(now, &mut |_, _| WIRE).unwrap();
    assert_eq!((again.first, again.count), (burst.first, burst.count));
}
