//! The QP state machine as a table (IBTA 10.3.1 and 11.2.5.2).
//!
//! One row for each transition the application may command: the attributes it must carry and those it may carry. What
//! is not in the table is refused. Transitions the device makes by itself (to ERR on a fault, to SQE on a UD send
//! fault) are events of [`on_fault`].

use crate::host_if::qp_attr::{QpAttrMask as M, QpState, QpType};
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Attributes of one transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) struct Rule {
    pub(in crate::device) required: M,
    pub(in crate::device) optional: M,
}

const fn rule(required: M, optional: M) -> Option<Rule> {
    Some(Rule { required, optional })
}

const NONE: M = M::empty();
const INIT_RC: M = M::PKEY_INDEX.union(M::PORT).union(M::ACCESS_FLAGS);
const INIT_UD: M = M::PKEY_INDEX.union(M::PORT).union(M::QKEY);
const RTR_UC: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
const RTR_RC: M = RTR_UC.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER);
const RTR_OPT: M = M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX);
const RTS_RC: M = M::SQ_PSN
    .union(M::TIMEOUT)
    .union(M::RETRY_CNT)
    .union(M::RNR_RETRY)
    .union(M::MAX_QP_RD_ATOMIC);
const LIVE_UC: M = M::CUR_STATE
    .union(M::ALT_PATH)
    .union(M::ACCESS_FLAGS)
    .union(M::PATH_MIG_STATE)
    .union(M::RATE_LIMIT);
const LIVE_RC: M = LIVE_UC.union(M::MIN_RNR_TIMER);
const LIVE_UD: M = M::CUR_STATE.union(M::QKEY).union(M::RATE_LIMIT);
const DRAINED_UC: M = M::AV
    .union(M::ALT_PATH)
    .union(M::ACCESS_FLAGS)
    .union(M::PKEY_INDEX)
    .union(M::PATH_MIG_STATE);
const DRAINED_RC: M = DRAINED_UC
    .union(M::PORT)
    .union(M::TIMEOUT)
    .union(M::RETRY_CNT)
    .union(M::RNR_RETRY)
    .union(M::MAX_QP_RD_ATOMIC)
    .union(M::MAX_DEST_RD_ATOMIC)
    .union(M::MIN_RNR_TIMER);

/// The rule of a commanded transition, `None` when it is not allowed.
pub(in crate::device) const fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Rule> {
    use QpType::{Rc, Uc, Ud};
    match (from, to, qp_type) {
        (_, Reset, _) => rule(NONE, NONE),
        (Init | Rtr | Rts | Sqd | Sqe | Err, Err, _) => rule(NONE, NONE),
        (Reset, Init, Rc | Uc) => rule(INIT_RC, NONE),
        (Reset, Init, Ud) => rule(INIT_UD, NONE),
        (Init, Init, Rc | Uc) => rule(NONE, INIT_RC),
        (Init, Init, Ud) => rule(NONE, INIT_UD),
        (Init, Rtr, Rc) => rule(RTR_RC, RTR_OPT),
        (Init, Rtr, Uc) => rule(RTR_UC, RTR_OPT),
        (Init, Rtr, Ud) => rule(NONE, M::PKEY_INDEX.union(M::QKEY)),
        (Rtr, Rts, Rc) => rule(RTS_RC, LIVE_RC),
        (Rtr, Rts, Uc) => rule(M::SQ_PSN, LIVE_UC),
        (Rtr, Rts, Ud) => rule(M::SQ_PSN, LIVE_UD),
        (Rts | Sqd, Rts, Rc) => rule(NONE, LIVE_RC),
        (Rts | Sqd | Sqe, Rts, Uc) => rule(NONE, LIVE_UC),
        (Rts | Sqd | Sqe, Rts, Ud) => rule(NONE, LIVE_UD),
        (Rts, Sqd, _) => rule(NONE, M::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd, Rc) => rule(NONE, DRAINED_RC),
        (Sqd, Sqd, Uc) => rule(NONE, DRAINED_UC),
        (Sqd, Sqd, Ud) => rule(NONE, M::PKEY_INDEX.union(M::QKEY)),
        _ => None,
    }
}

/// Faults that move a QP by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum Fault {
    /// A send WQE completed in error.
    Send,
    /// The responder refused a request, or a receive WQE completed in error.
    Receive,
    /// A CQ of the QP was overrun.
    CqOverrun,
}

/// The state a fault leads to.
pub(in crate::device) const fn on_fault(qp_type: QpType, from: QpState, fault: Fault) -> QpState {
    match (from, fault, qp_type) {
        (Reset | Init, _, _) => from,
        (Rts | Sqe, Fault::Send, QpType::Ud | QpType::Uc) => Sqe,
        // A receive fault costs a datagram QP one message, not its life.
        (_, Fault::Receive, QpType::Ud) => from,
        _ => Err,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    #[test]
    fn every_state_and_command() {
        let mut table = String::new();
        for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
            for from in STATES {
                for to in STATES {
                    let _ = match transition(qp_type, from, to) {
                        None => writeln!(table, "{qp_type:?} {from:?} -> {to:?}: refused"),
                        Some(Rule { required, optional }) => {
                            let names = |mask: M| mask.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
                            let (required, optional) = (names(required), names(optional));
                            writeln!(table, "{qp_type:?} {from:?} -> {to:?}: {required} [{optional}]")
                        }
                    };
                }
                for fault in [Fault::Send, Fault::Receive, Fault::CqOverrun] {
                    let _ = writeln!(
                        table,
                        "{qp_type:?} {from:?} !{fault:?}: {:?}",
                        on_fault(qp_type, from, fault)
                    );
                }
            }
        }
        insta::assert_snapshot!(table);
    }
}
