//! Asking a CQ for an event.

use crate::objects::cq::CqCore;
use std::sync::atomic::{Ordering, fence};

/// One event, please, for the next completion, or the next solicited or failed one.
///
/// Only completions that come after the request fire it, so an application polls once more after asking. The fence
/// makes sure of either: a completion written before the device sees the request is seen by that poll. The device has
/// its own between writing a completion and looking for a request.
pub fn req_notify(cq: &CqCore, solicited_only: bool) {
    cq.ring.arm(solicited_only);
    fence(Ordering::SeqCst);
    cq.engine.arm();
}
