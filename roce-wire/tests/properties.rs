//! Properties over random and mutated bytes: no panic, round trips, damage is noticed.

#[path = "support/mod.rs"]
mod support;

use proptest::prelude::*;
use proptest::sample::Index;
use roce_wire::bth::Bth;
use roce_wire::cm::ip::IpPrefix;
use roce_wire::cm::{BODY_LEN, Message};
use roce_wire::ext::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth, XrcEth};
use roce_wire::icrc::{BadIcrc, IcrcContext};
use roce_wire::mad::{MAD_LEN, MadHeader};
use roce_wire::net::parse_frame;
use roce_wire::opcode::{HeaderSet, Opcode};
use roce_wire::packet::{Headers, ICRC_LEN, Packet, pad_count};
use roce_wire::psn::Psn;
use roce_wire::syndrome::Syndrome;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use support::Captured;

static CAPTURED: LazyLock<Vec<Captured>> = LazyLock::new(support::captured);

fn parse_everything(bytes: &[u8]) {
    let _ = (
        Packet::parse(bytes),
        Message::parse(bytes),
        IpPrefix::parse(bytes),
        parse_frame(bytes),
    );
    let _ = (Bth::parse(bytes), Bth::peek_dest_qpn(bytes), MadHeader::parse(bytes));
    for ends in [
        (IpAddr::V4(Ipv4Addr::LOCALHOST), 4),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), 6),
    ] {
        let context = IcrcContext::new(ends.0, ends.0, 0xc000, 4791);
        let _ = context.verify(0, bytes);
        context.compute(0, bytes);
        context.seal(0, ends.1, &mut bytes.to_vec());
    }
}

prop_compose! {
    fn bth()(opcode in any::<Index>(), flags in any::<[bool; 5]>(), tver in 0u8..16, pkey: u16, qpn in 0u32..1 << 24, psn: u32)
        -> Bth {
        let opcodes: Vec<Opcode> = Opcode::all().collect();
        let [solicited, mig_req, fecn, becn, ack_req] = flags;
        Bth { solicited, mig_req, tver, pkey, fecn, becn, ack_req, ..Bth::new(*opcode.get(&opcodes), qpn, Psn::new(psn)) }
    }
}

prop_compose! {
    /// Headers of any opcode with any field values.
    fn headers()(bth in bth(), a: u64, b: u64, c: u64, d: u32, e: u32, f in 0u32..1 << 24, g: u8) -> Headers {
        let mut headers = Headers::new(bth);
        let set = bth.opcode.info().headers;
        let has = |header| set.contains(header);
        headers.deth = has(HeaderSet::DETH).then_some(Deth { qkey: d, src_qpn: f });
        headers.xrceth = has(HeaderSet::XRCETH).then_some(XrcEth { srqn: f });
        headers.reth = has(HeaderSet::RETH).then_some(Reth { va: a, rkey: d, dma_len: e });
        headers.atomic = has(HeaderSet::ATOMIC).then_some(AtomicEth { va: a, rkey: d, swap_add: b, compare: c });
        headers.aeth = has(HeaderSet::AETH).then_some(Aeth { syndrome: Syndrome::from_u8(g), msn: f });
        headers.atomic_ack = has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckEth { orig: b });
        headers.imm = has(HeaderSet::IMM).then_some(ImmDt(e.to_be_bytes()));
        headers.ieth = has(HeaderSet::IETH).then_some(Ieth { rkey: d });
        headers
    }
}

/// The packet of these headers and, where the opcode takes any, this payload; ICRC zero.
fn packet_of(mut headers: Headers, payload: &[u8]) -> Vec<u8> {
    let payload = if headers.bth.opcode.info().payload {
        payload
    } else {
        &[]
    };
    headers.bth.pad_count = pad_count(payload.len());
    let packet = Packet { headers, payload };
    let mut bytes = vec![0; packet.wire_len()];
    assert_eq!(packet.emit(&mut bytes), bytes.len());
    bytes
}

fn v6_context() -> IcrcContext {
    IcrcContext::new(
        "fd00::1".parse().expect("address"),
        "fd00::2".parse().expect("address"),
        0xc123,
        4791,
    )
}

fn v4_context() -> IcrcContext {
    IcrcContext::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc123, 4791)
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse_everything(&bytes);
    }

    #[test]
    fn mutated_packets_never_panic(which: Index, edits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8), cut: Index) {
        let mut bytes = which.get(&CAPTURED).packet.clone();
        for (at, value) in edits {
            let at = at.index(bytes.len().min(64));
            bytes[at] = value;
        }
        parse_everything(&bytes);
        parse_everything(&bytes[..cut.index(bytes.len())]);
        if let Ok(packet) = Packet::parse(&bytes) {
            parse_everything(packet.payload);
        }
    }

    #[test]
    fn headers_and_payload_round_trip(headers in headers(), payload in prop::collection::vec(any::<u8>(), 0..70)) {
        let bytes = packet_of(headers, &payload);
        let parsed = Packet::parse(&bytes).expect("own packet");
        prop_assert_eq!(packet_of(parsed.headers, parsed.payload), bytes.clone());
        let pad = parsed.headers.bth.pad_count;
        let bth = Bth { pad_count: pad, ..headers.bth };
        prop_assert_eq!(parsed.headers, Headers { bth, ..headers });
    }

    /// Whatever is accepted is emitted again, but for reserved bits: parsing what was emitted gives the same packet.
    #[test]
    fn what_parses_is_emitted_alike(bytes in prop::collection::vec(any::<u8>(), 0..120), opcode: Index) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = opcode.get(&Opcode::all().collect::<Vec<_>>()).to_u8();
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut emitted = vec![0; bytes.len()];
            prop_assert_eq!(packet.emit(&mut emitted), bytes.len());
            prop_assert_eq!(Packet::parse(&emitted), Ok(packet));
        }
    }

    #[test]
    fn every_cm_message_round_trips(attribute in 0x10u16..=0x1a, tid: u64, attr_mod: u32, body in prop::collection::vec(any::<u8>(), BODY_LEN)) {
        let mut mad = [0; MAD_LEN];
        MadHeader { attr_id: attribute, attr_mod, ..MadHeader::cm(tid) }.emit(&mut mad);
        mad[MadHeader::LEN..].copy_from_slice(&body);
        let (header, message) = Message::parse(&mad).expect("every body is a message");
        prop_assert_eq!(message.attribute(), attribute);
        let emitted = message.emit(&header);
        prop_assert_eq!(Message::parse(&emitted), Ok((header, message)));
        // Reserved bits are few, and cleared; nothing is set that was not.
        prop_assert!(emitted.iter().zip(&mad).all(|(new, old)| new & !old == 0));
        let lost: u32 = emitted.iter().zip(&mad).map(|(new, old)| (old & !new).count_ones()).sum();
        prop_assert!(lost <= 12 * 8, "{} bits lost", lost);
    }

    #[test]
    fn a_flipped_bit_is_noticed_over_ipv6(headers in headers(), payload in prop::collection::vec(any::<u8>(), 0..300), bit: Index, hint: u16) {
        let mut bytes = packet_of(headers, &payload);
        v6_context().seal(0, bytes.len(), &mut bytes);
        prop_assert_eq!(v6_context().verify(hint, &bytes), Ok(hint));
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The fifth byte of the BTH is for switches to change.
        let expected = if bit / 8 == 4 { Ok(hint) } else { Err(BadIcrc) };
        prop_assert_eq!(v6_context().verify(hint, &bytes), expected);
    }

    /// With the right identification known, damage is noticed unless it amounts to another identification.
    #[test]
    fn a_flipped_bit_never_passes_for_the_same_identification(which: Index, bit: Index) {
        let Captured { name, datagram, packet } = which.get(&CAPTURED);
        let context = IcrcContext::new(datagram.ip.src, datagram.ip.dst, datagram.sport, datagram.dport);
        let mut bytes = packet.clone();
        let bit = bit.index(bytes.len() * 8);
        prop_assume!(bit / 8 != 4);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let verdict = context.verify(datagram.ip.id, &bytes);
        prop_assert_ne!(verdict, Ok(datagram.ip.id), "{}", name);
    }

    #[test]
    fn any_identification_is_recovered_at_any_length(len in 0usize..16_000, id: u16, hint: u16, fill: u8) {
        let mut bytes = packet_of(Headers::new(Bth::new(Opcode::RcSendMiddle, 7, Psn::new(9))), &vec![fill; len]);
        v4_context().seal(id, bytes.len(), &mut bytes);
        prop_assert_eq!(v4_context().verify(hint, &bytes), Ok(id));
    }

    #[test]
    fn sealing_a_batch_numbers_its_packets(count in 1usize..64, last in 4usize..20, first_id: u16) {
        let size = 80;
        let mut batch = vec![0x5a; size * (count - 1) + last * 4];
        v4_context().seal(first_id, size, &mut batch);
        let mut id = first_id;
        for packet in batch.chunks(size) {
            let (covered, icrc) = packet.split_at(packet.len() - ICRC_LEN);
            prop_assert_eq!(&v4_context().compute(id, covered)[..], icrc);
            prop_assert_eq!(v4_context().verify(0, packet), Ok(id));
            id = id.wrapping_add(1);
        }
    }

    #[test]
    fn psn_arithmetic_is_modulo_two_to_the_24(base: u32, steps in 0u32..1 << 24) {
        let base = Psn::new(base);
        let ahead = base + steps;
        prop_assert_eq!(ahead.get(), (base.get() + steps) % Psn::COUNT);
        prop_assert_eq!(ahead.offset_from(base), steps);
        prop_assert_eq!(ahead - steps, base);
        prop_assert_eq!(base.is_before(ahead), (1..1 << 23).contains(&steps));
        let signed = ahead.signed_offset_from(base);
        prop_assert_eq!(signed.rem_euclid(1 << 24).unsigned_abs(), steps);
        prop_assert_eq!(base.next().previous(), base);
    }
}
