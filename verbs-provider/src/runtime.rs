//! The process-wide state of the library: configuration and devices.
//!
//! Made at the first verbs or rdma_cm call and not before: the library is preloaded into every child of a run, most of
//! which never ask for it. Listing devices opens no socket and starts no thread; each device's NIC is opened when an
//! object needs it ([`Device::engine`]).
//!
//! After `fork` the child starts from nothing: the parent's devices are inert in it, and its first call makes a new
//! state with devices of its own. The old state is never freed, as pointers into it may be in the application's hands
//! and locks in it may be held by threads that do not exist any more.

use crate::boundary::Errno;
use crate::config::{Config, InvalidValue};
use crate::device::service::MadService;
use crate::device::{Device, Shared};
use crate::objects::sys;
use nic_model::host_if::Gid;
use nic_model::port::engine::Engine;
use nic_model::port::netdev::{self, NetDevice};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Once, OnceLock};

/// Everything the library keeps for a process.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    devices: Vec<Arc<Device>>,
}

/// The state of this process; replaced, not emptied, in a forked child.
static CURRENT: AtomicPtr<OnceLock<Runtime>> = AtomicPtr::new(std::ptr::null_mut());

impl Runtime {
    /// The state of this process, made now if this is the first call. A configuration that cannot be understood ends
    /// the process with status 2.
    pub fn get() -> &'static Self {
        cell().get_or_init(|| {
            static HOOK: Once = Once::new();
            HOOK.call_once(at_fork);
            match Self::start() {
                Ok(runtime) => runtime,
                Err(error) => {
                    complain(&error.to_string());
                    std::process::exit(2);
                }
            }
        })
    }

    fn start() -> Result<Self, InvalidValue> {
        let config = Config::from_env()?;
        start_log(&config)?;
        let netdevs = netdev::devices().unwrap_or_else(|error| {
            complain(&format!("adverb: cannot list network interfaces: {error}"));
            Vec::new()
        });
        Self::with_netdevs(config, netdevs)
    }

    /// The state for a configuration and the interfaces that are up.
    pub fn with_netdevs(config: Config, netdevs: Vec<NetDevice>) -> Result<Self, InvalidValue> {
        if let Some(name) = &config.netdev
            && !netdevs.iter().any(|netdev| netdev.name == *name)
        {
            let up = netdevs
                .iter()
                .map(|netdev| netdev.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            return Err(InvalidValue::new(
                "ADVERB_NETDEV",
                name,
                &format!("an interface that is up ({up})"),
            ));
        }
        let owner = config
            .addr
            .and_then(|addr| netdevs.iter().position(|netdev| has_address(netdev, addr)));
        if let (Some(addr), None) = (config.addr, owner) {
            let expected = "an address of an interface that is up";
            return Err(InvalidValue::new("ADVERB_ADDR", &addr.to_string(), expected));
        }
        let shared = Arc::new(Shared {
            config,
            mads: OnceLock::new(),
        });
        let config = &shared.config;
        let devices = (0u32..)
            .zip(netdevs)
            .filter(|(_, netdev)| config.netdev.as_ref().is_none_or(|name| netdev.name == *name))
            .map(|(index, netdev)| {
                let addr = config
                    .addr
                    .filter(|_| owner.is_some_and(|owner| u32::try_from(owner) == Ok(index)));
                Arc::new(Device::new(index, netdev, addr, Arc::clone(&shared)))
            })
            .collect();
        Ok(Self { shared, devices })
    }

    /// The devices, in ifindex order.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// What the environment asked for.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The device with that address in its GID table, and the address's index there.
    pub fn device_for_ip(&self, ip: IpAddr) -> Option<(&Arc<Device>, u8)> {
        let gid = Gid::from_ip(ip);
        self.devices
            .iter()
            .find_map(|device| Some((device, device.gids.find(gid)?)))
    }

    /// The NIC of the device with that address, opened now if need be; `ENODEV` when no device has it.
    pub fn engine_for_ip(&self, ip: IpAddr) -> Result<Arc<Engine>, Errno> {
        let (device, _) = self.device_for_ip(ip).ok_or(Errno::NODEV)?;
        device.engine()
    }

    /// From now on MADs and the connection manager's timers go to `service`. Only the first call counts; false says
    /// that there was one.
    pub fn set_mad_service(&self, service: Arc<dyn MadService>) -> bool {
        self.shared.mads.set(service).is_ok()
    }
}

/// The cell of this process.
fn cell() -> &'static OnceLock<Runtime> {
    let mut current = CURRENT.load(Ordering::Acquire);
    if current.is_null() {
        let fresh = Box::into_raw(Box::new(OnceLock::new()));
        current = match CURRENT.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: `fresh` is ours: it was made above and lost the race, so nobody has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
    }
    // SAFETY: only cells made above get into `CURRENT`, and none of those is ever freed.
    unsafe { &*current }
}

/// Have the engines told when the process exits, so that the peers of QPs still open get their last acknowledgements.
pub(crate) fn at_exit() {
    static HOOK: Once = Once::new();
    // SAFETY: the handler is a function that lives as long as the library, which is never unloaded once used.
    HOOK.call_once(|| unsafe {
        libc::atexit(leave);
    });
}

extern "C" fn leave() {
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: cells are never freed.
    let Some(runtime) = (unsafe { current.as_ref() }).and_then(OnceLock::get) else {
        return;
    };
    for engine in runtime.devices.iter().filter_map(|device| device.open_engine()) {
        engine.leave();
    }
}

/// Have [`after_fork_in_child`] called in every child.
fn at_fork() {
    // SAFETY: the handler is a function that lives as long as the library, which is never unloaded once used.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
}

extern "C" fn after_fork_in_child() {
    let parents = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if parents.is_null() {
        return;
    }
    // SAFETY: cells are never freed.
    let Some(runtime) = unsafe { &*parents }.get() else {
        return;
    };
    for device in &runtime.devices {
        device.after_fork_in_child();
    }
    if let Some(mads) = runtime.shared.mads.get() {
        mads.after_fork_in_child();
    }
}

/// Whether the address is the interface's. All of 127.0.0.0/8 is loopback's.
fn has_address(netdev: &NetDevice, addr: IpAddr) -> bool {
    netdev.addrs.contains(&addr) || (netdev.is_loopback && addr.is_loopback())
}

/// Start the log that `config` asks for. A `tracing` subscriber of the application's own stays in force.
fn start_log(config: &Config) -> Result<(), InvalidValue> {
    let Some(directives) = &config.log else { return Ok(()) };
    let file = match &config.log_file {
        None => None,
        Some(path) => match std::fs::OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                let expected = format!("a file that can be written ({error})");
                return Err(InvalidValue::new("ADVERB_LOG_FILE", &path.to_string_lossy(), &expected));
            }
        },
    };
    let file = Arc::new(file);
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(directives))
        .with_ansi(false)
        .with_writer(move || LogWriter(Arc::clone(&file)))
        .try_init();
    Ok(())
}

/// One line on standard error.
pub fn complain(line: &str) {
    let _ = sys::write(libc::STDERR_FILENO, format!("{line}\n").as_bytes());
}

/// Writes to the log file or standard error without being a cancellation point: messages are written with locks held.
#[derive(Debug)]
struct LogWriter(Arc<Option<std::fs::File>>);

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::write(
            self.0.as_ref().as_ref().map_or(libc::STDERR_FILENO, AsRawFd::as_raw_fd),
            bytes,
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn netdev(name: &str, ifindex: u32, addrs: &[&str]) -> NetDevice {
        NetDevice {
            name: name.to_owned(),
            ifindex,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 9],
            is_loopback: name == "lo",
            is_up: true,
            addrs: addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
        }
    }

    fn netdevs() -> Vec<NetDevice> {
        vec![
            netdev("lo", 1, &["127.0.0.1", "::1"]),
            netdev("eth0", 4, &["10.0.0.1", "fe80::1"]),
        ]
    }

    fn runtime(config: Config) -> Result<Runtime, InvalidValue> {
        Runtime::with_netdevs(config, netdevs())
    }

    /// A loopback device for other modules' tests.
    pub(crate) fn loopback() -> Arc<Device> {
        Arc::clone(&runtime(Config::default()).unwrap().devices()[0])
    }

    #[test]
    fn one_device_for_each_interface() {
        let runtime = runtime(Config::default()).unwrap();
        let names: Vec<_> = runtime.devices().iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["adverb0", "adverb1"]);
        let (device, index) = runtime.device_for_ip("fe80::1".parse().unwrap()).unwrap();
        assert_eq!((device.name.as_str(), index), ("adverb1", 1));
        assert!(runtime.device_for_ip("192.0.2.1".parse().unwrap()).is_none());
        assert!(
            runtime.devices()[0].open_engine().is_none(),
            "looking at devices opens none"
        );
    }

    #[test]
    fn a_device_keeps_its_name_when_it_is_the_only_one() {
        let runtime = runtime(Config {
            netdev: Some("eth0".to_owned()),
            ..Config::default()
        })
        .unwrap();
        assert_eq!(runtime.devices().len(), 1);
        assert_eq!(runtime.devices()[0].name, "adverb1");
    }

    #[test]
    fn an_address_limits_the_device_that_has_it() {
        let addr = "127.0.0.7".parse().unwrap();
        let runtime = runtime(Config {
            addr: Some(addr),
            ..Config::default()
        })
        .unwrap();
        let lo = &runtime.devices()[0];
        assert_eq!(lo.gids.get(0), Some(Gid::from_ip(addr)));
        assert_eq!(lo.gids.iter().count(), 1);
        assert_eq!(runtime.devices()[1].gids.iter().count(), 2, "the other keeps its own");
    }

    #[test]
    fn wrong_interfaces_and_addresses_are_named() {
        let error = runtime(Config {
            netdev: Some("eth9".to_owned()),
            ..Config::default()
        })
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "adverb: ADVERB_NETDEV=eth9: expected an interface that is up (lo, eth0)"
        );
        let addr = Some("192.0.2.1".parse().unwrap());
        let error = runtime(Config {
            addr,
            ..Config::default()
        })
        .unwrap_err();
        assert_eq!(error.variable, "ADVERB_ADDR");
    }
}
