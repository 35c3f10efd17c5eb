//! RDMA-CM's use of IP addresses over CM messages (InfiniBand specification, annex A11).
//!
//! A port number lives in the service id; addresses and the source port in a prefix of the private data of REQ and
//! SIDR_REQ. Other messages carry only the consumer's data.

use crate::bytes::{at, put};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RDMA-CM port space: the part of a service id above the port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// IP over InfiniBand.
    Ipoib,
    /// Connected services.
    Tcp,
    /// Datagram services.
    Udp,
    /// Any service, native InfiniBand addressing.
    Ib,
}

impl PortSpace {
    /// From the number the RDMA-CM programming interface uses.
    pub const fn from_u16(value: u16) -> Option<Self> {
        match value {
            0x0002 => Some(Self::Ipoib),
            0x0106 => Some(Self::Tcp),
            0x0111 => Some(Self::Udp),
            0x013f => Some(Self::Ib),
            _ => None,
        }
    }

    /// The number the RDMA-CM programming interface uses.
    pub const fn to_u16(self) -> u16 {
        match self {
            Self::Ipoib => 0x0002,
            Self::Tcp => 0x0106,
            Self::Udp => 0x0111,
            Self::Ib => 0x013f,
        }
    }

    /// Service id of `port`.
    pub const fn service_id(self, port: u16) -> u64 {
        (self.to_u16() as u64) << 16 | port as u64
    }

    /// Port space and port of a service id, `None` when it is not of RDMA-CM.
    pub const fn of_service_id(service_id: u64) -> Option<(Self, u16)> {
        let [0, 0, 0, 0, space_high, space_low, port_high, port_low] = service_id.to_be_bytes() else {
            return None;
        };
        match Self::from_u16(u16::from_be_bytes([space_high, space_low])) {
            Some(space) => Some((space, u16::from_be_bytes([port_high, port_low]))),
            None => None,
        }
    }
}

/// The prefix of the private data of REQ and SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    /// Port of the active side.
    pub src_port: u16,
    /// Address of the active side.
    pub src: IpAddr,
    /// Address of the passive side, of the same family.
    pub dst: IpAddr,
}

impl IpPrefix {
    /// Bytes in front of the consumer's data.
    pub const LEN: usize = 36;

    /// Parse the front of private data; `None` when too short or of another version or IP version.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let b = private_data.first_chunk::<{ Self::LEN }>()?;
        let (src, dst) = match (b[0], b[1] >> 4) {
            (0, 4) => (
                Ipv4Addr::from(at::<4>(b, 16)).into(),
                Ipv4Addr::from(at::<4>(b, 32)).into(),
            ),
            (0, 6) => (
                Ipv6Addr::from(at::<16>(b, 4)).into(),
                Ipv6Addr::from(at::<16>(b, 20)).into(),
            ),
            _ => return None,
        };
        Some(Self {
            src_port: u16::from_be_bytes([b[2], b[3]]),
            src,
            dst,
        })
    }

    /// The prefix as on the wire: IPv4 when both addresses are.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        put(&mut b, 2, self.src_port.to_be_bytes());
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                b[1] = 4 << 4;
                put(&mut b, 16, src.octets());
                put(&mut b, 32, dst.octets());
            }
            (src, dst) => {
                b[1] = 6 << 4;
                put(&mut b, 4, crate::net::v6_octets(src));
                put(&mut b, 20, crate::net::v6_octets(dst));
            }
        }
        b
    }

    /// Write it to the front of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`IpPrefix::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].copy_from_slice(&self.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ids() {
        assert_eq!(PortSpace::Tcp.service_id(7174), 0x0106_1c06);
        for space in [PortSpace::Ipoib, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib] {
            assert_eq!(
                PortSpace::of_service_id(space.service_id(0xffff)),
                Some((space, 0xffff))
            );
        }
        assert_eq!(PortSpace::of_service_id(0x0107_0000), None);
        assert_eq!(PortSpace::of_service_id(1 << 63 | 0x0106_0000), None);
    }

    #[test]
    fn prefix_round_trips_in_both_families() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let prefix = IpPrefix {
                src_port: 0x1234,
                src: src.parse().expect("address"),
                dst: dst.parse().expect("address"),
            };
            assert_eq!(IpPrefix::parse(&prefix.to_bytes()), Some(prefix));
        }
        assert_eq!(IpPrefix::parse(&[0; 36]), None);
        assert_eq!(IpPrefix::parse(&[0; 35]), None);
    }
}
