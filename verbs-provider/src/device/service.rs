//! Where an engine delivers events: to completion channels, asynchronous event queues and the connection manager.
//!
//! Called on the engine's thread or on an application thread that drives it, without the engine's lock.

use super::Device;
use super::registry::Subject;
use crate::objects::context::AsyncRecord;
use nic_model::host_if::{AsyncEvent, AsyncEventKind};
use nic_model::port::engine::{Mad, Service};
use nic_model::time::Time;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// The consumer of the MADs of all devices, with timers of its own.
pub trait MadService: Send + Sync + Debug {
    /// A MAD arrived on QP1 of `device`.
    fn mad(&self, device: &Arc<Device>, mad: Mad);
    /// When it wants [`MadService::handle_timeout`], on the clock of `device`'s engine.
    fn next_timeout(&self, device: &Arc<Device>) -> Option<Time>;
    /// That time has come.
    fn handle_timeout(&self, device: &Arc<Device>, now: Time);
    /// This process was forked: forget everything that belongs to the parent.
    fn after_fork_in_child(&self) {}
}

/// The [`Service`] of one device's engine.
#[derive(Debug)]
pub struct DeviceService {
    device: Weak<Device>,
}

impl DeviceService {
    /// The service for the engine of `device`.
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::downgrade(device),
        }
    }

    fn with_mads<R>(&self, f: impl FnOnce(&dyn MadService, &Arc<Device>) -> R) -> Option<R> {
        let device = self.device.upgrade()?;
        let mads = Arc::clone(device.shared.mads.get()?);
        Some(f(&*mads, &device))
    }
}

impl Service for DeviceService {
    fn completion(&self, cookie: u64) {
        let Some(device) = self.device.upgrade() else { return };
        if let Some(Subject::Cq(cq)) = device.registry.get(cookie) {
            cq.notify();
        }
    }

    fn async_event(&self, event: AsyncEvent) {
        let Some(device) = self.device.upgrade() else { return };
        tracing::debug!(device = device.name, ?event, "asynchronous event");
        let Some(subject) = device.registry.get(event.cookie) else {
            return;
        };
        if let Subject::Qp(qp) = &subject
            && matches!(
                event.kind,
                AsyncEventKind::QpFatal | AsyncEventKind::QpReqErr | AsyncEventKind::QpAccessErr
            )
        {
            qp.set_failed();
        }
        let events = match &subject {
            Subject::Cq(cq) => &cq.context_events,
            Subject::Qp(qp) => &qp.context_events,
        };
        events.push(|| {
            (!subject.is_closed()).then(|| AsyncRecord {
                kind: event.kind,
                subject: subject.clone(),
            })
        });
    }

    fn mad(&self, mad: Mad) {
        self.with_mads(|mads, device| mads.mad(device, mad));
    }

    fn next_timeout(&self) -> Option<Time> {
        self.with_mads(|mads, device| mads.next_timeout(device)).flatten()
    }

    fn handle_timeout(&self, now: Time) {
        self.with_mads(|mads, device| mads.handle_timeout(device, now));
    }
}
