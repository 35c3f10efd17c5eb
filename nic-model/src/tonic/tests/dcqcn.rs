//! Rate control of `roce-dcqcn` against the reference of the DCQCN authors' ns-3 (tonic.md §2.5).

use super::programs::roce_dcqcn::RoceDcqcn;
use super::*;

const LINE: u64 = 40_000_000_000;
static UNCAPPED: RoceDcqcn = RoceDcqcn {
    cap_target: false,
    ..RoceDcqcn::DEFAULT
};
static BYTES: RoceDcqcn = RoceDcqcn {
    byte_counter: 1_024_000,
    ..RoceDcqcn::DEFAULT
};

fn flow(program: &'static dyn Program, line_rate_bps: u64) -> (Tonic, FlowId) {
    in_flight(
        FlowConfig {
            program,
            line_rate_bps,
            timeout: None,
            ..plain()
        },
        1,
    )
}

/// Runs visits up to `now`.
fn advance(tonic: &mut Tonic, now: Time) {
    while let Some(next) = tonic.next_deadline().filter(|&next| next <= now) {
        tonic.handle_timeout(next, &mut |_| {});
    }
}

#[test]
fn one_cnp_follows_the_reference_trace() {
    let reference = [
        29.960938, 34.980469, 37.490234, 38.745117, 39.372559, 39.706279, 39.893140,
    ]
    .map(|gbps| gbps * 1e9);
    let (mut tonic, id) = flow(&UNCAPPED, LINE);
    tonic.incoming(us(100), id, Incoming::Cnp);
    for (tick, expected) in (0..).zip(reference) {
        advance(&mut tonic, us(100 + 60 * tick));
        let rate = tonic.stats(id).rate_bps as f64;
        assert!((rate - expected).abs() <= 1_000.0, "tick {tick}: {rate} for {expected}");
    }
    advance(&mut tonic, us(100 + 60 * 7));
    assert_eq!(tonic.stats(id).rate_bps, 0, "line rate: no limit");
    assert_eq!(tonic.next_deadline(), None, "and no timer");
}

/// Floating-point DCQCN, written from the description.
struct Reference {
    alpha: f64,
    rc: f64,
    rt: f64,
    ticks: u32,
    alpha_due: u64,
    increase_due: u64,
}

impl Reference {
    fn cnp(&mut self, now: u64) {
        self.alpha = self.alpha * 255.0 / 256.0 + 1.0 / 256.0;
        self.rt = self.rc;
        self.rc = (self.rc * (1.0 - self.alpha / 2.0)).max(1e8);
        self.ticks = 0;
        self.alpha_due = now + 55_000;
        self.increase_due = now + 60_000;
    }

    fn advance(&mut self, now: u64) {
        while self.alpha_due <= now {
            self.alpha *= 255.0 / 256.0;
            self.alpha_due += 55_000;
        }
        while self.increase_due <= now {
            self.ticks += 1;
            if self.ticks >= 5 {
                self.rt = (self.rt + 40e6).min(LINE as f64);
            }
            self.rc = ((self.rc + self.rt) / 2.0).min(LINE as f64);
            self.increase_due += 60_000;
        }
    }
}

#[test]
fn many_cnps_stay_within_one_rate_unit_of_floating_point() {
    let (mut tonic, id) = flow(&RoceDcqcn::DEFAULT, LINE);
    let mut reference = Reference {
        alpha: 0.5,
        rc: LINE as f64,
        rt: LINE as f64,
        ticks: 0,
        alpha_due: u64::MAX,
        increase_due: u64::MAX,
    };
    let (mut now, mut seed) = (1_000u64, 7u64);
    let mut lowest = LINE;
    for _ in 0..2_000 {
        reference.cnp(now);
        tonic.incoming(Time(now), id, Incoming::Cnp);
        // Gaps of 50 µs and more, often short, sometimes long.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let gap = 50_000 + (seed >> 40) % if seed >> 62 == 0 { 1_500_000 } else { 200_000 };
        for step in 1..=10 {
            let at = now + gap * step / 10;
            advance(&mut tonic, Time(at));
            reference.advance(at);
            let rate = match tonic.stats(id).rate_bps {
                0 => LINE,
                rate => rate,
            };
            lowest = lowest.min(rate);
            let error = (rate as f64 - reference.rc).abs();
            assert!(error <= 1_562_500.0, "{error} at {at}: {rate} for {}", reference.rc);
        }
        now += gap;
    }
    assert!(lowest < LINE / 3, "the trace goes deep: {lowest}");
}

#[test]
fn an_uncongested_flow_costs_no_timer_and_no_limit() {
    for line in [0, LINE, 400_000_000_000] {
        let mut tonic = Tonic::new(TonicConfig::default());
        let id = tonic.add_flow(
            Time::ZERO,
            FlowConfig {
                line_rate_bps: line,
                timeout: None,
                ..plain()
            },
        );
        tonic.available(Time::ZERO, id, 512);
        assert_eq!(segments(&drain(&mut tonic, Time::ZERO)).len(), 512);
        assert_eq!(tonic.next_deadline(), None);
    }
}

#[test]
fn the_product_does_not_overflow_and_the_target_stays_below_the_line() {
    // Defects (a) and (d): a cut at 400 Gbit/s is right, and long increase never passes the line rate.
    let (mut tonic, id) = flow(&RoceDcqcn::DEFAULT, 400_000_000_000);
    tonic.incoming(us(1), id, Incoming::Cnp);
    assert_eq!(tonic.stats(id).rate_bps / 1_000, 299_609_375);
    let mut now = us(1);
    while let Some(next) = tonic.next_deadline() {
        assert!(tonic.stats(id).rate_bps <= 400_000_000_000);
        now = next;
        tonic.handle_timeout(now, &mut |_| {});
    }
    assert!(now < us(3_000), "back at the line rate in finite time: {now:?}");
}

#[test]
fn additive_increase_goes_on_without_byte_events() {
    // Defect (b). After a deep cut Rt is low, so only additive steps lead back.
    let (mut tonic, id) = flow(&RoceDcqcn::DEFAULT, LINE);
    for round in 0..50 {
        tonic.incoming(us(1 + round), id, Incoming::Cnp);
    }
    assert_eq!(tonic.stats(id).rate_bps, 100_000_000, "the least rate");
    advance(&mut tonic, us(50 + 60 * 104));
    let rate = tonic.stats(id).rate_bps;
    let expected = 100_000_000 + 100 * 40_000_000;
    assert!(rate > expected - 100_000_000 && rate <= expected, "{rate}");
}

#[test]
fn the_byte_counter_counts_once_for_each_threshold() {
    // Defect (e): the counter must not fire again for the same bytes.
    let (mut tonic, id) = flow(&BYTES, LINE);
    tonic.incoming(us(1), id, Incoming::Cnp);
    let after_cut = tonic.stats(id).rate_bps;
    tonic.available(us(2), id, 3_000);
    let mut now = us(2);
    while tonic.stats(id).total_sent < 1_100 {
        drain(&mut tonic, now);
        let cum = tonic.stats(id).sent_end;
        tonic.incoming(now, id, Incoming::Ack { cum });
        now = tonic.next_deadline().unwrap_or(now).min(us(60));
        tonic.handle_timeout(now, &mut |_| {});
        if now >= us(60) {
            break;
        }
    }
    advance(&mut tonic, us(61));
    let thresholds = tonic.stats(id).total_sent / 1_000;
    let steps = u32::try_from(thresholds).unwrap() + 1;
    let gap = (LINE - after_cut) as f64 / 2f64.powi(i32::try_from(steps).unwrap());
    let rate = tonic.stats(id).rate_bps as f64;
    assert!(
        (rate - (LINE as f64 - gap)).abs() < 1e4,
        "{thresholds} thresholds and one tick: {rate}"
    );
}

#[test]
fn alpha_decays_while_no_reduction_is_in_force() {
    let (mut tonic, id) = flow(&RoceDcqcn::DEFAULT, LINE);
    tonic.incoming(us(1), id, Incoming::Cnp);
    advance(&mut tonic, us(1_000_000));
    assert_eq!(tonic.next_deadline(), None);
    // 18,181 ticks later alpha is nothing but the new CNP's weight: the cut is 1/512.
    tonic.incoming(us(1_000_000), id, Incoming::Cnp);
    let rate = tonic.stats(id).rate_bps;
    assert!(rate.abs_diff(LINE - LINE / 512) < 10_000_000, "{rate}");
}

#[test]
fn two_flows_converge_to_equal_shares() {
    // A single marking queue: whoever sends gets a CNP when the sum exceeds the line rate.
    let mut tonic = Tonic::new(TonicConfig::default());
    let ids: Vec<_> = (0..2)
        .map(|_| {
            tonic.add_flow(
                Time::ZERO,
                FlowConfig {
                    line_rate_bps: LINE,
                    timeout: None,
                    ..plain()
                },
            )
        })
        .collect();
    // An unfair start.
    for step in 0..3 {
        tonic.incoming(us(step), ids[0], Incoming::Cnp);
    }
    let rate = |tonic: &Tonic, id| match tonic.stats(id).rate_bps {
        0 => LINE,
        rate => rate,
    };
    let mut sums = [0u64; 2];
    for step in 1..20_000u64 {
        let now = us(50 * step);
        advance(&mut tonic, now);
        let rates = [rate(&tonic, ids[0]), rate(&tonic, ids[1])];
        if rates[0] + rates[1] > LINE {
            ids.iter().for_each(|&id| tonic.incoming(now, id, Incoming::Cnp));
        }
        if step >= 10_000 {
            sums[0] += rates[0];
            sums[1] += rates[1];
        }
    }
    let share = sums[0] as f64 / (sums[0] + sums[1]) as f64;
    assert!((share - 0.5).abs() < 0.01, "{share}");
}
