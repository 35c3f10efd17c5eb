//! What a process leaves behind, and what to answer for it. No I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use roce_wire::bth::Bth;
use roce_wire::cm::{self, Destination, Drep, Dreq, MessageKind, Rej, RejReason, ip::PortSpace};
use roce_wire::ext::Aeth;
use roce_wire::mad::{self, GSI_QPN, MadHeader};
use roce_wire::opcode::{Kind, Opcode, Service};
use roce_wire::packet::{Headers, ICRC_LEN, Packet};
use roce_wire::psn::Psn;
use roce_wire::syndrome::Syndrome;

use super::LINGER;
use super::record::{Connection, Record, Tombstone};

/// Most closed QPs remembered; the oldest go first.
const MOST_TOMBSTONES: usize = 4096;
/// For how long a peer may repeat its DREQ after a connection was closed.
const CLOSED_INTEREST: Duration = Duration::from_secs(10);

/// A process's open connections and closed QPs.
#[derive(Debug)]
pub(super) struct Estate {
    slot: u8,
    connections: BTreeMap<u32, Connection>,
    /// By QPN, with the time up to which the peer may repeat requests.
    tombstones: BTreeMap<u32, (Tombstone, Instant)>,
    last_closed: Option<Instant>,
}

/// What to do with a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Ignore,
    /// Send this back; its ICRC is still to be sealed.
    Reply(Vec<u8>),
    /// It belongs to another slot.
    HandOver(u8),
    /// A connection request for whoever has this port of this port space.
    ForPort { space: u16, port: u16 },
}

impl Estate {
    pub(super) fn new(slot: u8) -> Self {
        Self {
            slot,
            connections: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            last_closed: None,
        }
    }

    /// Takes note of a client's record.
    pub(super) fn record(&mut self, record: &Record, now: Instant) {
        match record {
            Record::Hello { .. } => {}
            Record::Opened(connection) => {
                self.connections.insert(connection.local_comm_id, *connection);
            }
            Record::Closed { local_comm_id } => {
                self.connections.remove(local_comm_id);
                self.last_closed = Some(now);
            }
            Record::Tombstone(tombstone) => {
                if self.tombstones.len() >= MOST_TOMBSTONES {
                    self.tombstones.retain(|_, (_, until)| *until > now);
                    let oldest = self
                        .tombstones
                        .iter()
                        .min_by_key(|(_, (_, until))| *until)
                        .map(|(&qpn, _)| qpn);
                    if self.tombstones.len() >= MOST_TOMBSTONES
                        && let Some(qpn) = oldest
                    {
                        self.tombstones.remove(&qpn);
                    }
                }
                let until = now + tombstone.linger.clamp(LINGER, Duration::from_secs(60));
                self.tombstones.insert(tombstone.qpn, (*tombstone, until));
            }
        }
    }

    /// Whether a peer may still have something to say at `now`.
    pub(super) fn matters(&self, now: Instant) -> bool {
        !self.connections.is_empty()
            || self.tombstones.values().any(|(_, until)| *until > now)
            || self
                .last_closed
                .is_some_and(|closed| now.duration_since(closed) < CLOSED_INTEREST)
    }

    /// The connections that nobody has closed yet.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// What to do with `packet`, its ICRC verified, from `src` to `dst`.
    pub(super) fn handle(&mut self, src: IpAddr, dst: IpAddr, packet: &[u8], now: Instant) -> Verdict {
        let Ok(parsed) = Packet::parse(packet) else {
            return Verdict::Ignore;
        };
        let bth = &parsed.headers.bth;
        if bth.dest_qpn == GSI_QPN {
            return self.handle_mad(parsed.payload);
        }
        match u8::try_from(bth.dest_qpn >> 16) {
            Ok(slot) if slot == self.slot => self.handle_request(src, dst, bth, now),
            Ok(0) | Err(_) => Verdict::Ignore,
            Ok(slot) => Verdict::HandOver(slot),
        }
    }

    fn handle_mad(&mut self, payload: &[u8]) -> Verdict {
        let Ok((header, message)) = cm::Message::parse(payload) else {
            return Verdict::Ignore;
        };
        let (Destination::Connection(id) | Destination::Resolution(id)) = message.destination() else {
            return Self::for_port(&message);
        };
        let [slot, ..] = id.to_be_bytes();
        if slot != self.slot {
            return if slot == 0 {
                Verdict::Ignore
            } else {
                Verdict::HandOver(slot)
            };
        }
        match message {
            cm::Message::Dreq(dreq) => {
                self.connections.remove(&id);
                // Also for an unknown id: the DREP to an earlier DREQ was lost (as drivers/infiniband/core/cm.c does).
                let drep = Drep {
                    local_comm_id: id,
                    remote_comm_id: dreq.local_comm_id,
                    private_data: [0; 224],
                };
                Verdict::Reply(mad_packet(&MadHeader::cm(header.tid), &drep.into()))
            }
            cm::Message::Drep(_) | cm::Message::Rej(_) => {
                self.connections.remove(&id);
                Verdict::Ignore
            }
            // A connection its process did not live to see: the peer need not wait for its timeout.
            cm::Message::Rep(rep) if !self.connections.contains_key(&id) => {
                let rej = Rej {
                    local_comm_id: id,
                    remote_comm_id: rep.local_comm_id,
                    message: MessageKind::Rep,
                    info_len: 0,
                    reason: RejReason::InvalidCommId,
                    info: [0; 72],
                    private_data: [0; 148],
                };
                Verdict::Reply(mad_packet(&MadHeader::cm(header.tid), &rej.into()))
            }
            _ => Verdict::Ignore,
        }
    }

    fn for_port(message: &cm::Message) -> Verdict {
        let Destination::Service(service_id) = message.destination() else {
            return Verdict::Ignore;
        };
        PortSpace::of_service_id(service_id).map_or(Verdict::Ignore, |(space, port)| Verdict::ForPort {
            space: space.to_u16(),
            port,
        })
    }

    /// A request for a closed QP: a duplicate is acknowledged again, as the specification asks of a responder whose
    /// acknowledgement was lost (IBTA 9.7.5.1.1); what is new finds nobody.
    fn handle_request(&self, src: IpAddr, dst: IpAddr, bth: &Bth, now: Instant) -> Verdict {
        let info = bth.opcode.info();
        let Some((tombstone, until)) = self.tombstones.get(&bth.dest_qpn) else {
            return Verdict::Ignore;
        };
        let expected = Psn::new(tombstone.expected_psn);
        let is_ours = *until > now && tombstone.peer == src && tombstone.local == dst;
        let is_sent_twice =
            info.service == Service::Rc && matches!(info.kind, Kind::Send | Kind::Write) && bth.psn.is_before(expected);
        if !is_ours || !is_sent_twice || !(bth.ack_req || info.place.is_end()) {
            return Verdict::Ignore;
        }
        let mut headers = Headers::new(Bth::new(Opcode::RcAck, tombstone.peer_qpn, expected.previous()));
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: tombstone.msn,
        });
        Verdict::Reply(emit(&Packet { headers, payload: &[] }))
    }
}

/// The DREQ for `connection`, to be sealed.
pub(super) fn dreq_packet(connection: &Connection) -> Vec<u8> {
    let dreq = Dreq {
        local_comm_id: connection.local_comm_id,
        remote_comm_id: connection.remote_comm_id,
        remote_qpn: connection.remote_qpn,
        private_data: [0; 220],
    };
    mad_packet(&MadHeader::cm(connection.tid), &dreq.into())
}

fn mad_packet(header: &MadHeader, message: &cm::Message) -> Vec<u8> {
    // Nobody checks PSNs of QP1; a changing one tells repetitions apart in a capture.
    let [.., low, high] = header.tid.to_le_bytes();
    let headers = mad::gsi_headers(Psn::new(u32::from_le_bytes([low, high, 0, 0])));
    emit(&Packet {
        headers,
        payload: &message.emit(header),
    })
}

fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = vec![0; packet.wire_len().max(Bth::LEN + ICRC_LEN)];
    packet.emit(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u8 = 0x42;

    fn addresses() -> (IpAddr, IpAddr) {
        ("127.75.1.2".parse().unwrap(), "127.75.1.1".parse().unwrap())
    }

    fn connection() -> Connection {
        let (peer, local) = addresses();
        Connection {
            local_comm_id: 0x4200_0001,
            remote_comm_id: 0x0700_0002,
            local,
            peer,
            local_qpn: 0x42_0010,
            remote_qpn: 0x07_0020,
            tid: 0x1234,
        }
    }

    fn estate() -> Estate {
        let (peer, local) = addresses();
        let mut estate = Estate::new(SLOT);
        let now = Instant::now();
        assert!(!estate.matters(now));
        estate.record(&Record::Opened(connection()), now);
        let tombstone = Tombstone {
            qpn: 0x42_0099,
            local,
            peer,
            peer_qpn: 0x07_0001,
            expected_psn: 1,
            msn: 17,
            linger: Duration::ZERO,
        };
        estate.record(&Record::Tombstone(tombstone), now);
        estate
    }

    fn handle(estate: &mut Estate, packet: &[u8]) -> Verdict {
        let (peer, local) = addresses();
        estate.handle(peer, local, packet, Instant::now())
    }

    fn request(opcode: Opcode, qpn: u32, psn: u32, ack_req: bool) -> Vec<u8> {
        let mut bth = Bth::new(opcode, qpn, Psn::new(psn));
        bth.ack_req = ack_req;
        emit(&Packet {
            headers: Headers::new(bth),
            payload: &[1; 8],
        })
    }

    #[test]
    fn a_dreq_is_answered_for_known_and_unknown_ids() {
        let mut estate = estate();
        for id in [0x4200_0001, 0x4200_7777] {
            let dreq = Dreq {
                local_comm_id: 5,
                remote_comm_id: id,
                remote_qpn: 0,
                private_data: [0; 220],
            };
            let Verdict::Reply(reply) = handle(&mut estate, &mad_packet(&MadHeader::cm(99), &dreq.into())) else {
                panic!("no reply")
            };
            let packet = Packet::parse(&reply).unwrap();
            let (header, message) = cm::Message::parse(packet.payload).unwrap();
            assert_eq!(header.tid, 99);
            let expected = Drep {
                local_comm_id: id,
                remote_comm_id: 5,
                private_data: [0; 224],
            };
            assert_eq!(message, expected.into());
            assert_eq!(packet.headers.deth.unwrap().qkey, mad::GSI_QKEY);
        }
        assert_eq!(estate.connections().count(), 0);
    }

    #[test]
    fn a_drep_ends_a_connection_but_only_its_own() {
        let mut estate = estate();
        let drep = |id| {
            let drep = Drep {
                local_comm_id: 5,
                remote_comm_id: id,
                private_data: [0; 224],
            };
            mad_packet(&MadHeader::cm(1), &drep.into())
        };
        assert_eq!(handle(&mut estate, &drep(0x4200_0003)), Verdict::Ignore);
        assert_eq!(estate.connections().count(), 1);
        assert_eq!(handle(&mut estate, &drep(0x4300_0001)), Verdict::HandOver(0x43));
        assert_eq!(handle(&mut estate, &drep(0x4200_0001)), Verdict::Ignore);
        assert_eq!(estate.connections().count(), 0);
        assert!(estate.matters(Instant::now()), "the tombstone is left");
    }

    #[test]
    fn duplicates_of_closed_qps_are_acknowledged() {
        let mut estate = estate();
        // Expected is 1, so 0 and 0xffffff are duplicates.
        for psn in [0, 0xff_ffff] {
            let Verdict::Reply(reply) = handle(&mut estate, &request(Opcode::RcSendOnly, 0x42_0099, psn, false)) else {
                panic!("no reply")
            };
            let ack = Packet::parse(&reply).unwrap().headers;
            assert_eq!(
                (ack.bth.opcode, ack.bth.dest_qpn, ack.bth.psn),
                (Opcode::RcAck, 0x07_0001, Psn::new(0))
            );
            assert_eq!(
                ack.aeth,
                Some(Aeth {
                    syndrome: Syndrome::ACK,
                    msn: 17
                })
            );
        }
        let middle = |ack_req| request(Opcode::RcSendMiddle, 0x42_0099, 0, ack_req);
        assert!(matches!(handle(&mut estate, &middle(true)), Verdict::Reply(_)));
        assert_eq!(handle(&mut estate, &middle(false)), Verdict::Ignore);
    }

    #[test]
    fn the_rest_is_ignored_or_handed_over() {
        let mut estate = estate();
        for (packet, expected) in [
            (request(Opcode::RcSendOnly, 0x42_0099, 1, true), Verdict::Ignore),
            (request(Opcode::RcSendOnly, 0x42_0098, 0, true), Verdict::Ignore),
            (request(Opcode::UcSendOnly, 0x42_0099, 0, true), Verdict::Ignore),
            (request(Opcode::RcSendOnly, 0x43_0099, 0, true), Verdict::HandOver(0x43)),
            (request(Opcode::RcSendOnly, 0, 0, true), Verdict::Ignore),
            (vec![], Verdict::Ignore),
        ] {
            assert_eq!(handle(&mut estate, &packet), expected);
        }
        let (peer, local) = addresses();
        let duplicate = request(Opcode::RcSendOnly, 0x42_0099, 0, true);
        let later = Instant::now() + LINGER;
        assert_eq!(estate.handle(local, local, &duplicate, Instant::now()), Verdict::Ignore);
        assert_eq!(estate.handle(peer, local, &duplicate, later), Verdict::Ignore);
    }

    #[test]
    fn tombstones_are_bounded() {
        let mut estate = estate();
        let now = Instant::now();
        let (tombstone, _) = estate.tombstones[&0x42_0099];
        for qpn in 0..10_000 {
            estate.record(&Record::Tombstone(Tombstone { qpn, ..tombstone }), now);
        }
        assert!(estate.tombstones.len() <= MOST_TOMBSTONES);
    }
}
