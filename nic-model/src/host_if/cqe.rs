//! Completion-queue entries: 64 bytes, the last word written last.

use bitflags::bitflags;
use bytemuck::{Pod, Zeroable};

/// Completion status; the values are those of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the verbs specification")]
pub enum WcStatus {
    #[default]
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    FatalErr = 19,
    GeneralErr = 21,
}

/// Completion opcode; the values are those of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the verbs specification")]
pub enum WcOpcode {
    #[default]
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

bitflags! {
    /// Flags of a CQE. The first four are `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CqeFlags: u8 {
        /// The first 40 bytes of the receive buffer hold a GRH (or IPv4 header in the last 20 of them).
        const GRH = 1;
        /// `imm` is immediate data, in network order.
        const WITH_IMM = 1 << 1;
        /// `imm` is a key the peer invalidated, in host order.
        const WITH_INV = 1 << 3;
        /// The completion belongs to the receive queue (valid for error completions too).
        const RECV = 1 << 4;
        /// The peer asked for a solicited event, or the completion is an error.
        const SOLICITED = 1 << 5;
        /// The driver has discarded the entry: its QP was destroyed.
        const DEAD = 1 << 6;
    }
}

/// One completion. In the ring the last eight bytes carry owner bit and status and are written last, with release
/// ordering, so an entry whose owner bit is right is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cqe {
    /// Work request id of the completed WQE.
    pub wr_id: u64,
    /// Device time of the completion, in nanoseconds.
    pub timestamp: u64,
    /// Bytes received, read, or exchanged by an atomic; for UD it includes the 40-byte GRH area.
    pub byte_len: u32,
    /// Immediate data or invalidated key, see [`CqeFlags`].
    pub imm: u32,
    /// Local QPN.
    pub qpn: u32,
    /// Sender's QPN (UD).
    pub src_qp: u32,
    /// Vendor error syndrome (0x81 for retries exceeded, as ConnectX reports it).
    pub vendor_err: u32,
    /// SQ slot index of the completed WQE, free-running: all WQEs up to it are retired. Zero for receives.
    pub wqe_index: u32,
    /// Zero.
    pub reserved: [u64; 2],
    /// Zero.
    pub reserved2: u32,
    /// [`WcOpcode`] value.
    pub opcode: u8,
    /// [`WcStatus`] value.
    pub status: u8,
    /// [`CqeFlags`] bits.
    pub flags: u8,
    /// Owner: 1 on the first, third … lap of the ring, 0 on the others. The ring sets it.
    pub owner: u8,
}

const _: () = {
    assert!(size_of::<Cqe>() == 64);
};
