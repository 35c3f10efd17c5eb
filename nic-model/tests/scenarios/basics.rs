//! Every operation once, on a clean link.

use crate::harness::wr::seg;
use crate::harness::{A, B, Pair, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::{CqeFlags, WcOpcode, WcStatus};
use nic_model::host_if::wqe::WqeFlags;

#[test]
fn send_lands_in_the_receive_buffer() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mut from, to) = (pair.buffer(A, 5_000), pair.buffer(B, 5_000));
    let data = from.fill_pattern(1);
    pair.post_recv(b, &Recv::into(&to, 0..5_000).id(77));
    let cqe = pair.succeed(a, &Wr::send(&from, 0..5_000).id(5));
    assert_eq!((cqe.opcode, cqe.qpn), (WcOpcode::Send as u8, pair.qp(a).qpn));
    pair.drive();
    let recv = pair.qp(b).recvs[0];
    assert_eq!(
        (recv.wr_id, recv.byte_len, recv.opcode),
        (77, 5_000, WcOpcode::Recv as u8)
    );
    assert_eq!(
        (recv.status, recv.flags),
        (WcStatus::Success as u8, CqeFlags::RECV.bits())
    );
    assert_eq!(to.bytes(), data);
}

#[test]
fn write_and_read_move_memory() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (mut from, mut to) = (pair.buffer(A, 10_000), pair.buffer(B, 20_000));
    let data = from.fill_pattern(2);
    let cqe = pair.succeed(a, &Wr::write(&from, 0..10_000, &to, 7).id(1));
    assert_eq!(cqe.opcode, WcOpcode::RdmaWrite as u8);
    assert_eq!(to.bytes()[7..10_007], data);
    let theirs = to.fill_pattern(3);
    let cqe = pair.succeed(a, &Wr::read(&from, 0..10_000, &to, 333).id(2));
    assert_eq!((cqe.opcode, cqe.byte_len), (WcOpcode::RdmaRead as u8, 10_000));
    assert_eq!(from.bytes(), theirs[333..10_333]);
}

#[test]
fn immediate_data_arrives_as_given() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (mut from, to) = (pair.buffer(A, 3_000), pair.buffer(B, 3_000));
    let data = from.fill_pattern(4);
    let imm = u32::from_ne_bytes([1, 2, 3, 4]);
    for length in [0, 10, 3_000] {
        pair.post_recv(b, &Recv::into(&to, 0..3_000).id(1));
        pair.succeed(a, &Wr::send(&from, 0..length).imm(imm).id(2));
        pair.post_recv(b, &Recv::default().id(3));
        pair.succeed(a, &Wr::write(&from, 0..length, &to, 0).imm(imm).id(4));
        pair.drive();
        assert_eq!(to.bytes()[..length], data[..length]);
        let [.., sent, written] = pair.qp(b).recvs[..] else {
            panic!("two receives")
        };
        assert_eq!(
            (sent.wr_id, sent.opcode, sent.imm, sent.byte_len),
            (1, WcOpcode::Recv as u8, imm, length as u32)
        );
        let opcode = WcOpcode::RecvRdmaWithImm as u8;
        assert_eq!(
            (written.wr_id, written.opcode, written.imm, written.byte_len),
            (3, opcode, imm, length as u32)
        );
        for cqe in [sent, written] {
            assert_eq!(
                CqeFlags::from_bits_retain(cqe.flags),
                CqeFlags::RECV | CqeFlags::WITH_IMM
            );
        }
    }
}

#[test]
fn atomics_return_the_old_value_in_host_order() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (result, mut target) = (pair.buffer(A, 64), pair.buffer(B, 64));
    target.fill_at(8, &0x0102_0304_0506_0708u64.to_ne_bytes());
    let cqe = pair.succeed(a, &Wr::fetch_add(&result, 0, &target, 8, 0x10));
    assert_eq!((cqe.opcode, cqe.byte_len), (WcOpcode::FetchAdd as u8, 8));
    assert_eq!(
        (result.word(0), target.word(8)),
        (0x0102_0304_0506_0708, 0x0102_0304_0506_0718)
    );
    let cqe = pair.succeed(a, &Wr::cmp_swap(&result, 8, &target, 8, (1, 2)));
    assert_eq!(cqe.opcode, WcOpcode::CompSwap as u8);
    assert_eq!(
        (result.word(8), target.word(8)),
        (0x0102_0304_0506_0718, 0x0102_0304_0506_0718),
        "compare fails"
    );
    pair.succeed(a, &Wr::cmp_swap(&result, 16, &target, 8, (0x0102_0304_0506_0718, 2)));
    assert_eq!((result.word(16), target.word(8)), (0x0102_0304_0506_0718, 2));
    pair.succeed(a, &Wr::fetch_add(&result, 24, &target, 8, u64::MAX));
    assert_eq!((result.word(24), target.word(8)), (2, 1), "the sum wraps");
}

#[test]
fn lists_are_gathered_and_scattered() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        mtu: 1,
        ..QpOptions::default()
    });
    let (mut from, mut to) = (pair.buffer(A, 2_000), pair.buffer(B, 2_000));
    let data = from.fill_pattern(5);
    let list = [
        seg(&from, 3..104),
        seg(&from, 0..0),
        seg(&from, 500..1_201),
        seg(&from, 1_300..1_307),
    ];
    let gathered = [&data[3..104], &data[500..1_201], &data[1_300..1_307]].concat();
    let into = [
        seg(&to, 1_000..1_007),
        seg(&to, 0..300),
        seg(&to, 300..301),
        seg(&to, 1_100..1_900),
    ];
    let recv = Recv {
        sges: into.to_vec(),
        ..Recv::default()
    };
    pair.post_recv(b, &recv);
    pair.succeed(
        a,
        &Wr {
            sges: list.to_vec(),
            ..Wr::send(&from, 0..0)
        },
    );
    pair.drive();
    assert_eq!(pair.qp(b).recvs[0].byte_len as usize, gathered.len());
    let bytes = to.bytes();
    let scattered = [
        &bytes[1_000..1_007],
        &bytes[0..301],
        &bytes[1_100..1_100 + gathered.len() - 308],
    ]
    .concat();
    assert_eq!(scattered, gathered);

    pair.succeed(
        a,
        &Wr {
            sges: list.to_vec(),
            ..Wr::write(&from, 0..0, &to, 11)
        },
    );
    assert_eq!(to.bytes()[11..11 + gathered.len()], gathered);
    let theirs = to.fill_pattern(6);
    pair.succeed(
        a,
        &Wr {
            sges: list.to_vec(),
            ..Wr::read(&from, 0..0, &to, 0)
        },
    );
    let bytes = from.bytes();
    let read = [&bytes[3..104], &bytes[500..1_201], &bytes[1_300..1_307]].concat();
    assert_eq!(read, theirs[..read.len()]);
}

#[test]
fn inline_data_is_taken_from_the_slot() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions {
        max_inline: 700,
        mtu: 1,
        ..QpOptions::default()
    });
    let to = pair.buffer(B, 1_000);
    for length in [0usize, 1, 63, 256, 257, 700] {
        let data = crate::harness::buffer::pattern(length, 9);
        pair.succeed(a, &Wr::write(&to, 0..0, &to, 5).inlined(&data));
        assert_eq!(to.bytes()[5..5 + length], data);
        pair.post_recv(b, &Recv::into(&to, 0..1_000));
        pair.succeed(a, &Wr::send(&to, 0..0).inlined(&data));
        pair.drive();
        assert_eq!(to.bytes()[..length], data);
    }
}

#[test]
fn messages_of_no_bytes_complete_and_check_no_key() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let nowhere = crate::harness::Buffer::new(0);
    pair.post_recv(b, &Recv::default().id(1));
    pair.succeed(a, &Wr::send(&nowhere, 0..0));
    pair.succeed(a, &Wr::write(&nowhere, 0..0, &nowhere, 0));
    let cqe = pair.succeed(a, &Wr::read(&nowhere, 0..0, &nowhere, 0));
    assert_eq!(cqe.byte_len, 0);
    pair.drive();
    assert_eq!(pair.recv_statuses(b), [WcStatus::Success]);
    assert_eq!(pair.qp(b).recvs[0].byte_len, 0);
}

#[test]
fn only_signaled_requests_complete() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for id in 0..9 {
        let wr = Wr::write(&from, 0..64, &to, 0).id(id);
        pair.post(a, &if id % 3 == 2 { wr } else { wr.unsignaled() });
    }
    pair.drive();
    let ids: Vec<u64> = pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(ids, [2, 5, 8]);
    assert_eq!(pair.qp(a).sends[2].wqe_index, 8);

    let (all, _) = pair.connect(&QpOptions {
        sq_sig_all: true,
        ..QpOptions::default()
    });
    pair.post(all, &Wr::write(&from, 0..64, &to, 0).unsignaled());
    pair.drive();
    assert_eq!(pair.qp(all).sends.len(), 1, "sq_sig_all");
}

#[test]
fn an_unsignaled_stream_fills_the_queue() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        send_wr: 16,
        ..QpOptions::default()
    });
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    for _ in 0..16 {
        pair.post(a, &Wr::write(&from, 0..1, &to, 0).unsignaled());
    }
    pair.drive();
    assert!(
        !pair.hosts[A].try_post(a.index, &Wr::write(&from, 0..1, &to, 0)),
        "no polled completion, no slot"
    );
}

#[test]
fn solicited_events_fire_an_armed_queue() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    let cookie = pair.qp(b).recv_cq.cookie;
    pair.qp(b).recv_cq.ring.arm(true);
    for (wr, fires) in [
        (Wr::send(&from, 0..8), false),
        (Wr::send(&from, 0..8).flag(WqeFlags::SOLICITED), true),
        (Wr::send(&from, 0..8).flag(WqeFlags::SOLICITED), false),
    ] {
        pair.hosts[B].fired.clear();
        pair.post_recv(b, &Recv::into(&to, 0..64));
        pair.succeed(a, &wr);
        pair.drive();
        assert_eq!(
            pair.hosts[B].fired.contains(&cookie),
            fires,
            "one event for one request, solicited only"
        );
    }
    pair.qp(b).recv_cq.ring.arm(false);
    pair.post_recv(b, &Recv::default());
    pair.succeed(a, &Wr::write(&from, 0..8, &to, 0).imm(1));
    pair.drive();
    assert_eq!(pair.hosts[B].fired, [cookie]);
}

#[test]
fn a_fence_waits_for_reads_and_atomics() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions::default());
    let (mut mine, mut theirs) = (pair.buffer(A, 40_000), pair.buffer(B, 40_000));
    let data = theirs.fill_pattern(7);
    mine.fill(&[0; 40_000]);
    // The WRITE sends what the READ brings: without the fence it would send zeros.
    pair.post(a, &Wr::read(&mine, 0..20_000, &theirs, 0).id(1));
    pair.post(
        a,
        &Wr::write(&mine, 0..20_000, &theirs, 20_000).flag(WqeFlags::FENCE).id(2),
    );
    pair.drive();
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 2]);
    assert_eq!(theirs.bytes()[20_000..], data[..20_000]);
}

#[test]
fn communication_established_is_raised_once_before_rts() {
    let mut pair = Pair::default();
    let (a, b) = pair.introduce(
        &QpOptions::default(),
        &QpOptions {
            psn: (0x00ab_cdef, 0x1234),
            ..QpOptions::default()
        },
    );
    pair.hosts[A].ready_to_send(pair.now, a.index);
    let (from, to) = (pair.buffer(A, 64), pair.buffer(B, 64));
    pair.succeed(a, &Wr::write(&from, 0..64, &to, 0));
    pair.succeed(a, &Wr::write(&from, 0..64, &to, 0));
    assert_eq!(pair.events(b), [nic_model::host_if::AsyncEventKind::CommEst]);
    assert_eq!(pair.events(a), []);
}

#[test]
fn requests_are_in_the_migrated_state() {
    let mut pair = Pair::default();
    let (a, b) = pair.connect(&QpOptions::default());
    let (from, to) = (pair.buffer(A, 5_000), pair.buffer(B, 5_000));
    pair.post_recv(b, &Recv::into(&to, 0..5_000));
    pair.succeed(a, &Wr::send(&from, 0..5_000));
    pair.succeed(a, &Wr::read(&from, 0..5_000, &to, 0));
    pair.succeed(a, &Wr::fetch_add(&from, 0, &to, 0, 1));
    assert!(pair.sent.iter().all(|packet| packet.mig_req), "as hardware sets it");
}

#[test]
fn ipv6_works_as_ipv4() {
    let config = crate::harness::PairConfig {
        addrs: ["fd00::1", "fd00::2"],
        ..crate::harness::PairConfig::default()
    };
    let mut pair = Pair::new(&config);
    let (a, b) = pair.connect(&QpOptions::default());
    let (mut from, to) = (pair.buffer(A, 5_000), pair.buffer(B, 5_000));
    let data = from.fill_pattern(8);
    pair.post_recv(b, &Recv::into(&to, 0..5_000));
    pair.succeed(a, &Wr::send(&from, 0..5_000));
    assert_eq!(to.bytes(), data);
}
