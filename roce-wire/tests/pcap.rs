//! Captures are read back as they were written, in both formats.

#[path = "support/mod.rs"]
mod support;

use pcap_file::pcapng::{Block, PcapNgReader};
use roce_wire::net::{IpFields, parse_frame};
use roce_wire::pcap::Capture;
use std::fs::File;
use std::path::Path;
use support::{Captured, captured, packets_of};

const START: u64 = 1_700_000_000_123_456_789;

fn write(path: &Path, packets: &[Captured]) {
    let mut capture = Capture::create(path).expect("create");
    for (time, Captured { name, datagram, packet }) in (START..).zip(packets) {
        let IpFields {
            src,
            dst,
            traffic_class,
            hop_limit,
            id,
            ..
        } = datagram.ip;
        let comment = Some(name.as_str());
        capture
            .packet(
                time,
                src,
                dst,
                datagram.sport,
                traffic_class,
                hop_limit,
                id,
                packet,
                comment,
            )
            .expect("write");
    }
    capture.flush().expect("flush");
}

#[test]
fn classic_captures_are_read_back() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("written.pcap");
    let packets = captured();
    write(&path, &packets);
    let read = packets_of(&path);
    assert_eq!(read.len(), packets.len());
    for (read, written) in read.iter().zip(&packets) {
        assert_eq!((read.datagram, &read.packet), (written.datagram, &written.packet));
    }
}

#[test]
fn next_generation_captures_keep_time_and_comments() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("written.pcapng");
    let packets = captured();
    write(&path, &packets);
    let mut reader = PcapNgReader::new(File::open(&path).expect("file")).expect("pcapng");
    let mut read = 0;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.expect("block") else {
            continue;
        };
        let written = &packets[read];
        let (datagram, packet) = parse_frame(&block.data).expect("UDP");
        assert_eq!((datagram, packet), (written.datagram, &written.packet[..]));
        assert_eq!(block.timestamp.as_nanos(), u128::from(START) + read as u128);
        assert!(format!("{:?}", block.options).contains(&written.name));
        read += 1;
    }
    assert_eq!(read, packets.len());
}
