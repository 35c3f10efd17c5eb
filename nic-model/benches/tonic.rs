//! Time per segment of the Tonic engines: generate, enqueue, transmit and the acknowledgement, all flows active.
//!
//! Acknowledgements return half a round of flows after their burst, so they find a flow that is out of the nearest
//! cache, as they would behind a wire. `unlimited` is the default transport without congestion; `limited` holds every
//! flow at a rate, so that each burst is paid for and waits for its own deadline; `loss` goes back N now and then.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_main};
use nic_model::time::{Duration, Time};
use nic_model::tonic::{FlowConfig, FlowId, Incoming, SegNo, Tonic, TonicConfig};
use std::collections::VecDeque;
use std::hint::black_box;

/// Segments of one iteration of the benchmark.
const SEGMENTS: u64 = 16_384;

struct Load {
    tonic: Tonic,
    now: Time,
    /// Flow, first segment and end of the bursts on their way.
    in_flight: VecDeque<(FlowId, SegNo, SegNo)>,
    delay: usize,
    /// Every so many bursts one is refused instead of acknowledged.
    loss_every: u64,
    until_loss: u64,
    limited: bool,
}

impl Load {
    fn new(flows: u32, quantum: u16, limited: bool, loss_every: u64) -> Self {
        let mut tonic = Tonic::new(TonicConfig::default());
        for _ in 0..flows {
            let config = FlowConfig {
                quantum,
                line_rate_bps: 100_000_000_000,
                timeout: Some(Duration::from_millis(67)),
                ..FlowConfig::default()
            };
            let id = tonic.add_flow(Time::ZERO, config);
            tonic.available(Time::ZERO, id, u64::MAX / 2);
            if limited {
                tonic.incoming(Time::ZERO, id, Incoming::Cnp);
            }
        }
        let delay = (flows as usize / 2).max(1);
        Self {
            tonic,
            now: Time::ZERO,
            in_flight: VecDeque::with_capacity(2 * delay),
            delay,
            loss_every,
            until_loss: loss_every,
            limited,
        }
    }

    fn acknowledge(&mut self) {
        let Some((flow, first, end)) = self.in_flight.pop_front() else {
            return;
        };
        self.until_loss = self.until_loss.wrapping_sub(1);
        let event = if self.until_loss == 0 {
            self.until_loss = self.loss_every;
            Incoming::Nack { cum: first }
        } else {
            Incoming::Ack { cum: end }
        };
        self.tonic.incoming(self.now, flow, event);
    }

    /// Sends [`SEGMENTS`] segments.
    fn run(&mut self) {
        let mut sent = 0;
        while sent < SEGMENTS {
            self.now += Duration::from_nanos(20);
            if self.limited {
                self.tonic.handle_timeout(self.now, &mut |_| {});
            }
            match self.tonic.poll(self.now, &mut |_, _| 1_104) {
                Some(burst) => {
                    sent += u64::from(black_box(burst.count));
                    let end = burst.first + u64::from(burst.count);
                    self.in_flight.push_back((burst.flow, burst.first, end));
                    if self.in_flight.len() > self.delay {
                        self.acknowledge();
                    }
                }
                None if self.in_flight.is_empty() => {
                    self.now = self.tonic.next_deadline().unwrap_or(self.now);
                    self.tonic.handle_timeout(self.now, &mut |_| {});
                }
                None => self.acknowledge(),
            }
        }
    }
}

fn segments(c: &mut Criterion) {
    for (name, limited, loss_every) in [("unlimited", false, 0), ("limited", true, 0), ("loss", false, 50)] {
        let mut group = c.benchmark_group(format!("tonic/{name}"));
        group.throughput(Throughput::Elements(SEGMENTS));
        for quantum in [1, 32] {
            for flows in [1, 1_024, 2_048] {
                let id = BenchmarkId::new(format!("quantum {quantum}"), flows);
                let mut load = Load::new(flows, quantum, limited, loss_every);
                group.bench_function(id, |bencher| bencher.iter(|| load.run()));
            }
        }
        group.finish();
    }
}

mod group {
    use super::segments;
    criterion::criterion_group!(benches, segments);
}
criterion_main!(group::benches);
