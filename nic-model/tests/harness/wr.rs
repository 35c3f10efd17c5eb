//! Work requests, and how the driver writes them into slots.

use super::Buffer;
use core::ops::Range;
use nic_model::host_if::wqe::{AtomicSeg, DataSeg, RecvCtrl, RemoteSeg, SendCtrl, UdSeg, WqeFlags, WrOpcode};

/// A send work request. Every field is a knob; the constructors give plain, signaled ones.
#[derive(Clone, Debug)]
pub(crate) struct Wr {
    /// Opcode value, any byte.
    pub(crate) opcode: u8,
    pub(crate) wr_id: u64,
    pub(crate) flags: WqeFlags,
    pub(crate) sges: Vec<DataSeg>,
    /// Value of the count field, when it is to lie.
    pub(crate) num_sge: Option<u8>,
    pub(crate) inline: Option<Vec<u8>>,
    /// Value of the inline length field, when it is to lie.
    pub(crate) inline_len: Option<u32>,
    pub(crate) remote: (u64, u32),
    pub(crate) atomic: AtomicSeg,
    pub(crate) imm: u32,
    pub(crate) ud: Option<UdSeg>,
}

/// A range of a buffer as a data segment.
pub(crate) fn seg(buffer: &Buffer, range: Range<usize>) -> DataSeg {
    let length = u32::try_from(range.len()).unwrap();
    DataSeg {
        addr: buffer.addr + range.start as u64,
        length,
        lkey: buffer.key,
    }
}

impl Wr {
    fn new(opcode: WrOpcode) -> Self {
        Self {
            opcode: opcode as u8,
            wr_id: 0,
            flags: WqeFlags::SIGNALED,
            sges: Vec::new(),
            num_sge: None,
            inline: None,
            inline_len: None,
            remote: (0, 0),
            atomic: AtomicSeg::default(),
            imm: 0,
            ud: None,
        }
    }

    fn local(mut self, buffer: &Buffer, range: Range<usize>) -> Self {
        if !range.is_empty() {
            self.sges.push(seg(buffer, range));
        }
        self
    }

    pub(crate) fn send(buffer: &Buffer, range: Range<usize>) -> Self {
        Self::new(WrOpcode::Send).local(buffer, range)
    }

    /// WRITE of `range` of `from` to `offset` of `to`.
    pub(crate) fn write(from: &Buffer, range: Range<usize>, to: &Buffer, offset: usize) -> Self {
        Self::new(WrOpcode::RdmaWrite).local(from, range).at(to, offset)
    }

    /// READ into `range` of `into` from `offset` of `from`.
    pub(crate) fn read(into: &Buffer, range: Range<usize>, from: &Buffer, offset: usize) -> Self {
        Self::new(WrOpcode::RdmaRead).local(into, range).at(from, offset)
    }

    /// Add to the word at `offset` of `target`; the old value goes to `slot` of `result`.
    pub(crate) fn fetch_add(result: &Buffer, slot: usize, target: &Buffer, offset: usize, add: u64) -> Self {
        let mut wr = Self::new(WrOpcode::FetchAdd)
            .local(result, slot..slot + 8)
            .at(target, offset);
        wr.atomic.swap_add = add;
        wr
    }

    /// Swap in `swap` if the word at `offset` of `target` is `compare`.
    pub(crate) fn cmp_swap(result: &Buffer, slot: usize, target: &Buffer, offset: usize, swap: (u64, u64)) -> Self {
        let mut wr = Self::new(WrOpcode::CmpSwap)
            .local(result, slot..slot + 8)
            .at(target, offset);
        wr.atomic = AtomicSeg {
            compare: swap.0,
            swap_add: swap.1,
        };
        wr
    }

    pub(crate) fn at(mut self, target: &Buffer, offset: usize) -> Self {
        self.remote = (target.addr + offset as u64, target.key);
        self
    }

    /// Turn a SEND or WRITE into its kind with immediate data.
    pub(crate) fn imm(mut self, imm: u32) -> Self {
        self.opcode = match self.opcode {
            0 => WrOpcode::RdmaWriteImm as u8,
            _ => WrOpcode::SendImm as u8,
        };
        self.imm = imm;
        self
    }

    pub(crate) fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    pub(crate) fn flag(mut self, flags: WqeFlags) -> Self {
        self.flags |= flags;
        self
    }

    pub(crate) fn unsignaled(mut self) -> Self {
        self.flags.remove(WqeFlags::SIGNALED);
        self
    }

    pub(crate) fn inlined(mut self, bytes: &[u8]) -> Self {
        self.flags |= WqeFlags::INLINE;
        self.sges.clear();
        self.inline = Some(bytes.to_vec());
        self
    }

    /// To a datagram address.
    pub(crate) fn to(mut self, ud: UdSeg) -> Self {
        self.ud = Some(ud);
        self
    }

    /// The bytes of its slot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u8::try_from(self.sges.len()).unwrap();
        let ctrl = SendCtrl {
            opcode: self.opcode,
            flags: self.flags.bits(),
            num_sge: self.num_sge.unwrap_or(count),
            reserved: 0,
            imm: self.imm,
            wr_id: self.wr_id,
        };
        let actual = self
            .inline
            .as_ref()
            .map_or(0, |inline| u32::try_from(inline.len()).unwrap());
        let inline_len = self.inline_len.unwrap_or(actual);
        let mut out = bytemuck::bytes_of(&ctrl).to_vec();
        match self.ud {
            Some(ud) => out.extend_from_slice(bytemuck::bytes_of(&UdSeg { inline_len, ..ud })),
            None => {
                let remote = RemoteSeg {
                    addr: self.remote.0,
                    rkey: self.remote.1,
                    inline_len,
                };
                out.extend_from_slice(bytemuck::bytes_of(&remote));
            }
        }
        if WrOpcode::from_u8(self.opcode).is_some_and(WrOpcode::is_atomic) {
            out.extend_from_slice(bytemuck::bytes_of(&self.atomic));
        }
        match &self.inline {
            Some(inline) => out.extend_from_slice(inline),
            None => out.extend_from_slice(bytemuck::cast_slice(&self.sges)),
        }
        out
    }
}

/// A receive work request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recv {
    pub(crate) wr_id: u64,
    pub(crate) sges: Vec<DataSeg>,
    /// Value of the count field, when it is to lie.
    pub(crate) num_sge: Option<u32>,
}

impl Recv {
    pub(crate) fn into(buffer: &Buffer, range: Range<usize>) -> Self {
        let sges = if range.is_empty() {
            Vec::new()
        } else {
            vec![seg(buffer, range)]
        };
        Self {
            wr_id: 0,
            sges,
            num_sge: None,
        }
    }

    pub(crate) fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// The bytes of its slot.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.sges.len()).unwrap();
        let ctrl = RecvCtrl {
            wr_id: self.wr_id,
            num_sge: self.num_sge.unwrap_or(count),
            reserved: 0,
        };
        let mut out = bytemuck::bytes_of(&ctrl).to_vec();
        out.extend_from_slice(bytemuck::cast_slice(&self.sges));
        out
    }
}
