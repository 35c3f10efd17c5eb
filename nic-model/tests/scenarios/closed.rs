//! Closed QPs stay answerable: the last ACK may be lost after its receiver is gone.

use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::{Command, QpState};

/// The ACK of the last message is lost, and the receiver leaves on the completion.
fn leaves(how: fn(&mut Pair, crate::harness::QpId)) {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    let (mut mine, theirs) = (pair.buffer(A, 2_000), pair.buffer(B, 2_000));
    let data = mine.fill_pattern(1);
    pair.post_recv(b, &Recv::into(&theirs, 0..2_000));
    pair.links[B].drop_if(|_| true);
    pair.post(a, &Wr::send(&mine, 0..2_000));
    pair.drive_until(nic_model::time::Duration::from_millis(1), |pair| {
        pair.qp(b).recvs.len() == 1
    });
    how(&mut pair, b);
    pair.links[B].clear_rules();
    pair.drive_until(nic_model::time::Duration::from_secs(1), |pair| {
        pair.qp(a).sends.len() == 1
    });
    assert_eq!(pair.send_statuses(a), [WcStatus::Success]);
    assert_eq!(theirs.bytes(), data);
    // What the closed QP has never seen is not acknowledged.
    let cqe = pair.run(a, &Wr::write(&mine, 0..8, &theirs, 0));
    assert_eq!(cqe.status, WcStatus::RetryExcErr as u8);
}

#[test]
fn after_destroy() {
    leaves(|pair, b| {
        let qpn = pair.qp(b).qpn;
        pair.command(B, Command::DestroyQp { qpn }).unwrap();
    });
}

#[test]
fn in_err() {
    leaves(|pair, b| pair.set_state(b, QpState::Err));
}

#[test]
fn in_err_and_then_destroyed() {
    leaves(|pair, b| {
        pair.set_state(b, QpState::Err);
        let qpn = pair.qp(b).qpn;
        pair.command(B, Command::DestroyQp { qpn }).unwrap();
    });
}

#[test]
fn after_failing_by_itself() {
    leaves(|pair, b| {
        // Its own request fails: the index it publishes is beyond the ring.
        let (sq, qpn) = (pair.qp(b).sq.clone(), pair.qp(b).qpn);
        sq.publish(100_000);
        pair.hosts[B].ring(qpn);
        assert!(pair.step());
    });
}

#[test]
fn tombstones_are_handed_to_whoever_outlives_the_device() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        psn: (10, 20),
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 8), pair.buffer(B, 8));
    pair.succeed(a, &Wr::write(&mine, 0..8, &theirs, 0));
    let qpn = pair.qp(b).qpn;
    let [living] = pair.hosts[B].nic.living_tombstones()[..] else {
        panic!("one living QP")
    };
    assert_eq!(
        (living.qpn, living.dest_qpn, living.expected_psn, living.msn),
        (qpn, pair.qp(a).qpn, 11, 1)
    );
    pair.command(B, Command::DestroyQp { qpn }).unwrap();
    assert_eq!(pair.hosts[B].nic.take_tombstones(), [living]);
    assert!(pair.hosts[B].nic.take_tombstones().is_empty() && pair.hosts[B].nic.living_tombstones().is_empty());
}
