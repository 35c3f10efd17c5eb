//! The verbs objects: what the pointers an application holds point to.
//!
//! Each object is a C structure, whose members the application and the static inlines of `verbs.h` read, followed by a
//! reference to the part that does the work (`…Core`). The C structure belongs to the application's view and is only
//! written by the entry functions; the cores are shared with the device's event delivery and never name C memory.
//!
//! Lock order, outermost first: a QP's SQ or RQ, a CQ's poller, an event queue, an acknowledgement ledger, the registry.
//! None is held while the engine is driven.

pub mod address;
pub mod ah;
pub mod channel;
pub mod context;
pub mod cq;
pub mod device;
pub mod events;
pub mod handle;
pub mod mapping;
pub mod mr;
pub mod pd;
pub mod qp;
pub mod qp_attributes;
pub mod sys;
