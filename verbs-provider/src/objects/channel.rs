//! Completion channels.

use super::cq::CqCore;
use super::events::EventQueue;
use crate::abi::verbs::{ibv_comp_channel, ibv_context};
use crate::boundary::Errno;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The working part of a completion channel.
#[derive(Debug)]
pub struct ChannelCore {
    /// CQs with a completion event to fetch.
    pub events: EventQueue<Arc<CqCore>>,
    users: AtomicUsize,
}

/// A completion channel as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct Channel {
    public: UnsafeCell<ibv_comp_channel>,
    /// The working part.
    pub core: Arc<ChannelCore>,
}

impl Channel {
    /// A channel without CQs, of the context `context`.
    pub fn new(context: *mut ibv_context) -> Result<Self, Errno> {
        let core = ChannelCore {
            events: EventQueue::new()?,
            users: AtomicUsize::new(0),
        };
        let public = ibv_comp_channel {
            context,
            fd: core.events.raw_fd(),
            refcnt: 0,
        };
        Ok(Self {
            public: UnsafeCell::new(public),
            core: Arc::new(core),
        })
    }
}

impl ChannelCore {
    /// A CQ reports to this channel from now on.
    pub fn attach(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A CQ does not any more.
    pub fn detach(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a CQ reports to it.
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) != 0
    }
}
