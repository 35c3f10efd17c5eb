//! Completion queues: permits, overrun, delayed publication, notification.
//!
//! A completion needs a [`Permit`], taken before the WQE is retired; without a free slot the CQ is overrun: it raises
//! CQ_ERR once and takes no more, and its QPs go to ERR (IBTA 11.6.3.2). Completions become visible only when
//! [`CqTable::flush`] runs, after the packets of the same turn (an ACK in particular) have reached the port, so that a
//! program that exits on a completion has already had its message acknowledged.

use crate::host_if::command::{CommandError, ObjectId};
use crate::host_if::cqe::{Cqe, CqeFlags, WcStatus};
use crate::host_if::event::{AsyncEvent, AsyncEventKind, Event};
use crate::host_if::ring::CompletionQueue;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

#[derive(Debug)]
struct Cq {
    ring: Arc<CompletionQueue>,
    cookie: u64,
    /// Free-running index of the next entry to reserve.
    producer: u32,
    /// Consumer index last read from the driver.
    consumer: u32,
    users: u32,
    overrun: bool,
}

/// The right to write one CQE.
#[derive(Debug)]
#[must_use = "a permit that is not completed is a lost completion"]
pub(super) struct Permit {
    cq: u32,
    index: u32,
}

/// The CQ has no free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// All CQs of one function.
#[derive(Debug)]
pub(super) struct CqTable {
    cqs: Vec<Option<Cq>>,
    written: Vec<(Permit, Cqe)>,
    max_cq: u32,
    max_cqe: u32,
    overruns: Vec<ObjectId>,
}

impl CqTable {
    pub(super) fn new(max_cq: u32, max_cqe: u32) -> Self {
        Self {
            cqs: Vec::new(),
            written: Vec::with_capacity(256),
            max_cq,
            max_cqe,
            overruns: Vec::new(),
        }
    }

    pub(super) fn create(
        &mut self,
        ring: Arc<CompletionQueue>,
        cqe: u32,
        cookie: u64,
    ) -> Result<ObjectId, CommandError> {
        if cqe == 0 || cqe > self.max_cqe || ring.entries() < cqe {
            return Err(CommandError::Invalid);
        }
        let index = self.cqs.iter().position(Option::is_none).unwrap_or(self.cqs.len());
        let id = u32::try_from(index)
            .ok()
            .filter(|id| *id < self.max_cq)
            .ok_or(CommandError::NoResources)?;
        if index == self.cqs.len() {
            self.cqs.push(None);
        }
        self.cqs[index] = Some(Cq {
            ring,
            cookie,
            producer: 0,
            consumer: 0,
            users: 0,
            overrun: false,
        });
        Ok(id)
    }

    fn get(&mut self, cq: ObjectId) -> Option<&mut Cq> {
        self.cqs.get_mut(cq as usize)?.as_mut()
    }

    pub(super) fn destroy(&mut self, cq: ObjectId) -> Result<(), CommandError> {
        match self.get(cq) {
            None => Err(CommandError::Invalid),
            Some(cq) if cq.users > 0 => Err(CommandError::Busy),
            Some(_) => {
                self.cqs[cq as usize] = None;
                // The number may be given to another CQ before the next flush.
                self.written.retain(|(permit, _)| permit.cq != cq);
                Ok(())
            }
        }
    }

    pub(super) fn hold(&mut self, cq: ObjectId) -> Result<(), CommandError> {
        self.get(cq).ok_or(CommandError::Invalid)?.users += 1;
        Ok(())
    }

    pub(super) fn release(&mut self, cq: ObjectId) {
        if let Some(cq) = self.get(cq) {
            cq.users = cq.users.saturating_sub(1);
        }
    }

    /// Reserve a slot.
    pub(super) fn reserve(&mut self, cq: ObjectId) -> Result<Permit, Overrun> {
        let id = cq;
        let cq = self.get(cq).ok_or(Overrun)?;
        if cq.overrun {
            return Err(Overrun);
        }
        let entries = cq.ring.entries();
        if cq.producer.wrapping_sub(cq.consumer) >= entries {
            cq.consumer = cq.ring.consumer();
            if cq.producer.wrapping_sub(cq.consumer) >= entries {
                cq.overrun = true;
                self.overruns.push(id);
                return Err(Overrun);
            }
        }
        let index = cq.producer;
        cq.producer = index.wrapping_add(1);
        Ok(Permit { cq: id, index })
    }

    /// Hand in the completion for a permit; it becomes visible at the next [`Self::flush`].
    pub(super) fn complete(&mut self, permit: Permit, cqe: Cqe) {
        self.written.push((permit, cqe));
    }

    /// Publish all completions handed in and raise the events they fire. Returns how many there were.
    pub(super) fn flush(&mut self, events: &mut VecDeque<Event>) -> usize {
        let count = self.written.len();
        if count == 0 {
            return 0;
        }
        for (permit, cqe) in &self.written {
            if let Some(cq) = self.cqs.get(permit.cq as usize).and_then(Option::as_ref) {
                cq.ring.write(permit.index, cqe);
            }
        }
        // Against the driver's fence between arming and its last look: one of the two sees the other's store.
        fence(Ordering::SeqCst);
        for (permit, cqe) in self.written.drain(..) {
            let Some(cq) = self.cqs.get_mut(permit.cq as usize).and_then(Option::as_mut) else {
                continue;
            };
            let solicited = cqe.status != WcStatus::Success as u8 || cqe.flags & CqeFlags::SOLICITED.bits() != 0;
            if cq.ring.fire(solicited) {
                events.push_back(Event::Completion { cookie: cq.cookie });
            }
        }
        count
    }

    /// Drop completions of a QP that are not published yet (its slots were reserved, so they become dead entries).
    pub(super) fn kill(&mut self, qpn: u32) {
        for (_, cqe) in self.written.iter_mut().filter(|(_, cqe)| cqe.qpn == qpn) {
            cqe.flags |= CqeFlags::DEAD.bits();
        }
    }

    /// CQs newly overrun since the last call, raising CQ_ERR for each.
    pub(super) fn take_overruns(&mut self, events: &mut VecDeque<Event>) -> Vec<ObjectId> {
        let overruns = core::mem::take(&mut self.overruns);
        for cq in &overruns {
            if let Some(cq) = self.get(*cq) {
                events.push_back(Event::Async(AsyncEvent {
                    kind: AsyncEventKind::CqErr,
                    cookie: cq.cookie,
                }));
            }
        }
        overruns
    }

    /// Whether a CQ was overrun and not yet reported.
    pub(super) fn has_overruns(&self) -> bool {
        !self.overruns.is_empty()
    }
}
