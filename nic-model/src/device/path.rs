//! From address vector to packet addressing.

use crate::frame::Path;
use crate::host_if::command::CommandError;
use crate::host_if::qp_attr::{AddressVector, Gid};
use core::net::IpAddr;

/// Entries in the port's GID table.
pub const GID_TABLE_LEN: usize = 16;

/// The port's GID table.
#[derive(Clone, Debug, Default)]
pub(super) struct GidTable([Gid; GID_TABLE_LEN]);

impl GidTable {
    pub(super) fn set(&mut self, index: u8, gid: Gid) -> Result<(), CommandError> {
        *self.0.get_mut(usize::from(index)).ok_or(CommandError::Invalid)? = gid;
        Ok(())
    }

    pub(super) fn get(&self, index: u8) -> Option<Gid> {
        self.0.get(usize::from(index)).copied().filter(|gid| !gid.is_zero())
    }

    /// Index of the entry for an own address.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&Gid::from_ip(ip))
    }
}

/// UDP source port for a flow label (IBTA annex A17 as Linux does it): 0xC000 and up.
pub(super) const fn source_port(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ ((flow_label >> 14) & 0x3f);
    #[expect(clippy::cast_possible_truncation, reason = "14 bits")]
    let low = folded as u16;
    0xc000 | low
}

/// A flow label for a connection whose address vector has none, from both QPNs.
const fn flow_label_of(local_qpn: u32, remote_qpn: u32) -> u32 {
    let mut v = local_qpn as u64 * remote_qpn as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    (v & 0x000f_ffff) as u32
}

/// Resolve an address vector.
///
/// # Errors
/// [`CommandError::Invalid`] without a GRH, with an empty own GID, or when the two GIDs are of different families.
pub(super) fn resolve(
    gids: &GidTable,
    av: &AddressVector,
    local_qpn: u32,
    remote_qpn: u32,
) -> Result<Path, CommandError> {
    if !av.is_global || av.dgid.is_zero() {
        return Err(CommandError::Invalid);
    }
    let src = gids.get(av.sgid_index).ok_or(CommandError::Invalid)?.to_ip();
    let dst = av.dgid.to_ip();
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(CommandError::Invalid);
    }
    let label = if av.flow_label == 0 {
        flow_label_of(local_qpn, remote_qpn)
    } else {
        av.flow_label
    };
    Ok(Path {
        src,
        dst,
        sport: source_port(label),
        // ECN-capable transport, so that switches mark instead of dropping.
        traffic_class: (av.traffic_class & !3) | 2,
        hop_limit: if av.hop_limit == 0 { 64 } else { av.hop_limit },
        flow_label: av.flow_label & 0x000f_ffff,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_start_at_c000() {
        assert_eq!(source_port(0), 0xc000);
        assert_eq!(source_port(0x000f_ffff), 0xc000 | (0x3fff ^ 0x3f));
    }

    #[test]
    fn an_address_vector_needs_a_grh_and_one_family() {
        let mut gids = GidTable::default();
        gids.set(0, Gid::from_ip("127.0.0.1".parse().unwrap())).unwrap();
        let dgid = Gid::from_ip("127.0.0.2".parse().unwrap());
        let av = AddressVector {
            is_global: true,
            dgid,
            ..AddressVector::default()
        };
        let path = resolve(&gids, &av, 0x10_0001, 0x20_0001).unwrap();
        assert_eq!(path.dst.to_string(), "127.0.0.2");
        assert!(path.sport >= 0xc000);
        assert!(resolve(&gids, &AddressVector { is_global: false, ..av }, 1, 1).is_err());
        assert!(resolve(&gids, &AddressVector { sgid_index: 1, ..av }, 1, 1).is_err());
        let v6 = Gid::from_ip("::1".parse().unwrap());
        assert!(resolve(&gids, &AddressVector { dgid: v6, ..av }, 1, 1).is_err());
        assert_eq!(gids.set(16, Gid::default()), Err(CommandError::Invalid));
    }
}
