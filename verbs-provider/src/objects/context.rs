//! Device contexts and their asynchronous events.

use super::events::EventQueue;
use super::sys;
use crate::abi::verbs::{VERBS_ABI_IS_EXTENDED, ibv_async_event, ibv_async_event_element, ibv_device, verbs_context};
use crate::boundary::Errno;
use crate::device::Device;
use crate::device::registry::Subject;
use crate::ops;
use nic_model::host_if::AsyncEventKind;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// An asynchronous event on its way to the application.
#[derive(Clone, Debug)]
pub struct AsyncRecord {
    /// What happened.
    pub kind: AsyncEventKind,
    /// To which object.
    pub subject: Subject,
}

/// The working part of a context.
#[derive(Debug)]
pub struct ContextCore {
    /// The device it opens.
    pub device: Arc<Device>,
    /// Events of the objects made in it.
    pub events: Arc<EventQueue<AsyncRecord>>,
    /// Completion vectors offered.
    pub completion_vectors: c_int,
    /// Stands for the command channel of a kernel device; nothing is read from or written to it.
    command: OwnedFd,
}

/// A context as the application has it: `struct verbs_context`, of which it holds a pointer to the last member.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    public: UnsafeCell<verbs_context>,
    /// The working part.
    pub core: Arc<ContextCore>,
}

impl Context {
    /// A new context of `device`, whose public structure is `handle`.
    pub fn new(device: Arc<Device>, handle: *mut ibv_device) -> Result<Self, Errno> {
        let completion_vectors = std::thread::available_parallelism()
            .ok()
            .and_then(|threads| c_int::try_from(threads.get()).ok())
            .unwrap_or(1);
        let core = ContextCore {
            device,
            events: Arc::new(EventQueue::new()?),
            completion_vectors,
            command: sys::semaphore()?,
        };
        let mut public = ops::verbs_context();
        public.context.device = handle;
        public.context.cmd_fd = core.command.as_raw_fd();
        public.context.async_fd = core.events.raw_fd();
        public.context.num_comp_vectors = core.completion_vectors;
        public.context.abi_compat = VERBS_ABI_IS_EXTENDED;
        Ok(Self {
            public: UnsafeCell::new(public),
            core: Arc::new(core),
        })
    }
}

impl ContextCore {
    /// The oldest asynchronous event, counted as delivered, after its token was read.
    pub fn take_event(&self) -> Option<ibv_async_event> {
        self.events.take(|record| {
            let element = match &record.subject {
                Subject::Cq(cq) => {
                    cq.async_events.deliver();
                    ibv_async_event_element { cq: cq.handle() }
                }
                Subject::Qp(qp) => {
                    qp.async_events.deliver();
                    ibv_async_event_element { qp: qp.handle() }
                }
            };
            ibv_async_event {
                element,
                event_type: record.kind as u32,
            }
        })
    }
}

impl Subject {
    /// Whether the application is destroying the object: events about it are not delivered any more.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Cq(cq) => cq.is_closed(),
            Self::Qp(qp) => qp.is_closed(),
        }
    }
}
