//! Scenarios of the device on a simulated link, in virtual time: one module a scenario.
#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

#[path = "../harness/mod.rs"]
mod harness;

mod access;
mod acks;
mod bad_wqe;
mod basics;
mod closed;
mod loss;
mod overrun;
mod reads;
mod retry;
mod rnr;
mod sizes;
mod states;
mod ud;
