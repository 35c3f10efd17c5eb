//! MODIFY_QP: checking attributes and taking them over.

use super::state;
use crate::host_if::caps::DeviceCaps;
use crate::host_if::command::CommandError;
use crate::host_if::qp_attr::{Access, QpAttr, QpAttrMask as M, QpState, QpType};

/// Bytes of a PMTU code, 1 = 256 … 5 = 4096.
pub(in crate::device) const fn mtu_bytes(code: u8) -> Option<u32> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// What a modification may refer to.
#[derive(Debug)]
pub(in crate::device) struct Limits<'a> {
    pub(in crate::device) caps: &'a DeviceCaps,
    /// PMTU code of the port.
    pub(in crate::device) port_mtu: u8,
}

/// Check a modification against table and limits; returns the next state.
///
/// # Errors
/// [`CommandError::Invalid`] when the transition is not allowed, an attribute is missing, not allowed there, or out of
/// range.
pub(in crate::device) fn check(
    qp_type: QpType,
    current: &QpAttr,
    new: &QpAttr,
    mask: M,
    limits: &Limits<'_>,
) -> Result<QpState, CommandError> {
    let from = current.qp_state;
    let to = if mask.contains(M::STATE) { new.qp_state } else { from };
    let rule = state::transition(qp_type, from, to).ok_or(CommandError::Invalid)?;
    let given = mask.difference(M::STATE);
    if !given.contains(rule.required) || !rule.required.union(rule.optional).contains(given) {
        return Err(CommandError::Invalid);
    }
    let in_range = |bit: M, ok: bool| !mask.contains(bit) || ok;
    let caps = limits.caps;
    let ok = in_range(M::CUR_STATE, new.cur_qp_state == from)
        && in_range(M::PORT, new.port_num == 1)
        && in_range(M::PKEY_INDEX, new.pkey_index == 0)
        && in_range(M::PATH_MTU, mtu_bytes(new.path_mtu).is_some() && new.path_mtu <= limits.port_mtu)
        && in_range(M::DEST_QPN, new.dest_qp_num <= 0x00ff_ffff)
        && in_range(M::MAX_QP_RD_ATOMIC, new.max_rd_atomic <= caps.max_rd_atomic)
        && in_range(M::MAX_DEST_RD_ATOMIC, new.max_dest_rd_atomic <= caps.max_rd_atomic)
        && in_range(M::TIMEOUT, new.timeout < 32)
        && in_range(M::RETRY_CNT, new.retry_cnt < 8)
        && in_range(M::RNR_RETRY, new.rnr_retry < 8)
        && in_range(M::MIN_RNR_TIMER, new.min_rnr_timer < 32)
        // An Ethernet port has no LIDs: the GRH is the address.
        && in_range(M::AV, new.ah.is_global);
    // Alternate paths are refused, as the kernel's RoCE drivers do.
    if !ok || mask.contains(M::ALT_PATH) {
        return Err(CommandError::Invalid);
    }
    Ok(to)
}

/// Take over the attributes named by the mask.
pub(in crate::device) fn apply(current: &mut QpAttr, new: &QpAttr, mask: M) {
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask.contains(M::$bit) { current.$field = new.$field; })*
        };
    }
    take! {
        EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify, PKEY_INDEX => pkey_index, PORT => port_num, QKEY => qkey,
        AV => ah, PATH_MTU => path_mtu, TIMEOUT => timeout, RETRY_CNT => retry_cnt, RNR_RETRY => rnr_retry,
        MAX_QP_RD_ATOMIC => max_rd_atomic, MIN_RNR_TIMER => min_rnr_timer,
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic, PATH_MIG_STATE => path_mig_state, DEST_QPN => dest_qp_num,
        RATE_LIMIT => rate_limit,
    }
    if mask.contains(M::RQ_PSN) {
        current.rq_psn = new.rq_psn & 0x00ff_ffff;
    }
    if mask.contains(M::SQ_PSN) {
        current.sq_psn = new.sq_psn & 0x00ff_ffff;
    }
    if mask.contains(M::ACCESS_FLAGS) {
        current.access =
            new.access & (Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_if::qp_attr::AddressVector;

    fn limits(caps: &DeviceCaps) -> Limits<'_> {
        Limits { caps, port_mtu: 3 }
    }

    fn init() -> QpAttr {
        QpAttr {
            qp_state: QpState::Init,
            ..QpAttr::default()
        }
    }

    fn rtr() -> (QpAttr, M) {
        let ah = AddressVector {
            is_global: true,
            ..AddressVector::default()
        };
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: 3,
            ah,
            ..QpAttr::default()
        };
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        (attr, mask)
    }

    #[test]
    fn rtr_needs_all_its_attributes_and_a_grh() {
        let caps = DeviceCaps::default();
        let (attr, mask) = rtr();
        let check = |attr: &QpAttr, mask| check(QpType::Rc, &init(), attr, mask, &limits(&caps));
        assert_eq!(check(&attr, mask), Ok(QpState::Rtr));
        for missing in mask.difference(M::STATE).iter() {
            assert_eq!(
                check(&attr, mask.difference(missing)),
                Err(CommandError::Invalid),
                "without {missing:?}"
            );
        }
        assert_eq!(check(&attr, mask | M::QKEY), Err(CommandError::Invalid));
        assert_eq!(
            check(&QpAttr { path_mtu: 4, ..attr }, mask),
            Err(CommandError::Invalid),
            "above the port's MTU"
        );
        let ah = AddressVector::default();
        assert_eq!(
            check(&QpAttr { ah, ..attr }, mask),
            Err(CommandError::Invalid),
            "no GRH"
        );
        let deep = caps.max_rd_atomic + 1;
        assert_eq!(
            check(
                &QpAttr {
                    max_dest_rd_atomic: deep,
                    ..attr
                },
                mask
            ),
            Err(CommandError::Invalid)
        );
    }

    #[test]
    fn a_wrong_current_state_is_refused() {
        let caps = DeviceCaps::default();
        let current = QpAttr {
            qp_state: QpState::Rts,
            ..QpAttr::default()
        };
        let new = QpAttr {
            qp_state: QpState::Rts,
            cur_qp_state: QpState::Sqd,
            ..QpAttr::default()
        };
        let mask = M::STATE | M::CUR_STATE;
        assert_eq!(
            check(QpType::Rc, &current, &new, mask, &limits(&caps)),
            Err(CommandError::Invalid)
        );
        let new = QpAttr {
            cur_qp_state: QpState::Rts,
            ..new
        };
        assert_eq!(
            check(QpType::Rc, &current, &new, mask, &limits(&caps)),
            Ok(QpState::Rts)
        );
    }
}
