//! Protection domains.

use super::context::ContextCore;
use crate::abi::verbs::ibv_pd;
use crate::boundary::Errno;
use crate::device::{Device, errno_of, id_of};
use nic_model::host_if::Command;
use nic_model::port::engine::Engine;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// The working part of a PD.
#[derive(Clone, Debug)]
pub struct PdCore {
    /// Number of the PD on the device.
    pub id: u32,
    /// The device.
    pub device: Arc<Device>,
    /// Its NIC.
    pub engine: Arc<Engine>,
}

/// A PD as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Pd {
    /// Its public structure.
    pub public: UnsafeCell<ibv_pd>,
    /// The working part.
    pub core: PdCore,
}

impl PdCore {
    /// A PD in `context`.
    pub fn create(context: &ContextCore) -> Result<Self, Errno> {
        let device = Arc::clone(&context.device);
        let engine = device.engine()?;
        let id = id_of(&engine.command(Command::AllocPd).map_err(errno_of)?)?;
        Ok(Self { id, device, engine })
    }

    /// Destroy it; `EBUSY` while objects use it.
    pub fn destroy(&self) -> Result<(), Errno> {
        self.device.release(&self.engine, Command::DeallocPd { pd: self.id })
    }
}
