//! Protection domains and memory regions: who may touch what.
//!
//! A key is a 24-bit table index and an 8-bit variant that changes with every registration in the slot, so that a stale
//! key fails. Every access of the device, local or remote, passes [`Memory::local`] or [`Memory::remote`] and comes out
//! as an admitted range or an error (IBTA 10.6).

use super::dma::{self, HostRange};
use crate::host_if::command::{CommandError, ObjectId};
use crate::host_if::qp_attr::Access;
use crate::host_if::wqe::DataSeg;
use std::collections::VecDeque;

/// A memory region.
#[derive(Clone, Copy, Debug)]
struct Region {
    pd: ObjectId,
    addr: u64,
    length: u64,
    iova: u64,
    access: Access,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    variant: u8,
    region: Option<Region>,
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No such key, or it belongs to another PD.
    Key,
    /// Outside the region.
    Bounds,
    /// The region lacks the right.
    Rights,
}

#[derive(Debug, Default)]
struct Pd {
    users: u32,
}

/// PD and MR tables of one function.
#[derive(Debug)]
pub(super) struct Memory {
    pds: Vec<Option<Pd>>,
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    max_pd: u32,
    max_mr: u32,
}

/// Keys freed are reused only after this many others, so that a stale key keeps failing for long.
const KEY_REUSE_DELAY: usize = 64;

impl Memory {
    pub(super) fn new(max_pd: u32, max_mr: u32) -> Self {
        // Index 0 stays unused: key 0 is what an application passes by mistake.
        Self {
            pds: Vec::new(),
            slots: vec![Slot::default()],
            free: VecDeque::new(),
            max_pd,
            max_mr,
        }
    }

    pub(super) fn alloc_pd(&mut self) -> Result<ObjectId, CommandError> {
        let index = self.pds.iter().position(Option::is_none).unwrap_or(self.pds.len());
        let id = u32::try_from(index)
            .ok()
            .filter(|id| *id < self.max_pd)
            .ok_or(CommandError::NoResources)?;
        if index == self.pds.len() {
            self.pds.push(None);
        }
        self.pds[index] = Some(Pd::default());
        Ok(id)
    }

    pub(super) fn dealloc_pd(&mut self, pd: ObjectId) -> Result<(), CommandError> {
        let slot = self.pds.get_mut(pd as usize).ok_or(CommandError::Invalid)?;
        match slot {
            Some(Pd { users: 0 }) => {
                *slot = None;
                Ok(())
            }
            Some(_) => Err(CommandError::Busy),
            None => Err(CommandError::Invalid),
        }
    }

    /// Count a user of the PD.
    pub(super) fn hold_pd(&mut self, pd: ObjectId) -> Result<(), CommandError> {
        let pd = self
            .pds
            .get_mut(pd as usize)
            .and_then(Option::as_mut)
            .ok_or(CommandError::Invalid)?;
        pd.users += 1;
        Ok(())
    }

    /// Forget a user of the PD.
    pub(super) fn release_pd(&mut self, pd: ObjectId) {
        if let Some(pd) = self.pds.get_mut(pd as usize).and_then(Option::as_mut) {
            pd.users = pd.users.saturating_sub(1);
        }
    }

    /// Register a region; lkey and rkey are equal, as on most NICs.
    pub(super) fn register(
        &mut self,
        pd: ObjectId,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<u32, CommandError> {
        let remote_write = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let wraps = addr.checked_add(length).is_none() || iova.checked_add(length).is_none();
        if wraps || (remote_write && !access.contains(Access::LOCAL_WRITE)) {
            return Err(CommandError::Invalid);
        }
        let index = if self.free.len() > KEY_REUSE_DELAY || self.slots.len() > self.max_mr as usize {
            self.free.pop_front().ok_or(CommandError::NoResources)?
        } else {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).map_err(|_| CommandError::NoResources)?
        };
        self.hold_pd(pd).inspect_err(|_| self.free.push_back(index))?;
        let slot = &mut self.slots[index as usize];
        slot.variant = slot.variant.wrapping_add(1);
        slot.region = Some(Region {
            pd,
            addr,
            length,
            iova,
            access,
        });
        Ok(index << 8 | u32::from(slot.variant))
    }

    pub(super) fn deregister(&mut self, lkey: u32) -> Result<(), CommandError> {
        let slot = self
            .slots
            .get_mut((lkey >> 8) as usize)
            .filter(|slot| u32::from(slot.variant) == lkey & 0xff);
        let region = slot.and_then(|slot| slot.region.take()).ok_or(CommandError::Invalid)?;
        self.release_pd(region.pd);
        self.free.push_back(lkey >> 8);
        Ok(())
    }

    #[inline]
    fn check(&self, pd: ObjectId, key: u32, va: u64, length: usize, need: Access) -> Result<HostRange, Refused> {
        let slot = self.slots.get((key >> 8) as usize).ok_or(Refused::Key)?;
        let region = slot
            .region
            .as_ref()
            .filter(|region| region.pd == pd)
            .ok_or(Refused::Key)?;
        if u32::from(slot.variant) != key & 0xff {
            return Err(Refused::Key);
        }
        if !region.access.contains(need) {
            return Err(Refused::Rights);
        }
        let offset = va.checked_sub(region.iova).ok_or(Refused::Bounds)?;
        let end = offset.checked_add(length as u64).ok_or(Refused::Bounds)?;
        if end > region.length {
            return Err(Refused::Bounds);
        }
        Ok(HostRange::admitted(region.addr + offset, length))
    }

    /// Admit an access by a local key; reading needs no right, writing LOCAL_WRITE.
    #[inline]
    pub(super) fn local(
        &self,
        pd: ObjectId,
        lkey: u32,
        addr: u64,
        length: usize,
        write: bool,
    ) -> Result<HostRange, Refused> {
        let need = if write { Access::LOCAL_WRITE } else { Access::empty() };
        self.check(pd, lkey, addr, length, need)
    }

    /// Admit an access by a remote key.
    #[inline]
    pub(super) fn remote(
        &self,
        pd: ObjectId,
        rkey: u32,
        va: u64,
        length: usize,
        need: Access,
    ) -> Result<HostRange, Refused> {
        self.check(pd, rkey, va, length, need)
    }

    /// Append `length` bytes from `offset` of a scatter/gather list to `out`.
    #[inline]
    pub(super) fn gather(
        &self,
        pd: ObjectId,
        list: &[DataSeg],
        offset: u64,
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        self.walk(pd, list, offset, length, false, |range, _| dma::read(range, out))
    }

    /// Copy `data` to `offset` of a scatter/gather list; with `last` its final bytes become visible after all others.
    #[inline]
    pub(super) fn scatter(
        &self,
        pd: ObjectId,
        list: &[DataSeg],
        offset: u64,
        data: &[u8],
        last: bool,
    ) -> Result<(), Refused> {
        self.walk(pd, list, offset, data.len(), true, |range, done| {
            let part = &data[done..done + range.len()];
            if last && done + part.len() == data.len() {
                dma::write_last(range, part);
            } else {
                dma::write(range, part);
            }
        })
    }

    /// Whether every segment of the list may be accessed whole.
    pub(super) fn admits(&self, pd: ObjectId, list: &[DataSeg], write: bool) -> Result<(), Refused> {
        for seg in list.iter().filter(|seg| seg.length > 0) {
            self.local(pd, seg.lkey, seg.addr, seg.length as usize, write)?;
        }
        Ok(())
    }

    fn walk(
        &self,
        pd: ObjectId,
        list: &[DataSeg],
        offset: u64,
        length: usize,
        write: bool,
        mut each: impl FnMut(HostRange, usize),
    ) -> Result<(), Refused> {
        let mut skip = offset;
        let mut done = 0;
        for seg in list {
            if done == length {
                break;
            }
            let seg_len = u64::from(seg.length);
            if skip >= seg_len {
                skip -= seg_len;
                continue;
            }
            let room = usize::try_from(seg_len - skip).map_err(|_| Refused::Bounds)?;
            let part = room.min(length - done);
            let addr = seg.addr.checked_add(skip).ok_or(Refused::Bounds)?;
            each(self.local(pd, seg.lkey, addr, part, write)?, done);
            skip = 0;
            done += part;
        }
        if done == length { Ok(()) } else { Err(Refused::Bounds) }
    }
}

/// Total length of a scatter/gather list.
pub(super) fn list_length(list: &[DataSeg]) -> u64 {
    list.iter().map(|seg| u64::from(seg.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(memory: &mut Memory, bytes: &mut [u8], access: Access) -> (ObjectId, u32) {
        let pd = memory.alloc_pd().unwrap();
        let addr = bytes.as_mut_ptr() as u64;
        (
            pd,
            memory.register(pd, addr, bytes.len() as u64, 0x1000, access).unwrap(),
        )
    }

    #[test]
    fn bounds_rights_keys_and_domains_are_checked() {
        let mut memory = Memory::new(8, 8);
        let mut bytes = [0u8; 64];
        let (pd, key) = region(&mut memory, &mut bytes, Access::REMOTE_READ);
        assert!(memory.remote(pd, key, 0x1000, 64, Access::REMOTE_READ).is_ok());
        assert_eq!(
            memory.remote(pd, key, 0x1000, 65, Access::REMOTE_READ),
            Err(Refused::Bounds)
        );
        assert_eq!(
            memory.remote(pd, key, 0xfff, 1, Access::REMOTE_READ),
            Err(Refused::Bounds)
        );
        assert_eq!(
            memory.remote(pd, key, u64::MAX, 2, Access::REMOTE_READ),
            Err(Refused::Bounds)
        );
        assert_eq!(
            memory.remote(pd, key, 0x1000, 1, Access::REMOTE_WRITE),
            Err(Refused::Rights)
        );
        assert_eq!(
            memory.remote(pd, key ^ 1, 0x1000, 1, Access::REMOTE_READ),
            Err(Refused::Key)
        );
        assert_eq!(
            memory.remote(pd + 1, key, 0x1000, 1, Access::REMOTE_READ),
            Err(Refused::Key)
        );
        assert_eq!(memory.dealloc_pd(pd), Err(CommandError::Busy));
        memory.deregister(key).unwrap();
        assert_eq!(
            memory.remote(pd, key, 0x1000, 1, Access::REMOTE_READ),
            Err(Refused::Key)
        );
        assert_eq!(memory.dealloc_pd(pd), Ok(()));
    }

    #[test]
    fn remote_write_needs_local_write() {
        let mut memory = Memory::new(8, 8);
        let pd = memory.alloc_pd().unwrap();
        assert_eq!(
            memory.register(pd, 0x1000, 8, 0, Access::REMOTE_WRITE),
            Err(CommandError::Invalid)
        );
        assert_eq!(
            memory.register(pd, u64::MAX, 8, 0, Access::empty()),
            Err(CommandError::Invalid)
        );
    }

    #[test]
    fn a_list_is_walked_across_segments() {
        let mut memory = Memory::new(8, 8);
        let mut bytes: Vec<u8> = (0..64).collect();
        let (pd, key) = region(&mut memory, &mut bytes, Access::LOCAL_WRITE);
        let list = [
            DataSeg {
                addr: 0x1000,
                length: 10,
                lkey: key,
            },
            DataSeg {
                addr: 0x1020,
                length: 0,
                lkey: key,
            },
            DataSeg {
                addr: 0x1020,
                length: 10,
                lkey: key,
            },
        ];
        let mut out = Vec::new();
        memory.gather(pd, &list, 8, 4, &mut out).unwrap();
        assert_eq!(out, [8, 9, 32, 33]);
        assert_eq!(memory.gather(pd, &list, 18, 4, &mut out), Err(Refused::Bounds));
        memory.scatter(pd, &list, 9, &[1, 2, 3], true).unwrap();
        assert_eq!((bytes[9], bytes[32], bytes[33], bytes[34]), (1, 2, 3, 34));
    }
}
