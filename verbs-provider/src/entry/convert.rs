//! Conversions between the kernel's shapes of attributes and path records and those of applications.
//!
//! librdmacm calls these on what it read from the `rdma_cm` device. They touch exactly the members rdma-core's own do:
//! `qp_state` and `rate_limit`, for instance, stay as the caller had them.

use crate::abi::kern::{ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr};
use crate::abi::verbs::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap, ibv_sa_path_rec};

fn address(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.grh.dgid },
            flow_label: from.grh.flow_label,
            sgid_index: from.grh.sgid_index,
            hop_limit: from.grh.hop_limit,
            traffic_class: from.grh.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Converts an address vector.
///
/// # Safety
/// Both pointers are valid and do not overlap.
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(dst: *mut ibv_ah_attr, src: *const ib_uverbs_ah_attr) {
    // SAFETY: the caller vouches for both pointers.
    unsafe { *dst = address(&*src) };
}

/// Converts queue pair attributes, all but the state to go to.
///
/// # Safety
/// Both pointers are valid and do not overlap.
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(dst: *mut ibv_qp_attr, src: *const ib_uverbs_qp_attr) {
    // SAFETY: the caller vouches for both pointers.
    let (dst, src) = unsafe { (&mut *dst, &*src) };
    *dst = ibv_qp_attr {
        qp_state: dst.qp_state,
        cur_qp_state: src.cur_qp_state,
        path_mtu: src.path_mtu,
        path_mig_state: src.path_mig_state,
        qkey: src.qkey,
        rq_psn: src.rq_psn,
        sq_psn: src.sq_psn,
        dest_qp_num: src.dest_qp_num,
        qp_access_flags: src.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: src.max_send_wr,
            max_recv_wr: src.max_recv_wr,
            max_send_sge: src.max_send_sge,
            max_recv_sge: src.max_recv_sge,
            max_inline_data: src.max_inline_data,
        },
        ah_attr: address(&src.ah_attr),
        alt_ah_attr: address(&src.alt_ah_attr),
        pkey_index: src.pkey_index,
        alt_pkey_index: src.alt_pkey_index,
        en_sqd_async_notify: src.en_sqd_async_notify,
        sq_draining: src.sq_draining,
        max_rd_atomic: src.max_rd_atomic,
        max_dest_rd_atomic: src.max_dest_rd_atomic,
        min_rnr_timer: src.min_rnr_timer,
        port_num: src.port_num,
        timeout: src.timeout,
        retry_cnt: src.retry_cnt,
        rnr_retry: src.rnr_retry,
        alt_port_num: src.alt_port_num,
        alt_timeout: src.alt_timeout,
        rate_limit: dst.rate_limit,
    };
}

/// Converts a path record for an application.
///
/// # Safety
/// Both pointers are valid and do not overlap.
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(dst: *mut ibv_sa_path_rec, src: *const ib_user_path_rec) {
    // SAFETY: the caller vouches for both pointers.
    let (dst, src) = unsafe { (&mut *dst, &*src) };
    let [mtu, ..] = src.mtu.to_le_bytes();
    *dst = ibv_sa_path_rec {
        dgid: ibv_gid { raw: src.dgid },
        sgid: ibv_gid { raw: src.sgid },
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic.cast_signed(),
        flow_label: src.flow_label,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        reversible: src.reversible.cast_signed(),
        numb_path: src.numb_path,
        pkey: src.pkey,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        mtu,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}

/// Converts a path record for the kernel.
///
/// # Safety
/// Both pointers are valid and do not overlap.
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(dst: *mut ib_user_path_rec, src: *const ibv_sa_path_rec) {
    // SAFETY: the caller vouches for both pointers; all 16 bytes of a GID are always initialised.
    let (dst, src, dgid, sgid) = unsafe { (&mut *dst, &*src, (*src).dgid.raw, (*src).sgid.raw) };
    *dst = ib_user_path_rec {
        dgid,
        sgid,
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic.cast_unsigned(),
        flow_label: src.flow_label,
        reversible: src.reversible.cast_unsigned(),
        mtu: u32::from(src.mtu),
        pkey: src.pkey,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        numb_path: src.numb_path,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}
