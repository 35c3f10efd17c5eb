//! Address handles, and the addresses of those who sent a datagram.

use super::address;
use super::pd::PdCore;
use crate::abi::verbs::{ibv_ah, ibv_ah_attr};
use crate::boundary::Errno;
use crate::device::gid_table::GidTable;
use crate::device::{errno_of, id_of};
use nic_model::host_if::{AddressVector, Command, Gid};
use std::cell::UnsafeCell;
use std::net::Ipv4Addr;

/// Bytes before the payload of a received datagram.
pub const GRH_LEN: usize = 40;

/// The working part of an AH.
#[derive(Debug)]
pub struct AhCore {
    /// Number of the AH on the device, which send WQEs name.
    pub id: u32,
    pd: PdCore,
}

/// An AH as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Ah {
    /// Its public structure.
    pub public: UnsafeCell<ibv_ah>,
    /// The working part.
    pub core: AhCore,
}

impl AhCore {
    /// An AH of `pd` for `attr`.
    pub fn create(pd: &PdCore, attr: &ibv_ah_attr) -> Result<Self, Errno> {
        let av = address::address_vector(attr)?;
        if pd.device.gids.get(av.sgid_index.into()).is_none_or(Gid::is_zero) {
            return Err(Errno::INVAL);
        }
        let id = id_of(
            &pd.engine
                .command(Command::CreateAh { pd: pd.id, av })
                .map_err(errno_of)?,
        )?;
        Ok(Self { id, pd: pd.clone() })
    }

    /// Destroy it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.pd
            .device
            .release(&self.pd.engine, Command::DestroyAh { ah: self.id })
    }
}

/// How to answer the datagram whose GRH area is `grh`, received at one of `gids`.
///
/// The area holds either a GRH (an IPv6 header) or, in its second half, an IPv4 header; which of the two is told by
/// version and header checksum, as every verbs library does.
pub fn reply_address(grh: &[u8; GRH_LEN], gids: &GidTable) -> Result<AddressVector, Errno> {
    let (sgid, dgid, flow_label, hop_limit, traffic_class) = match ipv4_header(grh) {
        Some(v4) => {
            let address = |at: usize| Gid::from_ip(Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]).into());
            (address(12), address(16), 0, v4[8], v4[1])
        }
        None => {
            let word = u32::from_be_bytes([grh[0], grh[1], grh[2], grh[3]]);
            let gid = |at: usize| Gid(std::array::from_fn(|byte| grh[at + byte]));
            let traffic_class = grh[0] << 4 | grh[1] >> 4;
            (gid(8), gid(24), word & 0xf_ffff, grh[7], traffic_class)
        }
    };
    let sgid_index = gids.find(dgid).ok_or(Errno::INVAL)?;
    Ok(AddressVector {
        is_global: true,
        dgid: sgid,
        sgid_index,
        flow_label,
        hop_limit,
        traffic_class,
        port_num: 1,
        ..AddressVector::default()
    })
}

fn ipv4_header(grh: &[u8; GRH_LEN]) -> Option<&[u8]> {
    let header = &grh[20..];
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let is_v6 = grh[0] >> 4 == 6;
    (header[0] == 0x45 && (folded & 0xffff) + (folded >> 16) == 0xffff && !is_v6).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 4] = [127, 0, 0, 7];
    const PEER: [u8; 4] = [127, 0, 0, 9];

    fn gids() -> GidTable {
        let gid = |text: &str| Gid::from_ip(text.parse().unwrap());
        GidTable::new([gid("10.0.0.1"), gid("127.0.0.7"), gid("fe80::7")], 1)
    }

    fn ipv4_area() -> [u8; GRH_LEN] {
        let mut area = [0u8; GRH_LEN];
        area[20..24].copy_from_slice(&[0x45, 104, 0, 100]);
        area[26..30].copy_from_slice(&[0x40, 0, 63, 17]);
        area[32..36].copy_from_slice(&PEER);
        area[36..40].copy_from_slice(&OWN);
        let sum: u32 = area[20..]
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
        area[30..32].copy_from_slice(&checksum.to_be_bytes());
        area
    }

    #[test]
    fn ipv4_headers_are_told_by_their_checksum() {
        let av = reply_address(&ipv4_area(), &gids()).unwrap();
        assert_eq!(av.dgid, Gid::from_ip(Ipv4Addr::from(PEER).into()));
        assert_eq!(
            (av.sgid_index, av.hop_limit, av.traffic_class, av.port_num),
            (1, 63, 104, 1)
        );
        assert!(av.is_global);
        let mut broken = ipv4_area();
        broken[30] ^= 1;
        assert_eq!(reply_address(&broken, &gids()), Err(Errno::INVAL));
    }

    #[test]
    fn ipv6_headers_fill_the_whole_area() {
        let mut area = [0u8; GRH_LEN];
        area[..8].copy_from_slice(&[0x66, 0x8a, 0xbc, 0xde, 0, 0, 0x1b, 200]);
        let peer = Gid::from_ip("fe80::9".parse().unwrap());
        area[8..24].copy_from_slice(&peer.0);
        area[24..].copy_from_slice(&Gid::from_ip("fe80::7".parse().unwrap()).0);
        let av = reply_address(&area, &gids()).unwrap();
        assert_eq!((av.dgid, av.sgid_index, av.hop_limit), (peer, 2, 200));
        assert_eq!((av.traffic_class, av.flow_label), (0x68, 0xa_bcde));
    }

    #[test]
    fn datagrams_to_somebody_else_have_no_reply_address() {
        let mut area = ipv4_area();
        area[39] = 8;
        area[31] = area[31].wrapping_sub(1);
        assert_eq!(reply_address(&area, &gids()), Err(Errno::INVAL));
    }
}
