//! Datagram service resolution (SIDR): how UDP port space ids find the peer's QP.
//!
//! The active side repeats its request until answered. The passive side keeps its answer for a while, so that a request
//! whose answer was lost does not become a second event for the application.

use core::net::{IpAddr, SocketAddr};

use nic_model::time::Time;
use roce_wire::cm::ip::{IpPrefix, PortSpace as WireSpace};
use roce_wire::cm::{SidrRep, SidrReq, SidrStatus, private_data};
use roce_wire::mad::MadHeader;

use super::command::{ConnParam, Ece, PortSpace, Response};
use super::connect::PKEY;
use super::environment::Device;
use super::event::{DatagramParam, EventKind, Param, PrivateData};
use super::id::{Endpoint, Id, IdState};
use super::path::{PathRecord, life_time};
use super::qp_attr::UDP_QKEY;
use super::receive::Received;
use super::timer::Timer;
use super::{Core, Errno, Mad};

/// Names a request at its receiver: who sent it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemoteRequest {
    peer: IpAddr,
    request_id: u32,
}

/// A request this side sent.
#[derive(Debug)]
pub(super) struct Request {
    owner: u32,
    mad: Mad,
    attempt: u32,
    deadline: Time,
}

/// A request this side received.
#[derive(Debug)]
pub(super) struct Reply {
    owner: Option<u32>,
    request: Mad,
    tid: u64,
    service_id: u64,
    /// The answer, once given, and until when it is kept.
    answer: Option<(Mad, Time)>,
}

impl Core {
    /// CONNECT of a datagram id.
    pub(super) fn request_service(&mut self, handle: u32, param: &ConnParam) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        let (Some(device), Some(path), Some(src), Some(dst)) = (&id.device, &id.path, id.src, id.dst) else {
            return Err(libc::EINVAL);
        };
        if id.state != IdState::RouteResolved {
            return Err(libc::EINVAL);
        }
        let mut data = IpPrefix {
            src_port: src.port(),
            src: src.ip(),
            dst: dst.ip(),
        }
        .to_bytes()
        .to_vec();
        data.extend_from_slice(&param.private_data);
        let request_id = self.new_comm_id(device);
        let req = SidrReq {
            request_id,
            pkey: PKEY,
            service_id: WireSpace::from_u16(id.space.0)
                .ok_or(libc::EINVAL)?
                .service_id(dst.port()),
            private_data: private_data(&data).ok_or(libc::EINVAL)?,
        };
        let mad = Mad {
            local: src.ip(),
            peer: dst.ip(),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            bytes: roce_wire::cm::Message::from(req).emit(&MadHeader::cm(self.new_tid(request_id))),
        };
        let deadline = self.now + self.timing.wait(0);
        self.outbox.push_back(mad.clone());
        self.requests.insert(
            request_id,
            Request {
                owner: handle,
                mad,
                attempt: 0,
                deadline,
            },
        );
        self.timers.insert((deadline, Timer::Request(request_id)));
        if let Some(id) = self.ids.get_mut(handle) {
            id.state = IdState::Connecting;
            id.endpoint = Endpoint::ServiceRequest(request_id);
        }
        Ok(Response::Done)
    }

    pub(super) fn request_timeout(&mut self, request_id: u32) {
        let now = self.now;
        let timing = self.timing;
        let Some(request) = self.requests.get_mut(&request_id) else {
            return;
        };
        self.timers.remove(&(request.deadline, Timer::Request(request_id)));
        if request.attempt < u32::from(timing.retries) {
            request.attempt += 1;
            request.deadline = now + timing.wait(request.attempt);
            self.timers.insert((request.deadline, Timer::Request(request_id)));
            self.outbox.push_back(request.mad.clone());
            return;
        }
        let owner = request.owner;
        self.requests.remove(&request_id);
        self.report(
            owner,
            EventKind::Unreachable,
            -libc::ETIMEDOUT,
            Param::Datagram(Box::default()),
        );
    }

    /// A SIDR_REP arrived.
    pub(super) fn receive_sidr_rep(&mut self, rep: &SidrRep) {
        let Some(request) = self.requests.remove(&rep.request_id) else {
            return;
        };
        self.timers.remove(&(request.deadline, Timer::Request(rep.request_id)));
        let Some(id) = self.ids.get_mut(request.owner) else {
            return;
        };
        let mut param = DatagramParam {
            private_data: PrivateData(rep.private_data.to_vec()),
            ..DatagramParam::default()
        };
        if rep.status != SidrStatus::Success {
            let status = i32::from(rep.status.to_u8());
            return self.report(
                request.owner,
                EventKind::Unreachable,
                status,
                Param::Datagram(Box::new(param)),
            );
        }
        id.qkey = Some(rep.qkey);
        param.qp_num = rep.qpn;
        param.qkey = rep.qkey;
        if let (Some(path), Some(device)) = (&id.path, &id.device) {
            param.ah = path.address_handle(device);
        }
        self.report(
            request.owner,
            EventKind::Established,
            0,
            Param::Datagram(Box::new(param)),
        );
    }

    /// The id of an unanswered request is gone.
    pub(super) fn abandon_service_request(&mut self, request_id: u32) {
        if let Some(request) = self.requests.remove(&request_id) {
            self.timers.remove(&(request.deadline, Timer::Request(request_id)));
        }
    }

    /// A SIDR_REQ arrived.
    pub(super) fn receive_sidr_req(&mut self, mad: &Mad, header: &MadHeader, req: &SidrReq) -> Received {
        let key = RemoteRequest {
            peer: mad.peer,
            request_id: req.request_id,
        };
        if let Some(reply) = self.replies.get(&key) {
            if let Some((answer, _)) = &reply.answer {
                self.outbox.push_back(answer.clone());
            }
            return Received::Taken;
        }
        let (Some((space, port)), Some(prefix)) = (
            WireSpace::of_service_id(req.service_id),
            IpPrefix::parse(&req.private_data),
        ) else {
            self.refuse_service_request(mad, header, req);
            return Received::Taken;
        };
        let space = PortSpace(space.to_u16());
        let Some(listener_handle) = self.ports.listener(space, prefix.dst, port) else {
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
        let Some(listener) = self.ids.get(listener_handle) else {
            return Received::Taken;
        };
        if !listener.is_datagram() {
            self.refuse_service_request(mad, header, req);
            return Received::Taken;
        }
        let Some(device) = self.env.device_for(mad.local) else {
            return Received::Taken;
        };
        if listener.room == 0 {
            return Received::Taken;
        }
        let (file, uid) = (listener.file, listener.uid);
        let child = self.datagram_child(listener, mad, &device, &prefix, port);
        let Some(handle) = self.ids.insert(child) else {
            return Received::Taken;
        };
        if let Some(child) = self.ids.get_mut(handle) {
            child.endpoint = Endpoint::ServiceReply(key);
        }
        self.replies.insert(
            key,
            Reply {
                owner: Some(handle),
                request: mad.clone(),
                tid: header.tid,
                service_id: req.service_id,
                answer: None,
            },
        );
        let data = PrivateData(req.private_data[IpPrefix::LEN..].to_vec());
        let param = DatagramParam {
            private_data: data,
            ..DatagramParam::default()
        };
        self.announce(
            file,
            listener_handle,
            uid,
            handle,
            Param::Datagram(Box::new(param)),
            Ece::default(),
        );
        Received::Taken
    }

    fn datagram_child(&self, listener: &Id, mad: &Mad, device: &Device, prefix: &IpPrefix, port: u16) -> Id {
        let src = SocketAddr::new(prefix.dst, port);
        let dst = SocketAddr::new(prefix.src, prefix.src_port);
        let mut child = Id::new(listener.file, 0, listener.space, listener.qp_type);
        child.announced = false;
        child.state = IdState::Connecting;
        child.src = Some(src);
        child.dst = Some(dst);
        child.path = Some(PathRecord::new(
            device,
            src,
            dst,
            mad.traffic_class,
            life_time(None, &self.timing),
        ));
        child.device = Some(device.clone());
        child
    }

    /// ACCEPT of a datagram id: tell the peer the QP.
    pub(super) fn answer_service(
        &mut self,
        handle: u32,
        key: &RemoteRequest,
        param: Option<&ConnParam>,
    ) -> Result<Response, Errno> {
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        let wanted = param.map_or(0, |param| param.qkey);
        let qkey = if wanted == 0 {
            *id.qkey.get_or_insert(UDP_QKEY)
        } else {
            wanted
        };
        let qpn = param.map_or(id.qp_num, |param| param.qp_num) & 0xFF_FFFF;
        id.qp_num = qpn;
        id.qkey = Some(qkey);
        let data = param.map_or(&[][..], |param| &param.private_data);
        self.send_sidr_rep(key, SidrStatus::Success, qpn, qkey, data)?;
        Ok(Response::Done)
    }

    /// REJECT of a datagram id.
    pub(super) fn refuse_service(&mut self, key: &RemoteRequest, data: &[u8]) -> Result<(), Errno> {
        self.send_sidr_rep(key, SidrStatus::Rejected, 0, 0, data)
    }

    fn send_sidr_rep(
        &mut self,
        key: &RemoteRequest,
        status: SidrStatus,
        qpn: u32,
        qkey: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        let private_data = private_data(data).ok_or(libc::EINVAL)?;
        let keep_until = self.now + self.timing.longest_retry * 4;
        let reply = self
            .replies
            .get_mut(key)
            .filter(|reply| reply.answer.is_none())
            .ok_or(libc::EINVAL)?;
        let rep = SidrRep {
            request_id: key.request_id,
            status,
            info_len: 0,
            qpn,
            service_id: reply.service_id,
            qkey,
            info: [0; 72],
            private_data,
        };
        let answer = reply.request.answer(reply.tid, &rep.into());
        self.outbox.push_back(answer.clone());
        reply.answer = Some((answer, keep_until));
        self.timers.insert((keep_until, Timer::Reply(*key)));
        Ok(())
    }

    pub(super) fn reply_timeout(&mut self, key: &RemoteRequest) {
        if let Some(Reply {
            answer: Some((_, deadline)),
            ..
        }) = self.replies.remove(key)
        {
            self.timers.remove(&(deadline, Timer::Reply(*key)));
        }
    }

    /// The id of a request received is gone; unanswered, it is refused.
    pub(super) fn abandon_service_reply(&mut self, key: &RemoteRequest) {
        let Some(reply) = self.replies.get_mut(key) else { return };
        reply.owner = None;
        if reply.answer.is_none() {
            let _ = self.refuse_service(key, &[]);
        }
    }

    /// Refuse a SIDR_REQ nobody serves.
    pub(super) fn refuse_service_request(&mut self, mad: &Mad, header: &MadHeader, req: &SidrReq) {
        let rep = SidrRep {
            request_id: req.request_id,
            status: SidrStatus::Unsupported,
            info_len: 0,
            qpn: 0,
            service_id: req.service_id,
            qkey: 0,
            info: [0; 72],
            private_data: [0; 136],
        };
        self.outbox.push_back(mad.answer(header.tid, &rep.into()));
    }
}
