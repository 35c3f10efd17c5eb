//! Ethernet frames around UDP datagrams, for captures.
//!
//! Nothing here has a MAC address, so frames get locally administered ones made from the IP addresses.

use super::ip::{checksum, ipv4_header, ipv6_header, pseudo_header_sum};
use super::{IPV4_LEN, IPV6_LEN, IpFields, PROTOCOL_UDP, UDP_LEN, v4_octets, v6_octets};
use crate::bytes::at;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// More fragments, and the fragment offset.
const FRAGMENT: u16 = 0x3fff;

/// Headers of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// IP header.
    pub ip: IpFields,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

/// Append an Ethernet frame with this datagram to `out`. A payload too long for IP is cut off.
///
/// The UDP checksum is left out over IPv4, as RoCE cards do, and valid over IPv6, where it is required.
pub fn emit_frame(datagram: &Datagram, payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(usize::from(u16::MAX) - UDP_LEN - IPV4_LEN)];
    let udp_len = u16::try_from(payload.len() + UDP_LEN).unwrap_or(u16::MAX);
    let (src, dst) = (datagram.ip.src.to_canonical(), datagram.ip.dst.to_canonical());
    let ip = IpFields {
        src,
        dst,
        ..datagram.ip
    };
    let mut udp = [0; UDP_LEN];
    udp[..2].copy_from_slice(&datagram.sport.to_be_bytes());
    udp[2..4].copy_from_slice(&datagram.dport.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    out.reserve(ETHERNET_LEN + IPV6_LEN + UDP_LEN + payload.len());
    out.extend_from_slice(&mac_of(dst));
    out.extend_from_slice(&mac_of(src));
    if let (IpAddr::V4(_), IpAddr::V4(_)) = (src, dst) {
        out.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        out.extend_from_slice(&ipv4_header(&ip, udp_len));
    } else {
        let covered = pseudo_header_sum(&v6_octets(src), &v6_octets(dst), udp_len);
        let sum = checksum(covered + u32::from(!checksum(0, &udp)), payload);
        // Zero means "no checksum"; its other spelling is all ones (RFC 768).
        udp[6..].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
        out.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        out.extend_from_slice(&ipv6_header(&ip, udp_len));
    }
    out.extend_from_slice(&udp);
    out.extend_from_slice(payload);
}

/// The UDP datagram in an Ethernet frame, `None` when there is none, or not all of it.
///
/// VLAN tags are skipped; checksums are not verified.
pub fn parse_frame(frame: &[u8]) -> Option<(Datagram, &[u8])> {
    let mut rest = frame.get(12..)?;
    let mut ethertype = u16::from_be_bytes(*rest.first_chunk()?);
    while ETHERTYPE_VLAN.contains(&ethertype) {
        rest = rest.get(4..)?;
        ethertype = u16::from_be_bytes(*rest.first_chunk()?);
    }
    let packet = rest.get(2..)?;
    let (ip, udp) = match ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(packet)?,
        ETHERTYPE_IPV6 => parse_ipv6(packet)?,
        _ => return None,
    };
    let header = udp.first_chunk::<UDP_LEN>()?;
    let payload = udp.get(UDP_LEN..usize::from(u16::from_be_bytes(at(header, 4))))?;
    let (sport, dport) = (u16::from_be_bytes(at(header, 0)), u16::from_be_bytes(at(header, 2)));
    Some((Datagram { ip, sport, dport }, payload))
}

fn parse_ipv4(packet: &[u8]) -> Option<(IpFields, &[u8])> {
    let b = packet.first_chunk::<IPV4_LEN>()?;
    let header_len = usize::from(b[0] & 0x0f) * 4;
    let fragment = u16::from_be_bytes(at(b, 6)) & FRAGMENT;
    if b[0] >> 4 != 4 || header_len < IPV4_LEN || b[9] != PROTOCOL_UDP || fragment != 0 {
        return None;
    }
    let fields = IpFields {
        src: Ipv4Addr::from(at::<4>(b, 12)).into(),
        dst: Ipv4Addr::from(at::<4>(b, 16)).into(),
        traffic_class: b[1],
        hop_limit: b[8],
        flow_label: 0,
        id: u16::from_be_bytes(at(b, 4)),
    };
    Some((
        fields,
        packet.get(header_len..usize::from(u16::from_be_bytes(at(b, 2))))?,
    ))
}

fn parse_ipv6(packet: &[u8]) -> Option<(IpFields, &[u8])> {
    let (b, rest) = packet.split_first_chunk::<IPV6_LEN>()?;
    let first = u32::from_be_bytes(at(b, 0));
    if first >> 28 != 6 || b[6] != PROTOCOL_UDP {
        return None;
    }
    let fields = IpFields {
        src: Ipv6Addr::from(at::<16>(b, 8)).into(),
        dst: Ipv6Addr::from(at::<16>(b, 24)).into(),
        traffic_class: b[0] << 4 | b[1] >> 4,
        hop_limit: b[7],
        flow_label: first & 0xf_ffff,
        id: 0,
    };
    Some((fields, rest.get(..usize::from(u16::from_be_bytes(at(b, 4))))?))
}

/// A locally administered MAC address with the last four bytes of an IP address.
fn mac_of(addr: IpAddr) -> [u8; 6] {
    let family = if addr.is_ipv4() { 4 } else { 6 };
    let [a, b, c, d] = v4_octets(addr);
    [0x02, family, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(src: &str, dst: &str) -> Datagram {
        let ipv6 = src.contains(':');
        let ip = IpFields {
            src: src.parse().expect("address"),
            dst: dst.parse().expect("address"),
            traffic_class: 0xb9,
            hop_limit: 63,
            flow_label: if ipv6 { 0xa_bcde } else { 0 },
            id: if ipv6 { 0 } else { 0x1234 },
        };
        Datagram {
            ip,
            sport: 0xc001,
            dport: crate::ROCE_V2_PORT,
        }
    }

    #[test]
    fn frames_round_trip_in_both_families() {
        for datagram in [datagram("10.0.0.1", "10.0.0.2"), datagram("fd00::1", "fd00::2")] {
            let mut frame = Vec::new();
            emit_frame(&datagram, b"odd", &mut frame);
            assert_eq!(parse_frame(&frame), Some((datagram, &b"odd"[..])));
            for end in 0..frame.len() {
                assert_eq!(parse_frame(&frame[..end]), None);
            }
        }
    }

    #[test]
    fn udp_checksum_over_ipv6_is_valid() {
        let datagram = datagram("fd00::1", "fd00::2");
        let mut frame = Vec::new();
        emit_frame(&datagram, b"some payload!", &mut frame);
        let udp = &frame[ETHERNET_LEN + IPV6_LEN..];
        let pseudo = pseudo_header_sum(&v6_octets(datagram.ip.src), &v6_octets(datagram.ip.dst), 21);
        assert_eq!(checksum(pseudo, udp), 0);
    }

    #[test]
    fn vlan_tags_are_skipped_and_fragments_refused() {
        let datagram = datagram("10.0.0.1", "10.0.0.2");
        let mut frame = Vec::new();
        emit_frame(&datagram, b"abcd", &mut frame);
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
        assert_eq!(parse_frame(&tagged), Some((datagram, &b"abcd"[..])));
        frame[ETHERNET_LEN + 6] = 0x20;
        assert_eq!(parse_frame(&frame), None);
    }
}
