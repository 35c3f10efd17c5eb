//! Scenarios of the device on a simulated link, in virtual time: one module a scenario.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "test values are small"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod access;
mod acks;
mod backpressure;
mod bad_wqe;
mod basics;
mod closed;
mod congestion;
mod goodput;
mod hostile;
mod hostile_driver;
mod loss;
mod mads;
mod model;
mod overrun;
mod own_host;
mod reads;
mod repair;
mod retry;
mod rnr;
mod sizes;
mod states;
mod ud;
