//! The end of a connection: DREQ and DREP, both sides told once, and what an id leaves behind when it is destroyed.

use roce_wire::cm::{Drep, Dreq, RejReason};
use roce_wire::mad::MadHeader;

use super::command::Response;
use super::event::{ConnectionParam, EventKind, Param, PrivateData};
use super::id::{Endpoint, IdState};
use super::state::{Again, Event, State, Transition};
use super::{Core, Errno, Mad};

impl Core {
    /// DISCONNECT: ask, or agree. Succeeds even when there is nothing left to do.
    pub(super) fn disconnect(&mut self, handle: u32) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        let Endpoint::Connection(comm_id) = id.endpoint else {
            return Err(libc::EINVAL);
        };
        if self.start_disconnect(comm_id).is_err() {
            self.agree(comm_id);
        }
        Ok(Response::Done)
    }

    /// Send a DREQ, repeated until it is answered.
    pub(super) fn start_disconnect(&mut self, comm_id: u32) -> Result<(), Errno> {
        if !matches!(self.step(comm_id, Event::SendDreq), Transition::Go(_)) {
            return Err(libc::EINVAL);
        }
        let tid = self.new_tid(comm_id);
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return Err(libc::EINVAL);
        };
        connection.tid = tid;
        let dreq = Dreq {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            remote_qpn: connection.remote_qpn,
            private_data: [0; 220],
        };
        self.send_repeated(comm_id, tid, &dreq.into());
        Ok(())
    }

    /// Send the DREP that was asked for.
    fn agree(&mut self, comm_id: u32) {
        if matches!(self.peek(comm_id, Event::SendDrep), Transition::Go(_)) {
            self.send_drep(comm_id);
            self.step(comm_id, Event::SendDrep);
        }
    }

    fn send_drep(&mut self, comm_id: u32) {
        let Some(connection) = self.connections.get(comm_id) else {
            return;
        };
        let tid = connection.tid;
        let drep = Drep {
            local_comm_id: comm_id,
            remote_comm_id: connection.remote_comm_id,
            private_data: [0; 224],
        };
        self.send_kept(comm_id, tid, &drep.into());
    }

    /// A DREQ arrived. One for an unknown connection is agreed to: the peer must not wait for somebody who forgot.
    pub(super) fn receive_dreq(&mut self, mad: &Mad, header: &MadHeader, dreq: &Dreq) {
        let comm_id = dreq.remote_comm_id;
        let known = self
            .connections
            .get(comm_id)
            .filter(|c| c.remote_comm_id == dreq.local_comm_id);
        let Some(connection) = known.filter(|c| c.state != State::Idle) else {
            let drep = Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                private_data: [0; 224],
            };
            self.outbox.push_back(mad.answer(header.tid, &drep.into()));
            return;
        };
        if connection.local_qpn != dreq.remote_qpn {
            return;
        }
        let was = connection.state;
        match self.step(comm_id, Event::Dreq) {
            Transition::Go(next) => {
                if let Some(connection) = self.connections.get_mut(comm_id) {
                    connection.tid = header.tid;
                }
                if next == State::TimeWait {
                    self.send_drep(comm_id);
                }
                self.report_end_with(comm_id, 0, &dreq.private_data);
                // Nobody is left to agree.
                if was != State::DreqSent && self.connections.get(comm_id).is_some_and(|c| c.owner.is_none()) {
                    self.agree(comm_id);
                }
            }
            Transition::Answer(Again::Drep) => self.send_drep(comm_id),
            _ => {}
        }
    }

    /// A DREP arrived.
    pub(super) fn receive_drep(&mut self, drep: &Drep) {
        let comm_id = drep.remote_comm_id;
        if matches!(self.step(comm_id, Event::Drep), Transition::Go(_)) {
            self.report_end_with(comm_id, 0, &drep.private_data);
        }
    }

    /// Tell the owner, once, that its connection ended.
    pub(super) fn report_end(&mut self, comm_id: u32, status: i32) {
        self.report_end_with(comm_id, status, &[]);
    }

    fn report_end_with(&mut self, comm_id: u32, status: i32, data: &[u8]) {
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        let Some(owner) = connection.owner.filter(|_| !connection.end_reported) else {
            return;
        };
        connection.end_reported = true;
        if let Some(id) = self.ids.get_mut(owner) {
            id.state = IdState::Disconnected;
        }
        let param = ConnectionParam {
            private_data: PrivateData(data.to_vec()),
            ..ConnectionParam::default()
        };
        self.report(
            owner,
            EventKind::Disconnected,
            status,
            Param::Connection(Box::new(param)),
        );
    }

    /// The owner is gone: end what can be ended, and let the rest run out by itself.
    pub(super) fn abandon_connection(&mut self, comm_id: u32) {
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        connection.owner = None;
        match connection.state {
            State::Idle => self.drop_idle(comm_id),
            State::ReqSent | State::MraReqReceived => {
                let _ = self.refuse_connection(comm_id, RejReason::Timeout, &[]);
            }
            State::ReqReceived | State::RepReceived | State::RepSent | State::MraRepReceived => {
                let _ = self.refuse_connection(comm_id, RejReason::ConsumerDefined, &[]);
            }
            State::Established => {
                let _ = self.start_disconnect(comm_id);
            }
            State::DreqReceived => self.agree(comm_id),
            State::DreqSent | State::TimeWait => {}
        }
    }

    /// REJECT.
    pub(super) fn reject(&mut self, handle: u32, reason: u8, data: &[u8]) -> Result<Response, Errno> {
        let reason = match reason {
            0 => RejReason::ConsumerDefined,
            28 | 35 => RejReason::from_u16(u16::from(reason)),
            _ => return Err(libc::EINVAL),
        };
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        match id.endpoint {
            Endpoint::Connection(comm_id) => self.refuse_connection(comm_id, reason, data)?,
            Endpoint::ServiceReply(request) => self.refuse_service(&request, data)?,
            _ => return Err(libc::EINVAL),
        }
        Ok(Response::Done)
    }
}
