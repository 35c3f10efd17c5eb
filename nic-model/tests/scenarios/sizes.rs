//! Every PMTU with message lengths around its multiples, long messages, and PSNs that wrap.

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Recv, Wr};
use nic_model::host_if::cqe::WcStatus;
use roce_wire::opcode::Opcode;

fn lengths(mtu: usize) -> Vec<usize> {
    let around = [mtu, 2 * mtu, 3 * mtu].into_iter().flat_map(|n| [n - 1, n, n + 1]);
    [1, 2, 3, 4, 5, 6, 7, 8]
        .into_iter()
        .chain(around)
        .chain([70 * mtu + 5])
        .collect()
}

#[test]
fn every_pmtu_carries_every_length() {
    for code in 1..=5u8 {
        let mtu = 128usize << code;
        let mut pair = Pair::new(&PairConfig {
            record: false,
            ..PairConfig::default()
        });
        let (a, b) = pair.connect(&QpOptions {
            mtu: code,
            ..QpOptions::default()
        });
        let most = 71 * mtu;
        let (mut mine, mut theirs) = (pair.buffer(A, most), pair.buffer(B, most));
        for length in lengths(mtu) {
            let data = mine.fill_pattern(length as u64);
            pair.succeed(a, &Wr::write(&mine, 0..length, &theirs, 1));
            assert_eq!(
                theirs.bytes()[1..=length],
                data[..length],
                "WRITE of {length} at PMTU {mtu}"
            );
            let data = theirs.fill_pattern(length as u64 + 1);
            pair.succeed(a, &Wr::read(&mine, 3..3 + length, &theirs, 2));
            assert_eq!(
                mine.bytes()[3..3 + length],
                data[2..2 + length],
                "READ of {length} at PMTU {mtu}"
            );
            pair.post_recv(b, &Recv::into(&theirs, 0..length));
            let data = mine.fill_pattern(length as u64 + 2);
            pair.succeed(a, &Wr::send(&mine, 0..length));
            pair.drive();
            assert_eq!(
                theirs.bytes()[..length],
                data[..length],
                "SEND of {length} at PMTU {mtu}"
            );
        }
        let sends = pair
            .qp(b)
            .recvs
            .iter()
            .filter(|cqe| cqe.status == WcStatus::Success as u8)
            .count();
        assert_eq!(sends, lengths(mtu).len());
    }
}

#[test]
fn ten_megabytes() {
    const LENGTH: usize = 10_000_000;
    let mut pair = Pair::new(&PairConfig {
        record: false,
        ..PairConfig::default()
    });
    let (a, b) = pair.connect(&QpOptions {
        mtu: 5,
        ..QpOptions::default()
    });
    let (mut mine, theirs) = (pair.buffer(A, LENGTH), pair.buffer(B, LENGTH));
    let data = mine.fill_pattern(1);
    pair.post_recv(b, &Recv::into(&theirs, 0..LENGTH));
    pair.succeed(a, &Wr::send(&mine, 0..LENGTH));
    assert!(theirs.bytes() == data, "SEND");
    let data = mine.fill_pattern(2);
    pair.succeed(a, &Wr::write(&mine, 0..LENGTH, &theirs, 0));
    assert!(theirs.bytes() == data, "WRITE");
    mine.fill(&vec![0; LENGTH]);
    pair.succeed(a, &Wr::read(&mine, 0..LENGTH, &theirs, 0));
    assert!(mine.bytes() == data, "READ");
}

#[test]
fn psns_wrap() {
    for first in [0x00ff_fff0, 0x00ff_ffff, 0] {
        let mut pair = Pair::default();
        let (a, b) = pair.connect(&QpOptions {
            mtu: 1,
            psn: (first, first),
            ..QpOptions::default()
        });
        let (mut mine, theirs) = (pair.buffer(A, 10_000), pair.buffer(B, 10_000));
        for round in 0..4 {
            let data = mine.fill_pattern(round);
            pair.post_recv(b, &Recv::into(&theirs, 0..3_000));
            pair.succeed(a, &Wr::send(&mine, 0..3_000));
            pair.succeed(a, &Wr::write(&mine, 0..3_000, &theirs, 3_000));
            pair.succeed(a, &Wr::read(&mine, 5_000..8_000, &theirs, 3_000));
            pair.succeed(a, &Wr::fetch_add(&mine, 9_000, &theirs, 9_000, 1));
            assert_eq!(theirs.bytes()[..3_000], data[..3_000]);
            assert_eq!(mine.bytes()[5_000..8_000], data[..3_000]);
            assert_eq!((mine.word(9_000), theirs.word(9_000)), (round, round + 1));
        }
        pair.drive();
        // 3 × 12 packets and an atomic in each of four rounds.
        let next = pair.hosts[A].query(pair.now, a.index).sq_psn;
        assert_eq!(next, (first + 4 * 37) & 0x00ff_ffff);
    }
}

#[test]
fn a_read_takes_a_psn_for_each_response_packet() {
    let mut pair = Pair::default();
    let (a, _) = pair.connect(&QpOptions {
        mtu: 1,
        psn: (100, 7),
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, 1_000), pair.buffer(B, 1_000));
    pair.post(a, &Wr::read(&mine, 0..1_000, &theirs, 0));
    pair.post(a, &Wr::write(&mine, 0..4, &theirs, 0));
    pair.drive();
    let seen = |side| {
        pair.sent
            .iter()
            .filter(move |p| p.from == side)
            .map(|p| (p.opcode, p.psn))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(A), [(Opcode::RcReadRequest, 100), (Opcode::RcWriteOnly, 104)]);
    let answers = [
        (Opcode::RcReadResponseFirst, 100),
        (Opcode::RcReadResponseMiddle, 101),
        (Opcode::RcReadResponseMiddle, 102),
        (Opcode::RcReadResponseLast, 103),
        (Opcode::RcAck, 104),
    ];
    assert_eq!(seen(B), answers);
}
