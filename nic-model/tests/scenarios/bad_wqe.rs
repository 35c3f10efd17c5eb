//! Send WQEs the device must refuse: each completes in error in its turn, and no other QP notices.

use crate::harness::host::ALL;
use crate::harness::wr::seg;
use crate::harness::{A, B, Buffer, Pair, PairConfig, QpOptions, Recv, Wr};
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::qp_attr::Access;

struct Case {
    what: &'static str,
    status: WcStatus,
    options: QpOptions,
    wr: fn(&mut Pair, &Buffer, &Buffer) -> Wr,
}

fn case(what: &'static str, status: WcStatus, wr: fn(&mut Pair, &Buffer, &Buffer) -> Wr) -> Case {
    Case {
        what,
        status,
        options: QpOptions::default(),
        wr,
    }
}

fn cases() -> Vec<Case> {
    use WcStatus::{LocLenErr, LocProtErr, LocQpOpErr};
    vec![
        case("lkey", LocProtErr, |_, mine, theirs| {
            let mut wr = Wr::write(mine, 0..64, theirs, 0);
            wr.sges[0].lkey ^= 0x200;
            wr
        }),
        case("lkey of another PD", LocProtErr, |pair, _, theirs| {
            let other = pair.buffer_with(A, 64, ALL, 1);
            let wr = Wr::send(&other, 0..64);
            std::mem::forget(other);
            wr.at(theirs, 0)
        }),
        case("one byte too long", LocProtErr, |_, mine, theirs| {
            let mut wr = Wr::write(mine, 0..mine.len(), theirs, 0);
            wr.sges[0].length += 1;
            wr
        }),
        case("second segment", LocProtErr, |_, mine, theirs| {
            let mut wr = Wr::write(mine, 0..64, theirs, 0);
            wr.sges.push(seg(mine, 0..64));
            wr.sges[1].addr = 8;
            wr
        }),
        case(
            "READ into a region without LOCAL_WRITE",
            LocProtErr,
            |pair, _, theirs| {
                let target = pair.buffer_with(A, 64, Access::empty(), 0);
                let wr = Wr::read(&target, 0..64, theirs, 0);
                std::mem::forget(target);
                wr
            },
        ),
        case("opcode", LocQpOpErr, |_, mine, theirs| Wr {
            opcode: 0x40,
            ..Wr::write(mine, 0..64, theirs, 0)
        }),
        case("SEND with invalidate", LocQpOpErr, |_, mine, _| Wr {
            opcode: 9,
            ..Wr::send(mine, 0..64)
        }),
        case("BIND_MW", LocQpOpErr, |_, mine, _| Wr {
            opcode: 8,
            ..Wr::send(mine, 0..64)
        }),
        case("segment count above the QP's", LocQpOpErr, |_, mine, theirs| Wr {
            sges: vec![seg(mine, 0..8); 5],
            ..Wr::write(mine, 0..8, theirs, 0)
        }),
        case("segment count beyond the slot", LocQpOpErr, |_, mine, theirs| Wr {
            num_sge: Some(255),
            ..Wr::write(mine, 0..8, theirs, 0)
        }),
        case("inline length beyond the slot", LocQpOpErr, |_, mine, theirs| Wr {
            inline_len: Some(u32::MAX),
            ..Wr::write(mine, 0..8, theirs, 0).inlined(&[1; 8])
        }),
        case("inline READ", LocQpOpErr, |_, mine, theirs| {
            Wr::read(mine, 0..8, theirs, 0).inlined(&[1; 8])
        }),
        case("atomic of seven bytes", LocLenErr, |_, mine, theirs| {
            let mut wr = Wr::fetch_add(mine, 0, theirs, 0, 1);
            wr.sges[0].length = 7;
            wr
        }),
        case("message longer than 2 GiB", LocLenErr, |_, mine, theirs| {
            let mut wr = Wr::write(mine, 0..8, theirs, 0);
            wr.sges = vec![wr.sges[0]; 2];
            wr.sges[0].length = 1 << 31;
            wr
        }),
        Case {
            options: QpOptions {
                max_rd_atomic: 0,
                ..QpOptions::default()
            },
            ..case("READ without depth", LocQpOpErr, |_, mine, theirs| {
                Wr::read(mine, 0..8, theirs, 0)
            })
        },
    ]
}

#[test]
fn each_fails_alone() {
    for Case {
        what,
        status,
        options,
        wr,
    } in cases()
    {
        let mut pair = Pair::default();
        let (a, b) = pair.connect(&options);
        let (other, _) = pair.connect(&QpOptions::default());
        let (mine, theirs) = (pair.buffer(A, 4_096), pair.buffer(B, 4_096));
        let good = Wr::write(&mine, 0..4_096, &theirs, 0);
        pair.post(other, &good.clone().id(1));
        pair.post(a, &good.clone().id(1));
        pair.post(a, &good.clone().unsignaled().id(2));
        let bad = wr(&mut pair, &mine, &theirs).id(3).unsignaled();
        pair.post(a, &bad);
        pair.post(a, &good.clone().unsignaled().id(4));
        pair.post(other, &good.clone().id(2));
        pair.drive();
        let ids: Vec<u64> = pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect();
        assert_eq!(
            ids,
            [1, 3, 4],
            "{what}: what came before succeeds, then it fails, then the rest is flushed"
        );
        assert_eq!(
            pair.send_statuses(a),
            [WcStatus::Success, status, WcStatus::WrFlushErr],
            "{what}"
        );
        assert_eq!((pair.state(a), pair.state(b)), (QpState::Err, QpState::Rts), "{what}");
        assert_eq!(
            pair.send_statuses(other),
            [WcStatus::Success; 2],
            "{what}: other QPs are unaffected"
        );
        pair.succeed(other, &good);
    }
}

#[test]
fn an_index_beyond_the_ring() {
    for ahead in [129, 1 << 20, u32::MAX / 2] {
        let mut pair = Pair::default();
        let (a, b) = pair.connect(&QpOptions::default());
        let (other, _) = pair.connect(&QpOptions::default());
        let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
        pair.succeed(a, &Wr::write(&mine, 0..64, &theirs, 0));
        let (sq, rq, qpn) = (pair.qp(a).sq.clone(), pair.qp(a).rq.clone(), pair.qp(a).qpn);
        rq.publish(ahead);
        sq.publish(1 + ahead);
        pair.hosts[A].ring(qpn);
        pair.drive();
        assert_eq!((pair.state(a), pair.state(b)), (QpState::Err, QpState::Rts));
        assert_eq!(pair.qp(a).sends.len(), 1, "nothing in such a queue can be trusted");
        pair.succeed(other, &Wr::write(&mine, 0..64, &theirs, 0));
    }
}

#[test]
fn doorbells_of_qps_that_do_not_exist() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (mine, theirs) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for qpn in [0, 1, 0xffff, 0x10_0000, 0x00ff_ffff] {
        pair.hosts[A].ring(qpn);
    }
    pair.drive();
    pair.succeed(a, &Wr::write(&mine, 0..64, &theirs, 0));
}

#[test]
fn a_region_that_goes_under_a_request() {
    let link = nic_model::sim::LinkConfig {
        rate_bps: 1_000_000_000,
        ..Default::default()
    };
    for (first, ahead) in [("write", 0), ("send", 0), ("read", 0), ("write", 3)] {
        let mut pair = Pair::new(&PairConfig {
            link,
            egress: Some(5_000),
            ..PairConfig::default()
        });
        let (a, b) = pair.connect(&QpOptions::default());
        let (mine, theirs) = (pair.buffer(A, 500_000), pair.buffer(B, 500_000));
        let other = pair.buffer(A, 64);
        pair.post_recv(b, &Recv::into(&theirs, 0..500_000));
        for id in 0..ahead {
            pair.post(a, &Wr::write(&other, 0..64, &theirs, 0).id(id));
        }
        let wr = match first {
            "write" => Wr::write(&mine, 0..500_000, &theirs, 0),
            "send" => Wr::send(&mine, 0..500_000),
            _ => Wr::read(&mine, 0..500_000, &theirs, 0),
        };
        pair.post(a, &wr.id(10));
        pair.post(a, &Wr::write(&other, 0..64, &theirs, 0).id(11));
        pair.drive_for(nic_model::time::Duration::from_micros(500));
        pair.command(A, nic_model::host_if::Command::DeregMr { lkey: mine.key })
            .unwrap();
        pair.drive();
        let mut expected = vec![WcStatus::Success; ahead as usize];
        expected.extend([WcStatus::LocProtErr, WcStatus::WrFlushErr]);
        assert_eq!(pair.send_statuses(a), expected, "{first}");
    }
}
