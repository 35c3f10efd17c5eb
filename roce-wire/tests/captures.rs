//! Every packet captured from Linux Soft-RoCE parses, is emitted again byte for byte, and has a valid ICRC.

#[path = "support/mod.rs"]
mod support;

use roce_wire::ROCE_V2_PORT;
use roce_wire::bth::Bth;
use roce_wire::cm::ip::{IpPrefix, PortSpace};
use roce_wire::cm::{Destination, Message, RejReason};
use roce_wire::icrc::{BadIcrc, IcrcContext};
use roce_wire::mad::{GSI_QPN, gsi_headers};
use roce_wire::net::gid_of;
use roce_wire::packet::{Headers, ICRC_LEN, Packet};
use std::collections::BTreeMap;
use std::fmt::Write;
use support::{Captured, captured};

fn context(of: &Captured) -> IcrcContext {
    IcrcContext::new(
        of.datagram.ip.src,
        of.datagram.ip.dst,
        of.datagram.sport,
        of.datagram.dport,
    )
}

/// CM messages of the captures. Datagrams to QP 1 are nothing else.
fn messages() -> Vec<(Captured, Message)> {
    let mut found = Vec::new();
    for captured in captured() {
        let packet = Packet::parse(&captured.packet).expect("packet");
        if packet.headers.bth.dest_qpn == GSI_QPN {
            let (_, message) = Message::parse(packet.payload).unwrap_or_else(|e| panic!("{}: {e}", captured.name));
            found.push((captured, message));
        }
    }
    found
}

#[test]
fn packets_round_trip() {
    let captured = captured();
    assert_eq!(captured.len(), 1052);
    for Captured { name, datagram, packet } in captured {
        assert_eq!(datagram.dport, ROCE_V2_PORT, "{name}");
        let parsed = Packet::parse(&packet).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut emitted = vec![0xee; packet.len()];
        assert_eq!(parsed.emit(&mut emitted), packet.len(), "{name}");
        // Pad bytes may be anything; Soft-RoCE leaves zeros.
        assert_eq!(
            emitted[..packet.len() - ICRC_LEN],
            packet[..packet.len() - ICRC_LEN],
            "{name}"
        );
    }
}

#[test]
fn icrc_verifies_and_is_reproduced() {
    for captured in captured() {
        let Captured { name, datagram, packet } = &captured;
        let context = context(&captured);
        assert_eq!(context.verify(datagram.ip.id, packet), Ok(datagram.ip.id), "{name}");
        let mut sealed = packet.clone();
        sealed[packet.len() - ICRC_LEN..].fill(0);
        context.seal(datagram.ip.id, packet.len(), &mut sealed);
        assert_eq!(&sealed, packet, "{name}");
    }
}

#[test]
fn unknown_identification_is_recovered() {
    for captured in captured() {
        let Captured { name, datagram, packet } = &captured;
        let context = context(&captured);
        let real = datagram.ip.id;
        for hint in [0, 1, !real, real.wrapping_add(1), 0xffff] {
            let expected = if datagram.ip.src.is_ipv4() { real } else { hint };
            assert_eq!(context.verify(hint, packet), Ok(expected), "{name}, hint {hint:#06x}");
        }
    }
}

#[test]
fn wrong_addresses_or_ports_do_not_verify() {
    for captured in captured().into_iter().step_by(7) {
        let Captured { name, datagram, packet } = &captured;
        let ip = datagram.ip;
        let wrong_port = IcrcContext::new(ip.src, ip.dst, datagram.sport ^ 1, datagram.dport);
        let swapped = IcrcContext::new(ip.dst, ip.src, datagram.sport, datagram.dport ^ 2);
        assert_eq!(wrong_port.verify(ip.id, packet), Err(BadIcrc), "{name}");
        assert_eq!(swapped.verify(ip.id, packet), Err(BadIcrc), "{name}");
    }
}

#[test]
fn opcodes_of_the_captures() {
    let mut counts = BTreeMap::new();
    for captured in captured() {
        let opcode = Packet::parse(&captured.packet).expect("packet").headers.bth.opcode;
        *counts.entry(opcode.to_u8()).or_insert((opcode, 0)) =
            (opcode, 1 + counts.get(&opcode.to_u8()).map_or(0, |c| c.1));
    }
    let lines = counts.values().fold(String::new(), |mut text, (opcode, count)| {
        writeln!(text, "{opcode:?} {count}").expect("string");
        text
    });
    insta::assert_snapshot!(lines);
}

#[test]
fn mads_round_trip() {
    let messages = messages();
    assert!(messages.len() > 30);
    for (captured, message) in messages {
        let packet = Packet::parse(&captured.packet).expect("packet");
        let (header, _) = Message::parse(packet.payload).expect("message");
        assert_eq!(message.emit(&header)[..], *packet.payload, "{}", captured.name);
        // Soft-RoCE asks for an acknowledgement that a datagram never gets; the migration state means nothing here.
        let headers = gsi_headers(packet.headers.bth.psn);
        let Bth { ack_req, mig_req, .. } = packet.headers.bth;
        let bth = Bth {
            ack_req,
            mig_req,
            ..headers.bth
        };
        assert_eq!(Headers { bth, ..headers }, packet.headers, "{}", captured.name);
    }
}

#[test]
fn requests_carry_addresses_and_ports() {
    let mut seen = 0;
    for (captured, message) in messages() {
        let Message::Req(req) = message else { continue };
        let ip = captured.datagram.ip;
        let prefix = IpPrefix::parse(&req.private_data).expect("RDMA-CM prefix");
        assert_eq!((prefix.src, prefix.dst), (ip.src, ip.dst), "{}", captured.name);
        assert_eq!(
            prefix.to_bytes(),
            req.private_data[..IpPrefix::LEN],
            "{}",
            captured.name
        );
        assert_eq!(
            (req.primary.local_gid, req.primary.remote_gid),
            (gid_of(ip.src), gid_of(ip.dst))
        );
        let (space, _) = PortSpace::of_service_id(req.service_id).expect("RDMA-CM service id");
        assert_eq!(space, PortSpace::Tcp);
        assert!(!req.has_alternate());
        seen += 1;
    }
    assert!(seen >= 5);
}

/// The whole conversation of a capture, fields included: the layout of every message seen in the wild.
#[test]
fn messages_of_rping_reject_and_udaddy() {
    let mut text = String::new();
    for (captured, message) in messages() {
        if captured.name.starts_with("rping.pcap") || captured.name.starts_with("udaddy") {
            writeln!(
                text,
                "{}: {}",
                captured.name,
                without_private_data(&format!("{message:?}"))
            )
            .expect("string");
        }
        if captured.name.starts_with("rping-reject")
            && let Message::Rej(rej) = &message
        {
            assert_eq!(rej.reason, RejReason::InvalidServiceId);
        }
        match (&message, message.destination()) {
            (Message::Req(_) | Message::SidrReq(_), Destination::Service(_)) => {}
            (Message::SidrRep(rep), Destination::Resolution(id)) => assert_eq!(id, rep.request_id),
            (_, Destination::Connection(id)) => assert_ne!(id, 0, "{}", captured.name),
            other => panic!("{}: {other:?}", captured.name),
        }
    }
    insta::assert_snapshot!(text);
}

fn without_private_data(text: &str) -> &str {
    text.split(", private_data").next().unwrap_or(text)
}
