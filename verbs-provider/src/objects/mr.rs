//! Memory regions.

use super::mapping;
use super::pd::PdCore;
use crate::abi::verbs::{IBV_ACCESS_OPTIONAL_RANGE, ibv_mr};
use crate::boundary::Errno;
use crate::device::errno_of;
use nic_model::host_if::qp_attr::Access;
use nic_model::host_if::{Command, Reply};
use std::cell::UnsafeCell;

/// The working part of an MR.
#[derive(Debug)]
pub struct MrCore {
    /// Its PD.
    pub pd: PdCore,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// An MR as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Mr {
    /// Its public structure.
    pub public: UnsafeCell<ibv_mr>,
    /// The working part.
    pub core: MrCore,
}

impl MrCore {
    /// Register `length` bytes at `addr`, known to WQEs and peers by addresses from `iova` on.
    pub fn register(pd: &PdCore, addr: u64, length: u64, iova: u64, flags: u32) -> Result<Self, Errno> {
        let access = access(flags)?;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        if iova.checked_add(length).is_none() {
            return Err(Errno::INVAL);
        }
        if !mapping::is_mapped(addr, length, access.contains(Access::LOCAL_WRITE)) {
            return Err(Errno::FAULT);
        }
        let command = Command::RegMr {
            pd: pd.id,
            addr,
            length,
            iova,
            access,
        };
        match pd.engine.command(command).map_err(errno_of)? {
            Reply::Keys { lkey, rkey } => Ok(Self {
                pd: pd.clone(),
                lkey,
                rkey,
            }),
            _ => Err(Errno::IO),
        }
    }

    /// Deregister it.
    pub fn deregister(&self) -> Result<(), Errno> {
        self.pd
            .device
            .release(&self.pd.engine, Command::DeregMr { lkey: self.lkey })
    }
}

/// The rights that `flags` ask for. Flags from the optional range are hints and dropped; the others must be known.
fn access(flags: u32) -> Result<Access, Errno> {
    let access = Access::from_bits(flags & !IBV_ACCESS_OPTIONAL_RANGE).ok_or(Errno::INVAL)?;
    if access.contains(Access::ON_DEMAND) {
        return Err(Errno::OPNOTSUPP);
    }
    // A peer may not be given more than the owner has (IBTA 10.6.3.1).
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Errno::INVAL);
    }
    // Page size is no business of a device that copies.
    Ok(access - Access::HUGETLB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writing_needs_local_writing() {
        for remote in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert_eq!(access(remote.bits()), Err(Errno::INVAL));
            let both = remote | Access::LOCAL_WRITE;
            assert_eq!(access(both.bits()), Ok(both));
        }
        assert_eq!(access(Access::REMOTE_READ.bits()), Ok(Access::REMOTE_READ));
        assert_eq!(access(0), Ok(Access::empty()));
    }

    #[test]
    fn optional_flags_are_hints_and_unknown_ones_errors() {
        let relaxed = Access::LOCAL_WRITE | Access::RELAXED_ORDERING;
        assert_eq!(access(relaxed.bits() | 1 << 29), Ok(Access::LOCAL_WRITE));
        assert_eq!(access(1 << 8), Err(Errno::INVAL));
        assert_eq!(access(1 << 30), Err(Errno::INVAL));
        assert_eq!(
            access((Access::LOCAL_WRITE | Access::HUGETLB).bits()),
            Ok(Access::LOCAL_WRITE)
        );
        assert_eq!(access(Access::ON_DEMAND.bits()), Err(Errno::OPNOTSUPP));
    }
}
