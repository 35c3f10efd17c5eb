//! The library and the host as the connection manager sees them: devices and their engines, routes, port claims, the
//! guardian.
//!
//! Engines are opened in [`Host::prepare`], before the core's lock is taken: an engine that starts asks for timeouts.
//! Under the lock only engines that are already open count.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nic_model::device::Mad as EngineMad;
use nic_model::host_if::Gid;
use nic_model::port::engine::Engine;
use nic_model::port::host::guardian::Connection;
use nic_model::port::host::ports::PortClaim;
use nic_model::port::netdev;
use nic_model::time::Time;
use parking_lot::Mutex;
use rand::SeedableRng;

use super::core::command::Command;
use super::core::environment::{PortGuard, PortRequest};
use super::core::{ConnectionRecord, Device, Environment, Errno, Mad};
use super::service::{self, CmService, ConnectionRegistry, Host};
use crate::device::service::MadService;
use crate::runtime::Runtime;

/// The connection manager of this process, started now if this is the first question.
pub fn service() -> &'static CmService {
    let service = service::current_or(|| Arc::new(ThisHost));
    Runtime::get().set_mad_service(Arc::new(Delegate));
    service
}

/// Hands an engine's MADs and timer to the connection manager.
#[derive(Debug)]
struct Delegate;

impl MadService for Delegate {
    fn mad(&self, _: &Arc<crate::device::Device>, mad: EngineMad) {
        if let Some(service) = service::current() {
            service.receive(&from_engine(mad), false);
        }
    }

    fn next_timeout(&self, device: &Arc<crate::device::Device>) -> Option<Time> {
        service::current()?.next_timeout(device.open_engine()?.now())
    }

    fn handle_timeout(&self, _: &Arc<crate::device::Device>, _: Time) {
        if let Some(service) = service::current() {
            service.handle_timeout();
        }
    }

    fn after_fork_in_child(&self) {
        service::after_fork_in_child();
    }
}

fn from_engine(mad: EngineMad) -> Mad {
    Mad {
        local: mad.local,
        peer: mad.peer,
        traffic_class: mad.traffic_class,
        hop_limit: mad.hop_limit,
        bytes: mad.bytes,
    }
}

fn to_engine(mad: &Mad) -> EngineMad {
    EngineMad {
        local: mad.local,
        peer: mad.peer,
        traffic_class: mad.traffic_class,
        hop_limit: mad.hop_limit,
        bytes: mad.bytes,
    }
}

/// This process and its host.
#[derive(Debug)]
struct ThisHost;

fn open_engine(local: IpAddr) -> Option<Arc<Engine>> {
    let (device, _) = Runtime::get().device_for_ip(local)?;
    device.open_engine().cloned()
}

fn describe(device: &crate::device::Device, gid_index: u8) -> Option<Device> {
    Some(Device {
        guid: device.node_guid,
        index: device.index,
        slot: device.open_engine()?.slot(),
        gid_index,
        mtu: netdev::active_mtu_code(device.netdev.mtu),
    })
}

fn open(local: IpAddr) {
    if let Err(error) = Runtime::get().engine_for_ip(local) {
        tracing::debug!(%local, ?error, "no device");
    }
}

fn open_all() {
    let runtime = Runtime::get();
    // A process confined to one address has nothing to do with the other devices.
    let confined = runtime.config().addr.map(Gid::from_ip);
    let wanted = |device: &&Arc<crate::device::Device>| confined.is_none_or(|gid| device.gids.find(gid).is_some());
    for device in runtime.devices().iter().filter(wanted) {
        if let Err(error) = device.engine() {
            tracing::warn!(device = device.name, ?error, "cannot open");
        }
    }
}

impl Host for ThisHost {
    fn prepare(&self, command: &Command, everywhere: bool) {
        match command {
            _ if everywhere => open_all(),
            Command::Bind { addr, .. } => open(addr.ip()),
            Command::ResolveAddr { src, dst, .. } => {
                if let Some(src) = src.filter(|src| !src.ip().is_unspecified()) {
                    open(src.ip());
                }
                if let Some(source) = self.source_for(*dst) {
                    open(source);
                }
            }
            _ => {}
        }
    }

    fn send(&self, mad: Mad) {
        if let Some(engine) = open_engine(mad.local) {
            engine.send_mad(to_engine(&mad));
        }
    }

    fn deliver(&self, space: u16, _: IpAddr, port: u16, mad: &Mad) -> bool {
        open_engine(mad.local).is_some_and(|engine| engine.deliver_to_port(space, port, &to_engine(mad)))
    }

    fn wake(&self) {
        for device in Runtime::get().devices() {
            if let Some(engine) = device.open_engine() {
                engine.wake();
            }
        }
    }
}

impl ConnectionRegistry for ThisHost {
    fn opened(&self, record: &ConnectionRecord) {
        if let Some(engine) = open_engine(record.local) {
            engine.with_guardian(|guardian| {
                guardian.opened(Connection {
                    local_comm_id: record.local_comm_id,
                    remote_comm_id: record.remote_comm_id,
                    local: record.local,
                    peer: record.peer,
                    local_qpn: record.local_qpn,
                    remote_qpn: record.remote_qpn,
                    tid: record.tid,
                });
            });
        }
    }

    fn closed(&self, local_comm_id: u32) {
        let slot = local_comm_id.to_be_bytes()[0];
        for device in Runtime::get().devices() {
            if let Some(engine) = device.open_engine().filter(|engine| engine.slot() == slot) {
                engine.with_guardian(|guardian| guardian.closed(local_comm_id));
            }
        }
    }
}

impl Environment for ThisHost {
    fn device_for(&self, local: IpAddr) -> Option<Device> {
        let (device, gid_index) = Runtime::get().device_for_ip(local)?;
        describe(device, gid_index)
    }

    fn devices(&self) -> Vec<Device> {
        Runtime::get()
            .devices()
            .iter()
            .filter_map(|device| describe(device, 0))
            .collect()
    }

    fn source_for(&self, destination: SocketAddr) -> Option<IpAddr> {
        let chosen = Runtime::get()
            .config()
            .addr
            .filter(|addr| addr.is_ipv4() == destination.is_ipv4());
        let mut destination = destination;
        if destination.ip().is_unspecified() {
            destination.set_ip(match destination {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        chosen.or_else(|| netdev::route_source(destination).ok())
    }

    fn claim(&self, request: &PortRequest) -> Result<PortGuard, Errno> {
        let runtime = Runtime::get();
        // A process confined to one address leaves the others' wildcards alone.
        let addr = if request.addr.is_unspecified() {
            runtime.config().addr
        } else {
            Some(request.addr)
        };
        let claim = PortClaim::claim(request.space, addr, request.port)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EADDRINUSE))?;
        let engine = addr
            .and_then(open_engine)
            .or_else(|| {
                runtime
                    .devices()
                    .iter()
                    .find_map(|device| device.open_engine().cloned())
            })
            .ok_or(libc::ENODEV)?;
        let fd = claim.fd();
        let claim = Arc::new(Mutex::new(claim));
        let mailbox = Arc::clone(&claim);
        engine.watch(fd, Box::new(move || empty(&mailbox)));
        Ok(Arc::new(Claimed {
            engine,
            fd,
            _claim: claim,
        }))
    }

    fn may_bind_privileged(&self) -> bool {
        // `PortClaim::claim` knows, and every explicit port passes there.
        true
    }

    fn random(&self) -> u32 {
        rand::Rng::random(&mut rand::rngs::SmallRng::from_os_rng())
    }
}

/// Take the requests other processes left for a claimed port.
fn empty(mailbox: &Mutex<PortClaim>) {
    let mut mads = Vec::new();
    let _ = mailbox.lock().receive(&mut |meta, bytes| {
        mads.push(Mad {
            local: meta.dst,
            peer: meta.src,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
            bytes: *bytes,
        });
    });
    if let Some(service) = service::current() {
        for mad in mads {
            service.receive(&mad, true);
        }
    }
}

/// A claimed port and its watched mailbox.
struct Claimed {
    engine: Arc<Engine>,
    fd: i32,
    _claim: Arc<Mutex<PortClaim>>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.engine.unwatch(self.fd);
    }
}
