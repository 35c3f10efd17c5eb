//! Datagrams: the GRH area, what is dropped, what fails (behaviours G1, G2, G3).

use crate::harness::{A, B, Pair, PairConfig, QpId, QpOptions, Recv, Wr};
use nic_model::host_if::QpState;
use nic_model::host_if::cqe::{CqeFlags, WcOpcode, WcStatus};
use nic_model::host_if::wqe::{UdSeg, WqeFlags};

/// Makes a datagram bad.
type Spoil = fn(Wr, UdSeg) -> Wr;

const QKEY: u32 = 0x1111_1111;

fn bench(config: &PairConfig) -> (Pair, QpId, QpId, UdSeg) {
    let mut pair = Pair::new(config);
    let (a, b) = (
        pair.datagram(A, &QpOptions::default()),
        pair.datagram(B, &QpOptions::default()),
    );
    let peer = pair.hosts[B].addr;
    let ah = pair.hosts[A].address_handle(pair.now, peer);
    let to = UdSeg {
        ah,
        qpn: pair.qp(b).qpn,
        qkey: QKEY,
        inline_len: 0,
    };
    (pair, a, b, to)
}

/// Ones' complement sum of an IPv4 header.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn a_datagram_arrives_behind_its_ipv4_header() {
    let (mut pair, a, b, to) = bench(&PairConfig::default());
    let (mut mine, theirs) = (pair.buffer(A, 200), pair.buffer(B, 300));
    let data = mine.fill_pattern(1);
    pair.post_recv(b, &Recv::into(&theirs, 0..300).id(4));
    let imm = u32::from_ne_bytes([9, 8, 7, 6]);
    pair.succeed(
        a,
        &Wr::send(&mine, 0..101).imm(imm).flag(WqeFlags::SOLICITED).to(to).id(3),
    );
    pair.drive();
    let cqe = pair.qp(b).recvs[0];
    assert_eq!(
        (cqe.wr_id, cqe.byte_len, cqe.imm, cqe.src_qp),
        (4, 141, imm, pair.qp(a).qpn)
    );
    assert_eq!((cqe.opcode, cqe.status), (WcOpcode::Recv as u8, 0));
    let flags = CqeFlags::RECV | CqeFlags::GRH | CqeFlags::WITH_IMM | CqeFlags::SOLICITED;
    assert_eq!(CqeFlags::from_bits_retain(cqe.flags), flags);
    let bytes = theirs.bytes();
    assert_eq!(bytes[40..141], data[..101]);
    let header = &bytes[20..40];
    assert_eq!(
        (header[0], header[9], checksum(header)),
        (0x45, 17, 0xffff),
        "version, protocol, valid checksum"
    );
    assert_eq!(
        (&header[12..16], &header[16..20]),
        (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
    );
    assert_eq!(bytes[..20], [0; 20]);
}

#[test]
fn a_datagram_arrives_behind_its_grh() {
    let (mut pair, a, b, to) = bench(&PairConfig {
        addrs: ["fd00::1", "fd00::2"],
        ..PairConfig::default()
    });
    let (mine, theirs) = (pair.buffer(A, 200), pair.buffer(B, 300));
    pair.post_recv(b, &Recv::into(&theirs, 0..300));
    pair.succeed(a, &Wr::send(&mine, 0..8).to(to));
    pair.drive();
    let bytes = theirs.bytes();
    assert_eq!(bytes[0] >> 4, 6);
    assert_eq!((bytes[8], bytes[23], bytes[24], bytes[39]), (0xfd, 1, 0xfd, 2));
}

#[test]
fn what_cannot_be_received_is_dropped_and_the_qp_lives() {
    let (mut pair, a, b, to) = bench(&PairConfig::default());
    let (mine, theirs) = (pair.buffer(A, 4_096), pair.buffer(B, 5_000));
    let mut dropped = 0;
    let mut lost = |pair: &mut Pair, wr: Wr, why: &str| {
        let before = pair.qp(b).recvs.len();
        pair.succeed(a, &wr);
        pair.drive();
        dropped += 1;
        assert_eq!((pair.qp(b).recvs.len(), pair.state(b)), (before, QpState::Rts), "{why}");
        assert_eq!(pair.hosts[B].nic.counters().ud_dropped_pkts, dropped, "{why}");
    };
    lost(&mut pair, Wr::send(&mine, 0..8).to(to), "no receive posted");
    pair.post_recv(b, &Recv::into(&theirs, 0..140).id(1));
    lost(
        &mut pair,
        Wr::send(&mine, 0..8).to(UdSeg { qkey: QKEY + 1, ..to }),
        "wrong Q_Key",
    );
    lost(&mut pair, Wr::send(&mine, 0..101).to(to), "one byte too long");
    pair.succeed(a, &Wr::send(&mine, 0..100).to(to));
    pair.drive();
    assert_eq!(
        pair.qp(b)
            .recvs
            .iter()
            .map(|cqe| (cqe.wr_id, cqe.byte_len))
            .collect::<Vec<_>>(),
        [(1, 140)]
    );
    // A Q_Key with its top bit set stands for the QP's own.
    pair.post_recv(b, &Recv::into(&theirs, 0..140).id(2));
    pair.succeed(
        a,
        &Wr::send(&mine, 0..100).to(UdSeg {
            qkey: 0x8000_0000,
            ..to
        }),
    );
    pair.drive();
    assert_eq!(pair.qp(b).recvs.len(), 2);
}

#[test]
fn sizes_up_to_the_mtu_and_no_bytes() {
    let (mut pair, a, b, to) = bench(&PairConfig::default());
    let (mut mine, theirs) = (pair.buffer(A, 4_096), pair.buffer(B, 5_000));
    let data = mine.fill_pattern(1);
    for length in [0, 1, 2, 3, 4, 1_023, 4_095, 4_096] {
        pair.post_recv(b, &Recv::into(&theirs, 0..5_000));
        pair.succeed(a, &Wr::send(&mine, 0..length).to(to));
        pair.drive();
        assert_eq!(pair.qp(b).recvs.last().unwrap().byte_len, length as u32 + 40);
        assert_eq!(theirs.bytes()[40..40 + length], data[..length]);
    }
}

#[test]
fn a_bad_datagram_stops_the_send_queue_until_it_is_brought_back() {
    let cases: [(&str, WcStatus, Spoil); 5] = [
        ("address handle", WcStatus::LocQpOpErr, |wr, to| {
            wr.to(UdSeg { ah: 99, ..to })
        }),
        ("opcode", WcStatus::LocQpOpErr, |wr, to| Wr { opcode: 0, ..wr.to(to) }),
        ("key", WcStatus::LocProtErr, |mut wr, to| {
            wr.sges[0].lkey ^= 0x100;
            wr.to(to)
        }),
        ("too long", WcStatus::LocLenErr, |mut wr, to| {
            wr.sges[0].length = 4_097;
            wr.to(to)
        }),
        ("segment count", WcStatus::LocQpOpErr, |wr, to| Wr {
            num_sge: Some(200),
            ..wr.to(to)
        }),
    ];
    for (what, status, spoil) in cases {
        let (mut pair, a, b, to) = bench(&PairConfig::default());
        let (mine, theirs) = (pair.buffer(A, 4_096), pair.buffer(B, 4_096));
        for _ in 0..3 {
            pair.post_recv(b, &Recv::into(&theirs, 0..4_096));
        }
        pair.post(a, &Wr::send(&mine, 0..8).to(to).id(1));
        pair.post(a, &spoil(Wr::send(&mine, 0..8), to).id(2).unsignaled());
        pair.post(a, &Wr::send(&mine, 0..8).to(to).id(3).unsignaled());
        pair.drive();
        assert_eq!(
            pair.send_statuses(a),
            [WcStatus::Success, status, WcStatus::WrFlushErr],
            "{what}"
        );
        assert_eq!(
            pair.qp(a).sends.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!((pair.state(a), pair.state(b)), (QpState::Sqe, QpState::Rts), "{what}");
        pair.set_state(a, QpState::Rts);
        pair.succeed(a, &Wr::send(&mine, 0..8).to(to).id(4));
        pair.drive();
        assert_eq!(pair.qp(b).recvs.len(), 2, "{what}");
    }
}

#[test]
fn datagram_queues_are_flushed() {
    let (mut pair, a, _, to) = bench(&PairConfig::default());
    let mine = pair.buffer(A, 64);
    pair.post_recv(a, &Recv::into(&mine, 0..64).id(1));
    pair.set_state(a, QpState::Err);
    pair.drive();
    pair.post_recv(a, &Recv::into(&mine, 0..64).id(2));
    pair.post(a, &Wr::send(&mine, 0..8).to(to).unsignaled());
    pair.drive();
    assert_eq!(pair.recv_statuses(a), [WcStatus::WrFlushErr; 2]);
    assert_eq!(pair.send_statuses(a), [WcStatus::WrFlushErr]);
}

#[test]
fn many_datagrams_arrive_in_order() {
    let (mut pair, a, b, to) = bench(&PairConfig::default());
    let (mut mine, theirs) = (pair.buffer(A, 100), pair.buffer(B, 128 * 200));
    mine.fill_pattern(1);
    for id in 0..100usize {
        pair.post_recv(b, &Recv::into(&theirs, id * 200..(id + 1) * 200).id(id as u64));
        pair.post(a, &Wr::send(&mine, 0..id).to(to).id(id as u64));
    }
    pair.drive();
    let lengths: Vec<u32> = pair.qp(b).recvs.iter().map(|cqe| cqe.byte_len - 40).collect();
    assert_eq!(lengths, (0..100).collect::<Vec<_>>());
    assert_eq!(pair.send_statuses(a), [WcStatus::Success; 100]);
}
