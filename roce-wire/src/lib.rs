//! RoCEv2 packet formats.
//!
//! Opcodes, headers, ICRC, PSN arithmetic, MADs and CM messages, pcap. No state and, but for [`pcap`], no I/O.
//! Every parser takes hostile bytes: it returns an error or `None`, never panics.
//!
//! | module | what | specification |
//! |---|---|---|
//! | [`opcode`], [`bth`], [`ext`], [`packet`] | transport packets | InfiniBand 9.2, 9.3, A14, A17 |
//! | [`psn`], [`syndrome`] | sequence numbers, acknowledgement codes | InfiniBand 9.7 |
//! | [`icrc`] | invariant CRC | InfiniBand 7.8, A17.3.3 |
//! | [`mad`], [`cm`] | connection management | InfiniBand 12, 13.4, A11 |
//! | [`net`], [`pcap`] | Ethernet, IP and UDP around a packet; captures | RFC 791, 8200, 768 |

#![forbid(unsafe_code)]

mod bytes;
mod gf2;

pub mod bth;
pub mod cm;
pub mod ext;
pub mod icrc;
pub mod mad;
pub mod net;
pub mod opcode;
pub mod packet;
pub mod pcap;
pub mod psn;
pub mod syndrome;

/// UDP destination port of every RoCEv2 packet.
pub const ROCE_V2_PORT: u16 = 4791;
