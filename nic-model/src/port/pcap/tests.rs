//! Over loopback; captures are read back with `pcap-file` and every ICRC is computed again.

use std::fs::File;
use std::net::IpAddr;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use roce_wire::net::parse_frame;

use super::*;
use crate::port::{UdpConfig, UdpPort};

/// Frames of a capture and whether each has a comment.
fn frames(path: &FilePath) -> Vec<(Vec<u8>, bool)> {
    let file = File::open(path).unwrap();
    let mut frames = Vec::new();
    if path.extension().is_some_and(|extension| extension == "pcap") {
        let mut reader = PcapReader::new(file).unwrap();
        while let Some(packet) = reader.next_packet() {
            frames.push((packet.unwrap().data.into_owned(), false));
        }
    } else {
        let mut reader = PcapNgReader::new(file).unwrap();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                frames.push((packet.data.into_owned(), !packet.options.is_empty()));
            }
        }
    }
    frames
}

/// Source, identification, UDP payload and whether its ICRC is right for exactly that identification.
fn decode(frame: &[u8]) -> (IpAddr, u16, Vec<u8>, bool) {
    let (datagram, payload) = parse_frame(frame).unwrap();
    let ip = datagram.ip;
    let context = IcrcContext::new(ip.src, ip.dst, datagram.sport, datagram.dport);
    (
        ip.src,
        ip.id,
        payload.to_vec(),
        context.verify(ip.id, payload) == Ok(ip.id),
    )
}

fn udp(addr: &str) -> UdpPort {
    UdpPort::bind(&UdpConfig {
        addrs: vec![addr.parse().unwrap()],
        ifindex: 1,
        rcvbuf: None,
    })
    .unwrap()
}

fn batch(port: &impl Port, src: &str, dst: &str, packets: u8) -> TxBatch {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let path = Path {
        src,
        dst,
        sport: 0,
        traffic_class: 2,
        hop_limit: 64,
        flow_label: 0,
    };
    let mut batch = TxBatch {
        path,
        segment_size: 100,
        ..TxBatch::new()
    };
    for number in 0..packets {
        batch.bytes.extend([number; 100]);
    }
    IcrcContext::new(src, dst, port.source_port(&path), ROCE_PORT).seal(0, 100, &mut batch.bytes);
    batch
}

fn receive(port: &mut impl Port, count: usize) {
    let mut seen = 0;
    for _ in 0..10_000 {
        port.receive(&mut |_, _, _| seen += 1).unwrap();
        if seen >= count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{seen} of {count} packets");
}

#[test]
fn both_directions_are_recorded_and_verify() {
    let dir = tempfile::tempdir().unwrap();
    for (name, a, b) in [
        ("x.pcap", "127.82.1.1", "127.82.1.2"),
        ("x.pcapng", "127.82.1.3", "127.82.1.4"),
    ] {
        let mut port = PcapPort::create(udp(a), &dir.path().join(name)).unwrap();
        let mut peer = udp(b);
        let (there, back) = (batch(&port, a, b, 5), batch(&peer, b, a, 7));
        assert!(matches!(port.send(&there), SendOutcome::Sent));
        assert!(matches!(peer.send(&back), SendOutcome::Sent));
        receive(&mut peer, 5);
        receive(&mut port, 7);
        // Complete while the port lives.
        let packets: Vec<_> = frames(&port.path()).iter().map(|(frame, _)| decode(frame)).collect();
        assert!(packets.iter().all(|(.., good)| *good), "{name}");
        let expected = there.segments().chain(back.segments());
        assert!(
            packets.iter().map(|(_, _, payload, _)| payload.as_slice()).eq(expected),
            "{name}"
        );
        assert!(packets.iter().map(|(_, id, ..)| *id).eq((0..5).chain(0..7)), "{name}");
        assert!(packets[..5].iter().all(|(src, ..)| *src == there.path.src));
        assert!(packets[5..].iter().all(|(src, ..)| *src == back.path.src));
    }
}

#[test]
fn a_packet_to_itself_is_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut port = PcapPort::create(udp("127.82.2.1"), &dir.path().join("x.pcapng")).unwrap();
    let batch = batch(&port, "127.82.2.1", "127.82.2.1", 9);
    for _ in 0..2 {
        assert!(matches!(port.send(&batch), SendOutcome::Sent));
        receive(&mut port, 9);
    }
    assert_eq!(frames(&port.path()).len(), 18);
}

#[test]
fn damaged_packets_are_recorded_with_a_comment() {
    let dir = tempfile::tempdir().unwrap();
    let mut port = PcapPort::create(udp("127.82.3.1"), &dir.path().join("x.pcapng")).unwrap();
    let mut peer = udp("127.82.3.2");
    let mut batch = batch(&peer, "127.82.3.2", "127.82.3.1", 3);
    batch.bytes[150] ^= 0x10;
    batch.bytes[170] ^= 0x10;
    assert!(matches!(peer.send(&batch), SendOutcome::Sent));
    receive(&mut port, 3);
    let frames = frames(&port.path());
    assert!(frames.iter().map(|(_, commented)| *commented).eq([false, true, false]));
    assert!(frames.iter().map(|(frame, _)| decode(frame).3).eq([true, false, true]));
}

#[test]
fn ipv6_is_recorded() {
    // Hosts without IPv6 have nothing to test here.
    let config = UdpConfig {
        addrs: vec![IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])],
        ifindex: 1,
        rcvbuf: None,
    };
    let Ok(udp) = UdpPort::bind(&config) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut port = PcapPort::create(udp, &dir.path().join("x.pcap")).unwrap();
    let batch = batch(&port, "::1", "::1", 3);
    assert!(matches!(port.send(&batch), SendOutcome::Sent));
    let frames = frames(&port.path());
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|(frame, _)| decode(frame).3));
}
