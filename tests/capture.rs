//! `--pcap`: what Wireshark makes of a capture, and the ICRC of every packet in it by a checker of its own.

mod harness;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use harness::{FAULTS, Pair, Place, pass, rping};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// A directory that the tools' user can write to.
fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir_in("/tmp").expect("directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
    directory
}

fn captured(pair: Pair, server: &Path, client: &Path) {
    let pair = Pair {
        server: pair.server.clone().pcap(server),
        client: pair.client.clone().pcap(client),
        ..pair
    };
    pass(pair);
}

fn frames(file: &Path) -> Vec<Vec<u8>> {
    let open = || File::open(file).expect("capture");
    let mut frames = Vec::new();
    if file.extension().is_some_and(|extension| extension == "pcap") {
        let mut reader = PcapReader::new(open()).expect("classic pcap");
        while let Some(packet) = reader.next_packet() {
            frames.push(packet.expect("packet").data.into_owned());
        }
    } else {
        let mut reader = PcapNgReader::new(open()).expect("pcapng");
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.expect("block") {
                frames.push(packet.data.into_owned());
            }
        }
    }
    frames
}

/// Reflected CRC-32, a bit at a time: nothing shared with the implementation under test.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Whether the ICRC at the end of a RoCEv2 frame is right (IBTA annex A17.3.3): 64 bits of ones, then IP header, UDP
/// header, BTH and the rest, with the fields that routers change set to ones.
fn icrc_is_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let v4 = frame[12..14] == [0x08, 0x00];
    let (header, total) = if v4 {
        (20, usize::from(u16::from_be_bytes([ip[2], ip[3]])))
    } else {
        (40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
    };
    let mut covered = ip[..total - 4].to_vec();
    if v4 {
        for masked in [1, 8, 10, 11] {
            covered[masked] = 0xff;
        }
    } else {
        covered[0] |= 0x0f;
        for masked in [1, 2, 3, 7] {
            covered[masked] = 0xff;
        }
    }
    // UDP checksum; the byte of the BTH with FECN and BECN.
    for masked in [header + 6, header + 7, header + 8 + 4] {
        covered[masked] = 0xff;
    }
    let mut bytes = vec![0xff; 8];
    bytes.extend(covered);
    crc32(&bytes).to_le_bytes() == ip[total - 4..total]
}

fn check(file: &Path, least: usize) {
    let frames = frames(file);
    assert!(frames.len() >= least, "{} has {} packets", file.display(), frames.len());
    let wrong: Vec<usize> = (0..frames.len())
        .filter(|index| !icrc_is_right(&frames[*index]))
        .collect();
    assert!(
        wrong.is_empty(),
        "{}: wrong ICRC in packets {wrong:?} of {}",
        file.display(),
        frames.len()
    );

    let tshark = |filter: &str| {
        let output = Command::new("tshark").arg("-r").arg(file).args(["-Y", filter]).output();
        let output = output.expect("tshark; run `make setup`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(tshark("_ws.malformed"), "");
    assert_eq!(
        tshark("infiniband").lines().count(),
        frames.len(),
        "packets that tshark takes for something else"
    );
}

#[test]
fn classic_and_new_captures_decode_without_malformed_packets() {
    let directory = open_directory();
    let (server, client) = (
        directory.path().join("server.pcap"),
        directory.path().join("client.pcapng"),
    );
    captured(rping(Place::new(), "-v -V -C 20 -S 10000"), &server, &client);
    check(&server, 200);
    check(&client, 200);
}

#[test]
fn a_capture_over_ipv6_decodes() {
    let directory = open_directory();
    let (server, client) = (
        directory.path().join("server.pcap"),
        directory.path().join("client.pcap"),
    );
    captured(
        rping(Place::at(std::net::Ipv6Addr::LOCALHOST.into()), "-v -V -C 5 -S 4096"),
        &server,
        &client,
    );
    check(&server, 40);
    check(&client, 40);
}

#[test]
fn every_operation_of_perftest_decodes() {
    let directory = open_directory();
    let lines = [
        "ib_send_bw -F -n 20 -s 10001",
        "ib_write_bw -F -n 20 -s 10001",
        "ib_read_bw -F -n 20 -s 10001",
        "ib_atomic_bw -F -n 20",
        "ibv_ud_pingpong -g 0 -n 20 -s 1001",
    ];
    for (index, line) in lines.into_iter().enumerate() {
        let file = |side: &str| directory.path().join(format!("{index}-{side}.pcap"));
        captured(harness::over_tcp(Place::new(), line), &file("server"), &file("client"));
        check(&file("server"), 20);
        check(&file("client"), 20);
    }
}

#[test]
fn a_capture_of_a_faulty_network_shows_what_was_sent() {
    // Corruption is left out: its packets have a wrong ICRC by design.
    let directory = open_directory();
    let (server, client) = (
        directory.path().join("server.pcap"),
        directory.path().join("client.pcap"),
    );
    let faults = FAULTS.replace("corrupt=0.005", "corrupt=0");
    let pair = rping(Place::new(), "-V -C 50 -S 4096").both(|tool| tool.faults(&format!("{faults},seed=5")));
    captured(pair.limit(120), &server, &client);
    check(&server, 200);
    check(&client, 200);
}

#[test]
fn the_checker_has_the_right_polynomial() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}
