//! IPv4 and IPv6 headers (RFC 791, RFC 8200) and the Internet checksum (RFC 1071).

use super::{IPV4_LEN, IPV6_LEN, IpFields, PROTOCOL_UDP, v4_octets, v6_octets};
use crate::bytes::put;

/// An IPv4 header with a valid checksum, "don't fragment" set, in front of `payload_len` bytes of UDP.
pub fn ipv4_header(fields: &IpFields, payload_len: u16) -> [u8; IPV4_LEN] {
    let total = payload_len.saturating_add(20).to_be_bytes();
    let id = fields.id.to_be_bytes();
    let mut header = [0; IPV4_LEN];
    header[..10].copy_from_slice(&[
        0x45,
        fields.traffic_class,
        total[0],
        total[1],
        id[0],
        id[1],
        0x40,
        0,
        fields.hop_limit,
        PROTOCOL_UDP,
    ]);
    put(&mut header, 12, v4_octets(fields.src));
    put(&mut header, 16, v4_octets(fields.dst));
    let sum = checksum(0, &header);
    put(&mut header, 10, sum.to_be_bytes());
    header
}

/// An IPv6 header in front of `payload_len` bytes of UDP.
pub fn ipv6_header(fields: &IpFields, payload_len: u16) -> [u8; IPV6_LEN] {
    let mut header = [0; IPV6_LEN];
    let first = 6 << 28 | u32::from(fields.traffic_class) << 20 | (fields.flow_label & 0xf_ffff);
    put(&mut header, 0, first.to_be_bytes());
    put(&mut header, 4, payload_len.to_be_bytes());
    put(&mut header, 6, [PROTOCOL_UDP, fields.hop_limit]);
    put(&mut header, 8, v6_octets(fields.src));
    put(&mut header, 24, v6_octets(fields.dst));
    header
}

/// Internet checksum of `initial`, a partial sum, and `bytes`: 0 over bytes that hold their own valid checksum.
pub fn checksum(initial: u32, bytes: &[u8]) -> u16 {
    let mut sum = u64::from(initial);
    for pair in bytes.chunks(2) {
        sum += match pair {
            [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
            [high] => u64::from(*high) << 8,
            _ => 0,
        };
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = sum.to_be_bytes();
    !u16::from_be_bytes([high, low])
}

/// Partial sum of the pseudo header that a UDP checksum covers, for [`checksum`].
pub(super) fn pseudo_header_sum(src: &[u8], dst: &[u8], udp_len: u16) -> u32 {
    let folded = |bytes| u32::from(!checksum(0, bytes));
    folded(src) + folded(dst) + u32::from(udp_len) + u32::from(PROTOCOL_UDP)
}
