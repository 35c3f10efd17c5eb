//! Loss recovery of `roce-dcqcn`.

use super::*;

fn early() -> FlowConfig {
    FlowConfig {
        timeout: Some(Duration::from_millis(67)),
        ..FlowConfig::default()
    }
}

#[test]
fn a_nack_acknowledges_below_and_resends_from_there_before_new_data() {
    let (mut tonic, id) = in_flight(plain(), 10);
    tonic.available(us(1), id, 12);
    tonic.incoming(us(1), id, Incoming::Nack { cum: 4 });
    let bursts = drain(&mut tonic, us(1));
    assert_eq!(segments(&bursts), (4..12).collect::<Vec<_>>());
    let retransmitted: Vec<_> = bursts.iter().map(|burst| (burst.first, burst.retransmission)).collect();
    assert_eq!(retransmitted, [(4, true), (10, false)]);
    assert_eq!(tonic.stats(id).retransmitted, 6);
}

#[test]
fn a_repeated_nack_marks_again_only_when_its_retransmission_can_have_been_lost() {
    let (mut tonic, id) = in_flight(FlowConfig { quantum: 2, ..plain() }, 8);
    // A round trip of 100 µs is known.
    tonic.incoming(us(100), id, Incoming::Ack { cum: 4 });
    assert_eq!(tonic.stats(id).smoothed_rtt, Some(Duration::from_micros(100)));
    tonic.incoming(us(110), id, Incoming::Nack { cum: 4 });
    tonic.incoming(us(110), id, Incoming::Nack { cum: 4 });
    assert_eq!(tonic.stats(id).marked, 4);
    assert_eq!(tonic.poll(us(111), &mut |_, _| WIRE).map(|burst| burst.first), Some(4));
    // Some are resent, the rest waits: nothing may be marked twice.
    tonic.incoming(us(112), id, Incoming::Nack { cum: 4 });
    assert_eq!(segments(&drain(&mut tonic, us(112))), [6, 7]);
    tonic.incoming(us(120), id, Incoming::Nack { cum: 4 });
    assert!(
        drain(&mut tonic, us(120)).is_empty(),
        "too early for an answer to the retransmission"
    );
    tonic.incoming(us(211), id, Incoming::Nack { cum: 4 });
    assert_eq!(
        segments(&drain(&mut tonic, us(211))),
        [4, 5, 6, 7],
        "the retransmission was lost"
    );
    tonic.incoming(us(212), id, Incoming::Nack { cum: 6 });
    assert_eq!(
        segments(&drain(&mut tonic, us(212))),
        [6, 7],
        "the expected segment has moved"
    );
}

#[test]
fn a_rewind_is_the_same_without_acknowledging() {
    let (mut tonic, id) = in_flight(plain(), 8);
    tonic.incoming(us(1), id, Incoming::Rewind { from: 5 });
    assert_eq!(segments(&drain(&mut tonic, us(1))), [5, 6, 7]);
    assert_eq!(tonic.stats(id).una, 0);
    assert_eq!(tonic.stats(id).rate_bps, 0);
}

#[test]
fn the_ack_timeout_resends_everything_and_is_reported_once() {
    let (mut tonic, id) = in_flight(plain(), 5);
    tonic.incoming(us(500), id, Incoming::Ack { cum: 2 });
    assert!(expire(&mut tonic, us(1_499)).is_empty());
    assert_eq!(expire(&mut tonic, us(1_500)), [id]);
    assert!(expire(&mut tonic, us(9_000)).is_empty());
    assert_eq!(segments(&drain(&mut tonic, us(9_000))), [2, 3, 4]);
    assert_eq!(tonic.next_deadline(), Some(us(10_000)));
}

#[test]
fn progress_of_a_read_response_restarts_the_timer_alone() {
    let (mut tonic, id) = in_flight(plain(), 1);
    for round in 1..10 {
        tonic.incoming(us(900 * round), id, Incoming::Progress);
        assert!(expire(&mut tonic, us(900 * round + 899)).is_empty());
    }
    assert_eq!(tonic.stats(id).una, 0);
}

#[test]
fn probes_double_until_the_ack_timeout_and_are_not_reported() {
    let (mut tonic, id) = in_flight(early(), 6);
    let mut probes = Vec::new();
    loop {
        let now = tonic.next_deadline().unwrap();
        let expired = expire(&mut tonic, now);
        let sent = segments(&drain(&mut tonic, now));
        if !expired.is_empty() {
            assert_eq!((expired, now, sent), (vec![id], us(67_000), (0..6).collect()));
            break;
        }
        assert_eq!(sent, [0], "the oldest alone, once");
        probes.push(now.as_nanos() / 1_000);
    }
    assert_eq!(probes, [2_000, 6_000, 14_000, 30_000, 62_000]);
}

#[test]
fn a_probe_waits_eight_round_trips_at_least_a_millisecond() {
    let (mut tonic, id) = in_flight(early(), 2);
    tonic.incoming(us(50), id, Incoming::Ack { cum: 1 });
    assert_eq!(
        tonic.next_deadline(),
        Some(us(2_050)),
        "one sample at a time: the last segment of the burst"
    );
    tonic.incoming(us(60), id, Incoming::Ack { cum: 2 });
    assert_eq!(tonic.next_deadline(), None);
    for (sent, rtt) in [(3, 50), (4, 5_000)] {
        let start = us(10_000 * sent);
        tonic.available(start, id, sent);
        drain(&mut tonic, start);
        assert_eq!(tonic.next_deadline(), Some(start + Duration::from_millis(1)));
        expire(&mut tonic, start + Duration::from_micros(rtt.min(999)));
        tonic.incoming(start + Duration::from_micros(rtt), id, Incoming::Ack { cum: sent });
    }
    tonic.available(us(90_000), id, 5);
    drain(&mut tonic, us(90_000));
    let rtt = tonic.stats(id).smoothed_rtt.unwrap();
    let wait = tonic.next_deadline().unwrap() - us(90_000);
    assert!(
        wait >= rtt * 8 && wait < rtt * 12,
        "{wait:?} for a round trip of {rtt:?}"
    );
}

#[test]
fn the_answer_to_a_probe_tells_a_lost_window_from_a_lost_acknowledgement() {
    // Only the acknowledgement was lost: the receiver repeats it whole.
    let (mut tonic, id) = in_flight(early(), 6);
    expire(&mut tonic, us(2_000));
    assert_eq!(segments(&drain(&mut tonic, us(2_000))), [0]);
    tonic.incoming(us(2_100), id, Incoming::Ack { cum: 6 });
    assert!(drain(&mut tonic, us(2_100)).is_empty());
    assert_eq!(
        tonic.stats(id).smoothed_rtt,
        None,
        "Karn: no sample from a retransmission"
    );

    // Everything was lost: the receiver acknowledges just the probe.
    let (mut tonic, id) = in_flight(early(), 6);
    expire(&mut tonic, us(2_000));
    drain(&mut tonic, us(2_000));
    tonic.incoming(us(2_100), id, Incoming::Ack { cum: 1 });
    assert_eq!(segments(&drain(&mut tonic, us(2_100))), [1, 2, 3, 4, 5]);

    // An acknowledgement on the way was lost and so was what came after it: the next probe tells.
    let (mut tonic, id) = in_flight(early(), 6);
    expire(&mut tonic, us(2_000));
    drain(&mut tonic, us(2_000));
    tonic.incoming(us(2_100), id, Incoming::Ack { cum: 3 });
    assert_eq!(segments(&drain(&mut tonic, us(2_100))), [3]);
    tonic.incoming(us(2_200), id, Incoming::Ack { cum: 4 });
    assert_eq!(segments(&drain(&mut tonic, us(2_200))), [4, 5]);

    // It was only late.
    let (mut tonic, id) = in_flight(early(), 6);
    expire(&mut tonic, us(2_000));
    drain(&mut tonic, us(2_000));
    tonic.incoming(us(2_100), id, Incoming::Ack { cum: 3 });
    assert_eq!(segments(&drain(&mut tonic, us(2_100))), [3]);
    tonic.incoming(us(2_200), id, Incoming::Ack { cum: 6 });
    assert!(drain(&mut tonic, us(2_200)).is_empty());
}
