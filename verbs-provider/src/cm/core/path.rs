//! Path records and address vectors. On RoCE there is no subnet administrator: both are made from addresses.

use core::net::{IpAddr, SocketAddr};

use super::environment::{Device, Timing};

/// Hop limit of everything the connection manager sets up, as for routed RoCEv2.
pub const HOP_LIMIT: u8 = 64;
/// `IBV_RATE_100_GBPS`: what the emulated port claims.
const RATE: u8 = 16;

/// How long the device may take to acknowledge, as an exponent of 4.096 µs: what its attributes say.
pub const OWN_ACK_DELAY: u8 = 12;

/// The 16-byte GID of an address.
#[must_use]
pub fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address a GID stands for.
#[must_use]
pub fn ip_of(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

/// A resolved path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// Own address.
    pub src: IpAddr,
    /// Peer's address.
    pub dst: IpAddr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// MTU as `enum ibv_mtu`.
    pub mtu: u8,
    /// Rate as `enum ibv_rate`.
    pub rate: u8,
    /// Packet life time exponent.
    pub packet_life_time: u8,
}

impl PathRecord {
    /// The path between two bound addresses of a device.
    #[must_use]
    pub fn new(device: &Device, src: SocketAddr, dst: SocketAddr, traffic_class: u8, life_time: u8) -> Self {
        Self {
            src: src.ip(),
            dst: dst.ip(),
            flow_label: flow_label(src.port(), dst.port()),
            traffic_class,
            hop_limit: HOP_LIMIT,
            sl: traffic_class >> 5,
            mtu: device.mtu,
            rate: RATE,
            packet_life_time: life_time,
        }
    }

    /// The address vector of this path.
    #[must_use]
    pub fn address_handle(&self, device: &Device) -> AddressHandle {
        AddressHandle {
            dgid: gid(self.dst),
            flow_label: self.flow_label,
            sgid_index: device.gid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.sl,
            static_rate: self.rate,
        }
    }
}

/// An address vector: always global, always port 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressHandle {
    /// Peer's GID.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Own GID's table index.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Rate.
    pub static_rate: u8,
}

/// Flow label of a connection from its ports, so that equal-cost paths spread connections.
#[must_use]
pub fn flow_label(src_port: u16, dst_port: u16) -> u32 {
    (u32::from(src_port) * 31 + u32::from(dst_port)) & 0xF_FFFF
}

/// Local ACK timeout exponent towards a peer whose own ACK delay is known (IBTA 12.7.34 rounds a sum of two powers of
/// two up to the next one).
#[must_use]
pub const fn ack_timeout(peer_delay: u8, packet_life_time: u8) -> u8 {
    let base = packet_life_time + 1;
    let sum = if base >= peer_delay {
        base + (peer_delay >= base - 1) as u8
    } else {
        peer_delay + (base >= peer_delay - 1) as u8
    };
    if sum < 31 { sum } else { 31 }
}

/// Packet life time that an application's choice of ACK timeout stands for.
#[must_use]
pub fn life_time(ack_timeout: Option<u8>, timing: &Timing) -> u8 {
    ack_timeout.map_or(timing.packet_life_time, |timeout| timeout.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeouts_add_up_as_powers_of_two() {
        assert_eq!(ack_timeout(0, 12), 13);
        assert_eq!(ack_timeout(OWN_ACK_DELAY, 11), 13);
        assert_eq!(ack_timeout(12, 12), 14);
        assert_eq!(ack_timeout(13, 12), 14);
        assert_eq!(ack_timeout(15, 12), 15);
        assert_eq!(ack_timeout(15, 18), 19);
        assert_eq!(ack_timeout(31, 30), 31);
    }

    #[test]
    fn gids_are_addresses() {
        for text in ["127.0.0.1", "::1", "fe80::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(ip_of(gid(ip)), ip);
        }
    }
}
