//! The passive side: a REQ becomes an id and an event, ACCEPT a REP, and the RTU the end of it.

use core::net::SocketAddr;

use roce_wire::cm::ip::{IpPrefix, PortSpace as WireSpace};
use roce_wire::cm::{MessageKind, Rej, RejReason, Rep, Req, Rtu, Transport, private_data};
use roce_wire::mad::MadHeader;
use roce_wire::psn::Psn;

use super::command::{ConnParam, Ece, PortSpace, Response, qp_type};
use super::connection::Connection;
use super::event::{ConnectionParam, Event as Report, EventKind, Param, PrivateData, Queued};
use super::id::{Endpoint, Id, IdState};
use super::path::{OWN_ACK_DELAY, PathRecord, gid, ip_of};
use super::receive::Received;
use super::state::{Again, Event, State, Transition};
use super::{Core, Errno, Mad};

impl Core {
    /// A REQ arrived.
    pub(super) fn receive_req(&mut self, mad: &Mad, header: &MadHeader, req: &Req) -> Received {
        if let Some(comm_id) = self.connections.by_remote(req.local_ca_guid, req.local_comm_id) {
            match self.step(comm_id, Event::Req) {
                Transition::Answer(Again::Mra) => self.send_mra(comm_id, MessageKind::Req),
                Transition::Answer(Again::Rep) => self.send_again(comm_id),
                Transition::Answer(Again::Rej) => {
                    let refused = self
                        .connections
                        .get(comm_id)
                        .and_then(|c| c.sent.as_ref())
                        .is_some_and(|sent| MadHeader::parse(&sent[..]).is_some_and(|header| header.attr_id == REJ));
                    if refused {
                        self.send_again(comm_id);
                    } else {
                        self.refuse_request(mad, header, req, RejReason::StaleConnection);
                    }
                }
                _ => {}
            }
            return Received::Taken;
        }
        if let Some(stale) = self.connections.by_qpn(req.local_ca_guid, req.local_qpn) {
            // The peer uses that QP anew: the connection known here is dead, say so to both.
            self.refuse_request(mad, header, req, RejReason::StaleConnection);
            let _ = self.start_disconnect(stale);
            return Received::Taken;
        }
        let Some((space, port)) = WireSpace::of_service_id(req.service_id) else {
            self.refuse_request(mad, header, req, RejReason::InvalidServiceId);
            return Received::Taken;
        };
        let space = PortSpace(space.to_u16());
        let Some(prefix) = IpPrefix::parse(&req.private_data) else {
            self.refuse_request(mad, header, req, RejReason::InvalidServiceId);
            return Received::Taken;
        };
        let Some(listener) = self.ports.listener(space, prefix.dst, port) else {
            if self.ports.is_starting(space, prefix.dst, port) {
                // Between bind and listen: the peer asks again, and finds it listening.
                return Received::Taken;
            }
            return Received::NoListener {
                space: space.0,
                to: prefix.dst,
                port,
            };
        };
        self.new_request(mad, header, req, &prefix, listener, port);
        Received::Taken
    }

    fn new_request(
        &mut self,
        mad: &Mad,
        header: &MadHeader,
        req: &Req,
        prefix: &IpPrefix,
        listener_handle: u32,
        port: u16,
    ) {
        let Some(listener) = self.ids.get_mut(listener_handle) else {
            return;
        };
        let wanted = match req.transport() {
            Transport::Rc => qp_type::RC,
            Transport::Uc => qp_type::UC,
            Transport::Xrc => qp_type::XRC_RECV,
            Transport::Rd | Transport::Reserved => 0,
        };
        if listener.qp_type != wanted {
            return self.refuse_request(mad, header, req, RejReason::InvalidTransportType);
        }
        if listener.room == 0 {
            // The backlog is full. Silence makes the peer try again.
            return;
        }
        let Some(device) = self.env.device_for(mad.local) else {
            return self.refuse_request(mad, header, req, RejReason::InvalidGid);
        };
        let (file, uid, space, reuse) = (listener.file, listener.uid, listener.space, listener.reuse);
        let path = PathRecord {
            src: ip_of(req.primary.remote_gid),
            dst: ip_of(req.primary.local_gid),
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit,
            sl: req.primary.sl,
            mtu: req.path_mtu,
            rate: req.primary.packet_rate,
            packet_life_time: req.primary.local_ack_timeout.saturating_sub(1),
        };
        if path.src != mad.local || gid(path.dst) == [0; 16] {
            return self.refuse_request(mad, header, req, RejReason::InvalidGid);
        }
        let mut child = Id::new(file, 0, space, wanted);
        child.announced = false;
        child.state = IdState::Connecting;
        child.src = Some(SocketAddr::new(prefix.dst, port));
        child.dst = Some(SocketAddr::new(prefix.src, prefix.src_port));
        child.device = Some(device.clone());
        child.path = Some(path.clone());
        child.reuse = reuse;
        let Some(handle) = self.ids.insert(child) else { return };
        let comm_id = self.new_comm_id(&device);
        let ece = Ece {
            vendor_id: req.vendor_id,
            attr_mod: header.attr_mod,
        };
        let connection = Connection {
            state: State::Idle,
            owner: Some(handle),
            local: mad.local,
            peer: mad.peer,
            remote_comm_id: req.local_comm_id,
            remote_guid: req.local_ca_guid,
            remote_qpn: req.local_qpn,
            local_qpn: 0,
            tid: header.tid,
            qp_type: wanted,
            own_psn: self.env.random() & 0xFF_FFFF,
            peer_psn: req.starting_psn.get(),
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: req.primary.local_ack_timeout,
            ece: Ece::default(),
            sent: None,
            attempt: 0,
            attempts: 0,
            deadline: None,
            end_reported: false,
            device,
            path,
        };
        self.connections.insert(comm_id, connection);
        self.connections.index(comm_id);
        self.step(comm_id, Event::Req);
        if let Some(child) = self.ids.get_mut(handle) {
            child.endpoint = Endpoint::Connection(comm_id);
        }
        let param = ConnectionParam {
            qp_num: req.local_qpn,
            private_data: PrivateData(req.private_data[IpPrefix::LEN..].to_vec()),
            srq: req.srq,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.end_to_end_flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
        };
        self.announce(
            file,
            listener_handle,
            uid,
            handle,
            Param::Connection(Box::new(param)),
            ece,
        );
    }

    /// Queue a connection request of a listener.
    pub(super) fn announce(
        &mut self,
        file: super::command::FileId,
        listener: u32,
        uid: u64,
        child: u32,
        param: Param,
        ece: Ece,
    ) {
        if let Some(listener) = self.ids.get_mut(listener) {
            listener.room = listener.room.saturating_sub(1);
        }
        let event = Report {
            uid,
            id: child,
            kind: EventKind::ConnectRequest,
            status: 0,
            param,
            ece,
        };
        self.push(
            file,
            Queued {
                event,
                owner: listener,
                group: None,
            },
        );
    }

    /// ACCEPT: with parameters the passive side's REP or the answer to a datagram request, without the active side's RTU.
    pub(super) fn accept(
        &mut self,
        handle: u32,
        uid: u64,
        param: Option<&ConnParam>,
        ece: Ece,
    ) -> Result<Response, Errno> {
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        if id.device.is_none() || id.state != IdState::Connecting {
            return Err(libc::EINVAL);
        }
        let done = match (id.endpoint, param) {
            (Endpoint::Connection(comm_id), Some(param)) => self.reply(comm_id, param, ece),
            (Endpoint::Connection(comm_id), None) => self.confirm(comm_id),
            (Endpoint::ServiceReply(request), _) => self.answer_service(handle, &request, param),
            _ => Err(libc::EINVAL),
        };
        match done {
            Ok(response) => {
                if param.is_some()
                    && let Some(id) = self.ids.get_mut(handle)
                {
                    id.uid = uid;
                }
                Ok(response)
            }
            Err(errno) => {
                // As the kernel does: an acceptance that cannot be sent is a refusal.
                if let Some(Endpoint::Connection(comm_id)) = self.ids.get(handle).map(|id| id.endpoint) {
                    let _ = self.refuse_connection(comm_id, RejReason::ConsumerDefined, &[]);
                }
                Err(errno)
            }
        }
    }

    fn reply(&mut self, comm_id: u32, param: &ConnParam, ece: Ece) -> Result<Response, Errno> {
        let private_data = private_data(&param.private_data).ok_or(libc::EINVAL)?;
        if !matches!(self.peek(comm_id, Event::SendRep), Transition::Go(_)) {
            return Err(libc::EINVAL);
        }
        let connection = self.connections.get_mut(comm_id).ok_or(libc::EINVAL)?;
        connection.local_qpn = param.qp_num & 0xFF_FFFF;
        connection.responder_resources = param.responder_resources;
        connection.initiator_depth = param.initiator_depth;
        connection.ece = ece;
        let is_xrc = connection.qp_type == qp_type::XRC_RECV;
        let rep = Rep {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            local_qkey: 0,
            local_qpn: if is_xrc { 0 } else { connection.local_qpn },
            local_eecn: if is_xrc { connection.local_qpn } else { 0 },
            starting_psn: Psn::new(connection.own_psn),
            vendor_id: ece.vendor_id & 0xFF_FFFF,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            target_ack_delay: OWN_ACK_DELAY,
            failover_accepted: 0,
            end_to_end_flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count.min(7),
            srq: param.srq,
            local_ca_guid: connection.device.guid,
            private_data,
        };
        let tid = connection.tid;
        self.step(comm_id, Event::SendRep);
        self.send_repeated(comm_id, tid, &rep.into());
        Ok(Response::Done)
    }

    /// An RTU arrived.
    pub(super) fn receive_rtu(&mut self, rtu: &Rtu) {
        if matches!(self.step(rtu.remote_comm_id, Event::Rtu), Transition::Go(_)) {
            self.report_established(rtu.remote_comm_id);
        }
    }

    /// NOTIFY: data came before the RTU.
    pub(super) fn notify(&mut self, handle: u32, event: u32) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        let Endpoint::Connection(comm_id) = id.endpoint else {
            return Err(libc::EINVAL);
        };
        match event {
            COMM_EST => match self.step(comm_id, Event::Notify) {
                Transition::Go(_) => {
                    self.report_established(comm_id);
                    Ok(Response::Done)
                }
                Transition::Ignore => Err(libc::EISCONN),
                _ => Err(libc::EINVAL),
            },
            // There is no alternate path to move to.
            PATH_MIG => Ok(Response::Done),
            _ => Err(libc::EINVAL),
        }
    }

    fn report_established(&mut self, comm_id: u32) {
        if let Some(owner) = self.connections.get(comm_id).and_then(|connection| connection.owner) {
            self.report(owner, EventKind::Established, 0, Param::Connection(Box::default()));
        }
    }

    /// Refuse a REQ that becomes no connection.
    pub(super) fn refuse_request(&mut self, mad: &Mad, header: &MadHeader, req: &Req, reason: RejReason) {
        let rej = Rej {
            local_comm_id: 0,
            remote_comm_id: req.local_comm_id,
            message: MessageKind::Req,
            info_len: 0,
            reason,
            info: [0; 72],
            private_data: [0; 148],
        };
        self.outbox.push_back(mad.answer(header.tid, &rej.into()));
    }
}

/// Attribute id of REJ.
const REJ: u16 = 0x12;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;
/// `IBV_EVENT_PATH_MIG`.
const PATH_MIG: u32 = 6;
