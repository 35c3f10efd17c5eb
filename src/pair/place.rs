//! An address and a port that no other test, demonstration or run on this machine uses.
//!
//! Addresses come from 127.1.0.0–127.250.255.255, so that devices do not meet; ports lie below the ephemeral range and
//! are free on TCP when handed out, for tools that exchange QP numbers over TCP on every address.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// First port handed out, and how many there are.
const PORTS: (u32, u32) = (20_000, 12_000);
/// Addresses: 250 × 256 × 254 (no .0, no .255).
const ADDRESSES: u32 = 250 * 256 * 254;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where a pair meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device's address.
    pub addr: IpAddr,
    /// Port of the tool, for TCP and for the connection manager.
    pub port: u16,
}

impl Place {
    /// A place on loopback that is nobody else's.
    pub fn new() -> Self {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let index = std::process::id().wrapping_mul(257).wrapping_add(serial) % ADDRESSES;
        let last = index % 254 + 1;
        let rest = index / 254;
        let octet = |value: u32| u8::try_from(value & 0xff).unwrap_or_default();
        let addr = Ipv4Addr::new(127, octet(1 + rest / 256), octet(rest % 256), octet(last));
        Self {
            addr: addr.into(),
            port: free_port(),
        }
    }

    /// Another port at the same address.
    pub fn sibling(self) -> Self {
        Self {
            addr: self.addr,
            port: free_port(),
        }
    }

    /// At a given address.
    pub fn at(addr: IpAddr) -> Self {
        Self {
            addr,
            port: free_port(),
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

fn free_port() -> u16 {
    loop {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let index = std::process::id().wrapping_mul(31).wrapping_add(serial) % PORTS.1;
        let Ok(port) = u16::try_from(PORTS.0 + index) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn places_differ_and_lie_on_loopback() {
        let places: Vec<Place> = (0..300).map(|_| Place::new()).collect();
        let addresses: HashSet<IpAddr> = places.iter().map(|place| place.addr).collect();
        let ports: HashSet<u16> = places.iter().map(|place| place.port).collect();
        assert_eq!((addresses.len(), ports.len()), (300, 300));
        for place in places {
            let IpAddr::V4(v4) = place.addr else {
                panic!("{place:?}")
            };
            let [net, second, _, last] = v4.octets();
            assert!(
                net == 127 && (1..=250).contains(&second) && (1..=254).contains(&last),
                "{v4}"
            );
            assert!((20_000..32_000).contains(&place.port));
        }
    }
}
