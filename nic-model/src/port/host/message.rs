//! What processes of one host tell each other over their slot sockets.
//!
//! One message a datagram: magic, version, kind, then fixed little-endian fields and, last, bytes up to the end. The
//! sender may be any program of any user in the network namespace, so the parser is total and every value is checked.

use core::net::{IpAddr, Ipv6Addr};

use crate::frame::RxMeta;

const MAGIC: [u8; 2] = *b"Av";
const VERSION: u8 = 1;
const META_LEN: usize = 38;

/// Longest message: a full coalesced receive with its header.
pub const MAX_MESSAGE: usize = 65_536 + 64;

/// A message between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Packets that reached the wrong socket: as received, `segment_size` each except the last.
    HandOver {
        /// Addressing of the packets.
        meta: RxMeta,
        /// UDP payload length of every packet but the last.
        segment_size: u16,
        /// IP identification hint of the first packet.
        first_id: u16,
        /// The packets, back to back, ICRC included.
        bytes: &'a [u8],
    },
    /// A probe for `index` of the group at `addr` reached the process that owns `slot`.
    ProbeReply {
        /// Slot of the process that received the probe.
        slot: u8,
        /// The index the probe named.
        index: u8,
        /// Round the probe belonged to.
        round: u16,
        /// Address of the group.
        addr: IpAddr,
    },
    /// Asks for the back-pressure board.
    BoardRequest,
    /// The board: its descriptor travels with the message.
    BoardReply,
    /// Asks for live counters.
    StatsRequest,
    /// Live counters as JSON text.
    StatsReply {
        /// The text.
        json: &'a str,
    },
    /// A CM MAD for the holder of a port claim.
    Mad {
        /// Addressing of the packet it came in.
        meta: RxMeta,
        /// The MAD.
        bytes: &'a [u8; 256],
    },
}

impl<'a> Message<'a> {
    const fn kind(&self) -> u8 {
        match self {
            Self::HandOver { .. } => 1,
            Self::ProbeReply { .. } => 2,
            Self::BoardRequest => 3,
            Self::BoardReply => 4,
            Self::StatsRequest => 5,
            Self::StatsReply { .. } => 6,
            Self::Mad { .. } => 7,
        }
    }

    /// Writes the message into `out`, replacing what it held.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind()]);
        match self {
            Self::HandOver {
                meta,
                segment_size,
                first_id,
                bytes,
            } => {
                put_meta(out, meta);
                out.extend_from_slice(&segment_size.to_le_bytes());
                out.extend_from_slice(&first_id.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::ProbeReply {
                slot,
                index,
                round,
                addr,
            } => {
                out.extend_from_slice(&[*slot, *index]);
                out.extend_from_slice(&round.to_le_bytes());
                put_addr(out, addr);
            }
            Self::BoardRequest | Self::BoardReply | Self::StatsRequest => {}
            Self::StatsReply { json } => out.extend_from_slice(json.as_bytes()),
            Self::Mad { meta, bytes } => {
                put_meta(out, meta);
                out.extend_from_slice(*bytes);
            }
        }
    }

    /// Reads a message; `None` for anything that is not one.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(datagram);
        if fields.array::<2>()? != MAGIC || fields.u8()? != VERSION {
            return None;
        }
        let message = match fields.u8()? {
            1 => {
                let meta = fields.meta()?;
                let segment_size = fields.u16()?;
                let first_id = fields.u16()?;
                let bytes = fields.rest();
                if segment_size == 0 || bytes.is_empty() {
                    return None;
                }
                Self::HandOver {
                    meta,
                    segment_size,
                    first_id,
                    bytes,
                }
            }
            2 => {
                let [slot, index] = fields.array()?;
                let round = fields.u16()?;
                Self::ProbeReply {
                    slot,
                    index,
                    round,
                    addr: fields.addr()?,
                }
            }
            3 => Self::BoardRequest,
            4 => Self::BoardReply,
            5 => Self::StatsRequest,
            6 => Self::StatsReply {
                json: core::str::from_utf8(fields.rest()).ok()?,
            },
            7 => Self::Mad {
                meta: fields.meta()?,
                bytes: fields.rest().try_into().ok()?,
            },
            _ => return None,
        };
        fields.0.is_empty().then_some(message)
    }
}

pub(super) fn put_addr(out: &mut Vec<u8>, addr: &IpAddr) {
    let (family, octets) = match addr {
        IpAddr::V4(v4) => (4, v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => (6, v6.octets()),
    };
    out.push(family);
    out.extend_from_slice(&octets);
}

fn put_meta(out: &mut Vec<u8>, meta: &RxMeta) {
    put_addr(out, &meta.src);
    put_addr(out, &meta.dst);
    out.extend_from_slice(&meta.sport.to_le_bytes());
    out.extend_from_slice(&[meta.traffic_class, meta.hop_limit]);
}

/// The unread rest of a datagram.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn addr(&mut self) -> Option<IpAddr> {
        let family = self.u8()?;
        let octets = Ipv6Addr::from(self.array::<16>()?);
        match family {
            4 => octets.to_ipv4_mapped().map(IpAddr::V4),
            6 => Some(IpAddr::V6(octets)),
            _ => None,
        }
    }

    fn meta(&mut self) -> Option<RxMeta> {
        let src = self.addr()?;
        let dst = self.addr()?;
        let sport = self.u16()?;
        let [traffic_class, hop_limit] = self.array()?;
        Some(RxMeta {
            src,
            dst,
            sport,
            traffic_class,
            hop_limit,
        })
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

const _: () = assert!(4 + META_LEN + 4 + 65_535 <= MAX_MESSAGE);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meta(v6: bool) -> RxMeta {
        let (src, dst) = if v6 {
            ("fe80::1", "::ffff:1.2.3.4")
        } else {
            ("127.0.0.1", "10.1.2.3")
        };
        RxMeta {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            sport: 0xc123,
            traffic_class: 0x6b,
            hop_limit: 64,
        }
    }

    #[test]
    fn every_kind_survives_the_wire() {
        let mad = [7; 256];
        let messages = [
            Message::HandOver {
                meta: meta(false),
                segment_size: 1072,
                first_id: 3,
                bytes: b"payload",
            },
            Message::HandOver {
                meta: meta(true),
                segment_size: 1,
                first_id: 0,
                bytes: b"p",
            },
            Message::ProbeReply {
                slot: 9,
                index: 200,
                round: 77,
                addr: "127.1.2.3".parse().unwrap(),
            },
            Message::BoardRequest,
            Message::BoardReply,
            Message::StatsRequest,
            Message::StatsReply { json: "{\"a\":1}" },
            Message::Mad {
                meta: meta(true),
                bytes: &mad,
            },
        ];
        let mut wire = Vec::new();
        for message in messages {
            message.emit(&mut wire);
            assert_eq!(Message::parse(&wire), Some(message));
        }
    }

    #[test]
    fn a_mad_has_exactly_256_bytes() {
        let mut wire = Vec::new();
        Message::Mad {
            meta: meta(false),
            bytes: &[1; 256],
        }
        .emit(&mut wire);
        assert!(Message::parse(&wire[..wire.len() - 1]).is_none());
        wire.push(0);
        assert!(Message::parse(&wire).is_none());
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..9) {
            let _ = Message::parse(&bytes);
            let mut framed = vec![b'A', b'v', VERSION, kind];
            framed.extend_from_slice(&bytes);
            if let Some(message) = Message::parse(&framed) {
                let mut again = Vec::new();
                message.emit(&mut again);
                prop_assert_eq!(again, framed);
            }
        }
    }
}
