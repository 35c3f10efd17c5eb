//! Socket addresses and control messages in the kernel's layout, as bytes.
//!
//! Layouts: `cmsg(3)` (a header of length, level and type; data; all padded to the size of a long), `ip(7)`,
//! `ipv6(7)`, `udp(7)`.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use super::socklen;

/// Room for the control messages of one datagram, in either direction.
pub(super) const CONTROL_LEN: usize = 192;
/// Length of a `sockaddr_in6`, the longer of the two families.
pub(super) const ADDRESS_LEN: usize = 28;

/// A socket address in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct RawAddress {
    bytes: [u8; ADDRESS_LEN],
    pub(super) len: libc::socklen_t,
}

impl RawAddress {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; ADDRESS_LEN],
        len: 0,
    };

    pub(super) fn encode(address: &SocketAddr) -> Self {
        let mut bytes = [0; ADDRESS_LEN];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET, 16)
            }
            SocketAddr::V6(v6) => {
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, ADDRESS_LEN)
            }
        };
        let family = libc::sa_family_t::try_from(family).unwrap_or(0);
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self {
            bytes,
            len: socklen(len),
        }
    }

    pub(super) fn decode(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match i32::from(u16::from_ne_bytes([b[0], b[1]])) {
            libc::AF_INET => Some(SocketAddr::from(([b[4], b[5], b[6], b[7]], port))),
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&b[8..24]).ok()?);
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
            }
            _ => None,
        }
    }
}

/// Control messages of one datagram, aligned as the kernel wants them.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; CONTROL_LEN],
    pub(super) len: usize,
}

impl Control {
    const WORD: usize = size_of::<usize>();
    /// Length of a `cmsghdr`: a length of the size of a long, the level and the type.
    const HEADER: usize = Self::WORD + 8;
    pub(super) const EMPTY: Self = Self {
        bytes: [0; CONTROL_LEN],
        len: 0,
    };

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = Self::HEADER + data.len();
        let Some(room) = self.bytes[self.len..].get_mut(..len) else {
            debug_assert!(false, "CONTROL_LEN holds every option of SendOptions");
            return;
        };
        room[..Self::WORD].copy_from_slice(&len.to_ne_bytes());
        room[Self::WORD..Self::WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[Self::WORD + 4..Self::HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[Self::HEADER..].copy_from_slice(data);
        self.len += len.next_multiple_of(Self::WORD);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..self.len.min(CONTROL_LEN)];
        std::iter::from_fn(move || {
            let (header, _) = rest.split_at_checked(Self::HEADER)?;
            let (len, kinds) = header.split_at(Self::WORD);
            let len = usize::from_ne_bytes(len.try_into().ok()?);
            let level = i32::from_ne_bytes(kinds[..4].try_into().ok()?);
            let kind = i32::from_ne_bytes(kinds[4..].try_into().ok()?);
            let data = rest.get(Self::HEADER..len)?;
            rest = rest.get(len.next_multiple_of(Self::WORD)..).unwrap_or(&[]);
            Some((level, kind, data))
        })
    }
}

/// What a send asks beyond the socket's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Cut the buffer into datagrams of this length (UDP_SEGMENT).
    pub segment_size: Option<u16>,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: Option<u8>,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: Option<u8>,
}

impl SendOptions {
    pub(super) fn encode(&self, is_ipv6: bool) -> Control {
        let mut control = Control::EMPTY;
        let (level, tos, ttl) = if is_ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        };
        if let Some(size) = self.segment_size {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        if let Some(value) = self.traffic_class {
            control.push(level, tos, &i32::from(value).to_ne_bytes());
        }
        if let Some(value) = self.hop_limit {
            control.push(level, ttl, &i32::from(value).to_ne_bytes());
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip() {
        let options = SendOptions {
            segment_size: Some(1072),
            traffic_class: Some(0x6a),
            hop_limit: Some(3),
        };
        for is_ipv6 in [false, true] {
            let control = options.encode(is_ipv6);
            let seen: Vec<_> = control.iter().map(|(_, _, data)| data.to_vec()).collect();
            assert_eq!(
                seen,
                [1072_u16.to_ne_bytes().to_vec(), vec![0x6a, 0, 0, 0], vec![3, 0, 0, 0]]
            );
        }
        assert_eq!(SendOptions::default().encode(false).iter().count(), 0);
    }

    #[test]
    fn truncated_control_messages_end_the_iteration() {
        let mut control = SendOptions {
            segment_size: Some(9),
            ..SendOptions::default()
        }
        .encode(false);
        for len in 0..Control::HEADER + 2 {
            control.len = len;
            assert_eq!(control.iter().count(), 0, "{len} bytes");
        }
    }

    #[test]
    fn addresses_round_trip() {
        for text in ["127.1.2.3:4791", "[fe80::1%7]:4791", "[::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::encode(&address).decode(), Some(address));
        }
        assert_eq!(RawAddress::EMPTY.decode(), None);
    }
}
