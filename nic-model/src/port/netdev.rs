//! Network devices of the host and what of them an RDMA device takes over: addresses, GID table, MTU, GUID.
//!
//! Read afresh at each call; nothing is cached and nothing is changed.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use super::sys;
use crate::host_if::Gid;

/// A network device that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDevice {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// IP MTU.
    pub mtu: u32,
    /// Ethernet address, zero where there is none.
    pub mac: [u8; 6],
    /// Whether it is the loopback device.
    pub is_loopback: bool,
    /// Whether it is up; [`devices`] lists no others.
    pub is_up: bool,
    /// Addresses in the kernel's order: those of IPv4 first.
    pub addrs: Vec<IpAddr>,
}

/// The network devices that are up, in ifindex order.
///
/// # Errors
/// The kernel gives no list (netlink sockets forbidden, out of memory).
pub fn devices() -> io::Result<Vec<NetDevice>> {
    let mut found: BTreeMap<u32, NetDevice> = BTreeMap::new();
    for entry in getifaddrs()? {
        if !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        // An IPv4 label such as "eth0:1" names no interface of its own.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        // Gone since the list was made: not a device any more.
        let Ok(ifindex) = if_nametoindex(name) else { continue };
        let device = found.entry(ifindex).or_insert_with(|| NetDevice {
            name: name.to_owned(),
            ifindex,
            mtu: mtu(name),
            mac: [0; 6],
            is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            is_up: true,
            addrs: Vec::new(),
        });
        let Some(address) = entry.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            device.addrs.push(v4.ip().into());
        } else if let Some(v6) = address.as_sockaddr_in6() {
            device.addrs.push(v6.ip().into());
        } else if let Some(mac) = address.as_link_addr().and_then(|link| link.addr()) {
            device.mac = mac;
        }
    }
    Ok(found.into_values().collect())
}

/// Interface MTU from the kernel, else from `/sys`, else Ethernet's.
fn mtu(name: &str) -> u32 {
    sys::interface_mtu(name)
        .or_else(|_| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"))?;
            text.trim()
                .parse()
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        })
        .unwrap_or(1500)
}

/// The source address the kernel's routing picks for packets to `dst`. Sends nothing.
///
/// # Errors
/// There is no route to `dst`.
pub fn route_source(dst: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if dst.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    // Port 0 cannot be connected to.
    let port = if dst.port() == 0 { super::ROCE_PORT } else { dst.port() };
    let dst = match dst {
        SocketAddr::V4(_) => SocketAddr::new(dst.ip(), port),
        SocketAddr::V6(mut v6) => {
            v6.set_port(port);
            SocketAddr::V6(v6)
        }
    };
    socket.connect(dst)?;
    Ok(socket.local_addr()?.ip())
}

/// The addresses behind the GID table of `device`, in table order: IPv4, global IPv6, link-local IPv6; or just the
/// one that the user chose. Loopback has 127.0.0.1 and ::1, whatever else was added to it.
pub fn roce_addrs(device: &NetDevice, chosen: Option<IpAddr>) -> Vec<IpAddr> {
    if let Some(addr) = chosen {
        return vec![addr];
    }
    let rank = |addr: &IpAddr| match addr {
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
        IpAddr::V6(_) => 1,
    };
    let usable = |addr: &IpAddr| match addr {
        _ if device.is_loopback => addr.is_loopback(),
        // A multicast or unspecified address cannot be a source.
        _ => !addr.is_unspecified() && !addr.is_multicast(),
    };
    let mut addrs: Vec<IpAddr> = device.addrs.iter().copied().filter(usable).collect();
    // Stable: the kernel's order, primary before secondary, stays within each kind.
    addrs.sort_by_key(rank);
    if device.is_loopback {
        // Several 127/8 addresses may be configured; the first is the one everybody means.
        let mut seen_v4 = false;
        addrs.retain(|addr| addr.is_ipv6() || !std::mem::replace(&mut seen_v4, true));
    }
    addrs
}

/// The GID table of `device`: [`roce_addrs`] as GIDs.
pub fn gids(device: &NetDevice, chosen: Option<IpAddr>) -> Vec<Gid> {
    roce_addrs(device, chosen).into_iter().map(Gid::from_ip).collect()
}

/// The node GUID: the EUI-64 of the Ethernet address, or for a device without one a value of this host and interface.
/// Never zero, which libibverbs takes for "no device".
pub fn node_guid(device: &NetDevice) -> u64 {
    if !device.is_loopback && device.mac != [0; 6] {
        let [a, b, c, d, e, f] = device.mac;
        return u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    }
    // Differs between hosts, stays until the next boot. Without /proc all hosts look alike, which matters only to a
    // connection between two loopback devices: there is none.
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hash = boot
        .iter()
        .chain(&device.ifindex.to_be_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            // FNV-1a: stable between builds, as the standard library's hashers are not.
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    // Locally administered, unicast, as an EUI-64 (IEEE 802c): cannot equal any of the above form, and is not zero.
    (hash & !(0b11 << 56)) | (0b10 << 56)
}

/// The largest RoCE PMTU that fits packets into `mtu`, as `enum ibv_mtu` (1 is 256, 5 is 4096).
pub const fn active_mtu_code(mtu: u32) -> u8 {
    // IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28, ICRC 4: the allowance that Linux makes too.
    const HEADERS: u32 = 96;
    match mtu.saturating_sub(HEADERS) {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(is_loopback: bool, mac: [u8; 6], addrs: &[&str]) -> NetDevice {
        NetDevice {
            name: "test0".into(),
            ifindex: 7,
            mtu: 1500,
            mac,
            is_loopback,
            is_up: true,
            addrs: addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
        }
    }

    fn texts(addrs: &[IpAddr]) -> Vec<String> {
        addrs.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn loopback_is_found() {
        let devices = devices().unwrap();
        assert!(devices.is_sorted_by_key(|device| device.ifindex));
        let lo = devices.iter().find(|device| device.is_loopback).unwrap();
        assert_eq!(lo.name, "lo");
        assert!(lo.mtu >= 1500);
        assert!(texts(&roce_addrs(lo, None))[0] == "127.0.0.1");
        assert_ne!(node_guid(lo), 0);
        assert_eq!(node_guid(lo), node_guid(lo));
    }

    #[test]
    fn table_order() {
        let eth = device(
            false,
            [0; 6],
            &["fe80::1", "2001:db8::1", "192.0.2.1", "fd00::2", "192.0.2.9"],
        );
        assert_eq!(
            texts(&roce_addrs(&eth, None)),
            ["192.0.2.1", "192.0.2.9", "2001:db8::1", "fd00::2", "fe80::1"]
        );
        let lo = device(true, [0; 6], &["::1", "127.0.0.1", "127.0.0.2", "192.0.2.5"]);
        assert_eq!(texts(&roce_addrs(&lo, None)), ["127.0.0.1", "::1"]);
        let chosen = "127.9.8.7".parse().unwrap();
        assert_eq!(gids(&lo, Some(chosen)), [Gid::from_ip(chosen)]);
        assert_eq!(gids(&lo, None)[0].0[10..], [0xff, 0xff, 127, 0, 0, 1]);
    }

    #[test]
    fn guid_is_the_eui64() {
        let eth = device(false, [0x52, 0x54, 0, 0x12, 0x34, 0x56], &[]);
        assert_eq!(node_guid(&eth), 0x5054_00ff_fe12_3456);
        let (mut a, b) = (device(true, [0; 6], &[]), device(true, [0; 6], &[]));
        a.ifindex = 8;
        assert_ne!(node_guid(&a), node_guid(&b));
    }

    #[test]
    fn mtu_codes() {
        let codes = [
            (1500, 3),
            (4200, 5),
            (9000, 5),
            (65536, 5),
            (4096, 4),
            (2200, 4),
            (1280, 3),
            (1000, 2),
            (576, 1),
        ];
        for (mtu, code) in codes {
            assert_eq!(active_mtu_code(mtu), code, "MTU {mtu}");
        }
        assert_eq!(active_mtu_code(0), 1);
    }

    #[test]
    fn routes() {
        assert_eq!(
            route_source(([127, 3, 4, 5], 0).into()).unwrap().to_string(),
            "127.0.0.1"
        );
        assert!(route_source("[::1]:4791".parse().unwrap()).unwrap().is_loopback());
    }
}
