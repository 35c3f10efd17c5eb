//! `struct ibv_qp_attr` in its C form and in the device's.

use super::address;
use crate::abi::verbs::{ibv_qp_attr, ibv_qp_cap};
use crate::boundary::Errno;
use nic_model::host_if::qp_attr::Access;
use nic_model::host_if::{QpAttr, QpAttrMask, QpState};

/// The device's form of those members of `attr` that `mask` names.
///
/// Members outside the mask are not looked at: applications leave them uninitialised.
pub fn from_c(attr: &ibv_qp_attr, mask: u32) -> Result<(QpAttr, QpAttrMask), Errno> {
    let mask = QpAttrMask::from_bits(mask).ok_or(Errno::INVAL)?;
    if mask.contains(QpAttrMask::CAP) {
        // RESIZE_MAX_WR is not a capability of the device.
        return Err(Errno::INVAL);
    }
    let mut out = QpAttr::default();
    let narrow = |value: u32| u8::try_from(value).map_err(|_| Errno::INVAL);
    let state = |value: u32| narrow(value).ok().and_then(QpState::from_u8).ok_or(Errno::INVAL);
    if mask.contains(QpAttrMask::STATE) {
        out.qp_state = state(attr.qp_state)?;
    }
    if mask.contains(QpAttrMask::CUR_STATE) {
        out.cur_qp_state = state(attr.cur_qp_state)?;
    }
    if mask.contains(QpAttrMask::PATH_MTU) {
        out.path_mtu = narrow(attr.path_mtu)?;
    }
    if mask.contains(QpAttrMask::PATH_MIG_STATE) {
        out.path_mig_state = narrow(attr.path_mig_state)?;
    }
    if mask.contains(QpAttrMask::AV) {
        out.ah = address::address_vector(&attr.ah_attr)?;
    }
    if mask.contains(QpAttrMask::ACCESS_FLAGS) {
        out.access = Access::from_bits_truncate(attr.qp_access_flags);
    }
    out.qkey = attr.qkey;
    out.rq_psn = attr.rq_psn;
    out.sq_psn = attr.sq_psn;
    out.dest_qp_num = attr.dest_qp_num;
    out.pkey_index = attr.pkey_index;
    out.en_sqd_async_notify = attr.en_sqd_async_notify != 0;
    out.max_rd_atomic = attr.max_rd_atomic;
    out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    out.min_rnr_timer = attr.min_rnr_timer;
    out.port_num = attr.port_num;
    out.timeout = attr.timeout;
    out.retry_cnt = attr.retry_cnt;
    out.rnr_retry = attr.rnr_retry;
    out.rate_limit = attr.rate_limit;
    Ok((out, mask))
}

/// The C form of `attr`, for a QP with the capacities `cap`.
pub fn to_c(attr: &QpAttr, cap: ibv_qp_cap) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state as u32,
        cur_qp_state: attr.cur_qp_state as u32,
        path_mtu: attr.path_mtu.into(),
        path_mig_state: attr.path_mig_state.into(),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.access.bits(),
        cap,
        ah_attr: address::ah_attr(&attr.ah),
        alt_ah_attr: address::ah_attr(&nic_model::host_if::AddressVector::default()),
        pkey_index: attr.pkey_index,
        alt_pkey_index: 0,
        en_sqd_async_notify: attr.en_sqd_async_notify.into(),
        sq_draining: attr.sq_draining.into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: attr.rate_limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: ibv_qp_cap = ibv_qp_cap {
        max_send_wr: 1,
        max_recv_wr: 2,
        max_send_sge: 3,
        max_recv_sge: 4,
        max_inline_data: 5,
    };

    #[test]
    fn conversion_is_lossless() {
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            cur_qp_state: QpState::Init,
            path_mtu: 3,
            qkey: 0x8001_0000,
            rq_psn: 1,
            sq_psn: 2,
            dest_qp_num: 3,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            ah: nic_model::host_if::AddressVector {
                is_global: true,
                port_num: 1,
                ..Default::default()
            },
            max_rd_atomic: 4,
            max_dest_rd_atomic: 5,
            min_rnr_timer: 12,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 6,
            ..QpAttr::default()
        };
        let c = to_c(&attr, CAP);
        assert_eq!(c.cap.max_inline_data, 5);
        let all = (QpAttrMask::all() - QpAttrMask::CAP).bits();
        assert_eq!(from_c(&c, all), Ok((attr, QpAttrMask::all() - QpAttrMask::CAP)));
    }

    #[test]
    fn only_members_in_the_mask_are_judged() {
        let mut c = to_c(&QpAttr::default(), CAP);
        c.qp_state = 99;
        c.path_mtu = 4096;
        assert!(from_c(&c, QpAttrMask::QKEY.bits()).is_ok());
        assert!(from_c(&c, QpAttrMask::STATE.bits()).is_err());
        assert!(from_c(&c, QpAttrMask::PATH_MTU.bits()).is_err());
        assert!(from_c(&c, QpAttrMask::AV.bits()).is_err(), "no GRH");
        assert!(from_c(&c, QpAttrMask::CAP.bits()).is_err());
        assert!(from_c(&c, 1 << 30).is_err());
    }
}
