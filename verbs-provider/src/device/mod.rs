//! The devices an application sees: one for each network interface that is up.
//!
//! A [`Device`] is process-wide. It knows the interface's addresses from the start, but the NIC behind it (an
//! [`Engine`]: sockets, a slot on the host, a thread) is opened only when an object needs it, so that listing and
//! querying devices costs nothing. All contexts of a device share its engine. [`registry`] maps the cookies in device
//! events back to objects, [`service`] is where the engine delivers them.

pub mod attributes;
pub mod gid_table;
pub mod registry;
pub mod service;

use crate::abi::verbs::ibv_device;
use crate::boundary::Errno;
use crate::config::Config;
use gid_table::GidTable;
use nic_model::host_if::{Command, CommandError, DeviceCaps, Reply};
use nic_model::port::engine::{Engine, EngineConfig};
use nic_model::port::netdev::{self, NetDevice};
use parking_lot::Mutex;
use registry::Registry;
use service::{DeviceService, MadService};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

/// What all devices of a process share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The process's configuration.
    pub config: Config,
    /// Who takes the MADs that arrive on QP1: the connection manager, once it runs.
    pub mads: OnceLock<Arc<dyn MadService>>,
}

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Position among the interfaces that are up, in ifindex order.
    pub index: u32,
    /// `adverb<index>`.
    pub name: String,
    /// The network interface.
    pub netdev: NetDevice,
    /// Node GUID in host order.
    pub node_guid: u64,
    /// Addresses of its port.
    pub gids: GidTable,
    /// Limits.
    pub caps: DeviceCaps,
    /// Cookies of events and the objects they stand for.
    pub registry: Registry,
    /// What it shares with the other devices.
    pub shared: Arc<Shared>,
    addr: Option<IpAddr>,
    engine: OnceLock<Arc<Engine>>,
    opening: Mutex<()>,
    inert: AtomicBool,
    handle: OnceLock<AtomicPtr<ibv_device>>,
}

impl Device {
    /// The device number `index` on `netdev`, limited to `addr` if that is given.
    pub fn new(index: u32, netdev: NetDevice, addr: Option<IpAddr>, shared: Arc<Shared>) -> Self {
        Self {
            index,
            name: format!("adverb{index}"),
            node_guid: netdev::node_guid(&netdev),
            gids: GidTable::new(netdev::gids(&netdev, addr), netdev.ifindex),
            caps: DeviceCaps::default(),
            registry: Registry::default(),
            shared,
            addr,
            engine: OnceLock::new(),
            opening: Mutex::new(()),
            inert: AtomicBool::new(false),
            handle: OnceLock::new(),
            netdev,
        }
    }

    /// The NIC of this device, opened now if need be; `ENODEV` in a forked child, which has devices of its own.
    pub fn engine(self: &Arc<Self>) -> Result<Arc<Engine>, Errno> {
        if self.is_inert() {
            return Err(Errno::NODEV);
        }
        if let Some(engine) = self.engine.get() {
            return Ok(Arc::clone(engine));
        }
        let _guard = self.opening.lock();
        if let Some(engine) = self.engine.get() {
            return Ok(Arc::clone(engine));
        }
        let config = &self.shared.config;
        let engine = Engine::open(EngineConfig {
            netdev: self.netdev.clone(),
            addr: self.addr,
            faults: config.faults,
            pcap: config.pcap.clone(),
            rcvbuf: config.rcvbuf,
            line_rate: 0,
            guardian: config.guardian.clone(),
            service: Arc::new(DeviceService::new(self)),
        })
        .map_err(|error| {
            // The caller only sees an errno; which address and what to do about it is in the error's text.
            crate::runtime::complain(&format!("adverb: {} on {}: {error}", self.name, self.netdev.name));
            Errno::from(error)
        })?;
        for (index, gid) in self.gids.iter() {
            engine.command(Command::SetGid { index, gid }).map_err(errno_of)?;
        }
        crate::runtime::at_exit();
        Ok(Arc::clone(self.engine.get_or_init(|| engine)))
    }

    /// The NIC of this device if it is open.
    pub fn open_engine(&self) -> Option<&Arc<Engine>> {
        self.engine.get()
    }

    /// The pointer by which applications know the device, made by `make` if this is the first question.
    pub fn handle(&self, make: impl FnOnce() -> *mut ibv_device) -> *mut ibv_device {
        self.handle
            .get_or_init(|| AtomicPtr::new(make()))
            .load(Ordering::Relaxed)
    }

    /// Whether the process was forked off the one that owns this device: its NIC does nothing here.
    pub fn is_inert(&self) -> bool {
        self.inert.load(Ordering::Relaxed)
    }

    /// Run a command that gives something back to the device. In a forked child there is nothing to give back.
    pub fn release(&self, engine: &Engine, command: Command) -> Result<(), Errno> {
        if self.is_inert() {
            return Ok(());
        }
        engine.command(command).map(drop).map_err(errno_of)
    }

    /// In the child after a fork: the parent's NIC stays the parent's.
    pub fn after_fork_in_child(&self) {
        self.inert.store(true, Ordering::Relaxed);
        if let Some(engine) = self.engine.get() {
            engine.after_fork_in_child();
        }
    }
}

/// The errno that stands for a refused command.
pub fn errno_of(error: CommandError) -> Errno {
    match error {
        CommandError::Invalid => Errno::INVAL,
        CommandError::NoResources => Errno::NOMEM,
        CommandError::Busy => Errno::BUSY,
        CommandError::Unsupported => Errno::OPNOTSUPP,
        CommandError::Unreachable => Errno::new(libc::ENETUNREACH),
    }
}

/// The object number in the answer to a create command.
pub fn id_of(reply: &Reply) -> Result<u32, Errno> {
    match reply {
        Reply::Id(id) => Ok(*id),
        _ => Err(Errno::IO),
    }
}
