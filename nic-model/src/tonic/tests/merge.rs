//! Rows of the merge table (tonic.md §1.6): several modules meet one flow at one instant.

use super::*;

#[test]
fn an_acknowledgement_drops_the_timeout_of_the_same_instant() {
    let (mut tonic, id) = in_flight(plain(), 4);
    assert_eq!(tonic.next_deadline(), Some(us(1_000)));
    tonic.incoming(us(1_000), id, Incoming::Ack { cum: 1 });
    assert!(expire(&mut tonic, us(1_000)).is_empty());
    assert_eq!(tonic.next_deadline(), Some(us(2_000)), "restarted by progress");
}

#[test]
fn an_event_that_restarts_nothing_only_defers_the_timeout() {
    let (mut tonic, id) = in_flight(plain(), 4);
    tonic.incoming(us(1_000), id, Incoming::Cnp);
    assert!(expire(&mut tonic, us(1_000)).is_empty());
    let next = us(1_000) + Duration::from_nanos(1);
    assert_eq!(tonic.next_deadline(), Some(next));
    assert_eq!(expire(&mut tonic, next), [id]);
}

#[test]
fn generation_and_transmission_leave_the_count_unchanged() {
    let (tonic, id) = in_flight(plain(), 300);
    assert_eq!(tonic.stats(id).outstanding, 0);
    assert_eq!(tonic.stats(id).total_sent, 300);
}

#[test]
fn the_bit_of_the_segment_just_generated_is_not_marked_again_by_a_repeated_mark() {
    let (mut tonic, id) = in_flight(
        FlowConfig {
            program: &Marker::<0>,
            quantum: 1,
            ..plain()
        },
        4,
    );
    tonic.incoming(us(1), id, Incoming::Nack { cum: 0 });
    assert_eq!(tonic.poll(us(1), &mut |_, _| WIRE).map(|burst| burst.first), Some(0));
    tonic.incoming(us(1), id, Incoming::NackSegment { cum: 0, seg: 1 });
    assert_eq!(
        segments(&drain(&mut tonic, us(1))),
        [1, 2, 3],
        "1 was waiting already, 0 is in flight"
    );
}

#[test]
fn a_reset_wins_over_the_arming_by_a_transmission() {
    let (mut tonic, id) = in_flight(plain(), 4);
    tonic.available(us(10), id, 5);
    drain(&mut tonic, us(10));
    assert_eq!(
        tonic.next_deadline(),
        Some(us(1_000)),
        "a running timer is not armed again"
    );
    tonic.incoming(us(10), id, Incoming::Ack { cum: 2 });
    assert_eq!(tonic.next_deadline(), Some(us(1_010)));
}

#[test]
fn a_window_head_that_passes_marks_and_queued_segments_drops_them() {
    let config = FlowConfig {
        program: &Marker::<8_000_000>,
        quantum: 1,
        timeout: Some(Duration::from_millis(10)),
        ..plain()
    };
    let mut tonic = Tonic::new(TonicConfig {
        pacing_burst: Duration::ZERO,
        ..TonicConfig::default()
    });
    let id = tonic.add_flow(Time::ZERO, config);
    tonic.available(Time::ZERO, id, 3);
    let mut now = Time::ZERO;
    for _ in 0..3 {
        assert!(drain(&mut tonic, now).is_empty());
        now = tonic.next_deadline().unwrap();
        tonic.handle_timeout(now, &mut |_| panic!("no timeout yet"));
        assert_eq!(drain(&mut tonic, now).len(), 1);
        tonic.incoming(now, id, Incoming::Progress);
    }
    tonic.incoming(now, id, Incoming::Nack { cum: 0 });
    assert!(drain(&mut tonic, now).is_empty(), "waits for credit");
    assert!(tonic.stats(id).outstanding > 0);
    tonic.incoming(now, id, Incoming::Ack { cum: 3 });
    assert_eq!(tonic.stats(id).outstanding, 0);
    assert_eq!(tonic.next_deadline(), None, "neither credit nor retransmission timer");
}
