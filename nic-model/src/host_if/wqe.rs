//! Work-queue entries: what the driver writes into SQ and RQ slots.
//!
//! A send WQE is a control segment, a remote segment (RDMA and atomics) or address segment (UD), an atomic segment for
//! atomics, then data segments or inline bytes:
//!
//! ```text
//!  0        16          32            48
//!  | ctrl   | remote/ud | data[0..n]             |   SEND, WRITE, READ
//!  | ctrl   | remote    | atomic     | data[0]   |   CMP_SWAP, FETCH_ADD
//!  | ctrl   | remote/ud | inline bytes           |   INLINE flag set, length in remote.inline_len / ud.inline_len
//! ```
//!
//! A receive WQE is a [`RecvCtrl`] and its data segments. A slot holds one WQE; its stride is a multiple of 64 bytes
//! chosen when the queue is created ([`send_stride`], [`recv_stride`]). All fields are in host byte order except `imm`,
//! which is carried as the application gave it (network order by convention of the verbs).

use bitflags::bitflags;
use bytemuck::{Pod, Zeroable};

/// Smallest slot and granularity of strides, in bytes.
pub const WQE_BLOCK: usize = 64;
/// Where data segments or inline bytes of a non-atomic send WQE start.
pub const DATA_OFFSET: usize = 32;
/// Where the data segment of an atomic WQE starts.
pub const ATOMIC_DATA_OFFSET: usize = 48;
/// Where data segments of a receive WQE start.
pub const RECV_DATA_OFFSET: usize = 16;

/// Send opcodes; the values are those of `enum ibv_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WrOpcode {
    /// RDMA WRITE.
    RdmaWrite = 0,
    /// RDMA WRITE with immediate.
    RdmaWriteImm = 1,
    /// SEND.
    Send = 2,
    /// SEND with immediate.
    SendImm = 3,
    /// RDMA READ.
    RdmaRead = 4,
    /// Atomic compare and swap.
    CmpSwap = 5,
    /// Atomic fetch and add.
    FetchAdd = 6,
    /// Invalidate a local key.
    LocalInv = 7,
    /// Bind a memory window.
    BindMw = 8,
    /// SEND with invalidate.
    SendInv = 9,
}

impl WrOpcode {
    /// The opcode of that value, if the device knows it.
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::RdmaWrite,
            1 => Self::RdmaWriteImm,
            2 => Self::Send,
            3 => Self::SendImm,
            4 => Self::RdmaRead,
            5 => Self::CmpSwap,
            6 => Self::FetchAdd,
            7 => Self::LocalInv,
            8 => Self::BindMw,
            9 => Self::SendInv,
            _ => return None,
        })
    }

    /// Whether the WQE carries an [`AtomicSeg`].
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FetchAdd)
    }
}

bitflags! {
    /// Flags of a send WQE; the low bits are those of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WqeFlags: u8 {
        /// Wait until all earlier READs and atomics of the QP are complete.
        const FENCE = 1;
        /// Write a CQE on success.
        const SIGNALED = 1 << 1;
        /// Ask the peer for a solicited event.
        const SOLICITED = 1 << 2;
        /// The data is in the WQE.
        const INLINE = 1 << 3;
    }
}

/// Control segment, the first 16 bytes of a send WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SendCtrl {
    /// [`WrOpcode`] value.
    pub opcode: u8,
    /// [`WqeFlags`] bits.
    pub flags: u8,
    /// Number of data segments, 0 with inline data.
    pub num_sge: u8,
    /// Zero.
    pub reserved: u8,
    /// Immediate data as the application gave it, or the key to invalidate.
    pub imm: u32,
    /// Work request id, returned in the CQE.
    pub wr_id: u64,
}

/// Remote-address segment of an RDMA or atomic WQE, bytes 16..32. Also holds the inline length of any connected WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RemoteSeg {
    /// Remote virtual address.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of inline data after the segment when INLINE is set.
    pub inline_len: u32,
}

/// Address segment of a UD WQE, bytes 16..32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct UdSeg {
    /// Address handle number, from the CREATE_AH command.
    pub ah: u32,
    /// Destination QPN.
    pub qpn: u32,
    /// Q_Key; with its top bit set the QP's own is used.
    pub qkey: u32,
    /// Bytes of inline data after the segment when INLINE is set.
    pub inline_len: u32,
}

/// Operands of an atomic WQE, bytes 32..48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AtomicSeg {
    /// Swap value, or the addend.
    pub swap_add: u64,
    /// Compare value.
    pub compare: u64,
}

/// One scatter/gather element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DataSeg {
    /// Virtual address (offset for a zero-based MR).
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// Control segment of a receive WQE, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RecvCtrl {
    /// Work request id, returned in the CQE.
    pub wr_id: u64,
    /// Number of data segments.
    pub num_sge: u32,
    /// Zero.
    pub reserved: u32,
}

/// Slot size in bytes of an SQ whose WQEs carry up to `max_sge` segments or `max_inline` bytes.
pub const fn send_stride(max_sge: u32, max_inline: u32) -> usize {
    let sge = max_sge as usize * size_of::<DataSeg>();
    let inline = max_inline as usize;
    // An atomic needs one data segment behind its operands whatever the other limits are.
    let plain = DATA_OFFSET + if sge > inline { sge } else { inline };
    let atomic = ATOMIC_DATA_OFFSET + size_of::<DataSeg>();
    let need = if plain > atomic { plain } else { atomic };
    need.next_multiple_of(WQE_BLOCK)
}

/// Bytes of inline data that fit in a slot of that stride.
pub const fn inline_capacity(stride: usize) -> usize {
    stride - DATA_OFFSET
}

/// Slot size in bytes of an RQ whose WQEs carry up to `max_sge` segments.
pub const fn recv_stride(max_sge: u32) -> usize {
    (RECV_DATA_OFFSET + max_sge as usize * size_of::<DataSeg>()).next_multiple_of(WQE_BLOCK)
}

const _: () = {
    assert!(size_of::<SendCtrl>() == 16 && size_of::<RemoteSeg>() == 16 && size_of::<UdSeg>() == 16);
    assert!(size_of::<AtomicSeg>() == 16 && size_of::<DataSeg>() == 16 && size_of::<RecvCtrl>() == 16);
    assert!(send_stride(1, 0) == 64 && send_stride(2, 32) == 64 && send_stride(3, 0) == 128);
    assert!(recv_stride(3) == 64 && recv_stride(0) == 64 && recv_stride(4) == 128);
};
