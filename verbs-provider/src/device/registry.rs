//! Cookies: the numbers the device puts into its events, and the objects they stand for.
//!
//! A cookie is never an address and never used twice, so an event that comes late finds nothing instead of freed
//! memory.

use crate::objects::cq::CqCore;
use crate::objects::qp::QpCore;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object that events are about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A completion queue.
    Cq(Arc<CqCore>),
    /// A queue pair.
    Qp(Arc<QpCore>),
}

/// All objects of a device that can have events.
#[derive(Debug, Default)]
pub struct Registry {
    last: AtomicU64,
    subjects: Mutex<HashMap<u64, Subject>>,
}

impl Registry {
    /// A cookie for an object about to be created.
    pub fn reserve(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `cookie` stands for `subject` from now on.
    pub fn insert(&self, cookie: u64, subject: Subject) {
        self.subjects.lock().insert(cookie, subject);
    }

    /// `cookie` stands for nothing any more.
    pub fn remove(&self, cookie: u64) {
        self.subjects.lock().remove(&cookie);
    }

    /// What `cookie` stands for.
    pub fn get(&self, cookie: u64) -> Option<Subject> {
        self.subjects.lock().get(&cookie).cloned()
    }
}
