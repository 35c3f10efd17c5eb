//! Address vectors in their C form and in the device's.

use crate::abi::verbs::{ibv_ah_attr, ibv_gid, ibv_global_route};
use crate::boundary::Errno;
use nic_model::host_if::{AddressVector, Gid};

/// The device's form of `attr`. On Ethernet an address without a GRH reaches nobody (`EINVAL`).
pub fn address_vector(attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 || attr.port_num != 1 {
        return Err(Errno::INVAL);
    }
    Ok(AddressVector {
        is_global: true,
        dgid: gid(&attr.grh.dgid),
        sgid_index: attr.grh.sgid_index,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        sl: attr.sl,
        static_rate: attr.static_rate,
        src_path_bits: attr.src_path_bits,
        dlid: attr.dlid,
        port_num: attr.port_num,
    })
}

/// The C form of `vector`.
pub fn ah_attr(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: c_gid(vector.dgid),
            flow_label: vector.flow_label,
            sgid_index: vector.sgid_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        dlid: vector.dlid,
        sl: vector.sl,
        src_path_bits: vector.src_path_bits,
        static_rate: vector.static_rate,
        is_global: u8::from(vector.is_global),
        port_num: vector.port_num,
    }
}

/// The device's form of a GID.
pub fn gid(gid: &ibv_gid) -> Gid {
    Gid(super::handle::gid_bytes(gid))
}

/// The C form of a GID.
pub fn c_gid(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_is_lossless() {
        let vector = AddressVector {
            is_global: true,
            dgid: Gid::from_ip("10.1.2.3".parse().unwrap()),
            sgid_index: 3,
            flow_label: 0x12345,
            hop_limit: 64,
            traffic_class: 106,
            sl: 3,
            static_rate: 2,
            src_path_bits: 1,
            dlid: 9,
            port_num: 1,
        };
        assert_eq!(address_vector(&ah_attr(&vector)), Ok(vector));
    }

    #[test]
    fn addresses_without_grh_or_port_are_refused() {
        let good = ah_attr(&AddressVector {
            is_global: true,
            port_num: 1,
            ..AddressVector::default()
        });
        assert!(address_vector(&good).is_ok());
        assert!(address_vector(&ibv_ah_attr { is_global: 0, ..good }).is_err());
        assert!(address_vector(&ibv_ah_attr { port_num: 0, ..good }).is_err());
        assert!(address_vector(&ibv_ah_attr { port_num: 2, ..good }).is_err());
    }
}
