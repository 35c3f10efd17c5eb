//! The Adverb NIC: a device model of an RDMA NIC, in software.
//!
//! | module | what |
//! |---|---|
//! | [`host_if`] | what driver and device share: WQEs, CQEs, rings, doorbells, commands |
//! | [`device`] | one function of the NIC: requester, responder, memory, completions; sans I/O |
//! | [`tonic`] | the transmit logic: which segment leaves next, and when |
//! | [`sim`] | the wire in virtual time: seeded links with rate, delay, queue and faults |
//! | [`frame`], [`time`] | what passes between device and port, and device time |
//! | [`port`] | everything that touches the operating system: sockets, threads, clocks, other processes |

pub mod device;
pub mod frame;
pub mod host_if;
pub mod port;
pub mod sim;
pub mod time;
pub mod tonic;
