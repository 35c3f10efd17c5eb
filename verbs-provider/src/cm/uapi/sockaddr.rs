//! Socket addresses as C has them.

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::plain::{Plain, decode};
use crate::cm::core::Errno;
use crate::cm::core::path::gid;

/// Address family of native InfiniBand addresses, which are not offered.
const AF_IB: u16 = 27;
/// `struct sockaddr_ib`.
pub(super) const SOCKADDR_IB_LEN: u16 = 48;
const SOCKADDR_IN_LEN: u16 = 16;
const SOCKADDR_IN6_LEN: u16 = 28;
/// The only partition key.
pub(super) const PKEY: u16 = 0xFFFF;

/// A socket address as bytes: family, then what the family says.
pub(super) fn address(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    optional_address(bytes)?.ok_or(libc::EINVAL)
}

pub(super) fn optional_address(bytes: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    let at = |offset: usize| bytes.get(offset..);
    let u16_at = |offset| at(offset).and_then(<[u8]>::first_chunk).copied();
    let u32_at = |offset| at(offset).and_then(<[u8]>::first_chunk).copied();
    let family = u16::from_ne_bytes(u16_at(0).ok_or(libc::EINVAL)?);
    let port = u16::from_be_bytes(u16_at(2).ok_or(libc::EINVAL)?);
    match i32::from(family) {
        0 => Ok(None),
        libc::AF_INET => {
            let ip: [u8; 4] = u32_at(4).ok_or(libc::EINVAL)?;
            Ok(Some(SocketAddrV4::new(ip.into(), port).into()))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *at(8).and_then(<[u8]>::first_chunk).ok_or(libc::EINVAL)?;
            let flow = u32::from_be_bytes(u32_at(4).ok_or(libc::EINVAL)?);
            let scope = u32::from_ne_bytes(u32_at(24).ok_or(libc::EINVAL)?);
            Ok(Some(SocketAddrV6::new(ip.into(), port, flow, scope).into()))
        }
        _ if family == AF_IB => Err(libc::ENODEV),
        _ => Err(libc::EINVAL),
    }
}

pub(super) fn sockaddr<T: Plain>(addr: Option<SocketAddr>) -> (T, u16) {
    let mut bytes = [0u8; 128];
    let len = match addr {
        None => 0,
        Some(SocketAddr::V4(v4)) => {
            bytes[..2].copy_from_slice(&family(libc::AF_INET));
            bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            SOCKADDR_IN_LEN
        }
        Some(SocketAddr::V6(v6)) => {
            bytes[..2].copy_from_slice(&family(libc::AF_INET6));
            bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            SOCKADDR_IN6_LEN
        }
    };
    (decode(&bytes), len)
}

pub(super) fn sockaddr_ib(ip: Option<IpAddr>, service_id: u64) -> libc::sockaddr_storage {
    let mut bytes = [0u8; 128];
    bytes[..2].copy_from_slice(&AF_IB.to_ne_bytes());
    bytes[2..4].copy_from_slice(&PKEY.to_be_bytes());
    bytes[8..24].copy_from_slice(&ip.map_or([0; 16], gid));
    bytes[24..32].copy_from_slice(&service_id.to_be_bytes());
    decode(&bytes)
}

fn family(value: i32) -> [u8; 2] {
    u16::try_from(value).unwrap_or(0).to_ne_bytes()
}
