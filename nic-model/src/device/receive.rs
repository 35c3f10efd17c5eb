//! Packets in: demultiplexing to QPs (IBTA 9.6).

use super::parts::ControlPacket;
use super::qp::state::Fault;
use super::qp::{Qp, Service};
use super::{Nic, requester, responder};
use crate::frame::RxMeta;
use crate::host_if::event::AsyncEventKind;
use crate::host_if::qp_attr::QpState;
use crate::time::{Duration, Time};
use crate::tonic::Incoming;
use roce_wire::bth::{Bth, DEFAULT_PKEY};
use roce_wire::opcode::{Kind, Opcode, Service as WireService};
use roce_wire::packet::{CNP_PAYLOAD_LEN, Headers, Packet};
use roce_wire::psn::Psn;
use roce_wire::syndrome::NakCode;

/// At most one CNP for a flow in this time (DCQCN's notification point).
const CNP_INTERVAL: Duration = Duration::from_micros(50);

impl Nic {
    /// A packet whose ICRC has been verified. Everything may change.
    pub fn handle_packet(&mut self, now: Time, meta: &RxMeta, bytes: &[u8]) {
        self.parts.now = now;
        self.parts.counters.rcvd_pkts += 1;
        self.parts.counters.rcvd_bytes += bytes.len() as u64;
        let Ok(packet) = Packet::parse(bytes) else {
            self.parts.counters.malformed_pkts += 1;
            return;
        };
        let bth = &packet.headers.bth;
        if bth.tver != 0 || bth.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
            self.parts.counters.malformed_pkts += 1;
            return;
        }
        if bth.dest_qpn == super::GSI_QPN && bth.opcode.info().service == WireService::Ud {
            self.parts
                .gsi
                .receive(&self.parts.gids, meta, &packet, &mut self.parts.counters);
            return;
        }
        let Some(qp) = self.qps.get(bth.dest_qpn) else {
            self.answer_closed(&packet);
            return;
        };
        let index = qp.info.index();
        match (&mut qp.service, bth.opcode.info().service) {
            (Service::Ud(datagram), WireService::Ud) => {
                if qp.info.may_receive() {
                    datagram.receive(&qp.info, &mut self.parts, meta, &packet);
                } else {
                    self.parts.counters.wrong_state_pkts += 1;
                }
            }
            (Service::Rc(..), WireService::Rc | WireService::Cnp) => {
                let is_peer = qp
                    .info
                    .path
                    .is_some_and(|path| path.dst == meta.src && path.src == meta.dst);
                if is_peer {
                    self.on_connected(index, meta, &packet);
                } else {
                    self.parts.counters.wrong_peer_pkts += 1;
                }
            }
            _ => self.parts.counters.malformed_pkts += 1,
        }
        self.settle_overruns();
    }

    /// A packet to no living QP.
    fn answer_closed(&mut self, packet: &Packet<'_>) {
        match self.graveyard.answer(self.parts.now, packet) {
            Some(ack) => self.parts.control.push_back(ack),
            None => self.parts.counters.wrong_qpn_pkts += 1,
        }
    }

    /// A packet from the peer of a connected QP.
    fn on_connected(&mut self, index: u16, meta: &RxMeta, packet: &Packet<'_>) {
        let Some(Qp {
            info,
            service: Service::Rc(requester, responder),
        }) = self.qps.at(index)
        else {
            return;
        };
        let cx = &mut self.parts;
        let kind = packet.headers.bth.opcode.info().kind;
        if kind == Kind::Cnp {
            cx.counters.cnp_handled += 1;
            for flow in [requester.flow(), responder.flow()].into_iter().flatten() {
                cx.tonic.incoming(cx.now, flow, Incoming::Cnp);
            }
            return;
        }
        if meta.is_congestion_experienced() {
            cx.counters.ecn_marked_pkts += 1;
            if info.may_receive() && info.cnp_after <= cx.now {
                info.cnp_after = cx.now + CNP_INTERVAL;
                if let Some(path) = info.path {
                    cx.control.push_back(cnp(path, info.attr.dest_qp_num));
                    cx.counters.cnp_sent += 1;
                }
            }
        }
        if kind.is_request() {
            if !info.may_receive() {
                cx.counters.wrong_state_pkts += 1;
                if info.state() == QpState::Err {
                    self.answer_closed(packet);
                }
                return;
            }
            if info.state() == QpState::Rtr && !info.established {
                info.established = true;
                cx.raise(AsyncEventKind::CommEst, info.cookie);
            }
            let outcome = responder.on_request(info, cx, packet);
            self.on_responder(index, outcome);
        } else {
            if !info.may_complete() {
                cx.counters.wrong_state_pkts += 1;
                return;
            }
            let psn = packet.headers.bth.psn;
            let outcome = match (kind, packet.headers.aeth, packet.headers.atomic_ack) {
                (Kind::ReadResponse, _, _) => requester.on_read_response(info, cx, psn, packet.payload),
                (Kind::AtomicAck, _, Some(value)) => requester.on_atomic_ack(info, cx, psn, value.orig),
                (_, Some(aeth), _) => requester.on_ack(info, cx, psn, aeth.syndrome),
                _ => requester::Outcome::Live,
            };
            if outcome == requester::Outcome::Failed {
                self.fail(index, Fault::Send, None);
            } else {
                self.check_drained(index);
            }
        }
    }

    pub(super) fn on_responder(&mut self, index: u16, outcome: responder::Outcome) {
        use responder::Outcome::{Live, ReceiveFailed, Refused};
        let event = match outcome {
            Live => return,
            Refused(NakCode::RemoteAccess) => Some(AsyncEventKind::QpAccessErr),
            Refused(_) => Some(AsyncEventKind::QpReqErr),
            // The receive WQE's own completion tells the application.
            ReceiveFailed(_) => None,
        };
        self.fail(index, Fault::Receive, event);
    }
}

/// A congestion notification packet (IBTA A17.9.3).
fn cnp(path: crate::frame::Path, dest_qpn: u32) -> ControlPacket {
    let mut bth = Bth::new(Opcode::Cnp, dest_qpn, Psn::new(0));
    bth.becn = true;
    let headers = Headers::new(bth);
    let mut bytes = [0; 48];
    let length = headers.emit(&mut bytes) + CNP_PAYLOAD_LEN + super::batch::ICRC_LEN;
    ControlPacket {
        path,
        dest_qpn,
        bytes,
        length,
    }
}
