//! The command queue: creating, changing and destroying objects.

use super::qp::attr::{self, Limits, mtu_bytes};
use super::qp::{Qp, QpInfo, Service};
use super::requester::Requester;
use super::responder::Responder;
use super::tombstone::Tombstone;
use super::ud::Datagram;
use super::{Nic, Role, path};
use crate::host_if::command::{Command, CommandError, Reply};
use crate::host_if::event::AsyncEventKind;
use crate::host_if::qp_attr::{QpAttr, QpAttrMask, QpState, QpType};
use crate::host_if::wqe::{recv_stride, send_stride};
use crate::time::{Duration, Time};
use crate::tonic::{FlowConfig, FlowId};

impl Nic {
    /// Run one command.
    ///
    /// # Errors
    /// See [`CommandError`]; a refused command changes nothing.
    pub fn handle_command(&mut self, now: Time, command: Command) -> Result<Reply, CommandError> {
        self.parts.now = now;
        let reply = match command {
            Command::SetGid { index, gid } => self.parts.gids.set(index, gid).map(|()| Reply::Done),
            Command::AllocPd => self.parts.memory.alloc_pd().map(Reply::Id),
            Command::DeallocPd { pd } => self.parts.memory.dealloc_pd(pd).map(|()| Reply::Done),
            Command::RegMr {
                pd,
                addr,
                length,
                iova,
                access,
            } => {
                let key = self.parts.memory.register(pd, addr, length, iova, access)?;
                Ok(Reply::Keys { lkey: key, rkey: key })
            }
            Command::DeregMr { lkey } => self.parts.memory.deregister(lkey).map(|()| Reply::Done),
            Command::CreateCq { ring, cqe, cookie } => self.parts.cqs.create(ring, cqe, cookie).map(Reply::Id),
            Command::DestroyCq { cq } => self.parts.cqs.destroy(cq).map(|()| Reply::Done),
            Command::CreateQp { .. } => self.create_qp(command),
            Command::ModifyQp { qpn, attr, mask } => self.modify_qp(qpn, &attr, mask).map(|()| Reply::Done),
            Command::QueryQp { qpn } => self.query_qp(qpn),
            Command::DestroyQp { qpn } => self.destroy_qp(qpn).map(|()| Reply::Done),
            Command::CreateAh { pd, av } => {
                self.parts.memory.hold_pd(pd)?;
                let created = self.parts.ahs.create(&self.parts.gids, pd, &av);
                created.inspect_err(|_| self.parts.memory.release_pd(pd)).map(Reply::Id)
            }
            Command::DestroyAh { ah } => {
                let pd = self.parts.ahs.destroy(ah)?;
                self.parts.memory.release_pd(pd);
                Ok(Reply::Done)
            }
        };
        self.settle_overruns();
        reply
    }

    fn create_qp(&mut self, command: Command) -> Result<Reply, CommandError> {
        let Command::CreateQp {
            pd,
            qp_type,
            send_cq,
            recv_cq,
            sq,
            rq,
            max_send_wr,
            max_recv_wr,
            max_send_sge,
            max_recv_sge,
            sq_sig_all,
            cookie,
        } = command
        else {
            return Err(CommandError::Invalid);
        };
        let caps = &self.config.caps;
        let fits = max_send_wr <= caps.max_qp_wr
            && max_recv_wr <= caps.max_qp_wr
            && max_send_sge <= caps.max_sge
            && max_recv_sge <= caps.max_sge
            && sq.entries() >= max_send_wr
            && rq.entries() >= max_recv_wr
            && sq.stride() >= send_stride(max_send_sge, 0)
            && rq.stride() >= recv_stride(max_recv_sge);
        if !fits {
            return Err(CommandError::Invalid);
        }
        let service = match qp_type {
            QpType::Rc => Service::Rc(Box::new(Requester::new(sq)), Box::new(Responder::new(rq))),
            QpType::Ud => Service::Ud(Box::new(Datagram::new(sq, rq))),
            QpType::Uc => return Err(CommandError::Unsupported),
        };
        let qpn = self.qps.allocate().ok_or(CommandError::NoResources)?;
        self.hold(pd, send_cq, recv_cq)?;
        self.graveyard.exhume(qpn);
        let mtu = mtu_bytes(self.config.port_mtu).unwrap_or(256);
        self.qps.insert(Qp {
            info: QpInfo {
                qpn,
                qp_type,
                pd,
                send_cq,
                recv_cq,
                cookie,
                sq_sig_all,
                max_send_sge,
                max_recv_sge,
                attr: QpAttr::default(),
                mtu,
                path: None,
                cnp_after: Time::ZERO,
                established: false,
            },
            service,
        });
        Ok(Reply::Qpn(qpn))
    }

    /// Count the QP as a user of its PD and CQs, all or none.
    fn hold(&mut self, pd: u32, send_cq: u32, recv_cq: u32) -> Result<(), CommandError> {
        let parts = &mut self.parts;
        parts.memory.hold_pd(pd)?;
        if let Err(error) = parts.cqs.hold(send_cq) {
            parts.memory.release_pd(pd);
            return Err(error);
        }
        if let Err(error) = parts.cqs.hold(recv_cq) {
            parts.cqs.release(send_cq);
            parts.memory.release_pd(pd);
            return Err(error);
        }
        Ok(())
    }

    fn modify_qp(&mut self, qpn: u32, new: &QpAttr, mask: QpAttrMask) -> Result<(), CommandError> {
        let qp = self.qps.get(qpn).ok_or(CommandError::Invalid)?;
        let index = qp.info.index();
        let from = qp.info.state();
        let limits = Limits {
            caps: &self.config.caps,
            port_mtu: self.config.port_mtu,
        };
        let to = attr::check(qp.info.qp_type, &qp.info.attr, new, mask, &limits)?;
        let mut next = qp.info.attr;
        attr::apply(&mut next, new, mask);
        if mask.contains(QpAttrMask::AV) && qp.info.qp_type != QpType::Ud {
            qp.info.path = Some(path::resolve(&self.parts.gids, &next.ah, qpn, next.dest_qp_num)?);
        }
        next.qp_state = to;
        if to == QpState::Err {
            self.bury(index);
        }
        let Some(qp) = self.qps.at(index) else {
            return Err(CommandError::Invalid);
        };
        qp.info.attr = next;
        if let Service::Rc(requester, _) = &qp.service
            && let Some(flow) = requester.flow().filter(|_| mask.contains(QpAttrMask::TIMEOUT))
        {
            self.parts
                .tonic
                .set_timeout(self.parts.now, flow, ack_timeout(next.timeout));
        }
        self.enter(index, from, to);
        Ok(())
    }

    /// Do what a commanded transition asks for beyond taking over attributes.
    fn enter(&mut self, index: u16, from: QpState, to: QpState) {
        match (from, to) {
            (_, QpState::Reset) => self.reset_qp(index),
            (_, QpState::Err) => self.flush(index, true),
            (QpState::Init, QpState::Rtr) => self.enter_rtr(index),
            (QpState::Rtr, QpState::Rts) => self.enter_rts(index),
            (QpState::Rts, QpState::Sqd) => self.check_drained(index),
            (QpState::Sqd | QpState::Sqe, QpState::Rts) => self.on_doorbell(index),
            _ => {}
        }
    }

    fn enter_rtr(&mut self, index: u16) {
        let Some(Qp {
            info,
            service: Service::Rc(_, responder),
        }) = self.qps.at(index)
        else {
            return;
        };
        info.mtu = mtu_bytes(info.attr.path_mtu).unwrap_or(256);
        let config = FlowConfig {
            reliable: false,
            timeout: None,
            early_retransmit: false,
            ..flow_config(&self.config, info.mtu)
        };
        let flow = self.parts.tonic.add_flow(self.parts.now, config);
        responder.start(info, flow);
        self.own(flow, index, Role::Responder);
    }

    fn enter_rts(&mut self, index: u16) {
        let Some(qp) = self.qps.at(index) else { return };
        match &mut qp.service {
            Service::Rc(requester, _) => {
                let config = FlowConfig {
                    timeout: ack_timeout(qp.info.attr.timeout),
                    ..flow_config(&self.config, qp.info.mtu)
                };
                let flow = self.parts.tonic.add_flow(self.parts.now, config);
                requester.start(&qp.info, flow);
                self.own(flow, index, Role::Requester);
            }
            Service::Ud(datagram) => datagram.start(&qp.info),
        }
        self.on_doorbell(index);
    }

    fn own(&mut self, flow: FlowId, index: u16, role: Role) {
        let slot = flow as usize;
        if self.flows.len() <= slot {
            self.flows.resize(slot + 1, None);
        }
        self.flows[slot] = Some((index, role));
    }

    /// Raise SQ_DRAINED when a QP in SQD has nothing in flight.
    pub(super) fn check_drained(&mut self, index: u16) {
        let Some(Qp {
            info,
            service: Service::Rc(requester, _),
        }) = self.qps.at(index)
        else {
            return;
        };
        if info.state() == QpState::Sqd && info.attr.en_sqd_async_notify && requester.is_drained() {
            info.attr.en_sqd_async_notify = false;
            self.parts.raise(AsyncEventKind::SqDrained, info.cookie);
        }
    }

    fn query_qp(&mut self, qpn: u32) -> Result<Reply, CommandError> {
        let qp = self.qps.get(qpn).ok_or(CommandError::Invalid)?;
        let mut attr = qp.info.attr;
        attr.cur_qp_state = attr.qp_state;
        if let Service::Rc(requester, responder) = &qp.service {
            attr.sq_draining = attr.qp_state == QpState::Sqd && !requester.is_drained();
            attr.rq_psn = responder.position().0.get();
            attr.sq_psn = requester.next_psn().get();
        }
        Ok(Reply::Qp(Box::new(attr)))
    }

    fn reset_qp(&mut self, index: u16) {
        let Some(qp) = self.qps.at(index) else { return };
        let qpn = qp.info.qpn;
        let mut retired: [Option<FlowId>; 2] = [None; 2];
        match &mut qp.service {
            Service::Rc(requester, responder) => retired = [requester.reset(), responder.reset()],
            Service::Ud(datagram) => datagram.reset(),
        }
        qp.info.attr = QpAttr::default();
        qp.info.path = None;
        qp.info.established = false;
        self.parts.cqs.kill(qpn);
        retired.into_iter().flatten().for_each(|flow| self.remove_flow(flow));
        self.parts.ack_due.retain(|due| *due != index);
    }

    fn destroy_qp(&mut self, qpn: u32) -> Result<(), CommandError> {
        let index = self.qps.get(qpn).ok_or(CommandError::Invalid)?.info.index();
        self.bury(index);
        self.reset_qp(index);
        let Some(qp) = self.qps.remove(qpn) else {
            return Err(CommandError::Invalid);
        };
        self.parts.ud_ready.retain(|ready| *ready != index);
        self.parts.cqs.release(qp.info.send_cq);
        self.parts.cqs.release(qp.info.recv_cq);
        self.parts.memory.release_pd(qp.info.pd);
        Ok(())
    }

    /// Keep a closing connection answerable.
    fn bury(&mut self, index: u16) {
        if let Some(stone) = self.qps.peek(index).and_then(tombstone_of) {
            self.graveyard.bury(self.parts.now, stone);
        }
    }
}

/// Tombstone of a QP, if it ever was ready to receive.
pub(super) fn tombstone_of(qp: &Qp) -> Option<Tombstone> {
    let Service::Rc(_, responder) = &qp.service else {
        return None;
    };
    let path = qp.info.path.filter(|_| qp.info.may_receive())?;
    let (expected, msn) = responder.position();
    let dest_qpn = qp.info.attr.dest_qp_num;
    Some(Tombstone {
        qpn: qp.info.qpn,
        path,
        dest_qpn,
        expected_psn: expected.get(),
        msn,
    })
}

fn flow_config(config: &super::NicConfig, mtu: u32) -> FlowConfig {
    FlowConfig {
        program: config.program,
        segment_size: mtu,
        line_rate_bps: config.line_rate,
        quantum: config.quantum,
        early_retransmit: true,
        ..FlowConfig::default()
    }
}

/// Local ACK timeout of an exponent: T = 4.096 µs · 2^n, 0 means never. A timeout may take up to 4 T (IBTA 9.7.6.1.3),
/// and a peer in software may wait for a processor that long; what is lost is sent again much earlier (early retransmit).
fn ack_timeout(exponent: u8) -> Option<Duration> {
    (exponent != 0).then(|| 4 * Duration::from_nanos(4_096 << exponent.min(31)))
}
