//! The network interfaces of this machine as devices: what `adverb devices` lists and `adverb run` checks against.
//!
//! Devices are numbered over the interfaces that are up, in the order of their index, so `adverb0` is loopback. What an
//! interface becomes as a device is the NIC's own rule (`nic_model::port::netdev`); here it only gets its place in a
//! list, together with the interfaces that are down, for messages.

use std::net::{IpAddr, Ipv6Addr};

use nic_model::port::netdev::{self, NetDevice};
use nix::net::if_::if_nameindex;

use crate::errors::{Failure, Result};

/// Bytes of an IPv6 RoCEv2 packet that are not payload, for the longest header an opcode can have.
const OVERHEAD: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// An interface.
#[derive(Clone, Debug)]
pub struct NetDev {
    /// Its name.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is a loopback interface, where all of 127.0.0.0/8 is local.
    pub loopback: bool,
    /// MTU in bytes; 0 when it is down.
    pub mtu: u32,
    /// The addresses behind the device's GIDs, in table order.
    pub addresses: Vec<IpAddr>,
}

impl NetDev {
    /// The largest PMTU that fits the interface's MTU.
    pub fn pmtu(&self) -> u32 {
        let room = self.mtu.saturating_sub(OVERHEAD);
        [4096, 2048, 1024, 512]
            .into_iter()
            .find(|pmtu| *pmtu <= room)
            .unwrap_or(256)
    }

    /// The GIDs of its addresses, in table order.
    pub fn gids(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.addresses.iter().map(|address| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => *v6,
        })
    }

    /// Whether the address can be this device's.
    pub fn has(&self, address: IpAddr) -> bool {
        let of_loopback = matches!(address, IpAddr::V4(v4) if self.loopback && v4.is_loopback());
        of_loopback || self.addresses.contains(&address)
    }

    fn of(device: &NetDevice) -> Self {
        Self {
            name: device.name.clone(),
            up: true,
            loopback: device.is_loopback,
            mtu: device.mtu,
            addresses: netdev::roce_addrs(device, None),
        }
    }

    fn down(name: String) -> Self {
        Self {
            name,
            up: false,
            loopback: false,
            mtu: 0,
            addresses: Vec::new(),
        }
    }
}

/// All interfaces: those that are up in the order of their index, then the others.
pub fn list() -> Result<Vec<NetDev>> {
    let failed = |error: std::io::Error| {
        Failure::Machine(format!(
            "cannot list the network interfaces: {error}; is netlink allowed here?"
        ))
    };
    let mut devices: Vec<NetDev> = netdev::devices().map_err(failed)?.iter().map(NetDev::of).collect();
    let names = if_nameindex().map_err(|errno| failed(errno.into()))?;
    for interface in &names {
        let name = interface.name().to_string_lossy().into_owned();
        if devices.iter().all(|device| device.name != name) {
            devices.push(NetDev::down(name));
        }
    }
    Ok(devices)
}

/// `lo 127.0.0.1 ::1, eth0 10.0.0.5`: what a message lists as allowed.
pub fn describe(devices: &[NetDev]) -> String {
    let one = |device: &NetDev| {
        device
            .addresses
            .iter()
            .fold(device.name.clone(), |line, address| format!("{line} {address}"))
    };
    devices
        .iter()
        .filter(|device| device.up)
        .map(one)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn device(mtu: u32) -> NetDev {
        let addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        NetDev {
            name: "lo".to_owned(),
            up: true,
            loopback: true,
            mtu,
            addresses,
        }
    }

    #[test]
    fn pmtu_follows_the_mtu() {
        for (mtu, pmtu) in [
            (65536, 4096),
            (9000, 4096),
            (4200, 4096),
            (4191, 2048),
            (1500, 1024),
            (576, 256),
            (68, 256),
        ] {
            assert_eq!(device(mtu).pmtu(), pmtu, "{mtu}");
        }
    }

    #[test]
    fn all_of_127_belongs_to_loopback() {
        assert!(device(65536).has("127.9.8.7".parse().unwrap()));
        assert!(!device(65536).has("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn ipv4_gids_are_mapped_and_first() {
        let gids: Vec<_> = device(65536).gids().map(|gid| gid.to_string()).collect();
        assert_eq!(gids, ["::ffff:127.0.0.1", "::1"]);
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let devices = list().unwrap();
        assert!(devices.iter().any(|device| device.loopback), "{devices:?}");
    }
}
