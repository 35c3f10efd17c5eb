//! The consolidated defects of the published prototypes (tonic.md §6) as negative tests, by number there.

use super::*;

fn marker(sent: u64) -> (Tonic, FlowId) {
    in_flight(
        FlowConfig {
            program: &Marker::<0>,
            window: MAX_WINDOW,
            ..plain()
        },
        sent,
    )
}

fn set_window(tonic: &mut Tonic, id: FlowId, window: u16) {
    let cum = tonic.stats(id).una;
    tonic.incoming(
        us(1),
        id,
        Incoming::EcnEcho {
            cum,
            received: 0,
            marked: window,
        },
    );
}

#[test]
fn d1_nothing_generated_is_nothing_outstanding() {
    let (mut tonic, id) = marker(0);
    for round in 0..200 {
        tonic.available(us(1), id, round + 1);
        set_window(&mut tonic, id, 1);
        // The flow is in the active set; now its window closes before its turn.
        drain(&mut tonic, us(1));
        tonic.available(us(1), id, round + 2);
        assert!(drain(&mut tonic, us(1)).is_empty());
        assert_eq!(tonic.stats(id).outstanding, 0);
        tonic.incoming(us(1), id, Incoming::Ack { cum: round + 1 });
    }
    assert_eq!(
        segments(&drain(&mut tonic, us(1))),
        [200],
        "no back-pressure is left behind"
    );
}

#[test]
fn d2_a_shrunken_window_keeps_its_marks() {
    let (mut tonic, id) = marker(20);
    tonic.incoming(us(1), id, Incoming::NackSegment { cum: 0, seg: 15 });
    set_window(&mut tonic, id, 10);
    assert!(drain(&mut tonic, us(1)).is_empty());
    assert_eq!(tonic.stats(id).marked, 1);
    set_window(&mut tonic, id, 16);
    assert_eq!(segments(&drain(&mut tonic, us(1))), [15]);
}

#[test]
fn d3_ranges_are_half_open_clamped_and_never_wrap() {
    let mut marks = Marks::default();
    marks.add(5..5);
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    marks.add(9..3);
    assert!(marks.ranges().is_empty());

    let (mut tonic, id) = marker(u64::from(MAX_WINDOW));
    tonic.incoming(us(1), id, Incoming::Nack { cum: 0 });
    assert_eq!(
        tonic.stats(id).marked,
        MAX_WINDOW,
        "a full window is not an empty range"
    );
    assert_eq!(
        segments(&drain(&mut tonic, us(1))),
        (0..u64::from(MAX_WINDOW)).collect::<Vec<_>>()
    );

    let (mut tonic, id) = marker(4);
    for seg in [4, 5, 1_024, 1_028, u64::MAX - 1] {
        tonic.incoming(us(1), id, Incoming::NackSegment { cum: 0, seg });
    }
    assert_eq!(tonic.stats(id).marked, 0);
    assert!(drain(&mut tonic, us(1)).is_empty());
}

#[test]
fn d3_a_fifth_range_is_merged_not_lost() {
    let mut marks = Marks::default();
    for start in [0, 10, 20, 30, 40] {
        marks.add(start..start + 2);
    }
    assert_eq!(marks.ranges(), [(0, 2), (10, 12), (20, 22), (30, 42)]);
}

#[test]
fn d4_the_timer_stops_when_everything_is_acknowledged() {
    let (mut tonic, id) = in_flight(plain(), 4);
    tonic.incoming(us(10), id, Incoming::Ack { cum: 4 });
    assert_eq!(tonic.next_deadline(), None);
    tonic.available(us(20), id, 5);
    assert_eq!(
        tonic.next_deadline(),
        None,
        "armed by the transmission, not by the data"
    );
    drain(&mut tonic, us(30));
    assert_eq!(tonic.next_deadline(), Some(us(1_030)));
}

#[test]
fn d5_a_visit_is_not_a_timeout() {
    let (mut tonic, id) = in_flight(plain(), 4);
    tonic.incoming(us(1), id, Incoming::Cnp);
    let visit = tonic.next_deadline().unwrap();
    assert!(visit < us(1_000));
    assert!(expire(&mut tonic, visit).is_empty());
    assert_eq!(tonic.stats(id).marked, 0);
}

#[test]
fn d10_acknowledgements_of_unsent_segments_and_stale_ones_change_nothing() {
    let (mut tonic, id) = in_flight(plain(), 8);
    tonic.available(us(1), id, 100);
    tonic.incoming(us(1), id, Incoming::Ack { cum: 4 });
    let before = tonic.stats(id);
    for cum in [0, 3, 9, 100, 101, u64::MAX] {
        tonic.incoming(us(2), id, Incoming::Ack { cum });
        tonic.incoming(us(2), id, Incoming::Nack { cum });
        tonic.incoming(
            us(2),
            id,
            Incoming::Sack {
                cum,
                seg: cum.wrapping_add(1),
                tx_id: 0,
            },
        );
    }
    tonic.incoming(us(2), id, Incoming::Rewind { from: 8 });
    tonic.incoming(us(2), id, Incoming::Rewind { from: u64::MAX });
    assert_eq!(tonic.stats(id), before);
    assert_eq!(tonic.next_deadline(), Some(us(1_002)), "a rewind shows a live peer");
}

#[test]
fn unknown_and_removed_flows_are_ignored() {
    let (mut tonic, id) = in_flight(plain(), 8);
    tonic.incoming(us(1), id, Incoming::Nack { cum: 0 });
    tonic.remove_flow(id);
    for id in [id, id + 1, FlowId::MAX] {
        tonic.incoming(us(1), id, Incoming::Ack { cum: 1 });
        tonic.available(us(1), id, 9);
        tonic.block(id);
        tonic.unblock(us(1), id);
        tonic.returned(us(1), id, 0, 1);
        tonic.set_timeout(us(1), id, None);
        tonic.remove_flow(id);
        assert_eq!(tonic.stats(id), FlowStats::default());
    }
    assert!(drain(&mut tonic, us(1)).is_empty());
    assert_eq!(tonic.next_deadline(), None);
    assert_eq!(tonic.add_flow(us(2), plain()), id, "the index is used again");
    assert!(
        drain(&mut tonic, us(2)).is_empty(),
        "and nothing of the old flow is left"
    );
}
