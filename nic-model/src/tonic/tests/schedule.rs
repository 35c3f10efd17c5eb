//! Turns of flows, bursts, blocking, unreliable flows.

use super::*;

fn many(flows: u32, quantum: u16, each: u64) -> Tonic {
    let mut tonic = Tonic::new(TonicConfig::default());
    for _ in 0..flows {
        let id = tonic.add_flow(Time::ZERO, FlowConfig { quantum, ..plain() });
        tonic.available(Time::ZERO, id, each);
    }
    tonic
}

#[test]
fn a_quantum_of_one_is_round_robin_by_segment() {
    let mut tonic = many(5, 1, 10);
    let bursts = drain(&mut tonic, Time::ZERO);
    let expected: Vec<_> = (0..10).flat_map(|seg| (0..5).map(move |flow| (flow, seg))).collect();
    assert_eq!(
        bursts.iter().map(|burst| (burst.flow, burst.first)).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_larger_quantum_gives_each_flow_a_whole_burst() {
    let mut tonic = many(3, 32, 100);
    let bursts = drain(&mut tonic, Time::ZERO);
    let turns: Vec<_> = bursts.iter().map(|burst| (burst.flow, burst.count)).collect();
    let round = [(0, 32), (1, 32), (2, 32)];
    assert_eq!(turns, [&round[..], &round, &round, &[(0, 4), (1, 4), (2, 4)]].concat());
}

#[test]
fn the_ring_bounds_a_burst_and_not_the_window() {
    let mut tonic = Tonic::new(TonicConfig {
        ring: 16,
        ..TonicConfig::default()
    });
    let id = tonic.add_flow(
        Time::ZERO,
        FlowConfig {
            quantum: 500,
            window: 512,
            ..plain()
        },
    );
    tonic.available(Time::ZERO, id, 10_000);
    let bursts = drain(&mut tonic, Time::ZERO);
    assert!(bursts.iter().all(|burst| burst.count == 16));
    assert_eq!(segments(&bursts).len(), 512);
}

#[test]
fn a_blocked_flow_neither_sends_nor_times_out() {
    let (mut tonic, id) = in_flight(plain(), 4);
    tonic.available(us(1), id, 8);
    tonic.block(id);
    assert_eq!(tonic.next_deadline(), None);
    assert!(drain(&mut tonic, us(2)).is_empty());
    tonic.incoming(us(3), id, Incoming::Rewind { from: 0 });
    assert!(expire(&mut tonic, us(5_000)).is_empty() && drain(&mut tonic, us(5_000)).is_empty());
    tonic.unblock(us(6_000), id);
    assert_eq!(tonic.next_deadline(), Some(us(7_000)));
    assert_eq!(segments(&drain(&mut tonic, us(6_000))), (0..8).collect::<Vec<_>>());
}

#[test]
fn returned_segments_are_sent_again_in_order() {
    let mut tonic = Tonic::new(TonicConfig::default());
    let id = tonic.add_flow(Time::ZERO, FlowConfig { quantum: 8, ..plain() });
    tonic.available(Time::ZERO, id, 20);
    let first = tonic.poll(Time::ZERO, &mut |_, _| WIRE).unwrap();
    assert_eq!((first.first, first.count), (0, 8));
    tonic.block(id);
    tonic.returned(Time::ZERO, id, 5, 3);
    assert_eq!(tonic.stats(id).sent_end, 5);
    tonic.incoming(us(1), id, Incoming::Ack { cum: 6 });
    assert_eq!(tonic.stats(id).una, 0, "what was given back was not sent");
    assert!(drain(&mut tonic, us(1)).is_empty());
    tonic.unblock(us(2), id);
    let bursts = drain(&mut tonic, us(2));
    assert_eq!(segments(&bursts), (5..20).collect::<Vec<_>>());
    assert!(bursts.iter().all(|burst| !burst.retransmission));
    assert_eq!(tonic.stats(id).total_sent, 20);
}

#[test]
fn an_unreliable_flow_acknowledges_itself() {
    let config = FlowConfig {
        reliable: false,
        window: 4,
        quantum: 4,
        ..plain()
    };
    let (mut tonic, id) = in_flight(config, 100);
    assert_eq!(tonic.stats(id).una, 100);
    assert_eq!(tonic.next_deadline(), None);
    tonic.incoming(us(1), id, Incoming::Ack { cum: 50 });
    tonic.incoming(us(1), id, Incoming::Rewind { from: 50 });
    assert!(drain(&mut tonic, us(1)).is_empty());
    tonic.available(us(2), id, 104);
    let burst = tonic.poll(us(2), &mut |_, _| WIRE).unwrap();
    tonic.returned(us(2), id, burst.first, burst.count);
    assert_eq!(segments(&drain(&mut tonic, us(3))), [100, 101, 102, 103]);
}

#[test]
fn never_is_a_timeout_too() {
    let (mut tonic, id) = in_flight(
        FlowConfig {
            timeout: None,
            ..plain()
        },
        4,
    );
    assert_eq!(tonic.next_deadline(), None);
    tonic.set_timeout(us(5), id, Some(Duration::from_micros(10)));
    assert_eq!(tonic.next_deadline(), Some(us(15)));
    tonic.set_timeout(us(6), id, None);
    assert_eq!(tonic.next_deadline(), None);
    tonic.set_timeout(us(7), id, Some(Duration::from_micros(10)));
    assert_eq!(expire(&mut tonic, us(17)), [id]);
    assert_eq!(tonic.next_deadline(), None, "inactive until the next transmission");
    assert_eq!(segments(&drain(&mut tonic, us(18))), [0, 1, 2, 3]);
    assert_eq!(tonic.next_deadline(), Some(us(28)));
}
