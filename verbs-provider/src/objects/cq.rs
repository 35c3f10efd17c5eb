//! Completion queues.

use super::channel::ChannelCore;
use super::context::{AsyncRecord, ContextCore};
use super::events::{AckLedger, EventQueue};
use crate::abi::verbs::ibv_cq;
use crate::boundary::Errno;
use crate::device::registry::Subject;
use crate::device::{Device, errno_of, id_of};
use crate::driver::poll::Poller;
use nic_model::host_if::{Command, CompletionQueue};
use nic_model::port::engine::Engine;
use parking_lot::Mutex;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The working part of a CQ.
#[derive(Debug)]
pub struct CqCore {
    /// Number of the CQ on the device.
    pub id: u32,
    /// The ring, shared with the device.
    pub ring: Arc<CompletionQueue>,
    /// The consumer's side of the ring.
    pub poller: Mutex<Poller>,
    /// The device.
    pub device: Arc<Device>,
    /// Its NIC.
    pub engine: Arc<Engine>,
    /// Where completion events go.
    pub channel: Option<Arc<ChannelCore>>,
    /// Completion events the application has fetched.
    pub completion_events: AckLedger,
    /// Asynchronous events the application has fetched.
    pub async_events: AckLedger,
    /// Where asynchronous events go.
    pub context_events: Arc<EventQueue<AsyncRecord>>,
    cookie: u64,
    closed: AtomicBool,
    handle: AtomicPtr<ibv_cq>,
}

/// A CQ as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Cq {
    /// Its public structure.
    pub public: UnsafeCell<ibv_cq>,
    /// The working part.
    pub core: Arc<CqCore>,
}

impl CqCore {
    /// A CQ of at least `cqe` entries in `context`, reporting to `channel`.
    pub fn create(
        context: &ContextCore,
        cqe: i32,
        comp_vector: i32,
        channel: Option<Arc<ChannelCore>>,
    ) -> Result<Arc<Self>, Errno> {
        let device = &context.device;
        let cqe = u32::try_from(cqe).map_err(|_| Errno::INVAL)?;
        if cqe == 0 || cqe > device.caps.max_cqe || !(0..context.completion_vectors).contains(&comp_vector) {
            return Err(Errno::INVAL);
        }
        let engine = device.engine()?;
        let ring = Arc::new(CompletionQueue::new(cqe));
        let cookie = device.registry.reserve();
        let command = Command::CreateCq {
            ring: Arc::clone(&ring),
            cqe,
            cookie,
        };
        let id = id_of(&engine.command(command).map_err(errno_of)?)?;
        if let Some(channel) = &channel {
            channel.attach();
        }
        let core = Arc::new(Self {
            id,
            ring,
            poller: Mutex::default(),
            device: Arc::clone(device),
            engine,
            channel,
            completion_events: AckLedger::default(),
            async_events: AckLedger::default(),
            context_events: Arc::clone(&context.events),
            cookie,
            closed: AtomicBool::new(false),
            handle: AtomicPtr::new(std::ptr::null_mut()),
        });
        device.registry.insert(cookie, Subject::Cq(Arc::clone(&core)));
        Ok(core)
    }

    /// Destroy the CQ: `EBUSY` while QPs use it; otherwise waits until the application has acknowledged every event of
    /// it, after which there are none and will be none.
    pub fn destroy(self: &Arc<Self>) -> Result<(), Errno> {
        self.device.release(&self.engine, Command::DestroyCq { cq: self.id })?;
        if let Some(channel) = &self.channel {
            channel.detach();
        }
        if self.device.is_inert() {
            // The descriptors are shared with the parent, and its threads, who may hold any lock here, are gone.
            return Ok(());
        }
        self.device.registry.remove(self.cookie);
        let close = || self.closed.store(true, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            channel.events.retract(close, |cq| Arc::ptr_eq(cq, self));
            self.completion_events.wait_until_settled();
        }
        self.context_events.retract(
            close,
            |record| matches!(&record.subject, Subject::Cq(cq) if Arc::ptr_eq(cq, self)),
        );
        self.async_events.wait_until_settled();
        Ok(())
    }

    /// The device has a completion for an armed CQ: tell the channel.
    pub fn notify(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.events.push(|| (!self.is_closed()).then(|| Arc::clone(self)));
        }
    }

    /// Whether it is being destroyed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Entries, which may be more than were asked for.
    pub fn entries(&self) -> i32 {
        i32::try_from(self.ring.entries()).unwrap_or(i32::MAX)
    }

    /// The application knows it by this pointer.
    pub fn set_handle(&self, handle: *mut ibv_cq) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// The pointer by which the application knows it.
    pub fn handle(&self) -> *mut ibv_cq {
        self.handle.load(Ordering::Relaxed)
    }
}
