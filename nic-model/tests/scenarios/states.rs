//! QP states: flush, posts in ERR, SQD, RESET, destroy (behaviours B1, B2, B4).

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::{AsyncEventKind, Command, QpAttr, QpAttrMask, QpState};
use nic_model::sim::LinkConfig;
use nic_model::time::Duration;

fn ids(cqes: &[nic_model::host_if::Cqe]) -> Vec<u64> {
    cqes.iter().map(|cqe| cqe.wr_id).collect()
}

#[test]
fn every_request_completes_once_when_the_qp_goes_to_err() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        send_wr: 1_024,
        recv_wr: 1_024,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 20_000), pair.buffer(B, 20_000));
    pair.links[A].drop_if(|_| true);
    // More than the device fetches ahead, signaled or not, of every kind.
    for id in 0..700 {
        let wr = match id % 4 {
            0 => Wr::write(&mine, 0..20_000, &theirs, 0),
            1 => Wr::send(&mine, 0..10),
            2 => Wr::read(&mine, 0..10, &theirs, 0),
            _ => Wr::fetch_add(&mine, 0, &theirs, 0, 1),
        };
        pair.post(a, &if id % 3 == 0 { wr.id(id) } else { wr.id(id).unsignaled() });
    }
    for id in 0..600 {
        pair.post_recv(a, &Recv::into(&mine, 0..10).id(id));
    }
    pair.drive_for(Duration::from_micros(100));
    pair.set_state(a, QpState::Err);
    pair.drive();
    assert_eq!(ids(&pair.qp(a).sends), (0..700).collect::<Vec<_>>());
    assert_eq!(ids(&pair.qp(a).recvs), (0..600).collect::<Vec<_>>());
    assert!(
        pair.send_statuses(a)
            .iter()
            .chain(&pair.recv_statuses(a))
            .all(|status| *status == WcStatus::WrFlushErr)
    );
    assert!(pair.qp(a).sends.iter().all(|cqe| cqe.qpn == pair.qp(a).qpn));
}

#[test]
fn posts_in_err_are_flushed_and_again_after_a_second_command() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let mine = pair.buffer(A, 64);
    pair.set_state(a, QpState::Err);
    pair.drive();
    for round in 0..3 {
        pair.post(a, &Wr::send(&mine, 0..8).id(round).unsignaled());
        pair.post_recv(a, &Recv::into(&mine, 0..8).id(round));
        pair.drive();
        assert_eq!(
            (pair.qp(a).sends.len(), pair.qp(a).recvs.len()),
            (round as usize + 1, round as usize + 1)
        );
        pair.set_state(a, QpState::Err);
    }
    assert!(
        pair.send_statuses(a)
            .iter()
            .all(|status| *status == WcStatus::WrFlushErr)
    );
    assert_eq!(pair.state(b), QpState::Rts, "the peer hears nothing");
}

#[test]
fn the_oldest_fails_and_the_rest_is_flushed() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        retry_cnt: 0,
        timeout: 8,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    pair.succeed(a, &Wr::write(&mine, 0..8, &theirs, 0));
    pair.set_state(b, QpState::Err);
    for id in 0..50 {
        pair.post(a, &Wr::write(&mine, 0..8, &theirs, 0).id(id).unsignaled());
    }
    pair.post_recv(a, &Recv::default().id(70));
    pair.drive();
    let statuses = pair.send_statuses(a);
    assert_eq!(
        (statuses[1], &statuses[2..]),
        (WcStatus::RetryExcErr, &[WcStatus::WrFlushErr; 49][..])
    );
    assert_eq!(ids(&pair.qp(a).sends)[1..], (0..50).collect::<Vec<_>>());
    assert_eq!(pair.recv_statuses(a), [WcStatus::WrFlushErr]);
}

#[test]
fn nothing_of_a_destroyed_qp_appears() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mine, theirs) = (pair.buffer(A, 5_000), pair.buffer(B, 5_000));
    for _ in 0..10 {
        pair.post_recv(a, &Recv::into(&mine, 0..8));
        pair.post_recv(b, &Recv::into(&theirs, 0..5_000));
        pair.post(a, &Wr::send(&mine, 0..5_000));
        pair.post(a, &Wr::read(&mine, 0..5_000, &theirs, 0));
    }
    pair.drive_until(Duration::from_millis(1), |pair| !pair.qp(a).sends.is_empty());
    let (qpn, before) = (pair.qp(a).qpn, pair.qp(a).sends.len());
    pair.command(A, Command::DestroyQp { qpn }).unwrap();
    pair.drive();
    assert_eq!((pair.qp(a).sends.len(), pair.qp(a).recvs.len()), (before, 0));
    assert!(pair.command(A, Command::QueryQp { qpn }).is_err());
    assert!(pair.command(A, Command::DestroyQp { qpn }).is_err());
    let cq = pair.qp(a).send_cq.id;
    assert_eq!(
        pair.command(A, Command::DestroyCq { cq }),
        Ok(nic_model::host_if::Reply::Done)
    );
}

#[test]
fn a_qp_can_be_used_again_after_reset() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mut mine, theirs) = (pair.buffer(A, 5_000), pair.buffer(B, 5_000));
    for round in 0..3 {
        let data = mine.fill_pattern(round);
        pair.post_recv(b, &Recv::into(&theirs, 0..5_000));
        pair.succeed(a, &Wr::send(&mine, 0..5_000));
        pair.drive();
        assert_eq!(theirs.bytes(), data);
        for (qp, peer) in [(a, b), (b, a)] {
            pair.set_state(qp, QpState::Reset);
            pair.hosts[qp.side].forget_posted(qp.index);
            let (addr, qpn) = (pair.hosts[peer.side].addr, pair.qp(peer).qpn);
            let now = pair.now;
            let host = &mut pair.hosts[qp.side];
            host.init(now, qp.index);
            host.ready_to_receive(now, qp.index, addr, qpn);
            host.ready_to_send(now, qp.index);
        }
    }
    assert_eq!(pair.qp(b).recvs.len(), 3);
}

#[test]
fn a_draining_queue_finishes_what_it_began() {
    let link = LinkConfig {
        rate_bps: 1_000_000_000,
        delay: Duration::from_micros(5),
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(&PairConfig {
        link,
        ..PairConfig::default()
    });
    let (a, _) = pair.connect(&QpOptions::default());
    let (mut mine, theirs) = (pair.buffer(A, 50_000), pair.buffer(B, 50_000));
    let data = mine.fill_pattern(1);
    for part in 0..5 {
        pair.post(
            a,
            &Wr::write(&mine, part * 10_000..(part + 1) * 10_000, &theirs, part * 10_000).id(part as u64),
        );
    }
    pair.drive_until(Duration::from_millis(1), |pair| pair.qp(a).sends.len() == 2);
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    pair.modify(a, attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY)
        .unwrap();
    pair.post(a, &Wr::write(&mine, 0..10_000, &theirs, 0).id(5));
    let now = pair.now;
    assert!(pair.hosts[A].query(now, a.index).sq_draining);
    assert_eq!(pair.events(a), []);
    pair.drive();
    assert_eq!(ids(&pair.qp(a).sends), [0, 1, 2, 3, 4], "what was posted in SQD waits");
    assert_eq!(pair.events(a), [AsyncEventKind::SqDrained]);
    let now = pair.now;
    assert!(!pair.hosts[A].query(now, a.index).sq_draining);
    pair.set_state(a, QpState::Rts);
    pair.drive();
    assert_eq!(ids(&pair.qp(a).sends), [0, 1, 2, 3, 4, 5]);
    assert_eq!(theirs.bytes(), data);
    assert_eq!(pair.events(a), [AsyncEventKind::SqDrained]);
}

#[test]
fn an_idle_queue_is_drained_at_once_and_still_receives() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    pair.modify(a, attr, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY)
        .unwrap();
    pair.drive();
    assert_eq!(pair.events(a), [AsyncEventKind::SqDrained]);
    pair.succeed(b, &Wr::write(&theirs, 0..8, &mine, 0));
}

#[test]
fn transitions_and_attributes_out_of_order_are_refused() {
    let mut pair = Pair::default();
    let index = pair.hosts[A].create_qp(pair.now, nic_model::host_if::QpType::Rc, &QpOptions::default());
    let qp = crate::harness::QpId { side: A, index };
    for state in [QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err] {
        let attr = QpAttr {
            qp_state: state,
            ..QpAttr::default()
        };
        assert!(pair.modify(qp, attr, QpAttrMask::STATE).is_err(), "RESET → {state:?}");
    }
    assert_eq!(pair.state(qp), QpState::Reset);
}
