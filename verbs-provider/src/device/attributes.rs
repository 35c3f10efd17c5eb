//! What `ibv_query_device` and `ibv_query_port` say.
//!
//! Capabilities are claimed only for what works: zero SRQs, memory windows and multicast groups, no on-demand paging, no
//! completion timestamps. Vendor and part number are the device's own; perftest and UCX choose code paths by part
//! number, and SPDK takes vendor 0 and 0xffffff for Soft-RoCE.

use super::Device;
use super::gid_table::GID_TABLE_LEN;
use crate::abi::verbs::{
    IBV_ATOMIC_HCA, IBV_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_SYS_IMAGE_GUID,
    IBV_LINK_LAYER_ETHERNET, IBV_MTU_4096, IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS,
    IBV_QPF_GRH_REQUIRED, ibv_device_attr, ibv_port_attr,
};
use nic_model::port::netdev;
use std::ffi::{c_char, c_int};

/// Vendor number.
pub const VENDOR_ID: u32 = 0x00_adb0;
/// Part number.
pub const VENDOR_PART_ID: u32 = 0x0adb;
/// Version of the device as a string, at most 63 bytes.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// P_Keys of the port: only the default one.
pub const PKEY_TABLE_LEN: u16 = 1;
/// The default P_Key.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// How long the device may take to acknowledge, as an exponent of 4.096 µs: 16 ms, since it shares its processors.
const ACK_DELAY: u8 = 12;
/// Bits for page sizes from 4 KiB up.
const PAGE_SIZES: u64 = 0xffff_f000;
/// Port width 4x.
const ACTIVE_WIDTH: u8 = 2;
/// 25 Gbit/s a lane (EDR).
const ACTIVE_SPEED: u8 = 32;
/// Physical port state LinkUp.
const PHYS_LINK_UP: u8 = 5;

/// Attributes of the device.
pub fn device(device: &Device) -> ibv_device_attr {
    let caps = &device.caps;
    let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let guid = device.node_guid.to_be();
    ibv_device_attr {
        fw_ver: c_string(FIRMWARE),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: PAGE_SIZES,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 0,
        max_qp: int(caps.max_qp),
        max_qp_wr: int(caps.max_qp_wr),
        device_cap_flags: IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN,
        max_sge: int(caps.max_sge),
        max_sge_rd: int(caps.max_sge),
        max_cq: int(caps.max_cq),
        max_cqe: int(caps.max_cqe),
        max_mr: int(caps.max_mr),
        max_pd: int(caps.max_pd),
        max_qp_rd_atom: caps.max_rd_atomic.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(u32::from(caps.max_rd_atomic).saturating_mul(caps.max_qp)),
        max_qp_init_rd_atom: caps.max_rd_atomic.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: 0,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: int(caps.max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        max_pkeys: PKEY_TABLE_LEN,
        local_ca_ack_delay: ACK_DELAY,
        phys_port_cnt: 1,
    }
}

/// Attributes of port 1.
pub fn port(device: &Device) -> ibv_port_attr {
    ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: netdev::active_mtu_code(device.netdev.mtu).into(),
        gid_tbl_len: GID_TABLE_LEN.into(),
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: device.caps.max_msg_size,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: PKEY_TABLE_LEN,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: ACTIVE_WIDTH,
        active_speed: ACTIVE_SPEED,
        phys_state: PHYS_LINK_UP,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        port_cap_flags2: 0,
    }
}

/// `text` as a C string in an array; what does not fit is cut.
pub fn c_string<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (slot, byte) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *slot = c_char::from_ne_bytes([byte]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tests::loopback;

    #[test]
    fn attributes_suit_the_clients_that_are_picky() {
        let device_attr = device(&loopback());
        assert!(![0, 0xff_ffff].contains(&device_attr.vendor_id));
        assert_ne!(device_attr.node_guid, 0);
        assert!(device_attr.max_qp_wr >= 16384 && device_attr.max_sge >= 16 && device_attr.max_cqe >= 65536);
        assert!(device_attr.max_qp_rd_atom >= 16 && device_attr.max_qp_init_rd_atom >= 16);
        assert_eq!(
            (device_attr.max_srq, device_attr.max_mw, device_attr.phys_port_cnt),
            (0, 0, 1)
        );
        let port_attr = port(&loopback());
        assert_eq!((port_attr.state, port_attr.link_layer, port_attr.phys_state), (4, 2, 5));
        assert!(port_attr.max_msg_sz >= 1 << 30);
        assert_eq!(
            (port_attr.gid_tbl_len, port_attr.pkey_tbl_len, port_attr.lid),
            (16, 1, 0)
        );
    }

    #[test]
    fn strings_are_cut_before_their_terminator() {
        assert_eq!(c_string::<4>("ab"), [97, 98, 0, 0]);
        assert_eq!(c_string::<4>("abcdef"), [97, 98, 99, 0]);
    }
}
