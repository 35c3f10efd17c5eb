//! What a client tells its guardian, one record a packet of the stream: kind, then fixed little-endian fields.

use core::net::IpAddr;
use core::time::Duration;

use crate::port::host::message::{Fields, put_addr};

/// A CM connection that needs a DREQ should its process end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Own communication id; its top byte is the slot.
    pub local_comm_id: u32,
    /// The peer's communication id.
    pub remote_comm_id: u32,
    /// Own address.
    pub local: IpAddr,
    /// The peer's address.
    pub peer: IpAddr,
    /// Own QPN.
    pub local_qpn: u32,
    /// The peer's QPN.
    pub remote_qpn: u32,
    /// Transaction id for the DREQ.
    pub tid: u64,
}

/// What a closed reliable QP needs to acknowledge duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Own QPN.
    pub qpn: u32,
    /// Own address.
    pub local: IpAddr,
    /// The peer's address.
    pub peer: IpAddr,
    /// The peer's QPN.
    pub peer_qpn: u32,
    /// PSN of the next request the responder would have accepted.
    pub expected_psn: u32,
    /// Message sequence number of the last acknowledgement.
    pub msn: u32,
    /// For how long after the close: the peer's retry budget.
    pub linger: Duration,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// First record of a client; its slot socket and then its UDP sockets travel with it.
    Hello {
        slot: u8,
    },
    Opened(Connection),
    Closed {
        local_comm_id: u32,
    },
    Tombstone(Tombstone),
}

/// Longest record.
pub(super) const MAX_RECORD: usize = 128;

impl Record {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_RECORD);
        match self {
            Self::Hello { slot } => out.extend_from_slice(&[1, *slot]),
            Self::Opened(connection) => {
                out.push(2);
                out.extend_from_slice(&connection.local_comm_id.to_le_bytes());
                out.extend_from_slice(&connection.remote_comm_id.to_le_bytes());
                put_addr(&mut out, &connection.local);
                put_addr(&mut out, &connection.peer);
                out.extend_from_slice(&connection.local_qpn.to_le_bytes());
                out.extend_from_slice(&connection.remote_qpn.to_le_bytes());
                out.extend_from_slice(&connection.tid.to_le_bytes());
            }
            Self::Closed { local_comm_id } => {
                out.push(3);
                out.extend_from_slice(&local_comm_id.to_le_bytes());
            }
            Self::Tombstone(tombstone) => {
                out.push(4);
                out.extend_from_slice(&tombstone.qpn.to_le_bytes());
                put_addr(&mut out, &tombstone.local);
                put_addr(&mut out, &tombstone.peer);
                out.extend_from_slice(&tombstone.peer_qpn.to_le_bytes());
                out.extend_from_slice(&tombstone.expected_psn.to_le_bytes());
                out.extend_from_slice(&tombstone.msn.to_le_bytes());
                let millis = u32::try_from(tombstone.linger.as_millis()).unwrap_or(u32::MAX);
                out.extend_from_slice(&millis.to_le_bytes());
            }
        }
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let record = match fields.u8()? {
            1 => Self::Hello {
                slot: fields.u8().filter(|&slot| slot != 0)?,
            },
            2 => Self::Opened(Connection {
                local_comm_id: fields.u32()?,
                remote_comm_id: fields.u32()?,
                local: fields.addr()?,
                peer: fields.addr()?,
                local_qpn: fields.u32()?,
                remote_qpn: fields.u32()?,
                tid: fields.u64()?,
            }),
            3 => Self::Closed {
                local_comm_id: fields.u32()?,
            },
            4 => Self::Tombstone(Tombstone {
                qpn: fields.u32()?,
                local: fields.addr()?,
                peer: fields.addr()?,
                peer_qpn: fields.u32()?,
                expected_psn: fields.u32()?,
                msn: fields.u32()?,
                linger: Duration::from_millis(fields.u32()?.into()),
            }),
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        let (local, peer) = ("127.0.0.1".parse().unwrap(), "fe80::9".parse().unwrap());
        let records = [
            Record::Hello { slot: 7 },
            Record::Opened(Connection {
                local_comm_id: 1,
                remote_comm_id: 2,
                local,
                peer,
                local_qpn: 3,
                remote_qpn: 4,
                tid: 5,
            }),
            Record::Closed { local_comm_id: 9 },
            Record::Tombstone(Tombstone {
                qpn: 1,
                local,
                peer,
                peer_qpn: 2,
                expected_psn: 3,
                msn: 4,
                linger: Duration::from_millis(1500),
            }),
        ];
        for record in records {
            let wire = record.emit();
            assert!(wire.len() <= MAX_RECORD);
            assert_eq!(Record::parse(&wire), Some(record));
            assert_eq!(Record::parse(&wire[..wire.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(kind in 0u8..6, bytes in proptest::collection::vec(any::<u8>(), 0..MAX_RECORD)) {
            let mut framed = vec![kind];
            framed.extend(bytes);
            if let Some(record) = Record::parse(&framed) {
                prop_assert_eq!(record.emit(), framed);
            }
        }
    }
}
