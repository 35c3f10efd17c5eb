//! Random events against a naive model of sets and loops.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Event {
    Available(u64),
    Ack(i64),
    Sack(i64, i64),
    Nack(i64),
    NackSegment(i64),
    Window(u16),
    Poll(u8),
    Returned(u16),
    Block,
    Unblock,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0u64..40).prop_map(Event::Available),
        3 => (-3i64..20).prop_map(Event::Ack),
        1 => Just(Event::Ack(i64::from(i32::MAX))),
        3 => (-2i64..5, -2i64..40).prop_map(|(cum, seg)| Event::Sack(cum, seg)),
        1 => (-2i64..20).prop_map(Event::Nack),
        3 => (-2i64..40).prop_map(Event::NackSegment),
        1 => (0u16..50).prop_map(Event::Window),
        6 => (1u8..6).prop_map(Event::Poll),
        1 => (1u16..9).prop_map(Event::Returned),
        1 => Just(Event::Block),
        2 => Just(Event::Unblock),
        2 => (1u64..2_000_000).prop_map(Event::Pass),
    ]
}

/// A flow as sets.
#[derive(Default)]
struct Flow {
    una: SegNo,
    sent_end: SegNo,
    available: SegNo,
    window: u64,
    blocked: bool,
    acked: BTreeSet<SegNo>,
    marked: BTreeSet<SegNo>,
    /// Transmission id of each segment in flight.
    ids: BTreeMap<SegNo, u8>,
}

impl Flow {
    fn mark(&mut self, range: impl Iterator<Item = SegNo>) {
        let inside = self.una..self.sent_end;
        self.marked
            .extend(range.filter(|seg| inside.contains(seg) && !self.acked.contains(seg)));
    }

    fn acknowledge(&mut self, cum: SegNo) {
        self.una = self.una.max(cum);
        self.acked = self.acked.split_off(&self.una);
        self.marked = self.marked.split_off(&self.una);
        self.ids = self.ids.split_off(&self.una);
    }

    fn oldest_mark(&self) -> Option<SegNo> {
        self.marked.first().copied().filter(|&seg| seg < self.una + self.window)
    }

    fn has_work(&self) -> bool {
        let blocked_by_mark = !self.marked.is_empty();
        let new = self.sent_end < self.available.min(self.una + self.window);
        !self.blocked && (self.oldest_mark().is_some() || (new && !blocked_by_mark))
    }

    fn sent(&mut self, burst: &Burst) -> Result<(), TestCaseError> {
        let end = burst.first + u64::from(burst.count);
        prop_assert!(!self.blocked && burst.count > 0);
        prop_assert!(
            end <= self.una + self.window && end <= self.available,
            "outside the window"
        );
        if let Some(oldest) = self.oldest_mark() {
            prop_assert_eq!(burst.first, oldest, "lost before new, oldest first");
            prop_assert!(burst.retransmission);
            for seg in burst.first..end {
                prop_assert!(self.marked.remove(&seg), "{} was not lost", seg);
                prop_assert!(!self.acked.contains(&seg));
                let id = self.ids.entry(seg).or_default();
                *id = (*id + 1).min(3);
                prop_assert_eq!(*id, burst.transmission);
            }
        } else {
            prop_assert_eq!(burst.first, self.sent_end);
            prop_assert!(!burst.retransmission && burst.transmission == 0);
            self.ids.extend((burst.first..end).map(|seg| (seg, 0)));
            self.sent_end = end;
        }
        Ok(())
    }

    fn returned(&mut self, first: SegNo, end: SegNo) {
        if self.ids[&first] == 0 && end == self.sent_end {
            self.sent_end = first;
            self.ids.split_off(&first);
            return;
        }
        for seg in first..end {
            let id = self.ids.entry(seg).or_default();
            if *id < 3 {
                *id = id.saturating_sub(1);
            }
            if !self.acked.contains(&seg) {
                self.marked.insert(seg);
            }
        }
    }
}

fn run(program: &'static dyn Program, quantum: u16, events: Vec<(usize, Event)>) -> Result<(), TestCaseError> {
    let limited = program.credit() == CreditScheme::WindowAndRate;
    let mut tonic = Tonic::new(TonicConfig {
        ring: 8,
        ..TonicConfig::default()
    });
    let mut now = Time::ZERO;
    let mut flows: [Flow; 2] = Default::default();
    for flow in &mut flows {
        let config = FlowConfig {
            program,
            quantum,
            window: 30,
            ..plain()
        };
        tonic.add_flow(now, config);
        flow.window = 30;
    }
    for (index, event) in events {
        let id = FlowId::try_from(index).unwrap();
        let flow = &mut flows[index];
        let at = |offset: i64| flow.una.saturating_add_signed(offset);
        match event {
            Event::Available(more) => {
                flow.available = flow.available.max(flow.sent_end + more);
                tonic.available(now, id, flow.sent_end + more);
            }
            Event::Ack(offset) => {
                let cum = at(offset);
                tonic.incoming(now, id, Incoming::Ack { cum });
                if cum <= flow.sent_end {
                    flow.acknowledge(cum);
                }
            }
            Event::Sack(offset, seg) => {
                let (cum, seg) = (at(offset), at(seg));
                tonic.incoming(now, id, Incoming::Sack { cum, seg, tx_id: 0 });
                if cum <= flow.sent_end {
                    flow.acknowledge(cum);
                    if seg > flow.una && seg < flow.sent_end {
                        flow.acked.insert(seg);
                        flow.marked.remove(&seg);
                    }
                }
            }
            Event::Nack(offset) => {
                let cum = at(offset);
                tonic.incoming(now, id, Incoming::Nack { cum });
                if cum >= flow.una && cum <= flow.sent_end {
                    flow.acknowledge(cum);
                    flow.mark(cum..flow.sent_end);
                }
            }
            Event::NackSegment(seg) => {
                let (cum, seg) = (flow.una, at(seg));
                tonic.incoming(now, id, Incoming::NackSegment { cum, seg });
                flow.mark(seg..=seg);
            }
            Event::Window(window) => {
                tonic.incoming(
                    now,
                    id,
                    Incoming::EcnEcho {
                        cum: flow.una,
                        received: 0,
                        marked: window,
                    },
                );
                flow.window = u64::from(window.clamp(1, 30));
            }
            Event::Poll(most) => {
                for _ in 0..most {
                    let Some(burst) = tonic.poll(now, &mut |_, _| WIRE) else {
                        prop_assert!(limited || !flows.iter().any(Flow::has_work), "work left undone");
                        break;
                    };
                    prop_assert!(burst.count <= quantum);
                    flows[burst.flow as usize].sent(&burst)?;
                }
            }
            Event::Returned(count) => {
                let Some(burst) = tonic.poll(now, &mut |_, _| WIRE) else {
                    continue;
                };
                let flow = &mut flows[burst.flow as usize];
                flow.sent(&burst)?;
                let count = count.min(burst.count);
                let end = burst.first + u64::from(burst.count);
                tonic.returned(now, burst.flow, end - u64::from(count), count);
                flow.returned(end - u64::from(count), end);
            }
            Event::Block => {
                tonic.block(id);
                flow.blocked = true;
            }
            Event::Unblock => {
                tonic.unblock(now, id);
                flow.blocked = false;
            }
            Event::Pass(nanos) => {
                now += Duration::from_nanos(nanos);
                for expired in expire(&mut tonic, now) {
                    let flow = &mut flows[expired as usize];
                    prop_assert!(!flow.blocked && flow.una < flow.sent_end, "spurious timeout");
                    flow.mark(flow.una..flow.sent_end);
                }
                prop_assert!(tonic.next_deadline().is_none_or(|next| next > now));
            }
        }
        for (id, flow) in (0..).zip(&flows) {
            let stats = tonic.stats(id);
            prop_assert_eq!((stats.una, stats.sent_end), (flow.una, flow.sent_end));
            let queued = flow.marked.len() as u64 - u64::from(stats.marked);
            let new = stats.next_new - stats.sent_end;
            prop_assert_eq!(u64::from(stats.outstanding), queued + new, "outstanding is conserved");
            prop_assert!(stats.outstanding <= 8);
        }
    }
    Ok(())
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    proptest::collection::vec((0usize..2, event()), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn windows_agree_with_sets(quantum in 1u16..9, events in events()) {
        run(&Marker::<0>, quantum, events)?;
    }

    #[test]
    fn rates_agree_with_sets(quantum in 1u16..9, events in events()) {
        run(&Marker::<50_000_000>, quantum, events)?;
    }
}
