//! A one-way link: a tail-drop queue with an ECN threshold, a rate, a delay, and faults.

use super::faults::{FaultSource, Faults, Verdict};
use super::frame::SimFrame;
use crate::time::{Duration, Time};
use std::collections::BTreeMap;

/// Configuration of a link. The default is an ideal cable: no delay, no limit, no faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Bits a second, 0 for unlimited.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that may wait for the line; a packet that finds no room is lost. `None`: any number.
    pub queue_limit: Option<usize>,
    /// A packet that finds more than so many bytes waiting is marked Congestion Experienced.
    pub ecn_threshold: Option<usize>,
    /// Random faults.
    pub faults: Faults,
    /// Seed of the random faults.
    pub seed: u64,
}

/// What happened on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed in.
    pub sent: u64,
    /// Packets handed out, copies included.
    pub delivered: u64,
    /// Bytes handed out, framing included.
    pub delivered_bytes: u64,
    /// Packets lost by fault or rule.
    pub lost: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets held back.
    pub held: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets marked Congestion Experienced.
    pub marked: u64,
    /// Most bytes that ever waited for the line.
    pub peak_queue: usize,
}

/// A link.
#[derive(Debug)]
pub struct SimLink {
    config: LinkConfig,
    faults: FaultSource,
    /// Packets under way, by arrival and then by departure.
    under_way: BTreeMap<(Time, u64), SimFrame>,
    next_key: u64,
    /// When the line has sent everything handed in so far.
    busy_until: Time,
    stats: LinkStats,
}

const BITS: u64 = 8;
const NANOS: u128 = 1_000_000_000;

impl SimLink {
    /// An empty link.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            config,
            faults: FaultSource::new(config.faults, config.seed),
            under_way: BTreeMap::new(),
            next_key: 0,
            busy_until: Time::ZERO,
            stats: LinkStats::default(),
        }
    }

    /// What happened so far.
    pub const fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Change the random faults; they go on with the same random sequence.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults.set(faults);
    }

    /// Change the rate, 0 for unlimited. Packets whose time on the line is fixed keep it.
    pub fn set_rate(&mut self, rate_bps: u64) {
        self.config.rate_bps = rate_bps;
    }

    /// Ask `rule` about every packet from now on; the first rule that does not pass decides.
    pub fn add_rule(&mut self, rule: impl FnMut(u64, &SimFrame) -> Verdict + Send + 'static) {
        self.faults.push(Box::new(rule));
    }

    /// Forget all rules.
    pub fn clear_rules(&mut self) {
        self.faults.clear();
    }

    /// Lose the packet with that running number, counted from 0 for the first the link was ever handed.
    pub fn drop_nth(&mut self, number: u64) {
        self.add_rule(move |seen, _| if seen == number { Verdict::Drop } else { Verdict::Pass });
    }

    /// Lose every packet for which `predicate` holds.
    pub fn drop_if(&mut self, mut predicate: impl FnMut(&SimFrame) -> bool + Send + 'static) {
        self.add_rule(move |_, frame| if predicate(frame) { Verdict::Drop } else { Verdict::Pass });
    }

    /// Bytes waiting for the line.
    pub fn queued(&self, now: Time) -> usize {
        if self.config.rate_bps == 0 {
            return 0;
        }
        let bits = self.busy_until.since(now).as_nanos() * u128::from(self.config.rate_bps) / NANOS;
        usize::try_from(bits / u128::from(BITS)).unwrap_or(usize::MAX)
    }

    /// When no more than `bytes` wait for the line, if nothing more is handed in: how a sender paces itself by its port.
    pub fn room_at(&self, bytes: usize) -> Time {
        let bits = bytes as u128 * u128::from(BITS);
        let nanos = (bits * NANOS)
            .checked_div(u128::from(self.config.rate_bps))
            .unwrap_or(0);
        Time(
            self.busy_until
                .0
                .saturating_sub(u64::try_from(nanos).unwrap_or(u64::MAX)),
        )
    }

    /// Hand in a packet at the near end.
    pub fn send(&mut self, now: Time, mut frame: SimFrame) {
        self.stats.sent += 1;
        let fate = self.faults.decide(&frame);
        let queued = self.queued(now);
        if self
            .config
            .queue_limit
            .is_some_and(|limit| queued + frame.wire_len() > limit)
        {
            self.stats.overflowed += 1;
            return;
        }
        if (fate.marked || self.config.ecn_threshold.is_some_and(|threshold| queued > threshold))
            && frame.mark_congestion()
        {
            self.stats.marked += 1;
        }
        let sent = self.occupy(now, frame.wire_len());
        self.stats.peak_queue = self.stats.peak_queue.max(self.queued(now));
        if fate.lost {
            // Lost on the way: it has taken its time on the line.
            self.stats.lost += 1;
            return;
        }
        let arrival = sent + self.config.delay;
        if let Some(after) = fate.copy {
            self.stats.duplicated += 1;
            self.put(arrival + after, frame.clone());
        }
        if let Some(bit) = fate.flipped {
            self.stats.corrupted += 1;
            let length = frame.bytes.len();
            frame.bytes[bit / 8 % length] ^= 1 << (bit % 8);
        }
        self.stats.held += u64::from(!fate.held.is_zero());
        self.put(arrival + fate.held, frame);
    }

    /// Take the line for so many bytes; returns when the last has left.
    fn occupy(&mut self, now: Time, bytes: usize) -> Time {
        let bits = bytes as u128 * u128::from(BITS);
        let nanos = (bits * NANOS)
            .checked_div(u128::from(self.config.rate_bps))
            .unwrap_or(0);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.busy_until = self.busy_until.max(now) + time;
        self.busy_until
    }

    fn put(&mut self, arrival: Time, frame: SimFrame) {
        self.under_way.insert((arrival, self.next_key), frame);
        self.next_key += 1;
    }

    /// When the next packet arrives. May change after [`send`](Self::send) and [`deliver`](Self::deliver).
    pub fn next_deadline(&self) -> Option<Time> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next packet that has arrived at the far end by `now`.
    pub fn deliver(&mut self, now: Time) -> Option<SimFrame> {
        let entry = self.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        let frame = entry.remove();
        self.stats.delivered += 1;
        self.stats.delivered_bytes += frame.wire_len() as u64;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Path;

    fn frame(length: usize) -> SimFrame {
        let path = Path {
            src: "10.0.0.1".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            sport: 0xc000,
            traffic_class: 2,
            hop_limit: 64,
            flow_label: 0,
        };
        SimFrame {
            path,
            bytes: vec![7; length],
        }
    }

    /// Arrival times of everything under way, in nanoseconds.
    fn arrivals(link: &mut SimLink) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(at) = link.next_deadline() {
            assert_eq!(link.deliver(Time(at.0 - 1)), None);
            assert!(link.deliver(at).is_some());
            times.push(at.0);
        }
        times
    }

    #[test]
    fn packets_take_line_time_and_delay() {
        let rate_bps = 8_000_000_000;
        let delay = Duration::from_nanos(500);
        let mut link = SimLink::new(LinkConfig {
            rate_bps,
            delay,
            ..LinkConfig::default()
        });
        for _ in 0..3 {
            link.send(Time(1_000), frame(1_000 - 66));
        }
        assert_eq!(link.queued(Time(1_000)), 3_000);
        assert_eq!((link.room_at(0), link.room_at(2_000)), (Time(4_000), Time(2_000)));
        assert_eq!(arrivals(&mut link), [2_500, 3_500, 4_500]);
    }

    #[test]
    fn a_full_queue_drops_the_tail_and_a_long_one_marks() {
        let mut link = SimLink::new(LinkConfig {
            rate_bps: 8_000_000_000,
            queue_limit: Some(3_000),
            ecn_threshold: Some(1_000),
            ..LinkConfig::default()
        });
        for _ in 0..5 {
            link.send(Time(0), frame(1_000 - 66));
        }
        let stats = link.stats();
        assert_eq!((stats.overflowed, stats.marked, stats.peak_queue), (2, 1, 3_000));
        let marks: Vec<u8> = core::iter::from_fn(|| link.deliver(Time(1 << 40)))
            .map(|frame| frame.path.traffic_class & 3)
            .collect();
        assert_eq!(marks, [2, 2, 3]);
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let faults = Faults {
            loss: 0.1,
            reorder: 0.1,
            duplicate: 0.1,
            corrupt: 0.1,
            ..Faults::default()
        };
        let run = |seed| {
            let mut link = SimLink::new(LinkConfig {
                faults,
                seed,
                ..LinkConfig::default()
            });
            for time in 1..=1_000 {
                link.send(Time(time * 1_000), frame(64));
            }
            (arrivals(&mut link), link.stats())
        };
        assert_eq!(run(3), run(3));
        let (times, stats) = run(4);
        assert_ne!(times, run(3).0);
        for count in [stats.lost, stats.held, stats.duplicated, stats.corrupted] {
            assert!((50..150).contains(&count), "{stats:?}");
        }
    }

    #[test]
    fn rules_come_before_chance() {
        let faults = Faults {
            loss: 1.0,
            ..Faults::default()
        };
        let mut link = SimLink::new(LinkConfig {
            faults,
            ..LinkConfig::default()
        });
        link.add_rule(|number, _| if number == 1 { Verdict::Deliver } else { Verdict::Pass });
        link.add_rule(|number, _| {
            if number == 2 {
                Verdict::Duplicate(Duration::from_nanos(9))
            } else {
                Verdict::Pass
            }
        });
        for _ in 0..4 {
            link.send(Time(1), frame(64));
        }
        assert_eq!(arrivals(&mut link), [1, 1, 10]);
        link.clear_rules();
        link.set_faults(Faults::default());
        link.drop_nth(5);
        link.drop_if(|frame| frame.bytes.len() > 64);
        for length in [64, 64, 65] {
            link.send(Time(1), frame(length));
        }
        assert_eq!(arrivals(&mut link), [1]);
    }
}
