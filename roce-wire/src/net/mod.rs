//! What lies around a RoCEv2 packet on the wire: Ethernet, IPv4 or IPv6, UDP.
//!
//! Sockets add and remove these headers; here they are built and taken apart for captures, and the IP header for the
//! GRH area of datagram receives. Addresses and GIDs are two spellings of one thing: [`gid_of`], [`ip_of`].

mod frame;
mod ip;

pub use frame::{Datagram, emit_frame, parse_frame};
pub use ip::{checksum, ipv4_header, ipv6_header};

use core::net::{IpAddr, Ipv6Addr};

/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// Bytes in front of the payload of a received UD message.
pub const GRH_LEN: usize = 40;

/// IP protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;

/// Headers of one datagram as IP sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    /// Sender.
    pub src: IpAddr,
    /// Receiver, of the same family.
    pub dst: IpAddr,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// IPv4 identification.
    pub id: u16,
}

/// The 40 bytes in front of the payload of a received UD message (InfiniBand specification, A17.4.5).
///
/// IPv6: the IP header. IPv4: twenty zeros, then the IP header. `payload_len` counts what the UDP header carried, ICRC
/// included. The IPv4 identification and the IPv6 flow label are not known to a UDP socket and left zero.
pub fn grh(src: IpAddr, dst: IpAddr, tos: u8, ttl: u8, payload_len: usize) -> [u8; GRH_LEN] {
    let (src, dst) = (src.to_canonical(), dst.to_canonical());
    let fields = IpFields {
        src,
        dst,
        traffic_class: tos,
        hop_limit: ttl,
        flow_label: 0,
        id: 0,
    };
    let len = u16::try_from(payload_len + UDP_LEN).unwrap_or(u16::MAX);
    match (src, dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            let mut area = [0; GRH_LEN];
            area[GRH_LEN - IPV4_LEN..].copy_from_slice(&ipv4_header(&fields, len));
            area
        }
        _ => ipv6_header(&fields, len),
    }
}

/// The RoCEv2 GID of an address: IPv4 is mapped into IPv6.
pub fn gid_of(addr: IpAddr) -> [u8; 16] {
    v6_octets(addr)
}

/// The address of a RoCEv2 GID.
pub fn ip_of(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// The address as IPv6, IPv4 mapped.
pub(crate) fn v6_octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// The address as IPv4; of an IPv6 address that is none, the last four bytes.
fn v4_octets(addr: IpAddr) -> [u8; 4] {
    match addr {
        IpAddr::V4(addr) => addr.octets(),
        IpAddr::V6(addr) => crate::bytes::at(&addr.octets(), 12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    #[test]
    fn grh_of_ipv4_is_a_valid_header_after_zeros() {
        let area = grh(ip("10.0.0.1"), ip("::ffff:10.0.0.2"), 0x0a, 63, 280);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(
            area[20..32],
            [0x45, 0x0a, 0x01, 0x34, 0, 0, 0x40, 0, 63, 17, area[30], area[31]]
        );
        assert_eq!(area[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(checksum(0, &area[20..]), 0);
    }

    #[test]
    fn grh_of_ipv6_is_the_header() {
        let area = grh(ip("fd00::1"), ip("fd00::2"), 0xab, 64, 280);
        assert_eq!(area[..8], [0x6a, 0xb0, 0, 0, 0x01, 0x20, 17, 64]);
        assert_eq!((area[8], area[23], area[24], area[39]), (0xfd, 1, 0xfd, 2));
    }

    #[test]
    fn gids_are_addresses() {
        for text in ["10.77.0.2", "fd77::2"] {
            assert_eq!(ip_of(gid_of(ip(text))), ip(text));
        }
        assert_eq!(
            gid_of(ip("1.2.3.4")),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4]
        );
    }
}
