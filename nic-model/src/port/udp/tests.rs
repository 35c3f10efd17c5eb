//! Over loopback, each test with 127/8 addresses of its own, so that tests can run at once.

use std::net::IpAddr;

use roce_wire::icrc::IcrcContext;

use super::*;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(addrs: &[&str]) -> UdpPort {
    let addrs = addrs.iter().map(|text| addr(text)).collect();
    UdpPort::bind(&UdpConfig {
        addrs,
        ifindex: 1,
        rcvbuf: None,
    })
    .unwrap()
}

fn path(src: &str, dst: &str) -> Path {
    Path {
        src: addr(src),
        dst: addr(dst),
        sport: 0xc123,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}

/// A batch of `count` packets of `size` bytes and one of `last`, sealed for `port`.
fn sealed(port: &UdpPort, path: Path, size: usize, count: usize, last: usize) -> TxBatch {
    let mut batch = TxBatch {
        path,
        segment_size: size,
        ..TxBatch::new()
    };
    batch
        .bytes
        .extend((0..count * size + last).map(|i| u8::try_from(i * 31 % 251).unwrap()));
    seal(port, &mut batch);
    batch
}

fn seal(port: &UdpPort, batch: &mut TxBatch) {
    let context = IcrcContext::new(batch.path.src, batch.path.dst, port.source_port(&batch.path), ROCE_PORT);
    if port.segments_have_ids() {
        context.seal(0, batch.segment_size, &mut batch.bytes);
    } else {
        batch
            .segments_mut()
            .for_each(|segment| context.seal(0, segment.len(), segment));
    }
}

/// What arrives until `count` packets have, with their identification hints.
fn collect(port: &mut UdpPort, count: usize) -> Vec<(RxMeta, Vec<u8>, u16)> {
    let mut packets = Vec::new();
    for _ in 0..10_000 {
        let received = port
            .receive(&mut |meta, bytes, id| packets.push((*meta, bytes.to_vec(), id)))
            .unwrap();
        if packets.len() >= count {
            break;
        }
        if received == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    packets
}

fn verify(meta: &RxMeta, bytes: &[u8], hint: u16) -> Result<u16, roce_wire::icrc::BadIcrc> {
    IcrcContext::new(meta.src, meta.dst, meta.sport, ROCE_PORT).verify(hint, bytes)
}

fn send(port: &mut UdpPort, batch: &TxBatch) {
    let outcome = port.send(batch);
    assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
}

#[test]
fn batch_arrives_packet_by_packet() {
    let mut port = port(&["127.81.1.1"]);
    let batch = sealed(&port, path("127.81.1.1", "127.81.1.1"), 1072, 20, 300);
    send(&mut port, &batch);
    let packets = collect(&mut port, 21);
    assert_eq!(packets.len(), 21);
    for ((meta, bytes, hint), sent) in packets.iter().zip(batch.segments()) {
        assert_eq!(bytes, sent);
        assert_eq!(
            (meta.src, meta.dst, meta.sport),
            (batch.path.src, batch.path.dst, ROCE_PORT)
        );
        assert_eq!(meta.hop_limit, 64);
        verify(meta, bytes, *hint).unwrap();
    }
    // Loopback does not cut trains, so that the hints are exact.
    assert!(packets.iter().map(|(.., hint)| *hint).eq(0..21));
    assert!(
        packets
            .iter()
            .all(|(meta, bytes, hint)| verify(meta, bytes, *hint) == Ok(*hint))
    );
}

#[test]
fn single_packet_has_identification_zero() {
    let mut port = port(&["127.81.2.1"]);
    let batch = sealed(&port, path("127.81.2.1", "127.81.2.1"), 80, 1, 0);
    // Identifications that count up would show at the second and third.
    for _ in 0..3 {
        send(&mut port, &batch);
    }
    for (meta, bytes, hint) in collect(&mut port, 3) {
        assert_eq!((hint, verify(&meta, &bytes, 0)), (0, Ok(0)));
    }
}

#[test]
fn traffic_class_and_ttl_are_carried() {
    let mut port = port(&["127.81.3.1"]);
    for (traffic_class, hop_limit) in [(0, 0), (2, 64), (0x6b, 7), (3, 255)] {
        let path = Path {
            traffic_class,
            hop_limit,
            ..path("127.81.3.1", "127.81.3.1")
        };
        for count in [1, 5] {
            let batch = sealed(&port, path, 120, count, 0);
            send(&mut port, &batch);
            let packets = collect(&mut port, count);
            assert_eq!(packets.len(), count);
            for (meta, bytes, hint) in packets {
                assert_eq!(meta.traffic_class, traffic_class);
                assert_eq!(meta.hop_limit, if hop_limit == 0 { 64 } else { hop_limit });
                assert_eq!(meta.is_congestion_experienced(), traffic_class & 3 == 3);
                verify(&meta, &bytes, hint).unwrap();
            }
        }
    }
}

#[test]
fn ipv6() {
    // Hosts without IPv6 have nothing to test here.
    let Ok(mut port) = UdpPort::bind(&UdpConfig {
        addrs: vec![addr("::1")],
        ifindex: 1,
        rcvbuf: None,
    }) else {
        return;
    };
    let path = Path {
        traffic_class: 0x2a,
        hop_limit: 9,
        flow_label: 0x12345,
        ..path("::1", "::1")
    };
    let batch = sealed(&port, path, 500, 8, 44);
    send(&mut port, &batch);
    let packets = collect(&mut port, 9);
    assert_eq!(packets.len(), 9);
    for ((meta, bytes, hint), sent) in packets.iter().zip(batch.segments()) {
        assert_eq!(bytes, sent);
        assert_eq!((meta.src, meta.dst), (path.src, path.dst));
        assert_eq!((meta.traffic_class, meta.hop_limit), (0x2a, 9));
        verify(meta, bytes, *hint).unwrap();
    }
}

#[test]
fn several_addresses_are_all_heard() {
    let mut a = port(&["127.81.4.1", "127.81.4.2", "127.81.4.3"]);
    assert_eq!(a.fds().len(), 3);
    assert_eq!(
        a.sockets().map(|(addr, _)| addr.to_string()).collect::<Vec<_>>()[2],
        "127.81.4.3"
    );
    let mut b = port(&["127.81.4.9"]);
    for dst in ["127.81.4.3", "127.81.4.1", "127.81.4.2", "127.81.4.2"] {
        let batch = sealed(&b, path("127.81.4.9", dst), 64, 3, 0);
        send(&mut b, &batch);
        let packets = collect(&mut a, 3);
        assert!(packets.iter().all(|(meta, ..)| meta.dst == addr(dst)));
        assert_eq!(packets.len(), 3);
    }
}

#[test]
fn a_busy_socket_does_not_starve_the_others() {
    let mut a = port(&["127.81.5.1", "127.81.5.2"]);
    let mut b = port(&["127.81.5.9"]);
    let quiet = sealed(&b, path("127.81.5.9", "127.81.5.2"), 64, 1, 0);
    let busy = sealed(&b, path("127.81.5.9", "127.81.5.1"), 64, 1, 0);
    send(&mut b, &quiet);
    let mut heard = false;
    for _ in 0..20 {
        for _ in 0..4 {
            send(&mut b, &busy);
        }
        a.receive(&mut |meta, _, _| heard |= meta.dst == quiet.path.dst)
            .unwrap();
    }
    assert!(heard);
}

#[test]
fn address_can_be_shared() {
    let (_a, _b) = (port(&["127.81.6.1"]), port(&["127.81.6.1"]));
}

#[test]
fn receive_buffer_is_what_was_asked_for() {
    let config = UdpConfig {
        addrs: vec![addr("127.81.7.1")],
        ifindex: 1,
        rcvbuf: Some(131_072),
    };
    assert_eq!(UdpPort::bind(&config).unwrap().recv_buffer(), 131_072);
}

#[test]
fn bind_errors_name_the_address() {
    let foreign = UdpConfig {
        addrs: vec![addr("192.0.2.77")],
        ifindex: 1,
        rcvbuf: None,
    };
    let error = UdpPort::bind(&foreign).unwrap_err();
    assert!(error.to_string().contains("192.0.2.77"), "{error}");
    assert!(UdpPort::bind(&UdpConfig::default()).is_err());
    // A later address that is not there is left out.
    let config = UdpConfig {
        addrs: vec![addr("127.81.8.1"), addr("192.0.2.77")],
        ifindex: 1,
        rcvbuf: None,
    };
    assert_eq!(UdpPort::bind(&config).unwrap().fds().len(), 1);
}

#[test]
fn a_taken_port_is_explained() {
    let _other = std::net::UdpSocket::bind("127.81.9.1:4791").unwrap();
    let config = UdpConfig {
        addrs: vec![addr("127.81.9.1")],
        ifindex: 1,
        rcvbuf: None,
    };
    let error = UdpPort::bind(&config).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("127.81.9.1"), "{error}");
}

#[test]
fn unknown_source_and_oversized_batches_are_refused() {
    let mut port = port(&["127.81.10.1"]);
    let foreign = sealed(&port, path("127.81.10.2", "127.81.10.1"), 64, 1, 0);
    assert!(matches!(port.send(&foreign), SendOutcome::Failed(_)));
    let long = sealed(&port, path("127.81.10.1", "127.81.10.1"), 64, MAX_BATCH_SEGMENTS + 1, 0);
    assert!(matches!(port.send(&long), SendOutcome::Failed(_)));
    assert!(matches!(port.send(&TxBatch::new()), SendOutcome::Sent));
}

#[test]
fn without_segmentation_packets_go_one_by_one() {
    let mut port = port(&["127.81.11.1"]);
    port.segmentation = Segmentation::Missing;
    assert!(!port.segments_have_ids());
    let batch = sealed(&port, path("127.81.11.1", "127.81.11.1"), 1000, 10, 20);
    send(&mut port, &batch);
    let packets = collect(&mut port, 11);
    assert_eq!(packets.len(), 11);
    for ((meta, bytes, hint), sent) in packets.iter().zip(batch.segments()) {
        assert_eq!((bytes.as_slice(), *hint), (sent, 0));
        assert_eq!(verify(meta, bytes, 0), Ok(0));
    }
}

#[test]
fn a_refused_first_batch_is_sealed_again() {
    let mut port = port(&["127.81.12.1"]);
    // No UDP_SEGMENT: a socket without transmit checksums refuses it with EINVAL.
    let fd = port.sockets().next().unwrap().1;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let mut batch = sealed(&port, path("127.81.12.1", "127.81.12.1"), 1000, 10, 20);
    assert!(matches!(port.send(&batch), SendOutcome::Reseal));
    assert!(!port.segments_have_ids());
    seal(&port, &mut batch);
    send(&mut port, &batch);
    let packets = collect(&mut port, 11);
    assert_eq!(packets.len(), 11);
    assert!(packets.iter().all(|(meta, bytes, _)| verify(meta, bytes, 0) == Ok(0)));
}

#[test]
fn a_backlog_keeps_the_order() {
    let mut port = port(&["127.81.13.1"]);
    port.segmentation = Segmentation::Missing;
    let path = path("127.81.13.1", "127.81.13.1");
    let (first, second) = (sealed(&port, path, 100, 6, 0), sealed(&port, path, 200, 1, 0));
    // As if the socket had taken two of the first batch.
    port.backlog = Backlog {
        path: Some(path),
        segment_size: 100,
        bytes: first.bytes.clone(),
        start: 200,
    };
    assert_eq!(port.next_deadline(), Some(Time::ZERO + RETRY));
    send(&mut port, &second);
    assert_eq!(port.next_deadline(), None);
    let lengths: Vec<_> = collect(&mut port, 5).iter().map(|(_, bytes, _)| bytes.len()).collect();
    assert_eq!(lengths, [100, 100, 100, 100, 200]);
}
