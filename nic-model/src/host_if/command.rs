//! The serial command queue: the control path of the device.
//!
//! Commands run one at a time, in order, each to completion. A command is refused as a whole or done as a whole.

use super::qp_attr::{Access, AddressVector, Gid, QpAttr, QpAttrMask, QpType};
use super::ring::{CompletionQueue, WorkQueue};
use std::sync::Arc;
use thiserror::Error;

/// Number of a PD, CQ, AH within a function.
pub type ObjectId = u32;

/// A command to the device.
#[derive(Clone, Debug)]
pub enum Command {
    /// Put a GID into the port's table; a zero GID empties the slot.
    SetGid {
        /// Slot.
        index: u8,
        /// Address.
        gid: Gid,
    },
    /// Create a protection domain → [`Reply::Id`].
    AllocPd,
    /// Destroy a PD; `Busy` while objects use it.
    DeallocPd {
        /// The PD.
        pd: ObjectId,
    },
    /// Register `length` bytes at `addr` → [`Reply::Keys`]. The driver has checked that the range is mapped.
    RegMr {
        /// The PD.
        pd: ObjectId,
        /// Address in the process.
        addr: u64,
        /// Bytes; may be 0.
        length: u64,
        /// Address by which WQEs and peers name the first byte.
        iova: u64,
        /// Rights.
        access: Access,
    },
    /// Deregister by lkey.
    DeregMr {
        /// lkey of the MR.
        lkey: u32,
    },
    /// Create a CQ over `ring` → [`Reply::Id`].
    CreateCq {
        /// The ring, shared with the driver.
        ring: Arc<CompletionQueue>,
        /// Entries the application asked for; overrun is judged by the ring's real size.
        cqe: u32,
        /// Handed back in events.
        cookie: u64,
    },
    /// Destroy a CQ; `Busy` while QPs use it.
    DestroyCq {
        /// The CQ.
        cq: ObjectId,
    },
    /// Create a QP over two rings → [`Reply::Qpn`].
    CreateQp {
        /// The PD.
        pd: ObjectId,
        /// Transport service.
        qp_type: QpType,
        /// CQ of the SQ.
        send_cq: ObjectId,
        /// CQ of the RQ.
        recv_cq: ObjectId,
        /// SQ ring.
        sq: Arc<WorkQueue>,
        /// RQ ring.
        rq: Arc<WorkQueue>,
        /// SQ WQEs the application asked for.
        max_send_wr: u32,
        /// RQ WQEs the application asked for.
        max_recv_wr: u32,
        /// Most data segments of a send WQE.
        max_send_sge: u32,
        /// Most data segments of a receive WQE.
        max_recv_sge: u32,
        /// Complete every send WQE with a CQE.
        sq_sig_all: bool,
        /// Handed back in async events.
        cookie: u64,
    },
    /// Change attributes or state of a QP.
    ModifyQp {
        /// The QP.
        qpn: u32,
        /// Values.
        attr: QpAttr,
        /// Which of them are given.
        mask: QpAttrMask,
    },
    /// Read attributes → [`Reply::Qp`].
    QueryQp {
        /// The QP.
        qpn: u32,
    },
    /// Destroy a QP. No CQE or event of it appears afterwards; the driver discards those already in the CQs.
    DestroyQp {
        /// The QP.
        qpn: u32,
    },
    /// Create an address handle → [`Reply::Id`].
    CreateAh {
        /// The PD.
        pd: ObjectId,
        /// The path.
        av: AddressVector,
    },
    /// Destroy an address handle.
    DestroyAh {
        /// The AH.
        ah: ObjectId,
    },
}

/// What a command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done,
    /// Number of the new object.
    Id(ObjectId),
    /// Number of the new QP.
    Qpn(u32),
    /// Keys of the new MR.
    Keys {
        /// Local key.
        lkey: u32,
        /// Remote key.
        rkey: u32,
    },
    /// Attributes of a QP.
    Qp(Box<QpAttr>),
}

/// Why the device refused a command; the driver turns it into an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// EINVAL: an argument, attribute mask or transition is not allowed.
    #[error("invalid argument or state transition")]
    Invalid,
    /// ENOMEM: the function's limit for that object is reached.
    #[error("device limit reached")]
    NoResources,
    /// EBUSY: other objects use it.
    #[error("object in use")]
    Busy,
    /// EOPNOTSUPP: not a capability of the device.
    #[error("operation not supported")]
    Unsupported,
    /// ENETUNREACH: no route for the address vector.
    #[error("destination unreachable")]
    Unreachable,
}
