//! Remote accesses that must be refused, and receives that fail (behaviours E7, E8, F3).

use crate::harness::host::ALL;
use crate::harness::{A, B, Buffer, Pair, QpId, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::qp_attr::Access;
use nic_model::host_if::{AsyncEventKind, Command, QpState};

const REMOTE_ACCESS: u8 = 0x62;
const INVALID_REQUEST: u8 = 0x61;

struct Bench {
    pair: Pair,
    a: QpId,
    b: QpId,
    mine: Buffer,
    theirs: Buffer,
}

fn bench(options: &QpOptions) -> Bench {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(options);
    let (mut mine, mut theirs) = (pair.buffer(A, 10_000), pair.buffer(B, 10_000));
    mine.fill_pattern(1);
    theirs.fill_pattern(2);
    Bench {
        pair,
        a,
        b,
        mine,
        theirs,
    }
}

impl Bench {
    /// The request is refused with that NAK and status, both QPs end, and no byte changes.
    fn refused(mut self, what: &str, wr: &Wr, nak: u8) {
        let (status, event) = match nak {
            REMOTE_ACCESS => (WcStatus::RemAccessErr, AsyncEventKind::QpAccessErr),
            _ => (WcStatus::RemInvReqErr, AsyncEventKind::QpReqErr),
        };
        let (pair, before) = (&mut self.pair, self.theirs.bytes());
        let ours = self.mine.bytes();
        pair.post_recv(self.b, &Recv::default().id(9));
        pair.post(self.a, &wr.clone().id(1));
        pair.post(self.a, &Wr::write(&self.mine, 0..8, &self.theirs, 0).unsignaled().id(2));
        pair.drive();
        assert_eq!(pair.send_statuses(self.a), [status, WcStatus::WrFlushErr], "{what}");
        assert_eq!(pair.recv_statuses(self.b), [WcStatus::WrFlushErr], "{what}");
        assert_eq!(
            (pair.state(self.a), pair.state(self.b)),
            (QpState::Err, QpState::Err),
            "{what}"
        );
        assert_eq!(
            (pair.events(self.a), pair.events(self.b)),
            (vec![], vec![event]),
            "{what}"
        );
        let naks: Vec<_> = pair
            .sent
            .iter()
            .filter_map(|packet| packet.syndrome)
            .filter(|byte| byte >> 5 == 3)
            .collect();
        assert_eq!(naks, [nak], "{what}");
        assert!(
            self.theirs.bytes() == before && self.mine.bytes() == ours,
            "{what} changed memory"
        );
        self.theirs.assert_intact();
    }
}

/// A READ, a WRITE and an atomic of the last bytes of a region, moved by `shift`.
fn shifted(bench: &Bench, shift: i64) -> Vec<(&'static str, Wr)> {
    let end = if shift < 0 { 0 } else { bench.theirs.len() };
    let at = |length: usize| {
        let base = if shift < 0 { 0 } else { (end - length) as i64 };
        bench.theirs.addr.wrapping_add_signed(base + shift)
    };
    let moved = |mut wr: Wr, length| {
        wr.remote.0 = at(length);
        wr
    };
    vec![
        ("READ", moved(Wr::read(&bench.mine, 0..3_000, &bench.theirs, 0), 3_000)),
        (
            "WRITE",
            moved(Wr::write(&bench.mine, 0..3_000, &bench.theirs, 0), 3_000),
        ),
        (
            "one-byte WRITE",
            moved(Wr::write(&bench.mine, 0..1, &bench.theirs, 0), 1),
        ),
        (
            "WRITE with immediate",
            moved(Wr::write(&bench.mine, 0..3_000, &bench.theirs, 0).imm(1), 3_000),
        ),
    ]
}

#[test]
fn one_byte_beyond_either_end() {
    for shift in [1, -1] {
        for case in 0..4 {
            let bench = bench(&QpOptions::default());
            let (what, wr) = shifted(&bench, shift)[case].clone();
            bench.refused(&format!("{what} moved by {shift}"), &wr, REMOTE_ACCESS);
        }
        let bench = bench(&QpOptions::default());
        let mut wr = Wr::fetch_add(&bench.mine, 0, &bench.theirs, 0, 1);
        let end = if shift < 0 {
            bench.theirs.addr - 8
        } else {
            bench.theirs.addr + bench.theirs.len() as u64
        };
        wr.remote.0 = end;
        bench.refused("atomic", &wr, REMOTE_ACCESS);
    }
}

#[test]
fn the_last_byte_is_allowed() {
    let mut bench = bench(&QpOptions::default());
    for (_, wr) in shifted(&bench, 0).into_iter().take(3) {
        bench.pair.succeed(bench.a, &wr);
    }
    let last = bench.theirs.len() - 8;
    bench
        .pair
        .succeed(bench.a, &Wr::fetch_add(&bench.mine, 0, &bench.theirs, last, 1));
}

#[test]
fn addresses_that_wrap() {
    for addr in [u64::MAX, u64::MAX - 2_999, 0] {
        let bench = bench(&QpOptions::default());
        let mut wr = Wr::read(&bench.mine, 0..3_000, &bench.theirs, 0);
        wr.remote.0 = addr;
        bench.refused("wrapping READ", &wr, REMOTE_ACCESS);
    }
}

#[test]
fn keys_that_are_wrong() {
    for change in [1u32, 0x100, 0x0100_0000, u32::MAX] {
        let bench = bench(&QpOptions::default());
        let mut wr = Wr::write(&bench.mine, 0..8, &bench.theirs, 0);
        wr.remote.1 ^= change;
        bench.refused("wrong key", &wr, REMOTE_ACCESS);
    }
}

#[test]
fn regions_of_another_domain_and_regions_that_are_gone() {
    let mut foreign = bench(&QpOptions::default());
    let other = foreign.pair.buffer_with(B, 64, ALL, 1);
    let wr = Wr::write(&foreign.mine, 0..8, &other, 0);
    foreign.refused("other PD", &wr, REMOTE_ACCESS);

    let mut gone = bench(&QpOptions::default());
    let wr = Wr::read(&gone.mine, 0..8, &gone.theirs, 0);
    gone.pair
        .command(B, Command::DeregMr { lkey: gone.theirs.key })
        .unwrap();
    gone.refused("deregistered", &wr, REMOTE_ACCESS);
}

#[test]
fn rights_of_region_and_qp() {
    let needs = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let wr = |bench: &Bench, target: &Buffer, need: Access| match need {
        Access::REMOTE_READ => Wr::read(&bench.mine, 0..8, target, 0),
        Access::REMOTE_WRITE => Wr::write(&bench.mine, 0..8, target, 0),
        _ => Wr::fetch_add(&bench.mine, 0, target, 0, 1),
    };
    for need in needs {
        let mut region = bench(&QpOptions::default());
        let weak = region.pair.buffer_with(B, 64, ALL.difference(need), 0);
        let request = wr(&region, &weak, need);
        region.refused(&format!("region without {need:?}"), &request, REMOTE_ACCESS);

        let qp = bench(&QpOptions {
            access: ALL.difference(need),
            ..QpOptions::default()
        });
        let request = wr(&qp, &qp.theirs, need);
        qp.refused(&format!("QP without {need:?}"), &request, REMOTE_ACCESS);

        // And the others are enough.
        let mut enough = bench(&QpOptions {
            access: need,
            ..QpOptions::default()
        });
        let lean = enough.pair.buffer_with(B, 64, need | Access::LOCAL_WRITE, 0);
        let request = wr(&enough, &lean, need);
        enough.pair.succeed(enough.a, &request);
    }
}

#[test]
fn misaligned_atomics() {
    for offset in [1, 4, 7] {
        let bench = bench(&QpOptions::default());
        let wr = Wr::fetch_add(&bench.mine, 0, &bench.theirs, offset, 1);
        bench.refused("misaligned atomic", &wr, INVALID_REQUEST);
    }
}

#[test]
fn a_region_that_goes_while_a_read_streams() {
    let mut pair = Pair::new(&crate::harness::PairConfig {
        link: nic_model::sim::LinkConfig {
            rate_bps: 1_000_000_000,
            ..Default::default()
        },
        quantum: 4,
        ..Default::default()
    });
    pair.hosts[B].budget = Box::new(Drip(0));
    let (a, b) = pair.connect(&QpOptions::default());
    let (mine, theirs) = (pair.buffer(A, 1 << 20), pair.buffer(B, 1 << 20));
    pair.post(a, &Wr::read(&mine, 0..1 << 20, &theirs, 0));
    pair.drive_for(nic_model::time::Duration::from_micros(300));
    pair.command(B, Command::DeregMr { lkey: theirs.key }).unwrap();
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::RemAccessErr]);
    assert_eq!(pair.events(b), [AsyncEventKind::QpAccessErr]);
}

/// Grants a packet now and then.
struct Drip(u32);

impl nic_model::frame::TxBudget for Drip {
    fn available(&mut self, _: &nic_model::frame::Path, _: u32) -> usize {
        self.0 += 1;
        if self.0.is_multiple_of(4) { 5_000 } else { 0 }
    }
}

#[test]
fn a_receive_that_is_too_small() {
    for (buffer, message) in [(99, 100), (0, 1), (2_000, 5_000), (1_023, 1_024)] {
        let mut bench = bench(&QpOptions::default());
        let pair = &mut bench.pair;
        pair.post_recv(bench.b, &Recv::into(&bench.theirs, 0..buffer).id(1));
        pair.post_recv(bench.b, &Recv::into(&bench.theirs, 0..9_000).id(2));
        pair.post(bench.a, &Wr::send(&bench.mine, 0..message));
        pair.post(bench.a, &Wr::send(&bench.mine, 0..message));
        pair.drive();
        assert_eq!(pair.recv_statuses(bench.b), [WcStatus::LocLenErr, WcStatus::WrFlushErr]);
        assert_eq!(
            pair.send_statuses(bench.a),
            [WcStatus::RemInvReqErr, WcStatus::WrFlushErr]
        );
        assert_eq!((pair.state(bench.a), pair.state(bench.b)), (QpState::Err, QpState::Err));
    }
}

#[test]
fn a_receive_with_a_bad_key_or_count() {
    let wrong = |bench: &Bench, case| {
        let mut recv = Recv::into(&bench.theirs, 0..1_000).id(1);
        match case {
            0 => recv.sges[0].lkey ^= 0x100,
            1 => recv.sges[0].addr -= 1,
            2 => recv.num_sge = Some(5),
            _ => recv.num_sge = Some(u32::MAX),
        }
        recv
    };
    for (case, status) in [
        (0, WcStatus::LocProtErr),
        (1, WcStatus::LocProtErr),
        (2, WcStatus::LocQpOpErr),
        (3, WcStatus::LocQpOpErr),
    ] {
        let mut bench = bench(&QpOptions::default());
        let recv = wrong(&bench, case);
        bench.pair.post_recv(bench.b, &recv);
        bench.pair.post(bench.a, &Wr::send(&bench.mine, 0..100));
        bench.pair.drive();
        assert_eq!(bench.pair.recv_statuses(bench.b), [status], "case {case}");
        assert_eq!(bench.pair.qp(bench.b).recvs[0].wr_id, 1);
        assert_eq!(bench.pair.send_statuses(bench.a), [WcStatus::RemOpErr], "case {case}");
    }
}
