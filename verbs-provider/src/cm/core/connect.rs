//! The active side: REQ, the peer's REP, the RTU; and what ends an attempt: REJ and MRA.

use roce_wire::cm::ip::{IpPrefix, PortSpace};
use roce_wire::cm::{CmPath, Message, MessageKind, Mra, Rej, RejReason, Rep, Req, Rtu, Transport, private_data};
use roce_wire::psn::Psn;

use super::command::{ConnParam, Ece, Response, qp_type};
use super::connection::Connection;
use super::event::{ConnectionParam, EventKind, Param, PrivateData};
use super::id::{Endpoint, IdState};
use super::path::{OWN_ACK_DELAY, ack_timeout, gid};
use super::state::{Again, Event, State, Transition};
use super::{Core, Errno};

/// `remote_cm_response_timeout` and `local_cm_response_timeout` as the kernel sends them: 4.3 s.
pub(super) const RESPONSE_TIMEOUT: u8 = 20;
/// Service timeout of the MRAs sent: 69 s.
const SERVICE_TIMEOUT: u8 = 24;
/// The only partition.
pub(super) const PKEY: u16 = 0xFFFF;

impl Core {
    /// CONNECT.
    pub(super) fn connect(&mut self, handle: u32, param: &ConnParam, ece: Ece) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        if id.is_datagram() {
            return self.request_service(handle, param);
        }
        let (Some(device), Some(path), Some(src), Some(dst)) = (id.device.clone(), id.path.clone(), id.src, id.dst)
        else {
            return Err(libc::EINVAL);
        };
        if id.state != IdState::RouteResolved {
            return Err(libc::EINVAL);
        }
        let service_id = PortSpace::from_u16(id.space.0)
            .ok_or(libc::EINVAL)?
            .service_id(dst.port());
        let prefix = IpPrefix {
            src_port: src.port(),
            src: src.ip(),
            dst: dst.ip(),
        };
        let mut data = prefix.to_bytes().to_vec();
        data.extend_from_slice(&param.private_data);
        let data = private_data(&data).ok_or(libc::EINVAL)?;
        let kind = id.qp_type;
        let comm_id = self.new_comm_id(&device);
        let tid = self.new_tid(comm_id);
        let own_psn = self.env.random() & 0xFF_FFFF;
        let initiates = kind != qp_type::XRC_SEND;
        let connection = Connection {
            state: State::Idle,
            owner: Some(handle),
            local: src.ip(),
            peer: dst.ip(),
            remote_comm_id: 0,
            remote_guid: 0,
            remote_qpn: 0,
            local_qpn: param.qp_num,
            tid,
            qp_type: kind,
            own_psn,
            peer_psn: 0,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retry_count: param.retry_count.min(7),
            rnr_retry_count: param.rnr_retry_count.min(7),
            ack_timeout: ack_timeout(OWN_ACK_DELAY, path.packet_life_time),
            ece,
            sent: None,
            attempt: 0,
            attempts: 0,
            deadline: None,
            end_reported: false,
            device,
            path,
        };
        let mut req = Req {
            local_comm_id: comm_id,
            vendor_id: ece.vendor_id & 0xFF_FFFF,
            service_id,
            local_ca_guid: connection.device.guid,
            local_qkey: 0,
            local_qpn: param.qp_num & 0xFF_FFFF,
            responder_resources: if initiates { param.responder_resources } else { 0 },
            local_eecn: 0,
            initiator_depth: param.initiator_depth,
            remote_eecn: 0,
            remote_cm_response_timeout: RESPONSE_TIMEOUT,
            transport_type: 0,
            end_to_end_flow_control: param.flow_control,
            starting_psn: Psn::new(own_psn),
            local_cm_response_timeout: RESPONSE_TIMEOUT,
            retry_count: connection.retry_count,
            pkey: PKEY,
            path_mtu: connection.path.mtu,
            rdc_exists: false,
            rnr_retry_count: connection.rnr_retry_count,
            max_cm_retries: self.timing.retries,
            srq: param.srq,
            extended_transport_type: 0,
            primary: primary_path(&connection),
            alternate: CmPath::default(),
            sap_supported: false,
            private_data: data,
        };
        req.set_transport(match kind {
            qp_type::UC => Transport::Uc,
            qp_type::XRC_SEND | qp_type::XRC_RECV => Transport::Xrc,
            _ => Transport::Rc,
        });
        self.connections.insert(comm_id, connection);
        if let Some(id) = self.ids.get_mut(handle) {
            id.state = IdState::Connecting;
            id.qp_num = param.qp_num;
            id.endpoint = Endpoint::Connection(comm_id);
        }
        self.step(comm_id, Event::SendReq);
        self.send_repeated(comm_id, tid, &req.into());
        Ok(Response::Done)
    }

    /// ACCEPT without parameters: the active side's QP is ready, confirm.
    pub(super) fn confirm(&mut self, comm_id: u32) -> Result<Response, Errno> {
        let Some(connection) = self.connections.get(comm_id) else {
            return Err(libc::EINVAL);
        };
        let tid = connection.tid;
        let rtu = Rtu {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            private_data: [0; 224],
        };
        match self.step(comm_id, Event::SendRtu) {
            Transition::Go(_) => {
                self.send_kept(comm_id, tid, &rtu.into());
                Ok(Response::Done)
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// A REP arrived.
    pub(super) fn receive_rep(&mut self, rep: &Rep, attr_mod: u32) {
        let comm_id = rep.remote_comm_id;
        match self.peek(comm_id, Event::Rep) {
            Transition::Go(_) => {}
            Transition::Answer(Again::Mra) => return self.send_mra(comm_id, MessageKind::Rep),
            Transition::Answer(Again::Rtu) => return self.send_again(comm_id),
            _ => return,
        }
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        connection.remote_comm_id = rep.local_comm_id;
        connection.remote_guid = rep.local_ca_guid;
        let is_xrc = connection.qp_type == qp_type::XRC_SEND;
        connection.remote_qpn = if is_xrc { rep.local_eecn } else { rep.local_qpn };
        connection.peer_psn = rep.starting_psn.get();
        connection.initiator_depth = rep.responder_resources;
        connection.responder_resources = rep.initiator_depth;
        connection.rnr_retry_count = rep.rnr_retry_count;
        connection.ack_timeout = ack_timeout(rep.target_ack_delay, connection.path.packet_life_time);
        let owner = connection.owner;
        let param = ConnectionParam {
            qp_num: connection.remote_qpn,
            private_data: PrivateData(rep.private_data.to_vec()),
            srq: rep.srq,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.end_to_end_flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
        };
        let ece = Ece {
            vendor_id: rep.vendor_id,
            attr_mod,
        };
        self.step(comm_id, Event::Rep);
        self.connections.index(comm_id);
        if let Some(owner) = owner {
            self.report_with(
                owner,
                EventKind::ConnectResponse,
                0,
                Param::Connection(Box::new(param)),
                ece,
            );
        }
    }

    /// An MRA arrived: the peer lives but needs longer.
    pub(super) fn receive_mra(&mut self, mra: &Mra) {
        let comm_id = mra.remote_comm_id;
        let event = match mra.message {
            MessageKind::Req => Event::MraReq,
            MessageKind::Rep => Event::MraRep,
            _ => return,
        };
        if !matches!(self.step(comm_id, event), Transition::Go(_)) {
            return;
        }
        // 4.096 µs × 2ⁿ, in milliseconds as the kernel rounds it.
        let patience = 1u128 << mra.service_timeout.saturating_sub(8).min(23);
        let attempts = patience / self.timing.patient_retry.as_millis().max(1) + 1;
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        connection.remote_comm_id = mra.local_comm_id;
        connection.attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        self.set_deadline(comm_id, Some(self.now + self.timing.patient_retry));
    }

    /// A REJ arrived. One that says "time-out" may come from a peer that never learnt this side's id.
    pub(super) fn receive_rej(&mut self, rej: &Rej) {
        let mut comm_id = rej.remote_comm_id;
        if rej.reason == RejReason::Timeout
            && let Some(guid) = rej.info.first_chunk()
            && let Some(known) = self.connections.by_remote(u64::from_be_bytes(*guid), rej.local_comm_id)
        {
            comm_id = known;
        }
        let Some(connection) = self.connections.get(comm_id) else {
            return;
        };
        let (was, owner) = (connection.state, connection.owner);
        if !matches!(self.step(comm_id, Event::Rej), Transition::Go(_)) {
            return;
        }
        if was == State::DreqSent {
            return self.report_end(comm_id, 0);
        }
        if let Some(connection) = self.connections.get_mut(comm_id) {
            connection.end_reported = true;
        }
        let param = ConnectionParam {
            private_data: PrivateData(rej.private_data.to_vec()),
            ..ConnectionParam::default()
        };
        if let Some(owner) = owner {
            let status = i32::from(rej.reason.to_u16());
            self.report(owner, EventKind::Rejected, status, Param::Connection(Box::new(param)));
        }
    }

    /// Tell the peer to be patient.
    pub(super) fn send_mra(&mut self, comm_id: u32, message: MessageKind) {
        let Some(connection) = self.connections.get(comm_id) else {
            return;
        };
        let mra = Mra {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            message,
            service_timeout: SERVICE_TIMEOUT,
            private_data: [0; 222],
        };
        let tid = connection.tid;
        self.send(comm_id, tid, &mra.into());
    }

    /// REJECT, or an id destroyed in the middle of an attempt.
    pub(super) fn refuse_connection(&mut self, comm_id: u32, reason: RejReason, data: &[u8]) -> Result<(), Errno> {
        let private_data = private_data(data).ok_or(libc::EINVAL)?;
        let connection = self.connections.get(comm_id).ok_or(libc::EINVAL)?;
        let tid = connection.tid;
        let mut info = [0; 72];
        let mut info_len = 0;
        if reason == RejReason::Timeout {
            info[..8].copy_from_slice(&connection.device.guid.to_be_bytes());
            info_len = 8;
        }
        let message: Message = Rej {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            message: match connection.state {
                State::ReqReceived => MessageKind::Req,
                State::RepReceived => MessageKind::Rep,
                _ => MessageKind::Other,
            },
            info_len,
            reason,
            info,
            private_data,
        }
        .into();
        // The message goes first: an attempt that becomes idle without an owner is gone.
        if !matches!(self.peek(comm_id, Event::SendRej), Transition::Go(_)) {
            return Err(libc::EINVAL);
        }
        self.send_kept(comm_id, tid, &message);
        self.connections.forget_qpn(comm_id);
        self.step(comm_id, Event::SendRej);
        Ok(())
    }
}

fn primary_path(connection: &Connection) -> CmPath {
    let path = &connection.path;
    CmPath {
        // Routed RoCEv2 has no LIDs: the permissive one says so.
        local_lid: 0xFFFF,
        remote_lid: 0xFFFF,
        local_gid: gid(path.src),
        remote_gid: gid(path.dst),
        flow_label: path.flow_label,
        packet_rate: path.rate,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        sl: path.sl,
        subnet_local: false,
        local_ack_timeout: connection.ack_timeout,
    }
}
