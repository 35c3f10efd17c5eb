//! Everything `infiniband/verbs.h` and `infiniband/sa.h` define, under one name.

use std::ffi::c_void;

pub use super::{ah::*, context::*, cq::*, device::*, flow::*, mr::*, qp::*, sa::*, srq::*, wq::*, wr::*};

/// Big-endian 16-bit value: the bytes in memory are in network order.
pub type be16 = u16;
/// Big-endian 32-bit value.
pub type be32 = u32;
/// Big-endian 64-bit value.
pub type be64 = u64;

/// `ibv_context::abi_compat` of a context that is the tail of a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// Zero bytes to keep after an [`ibv_device`].
///
/// libmlx5 and libefa take any device for a `verbs_device` and look at the operations table behind the public part to
/// see whether it is theirs. A null pointer there makes them answer `EOPNOTSUPP`.
pub const DEVICE_TAIL_ZEROS: usize = 64;

/// `IBV_PORT_ATTR`'s flag for link layers that need a GRH in every packet.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1 << 0;

/// First of the access flags that a device may ignore.
pub const IBV_ACCESS_OPTIONAL_FIRST: u32 = 1 << 20;
/// All access flags that a device may ignore (bits 20 to 29).
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = 0x3ff0_0000;

pub type ibv_advise_mr_advice = std::ffi::c_uint;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH: ibv_advise_mr_advice = 0;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: ibv_advise_mr_advice = 1;
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: ibv_advise_mr_advice = 2;
pub const IBV_ADVISE_MR_FLAG_FLUSH: u32 = 1 << 0;

/// Device capabilities beyond 32 bits (`device_cap_flags_ex`).
pub const IBV_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;
/// See [`IBV_DEVICE_RAW_SCATTER_FCS`].
pub const IBV_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;

/// Lowest UDP source port of a RoCEv2 packet.
pub const IB_ROCE_UDP_ENCAP_VALID_PORT_MIN: u16 = 0xC000;
/// Bits of a GRH flow label.
pub const IB_GRH_FLOWLABEL_MASK: u32 = 0x000F_FFFF;
/// Length of the Ethernet address that `ibv_resolve_eth_l2_from_gid` gives.
pub const ETHERNET_LL_SIZE: usize = 6;

/// The port attributes as exported `ibv_query_port` has always written them: up to `flags`, then padding.
///
/// Callers that know the later members go through `verbs_context::query_port`, which is told the caller's length.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct _compat_ibv_port_attr {
    pub state: ibv_port_state,
    pub max_mtu: ibv_mtu,
    pub active_mtu: ibv_mtu,
    pub gid_tbl_len: std::ffi::c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
}
