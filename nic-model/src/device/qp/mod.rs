//! Queue pairs: attributes every part reads ([`QpInfo`]) and the two halves that own their state.

pub(super) mod attr;
pub(super) mod state;
pub(super) mod table;

use super::requester::Requester;
use super::responder::Responder;
use super::ud::Datagram;
use crate::frame::Path;
use crate::host_if::command::ObjectId;
use crate::host_if::qp_attr::{QpAttr, QpState, QpType};
use crate::time::Time;
use roce_wire::bth::Bth;
use roce_wire::opcode::Opcode;
use roce_wire::psn::Psn;

/// What requester and responder need to know of their QP.
#[derive(Debug)]
pub(super) struct QpInfo {
    pub(super) qpn: u32,
    pub(super) qp_type: QpType,
    pub(super) pd: ObjectId,
    pub(super) send_cq: ObjectId,
    pub(super) recv_cq: ObjectId,
    pub(super) cookie: u64,
    pub(super) sq_sig_all: bool,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) attr: QpAttr,
    /// PMTU in bytes; the port's for UD.
    pub(super) mtu: u32,
    /// Path to the peer, from RTR on.
    pub(super) path: Option<Path>,
    /// No CNP before this time.
    pub(super) cnp_after: Time,
    /// COMM_EST was raised.
    pub(super) established: bool,
}

impl QpInfo {
    /// Index within the function.
    #[expect(clippy::cast_possible_truncation, reason = "the index is the low 16 bits of the QPN")]
    pub(super) const fn index(&self) -> u16 {
        self.qpn as u16
    }

    pub(super) const fn state(&self) -> QpState {
        self.attr.qp_state
    }

    /// A BTH to the peer.
    #[inline]
    pub(super) const fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let mut bth = Bth::new(opcode, self.attr.dest_qp_num, psn);
        bth.mig_req = true;
        bth
    }

    /// Whether requests are accepted.
    pub(super) const fn may_receive(&self) -> bool {
        matches!(self.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether acknowledgements and responses are accepted.
    pub(super) const fn may_complete(&self) -> bool {
        matches!(self.state(), QpState::Rts | QpState::Sqd)
    }
}

/// The halves of a QP, by transport service.
#[derive(Debug)]
pub(super) enum Service {
    /// Reliable connection.
    Rc(Box<Requester>, Box<Responder>),
    /// Unreliable datagram.
    Ud(Box<Datagram>),
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) info: QpInfo,
    pub(super) service: Service,
}
