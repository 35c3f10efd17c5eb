//! INIT_QP_ATTR: the attributes that take a QP to INIT, RTR and RTS, filled as the kernel fills them.

use super::command::{Response, qp_type};
use super::connection::Connection;
use super::id::Endpoint;
use super::path::AddressHandle;
use super::state::State;
use super::{Core, Errno};

/// `enum ibv_qp_attr_mask` bits used here.
pub mod mask {
    #![expect(missing_docs, reason = "the names are those of verbs.h without the prefix")]
    pub const STATE: u32 = 1;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const LAST_STATE: u32 = 6;
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;
/// Default queue key of the UDP and multicast port spaces.
pub const UDP_QKEY: u32 = 0x0123_4567;

/// Attributes for `ibv_modify_qp`; members the mask does not name are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members are those of struct ib_uverbs_qp_attr")]
pub struct QpAttributes {
    pub mask: u32,
    pub qp_state: u32,
    pub path_mtu: u8,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub access_flags: u32,
    pub ah: Option<AddressHandle>,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

impl Core {
    /// INIT_QP_ATTR.
    pub(super) fn init_qp_attr(&mut self, handle: u32, qp_state: u32) -> Result<Response, Errno> {
        if qp_state > LAST_STATE {
            return Err(libc::EINVAL);
        }
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        if id.device.is_none() {
            return Err(libc::EINVAL);
        }
        let mut attributes = match id.endpoint {
            Endpoint::Connection(comm_id) if id.qp_type != qp_type::UD => {
                let connection = self.connections.get(comm_id).ok_or(libc::EINVAL)?;
                of_connection(connection, qp_state)?
            }
            _ => {
                let mut attributes = QpAttributes {
                    mask: mask::STATE | mask::PKEY_INDEX | mask::PORT,
                    qp_state: INIT,
                    port_num: 1,
                    ..QpAttributes::default()
                };
                if qp_state != INIT {
                    return Err(libc::EINVAL);
                }
                if id.qp_type == qp_type::UD {
                    attributes.qkey = *id.qkey.get_or_insert(UDP_QKEY);
                    attributes.mask |= mask::QKEY;
                } else {
                    attributes.mask |= mask::ACCESS_FLAGS;
                }
                attributes
            }
        };
        if attributes.mask & mask::TIMEOUT != 0
            && let Some(timeout) = id.ack_timeout
        {
            attributes.timeout = timeout;
        }
        Ok(Response::QpAttributes(Box::new(attributes)))
    }
}

fn of_connection(connection: &Connection, qp_state: u32) -> Result<QpAttributes, Errno> {
    let mut attributes = QpAttributes {
        mask: mask::STATE,
        qp_state,
        ..QpAttributes::default()
    };
    match qp_state {
        INIT => {
            attributes.mask |= mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PORT;
            attributes.access_flags = REMOTE_WRITE;
            if connection.responder_resources != 0 {
                attributes.access_flags |= REMOTE_READ | REMOTE_ATOMIC;
            }
            attributes.port_num = 1;
        }
        RTR if knows_peer(connection.state) => {
            attributes.mask |= mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
            attributes.ah = Some(connection.path.address_handle(&connection.device));
            attributes.path_mtu = connection.path.mtu;
            attributes.dest_qp_num = connection.remote_qpn;
            attributes.rq_psn = connection.own_psn;
            attributes.port_num = 1;
            if matches!(connection.qp_type, qp_type::RC | qp_type::XRC_RECV) {
                attributes.mask |= mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
                attributes.max_dest_rd_atomic = connection.responder_resources;
            }
        }
        RTS if knows_peer(connection.state) => {
            attributes.mask |= mask::SQ_PSN;
            attributes.sq_psn = connection.peer_psn;
            if matches!(connection.qp_type, qp_type::RC | qp_type::XRC_SEND) {
                attributes.mask |= mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC | mask::TIMEOUT;
                attributes.retry_cnt = connection.retry_count;
                attributes.rnr_retry = connection.rnr_retry_count;
                attributes.max_rd_atomic = connection.initiator_depth;
                attributes.timeout = connection.ack_timeout;
            } else if connection.qp_type == qp_type::XRC_RECV {
                attributes.mask |= mask::TIMEOUT;
                attributes.timeout = connection.ack_timeout;
            }
        }
        _ => return Err(libc::EINVAL),
    }
    Ok(attributes)
}

/// States in which the peer's QP is known. An acceptor may ready its QP before it sends the REP.
const fn knows_peer(state: State) -> bool {
    matches!(
        state,
        State::ReqReceived | State::RepSent | State::MraRepReceived | State::RepReceived | State::Established
    )
}
