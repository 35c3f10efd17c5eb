//! CQ overrun: an event, a dead CQ, its QPs in ERR, and no completion lost that was written (behaviours C2).

use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::{AsyncEventKind, QpState};

#[test]
fn a_send_queue_overruns_its_cq() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        cqe: 4,
        poll: false,
        ..QpOptions::default()
    });
    let (other, _) = pair.connect(&QpOptions::default());
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for id in 0..50 {
        pair.post(a, &Wr::write(&mine, 0..8, &theirs, 0).id(id));
    }
    pair.drive();
    let cookie = pair.qp(a).send_cq.cookie;
    let of_cq: Vec<_> = pair.hosts[A]
        .events
        .iter()
        .filter(|event| event.cookie == cookie)
        .map(|event| event.kind)
        .collect();
    assert_eq!(of_cq, [AsyncEventKind::CqErr], "once");
    assert_eq!(pair.events(a), [AsyncEventKind::QpFatal]);
    assert_eq!((pair.state(a), pair.state(b)), (QpState::Err, QpState::Rts));
    let ids: Vec<u64> = pair.hosts[A].poll_qp(a.index).iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3], "what was written is there");
    pair.drive();
    assert!(pair.hosts[A].poll_qp(a.index).is_empty(), "and the CQ is dead");
    pair.succeed(other, &Wr::write(&mine, 0..8, &theirs, 0));
}

#[test]
fn a_receive_queue_overruns_its_cq() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect_each(
        &QpOptions {
            retry_cnt: 0,
            timeout: 8,
            ..QpOptions::default()
        },
        &QpOptions {
            psn: (0x00ab_cdef, 0x1234),
            cqe: 2,
            poll: false,
            ..QpOptions::default()
        },
    );
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for id in 0..10 {
        pair.post_recv(b, &Recv::into(&theirs, 0..8).id(id));
        pair.post(a, &Wr::send(&mine, 0..8));
    }
    pair.drive();
    assert_eq!(
        (pair.state(b), pair.events(b)),
        (QpState::Err, vec![AsyncEventKind::QpFatal])
    );
    assert_eq!(pair.hosts[B].poll_qp(b.index).len(), 2);
    assert_eq!(pair.hosts[B].nic.counters().cq_overruns, 1);
}

#[test]
fn a_full_cq_that_is_polled_in_time_is_not_overrun() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        cqe: 4,
        poll: false,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for _ in 0..10 {
        for id in 0..4 {
            pair.post(a, &Wr::write(&mine, 0..8, &theirs, 0).id(id));
        }
        pair.drive();
        assert_eq!(pair.hosts[A].poll_qp(a.index).len(), 4);
    }
    assert_eq!(pair.events(a), []);
}
