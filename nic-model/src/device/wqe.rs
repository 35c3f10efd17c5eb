//! Fetching and decoding WQEs. Nothing in them is trusted.

use crate::host_if::ring::WorkQueue;
use crate::host_if::wqe::{
    ATOMIC_DATA_OFFSET, AtomicSeg, DATA_OFFSET, DataSeg, RECV_DATA_OFFSET, RecvCtrl, RemoteSeg, SendCtrl, UdSeg,
    WqeFlags, WrOpcode,
};

/// The device's copy of one WQE, kept while consecutive segments need it.
#[derive(Debug)]
pub(super) struct WqeImage {
    words: Box<[u64]>,
    index: Option<u32>,
}

impl WqeImage {
    pub(super) fn new(stride: usize) -> Self {
        Self {
            words: vec![0; stride / 8].into_boxed_slice(),
            index: None,
        }
    }

    /// The WQE of that free-running index, fetched unless it is the one at hand.
    #[inline]
    pub(super) fn load(&mut self, queue: &WorkQueue, index: u32) -> &[u8] {
        if self.index != Some(index) {
            queue.read(index, bytemuck::cast_slice_mut(&mut self.words));
            self.index = Some(index);
        }
        bytemuck::cast_slice(&self.words)
    }
}

/// A decoded send WQE.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWqe<'a> {
    pub(super) ctrl: SendCtrl,
    pub(super) flags: WqeFlags,
    pub(super) opcode: Option<WrOpcode>,
    pub(super) remote: RemoteSeg,
    pub(super) atomic: AtomicSeg,
    /// Data segments; empty with inline data.
    pub(super) list: &'a [DataSeg],
    /// Inline bytes, when the INLINE flag is set.
    pub(super) inline: Option<&'a [u8]>,
}

/// The WQE's counts do not fit its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Work request id of a send WQE, whatever the rest of it holds.
pub(super) fn send_wr_id(image: &[u8]) -> u64 {
    image
        .get(..16)
        .map_or(0, |head| bytemuck::pod_read_unaligned::<SendCtrl>(head).wr_id)
}

/// Work request id of a receive WQE, whatever the rest of it holds.
pub(super) fn recv_wr_id(image: &[u8]) -> u64 {
    image
        .get(..RECV_DATA_OFFSET)
        .map_or(0, |head| bytemuck::pod_read_unaligned::<RecvCtrl>(head).wr_id)
}

fn segments(image: &[u8], offset: usize, count: usize) -> Result<&[DataSeg], Malformed> {
    let end = offset + count * size_of::<DataSeg>();
    let bytes = image.get(offset..end).ok_or(Malformed)?;
    bytemuck::try_cast_slice(bytes).map_err(|_| Malformed)
}

impl<'a> SendWqe<'a> {
    #[inline]
    pub(super) fn decode(image: &'a [u8]) -> Result<Self, Malformed> {
        let head = image.get(..DATA_OFFSET).ok_or(Malformed)?;
        let ctrl: SendCtrl = bytemuck::pod_read_unaligned(&head[..16]);
        let remote: RemoteSeg = bytemuck::pod_read_unaligned(&head[16..32]);
        let flags = WqeFlags::from_bits_truncate(ctrl.flags);
        let opcode = WrOpcode::from_u8(ctrl.opcode);
        let mut wqe = Self {
            ctrl,
            flags,
            opcode,
            remote,
            atomic: AtomicSeg::default(),
            list: &[],
            inline: None,
        };
        let count = usize::from(ctrl.num_sge);
        if opcode.is_some_and(WrOpcode::is_atomic) {
            let operands = image.get(DATA_OFFSET..ATOMIC_DATA_OFFSET).ok_or(Malformed)?;
            wqe.atomic = bytemuck::pod_read_unaligned(operands);
            wqe.list = segments(image, ATOMIC_DATA_OFFSET, count)?;
        } else if flags.contains(WqeFlags::INLINE) {
            let end = DATA_OFFSET.checked_add(remote.inline_len as usize).ok_or(Malformed)?;
            wqe.inline = Some(image.get(DATA_OFFSET..end).ok_or(Malformed)?);
        } else {
            wqe.list = segments(image, DATA_OFFSET, count)?;
        }
        Ok(wqe)
    }

    /// The address segment of a UD WQE.
    pub(super) fn ud(&self) -> UdSeg {
        bytemuck::cast(self.remote)
    }
}

/// A decoded receive WQE.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvWqe<'a> {
    pub(super) list: &'a [DataSeg],
}

impl<'a> RecvWqe<'a> {
    #[inline]
    pub(super) fn decode(image: &'a [u8]) -> Result<Self, Malformed> {
        let head = image.get(..RECV_DATA_OFFSET).ok_or(Malformed)?;
        let ctrl: RecvCtrl = bytemuck::pod_read_unaligned(head);
        let count = usize::try_from(ctrl.num_sge).map_err(|_| Malformed)?;
        if count > image.len() {
            return Err(Malformed);
        }
        Ok(Self {
            list: segments(image, RECV_DATA_OFFSET, count)?,
        })
    }
}
