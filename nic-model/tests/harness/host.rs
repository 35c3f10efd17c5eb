//! One host: a NIC and the driver half that posts to its rings.

use super::wr::{Recv, Wr};
use core::net::IpAddr;
use nic_model::device::{Nic, NicConfig};
use nic_model::frame::{TxBudget, Unlimited};
use nic_model::host_if::caps::DeviceCaps;
use nic_model::host_if::qp_attr::{Access, AddressVector, Gid};
use nic_model::host_if::wqe::{recv_stride, send_stride};
use nic_model::host_if::{
    AsyncEvent, AsyncEventKind, Command, CommandError, CompletionQueue, Cqe, CqeFlags, DoorbellPage, Event, QpAttr,
    QpAttrMask as M, QpState, QpType, Reply, WorkQueue,
};
use nic_model::time::Time;
use std::sync::Arc;

/// Which host.
pub(crate) type Side = usize;

/// A QP of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpId {
    pub(crate) side: Side,
    pub(crate) index: usize,
}

/// Knobs of a QP and its connection.
#[derive(Clone, Debug)]
pub(crate) struct QpOptions {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
    pub(crate) sq_sig_all: bool,
    /// Entries of each of its two CQs.
    pub(crate) cqe: u32,
    /// Read its CQs after every step.
    pub(crate) poll: bool,
    /// PMTU code.
    pub(crate) mtu: u8,
    pub(crate) access: Access,
    /// First PSN of each direction: of the QP with these options, and of its peer.
    pub(crate) psn: (u32, u32),
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) qkey: u32,
    /// Use the PD of the host (0) or one more.
    pub(crate) pd: usize,
}

impl Default for QpOptions {
    fn default() -> Self {
        Self {
            send_wr: 128,
            recv_wr: 128,
            max_sge: 4,
            max_inline: 64,
            sq_sig_all: false,
            cqe: 4096,
            poll: true,
            mtu: 3,
            access: ALL,
            psn: (0x1234, 0x00ab_cdef),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            qkey: 0x1111_1111,
            pd: 0,
        }
    }
}

/// Every right.
pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// Driver half of a CQ.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) id: u32,
    pub(crate) ring: Arc<CompletionQueue>,
    pub(crate) cookie: u64,
    consumer: u32,
}

/// Driver half of a QP, and what has completed on it.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) cookie: u64,
    pub(crate) options: QpOptions,
    pub(crate) sq: Arc<WorkQueue>,
    pub(crate) rq: Arc<WorkQueue>,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) sq_head: u32,
    sq_retired: u32,
    pub(crate) rq_head: u32,
    /// Completions of the SQ, in order.
    pub(crate) sends: Vec<Cqe>,
    /// Completions of the RQ, in order.
    pub(crate) recvs: Vec<Cqe>,
}

/// A host.
pub(crate) struct Host {
    pub(crate) nic: Nic,
    pub(crate) addr: IpAddr,
    pub(crate) pds: Vec<u32>,
    pub(crate) qps: Vec<Qp>,
    pub(crate) events: Vec<AsyncEvent>,
    /// Cookies of completion events.
    pub(crate) fired: Vec<u64>,
    pub(crate) budget: Box<dyn TxBudget>,
    doorbells: Arc<DoorbellPage>,
    next_cookie: u64,
}

impl Host {
    pub(crate) fn new(slot: u8, addr: IpAddr, line_rate: u64, quantum: u16) -> Self {
        let mut nic = Nic::new(NicConfig {
            slot,
            first_qp: 0x17,
            caps: DeviceCaps::default(),
            port_mtu: 5,
            line_rate,
            program: nic_model::tonic::program("roce-dcqcn").expect("the default program"),
            quantum,
        });
        nic.handle_command(
            Time::ZERO,
            Command::SetGid {
                index: 0,
                gid: Gid::from_ip(addr),
            },
        )
        .unwrap();
        let doorbells = nic.doorbells();
        let mut host = Self {
            nic,
            addr,
            pds: Vec::new(),
            qps: Vec::new(),
            events: Vec::new(),
            fired: Vec::new(),
            budget: Box::new(Unlimited),
            doorbells,
            next_cookie: 1,
        };
        host.pd(0);
        host
    }

    /// The PD of that number, allocated on first use.
    pub(crate) fn pd(&mut self, number: usize) -> u32 {
        while self.pds.len() <= number {
            let Ok(Reply::Id(pd)) = self.nic.handle_command(Time::ZERO, Command::AllocPd) else {
                panic!("no PD");
            };
            self.pds.push(pd);
        }
        self.pds[number]
    }

    pub(crate) fn cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    fn cq(&mut self, now: Time, cqe: u32) -> Cq {
        let ring = Arc::new(CompletionQueue::new(cqe));
        let cookie = self.cookie();
        let command = Command::CreateCq {
            ring: Arc::clone(&ring),
            cqe,
            cookie,
        };
        let Ok(Reply::Id(id)) = self.nic.handle_command(now, command) else {
            panic!("no CQ")
        };
        Cq {
            id,
            ring,
            cookie,
            consumer: 0,
        }
    }

    /// A QP in RESET; returns its index.
    pub(crate) fn create_qp(&mut self, now: Time, qp_type: QpType, options: &QpOptions) -> usize {
        let (send_cq, recv_cq) = (self.cq(now, options.cqe), self.cq(now, options.cqe));
        let sq = Arc::new(WorkQueue::new(
            options.send_wr,
            send_stride(options.max_sge, options.max_inline),
        ));
        let rq = Arc::new(WorkQueue::new(options.recv_wr, recv_stride(options.max_sge)));
        let cookie = self.cookie();
        let pd = self.pd(options.pd);
        let command = Command::CreateQp {
            pd,
            qp_type,
            send_cq: send_cq.id,
            recv_cq: recv_cq.id,
            sq: Arc::clone(&sq),
            rq: Arc::clone(&rq),
            max_send_wr: options.send_wr,
            max_recv_wr: options.recv_wr,
            max_send_sge: options.max_sge,
            max_recv_sge: options.max_sge,
            sq_sig_all: options.sq_sig_all,
            cookie,
        };
        let Ok(Reply::Qpn(qpn)) = self.nic.handle_command(now, command) else {
            panic!("no QP")
        };
        self.qps.push(Qp {
            qpn,
            cookie,
            options: options.clone(),
            sq,
            rq,
            send_cq,
            recv_cq,
            sq_head: 0,
            sq_retired: 0,
            rq_head: 0,
            sends: Vec::new(),
            recvs: Vec::new(),
        });
        self.qps.len() - 1
    }

    pub(crate) fn modify(&mut self, now: Time, index: usize, attr: QpAttr, mask: M) -> Result<(), CommandError> {
        let qpn = self.qps[index].qpn;
        self.nic
            .handle_command(now, Command::ModifyQp { qpn, attr, mask })
            .map(|_| ())
    }

    pub(crate) fn query(&mut self, now: Time, index: usize) -> QpAttr {
        let qpn = self.qps[index].qpn;
        match self.nic.handle_command(now, Command::QueryQp { qpn }) {
            Ok(Reply::Qp(attr)) => *attr,
            other => panic!("query answers {other:?}"),
        }
    }

    pub(crate) fn init(&mut self, now: Time, index: usize) {
        let options = self.qps[index].options.clone();
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            access: options.access,
            ..QpAttr::default()
        };
        self.modify(now, index, attr, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)
            .unwrap();
    }

    pub(crate) fn ready_to_receive(&mut self, now: Time, index: usize, peer: IpAddr, dest_qp_num: u32) {
        let options = self.qps[index].options.clone();
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: options.mtu,
            dest_qp_num,
            rq_psn: options.psn.1,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
            ah: vector(peer),
            ..QpAttr::default()
        };
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        self.modify(now, index, attr, mask).unwrap();
    }

    pub(crate) fn ready_to_send(&mut self, now: Time, index: usize) {
        let options = self.qps[index].options.clone();
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: options.psn.0,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic,
            ..QpAttr::default()
        };
        let mask = M::STATE | M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        self.modify(now, index, attr, mask).unwrap();
    }

    /// Bring a UD QP to RTS.
    pub(crate) fn ud_ready(&mut self, now: Time, index: usize) {
        let options = self.qps[index].options.clone();
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            qkey: options.qkey,
            ..QpAttr::default()
        };
        self.modify(now, index, attr, M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY)
            .unwrap();
        self.modify(
            now,
            index,
            QpAttr {
                qp_state: QpState::Rtr,
                ..QpAttr::default()
            },
            M::STATE,
        )
        .unwrap();
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: options.psn.0,
            ..QpAttr::default()
        };
        self.modify(now, index, attr, M::STATE | M::SQ_PSN).unwrap();
    }

    /// An address handle for `peer`.
    pub(crate) fn address_handle(&mut self, now: Time, peer: IpAddr) -> u32 {
        let pd = self.pd(0);
        match self.nic.handle_command(now, Command::CreateAh { pd, av: vector(peer) }) {
            Ok(Reply::Id(ah)) => ah,
            other => panic!("no AH: {other:?}"),
        }
    }

    /// Write a send WQE and publish it; false when the SQ is full. The doorbell is rung.
    pub(crate) fn try_post(&mut self, index: usize, wr: &Wr) -> bool {
        let qp = &mut self.qps[index];
        if qp.sq_head.wrapping_sub(qp.sq_retired) >= qp.options.send_wr {
            return false;
        }
        qp.sq.write(qp.sq_head, &wr.encode());
        qp.sq_head = qp.sq_head.wrapping_add(1);
        qp.sq.publish(qp.sq_head);
        self.doorbells.ring(qp.qpn);
        true
    }

    pub(crate) fn post_recv(&mut self, index: usize, recv: &Recv) {
        let qp = &mut self.qps[index];
        qp.rq.write(qp.rq_head, &recv.encode());
        qp.rq_head = qp.rq_head.wrapping_add(1);
        qp.rq.publish(qp.rq_head);
        self.doorbells.ring(qp.qpn);
    }

    /// The driver's part of RESET: what was posted is gone, the indices run on.
    pub(crate) fn forget_posted(&mut self, index: usize) {
        let qp = &mut self.qps[index];
        qp.sq_retired = qp.sq_head;
    }

    pub(crate) fn ring(&self, qpn: u32) {
        self.doorbells.ring(qpn);
    }

    /// Poll the CQs of one QP; returns what it found.
    pub(crate) fn poll_qp(&mut self, index: usize) -> Vec<Cqe> {
        let qp = &mut self.qps[index];
        let mut found = Vec::new();
        for cq in [&mut qp.send_cq, &mut qp.recv_cq] {
            while let Some(cqe) = cq.ring.read(cq.consumer) {
                cq.consumer = cq.consumer.wrapping_add(1);
                found.push(cqe);
            }
            cq.ring.publish_consumer(cq.consumer);
        }
        for cqe in found.iter().filter(|cqe| cqe.flags & CqeFlags::DEAD.bits() == 0) {
            if cqe.flags & CqeFlags::RECV.bits() == 0 {
                qp.sq_retired = cqe.wqe_index.wrapping_add(1);
                qp.sends.push(*cqe);
            } else {
                qp.recvs.push(*cqe);
            }
        }
        found
    }

    /// Take the NIC's events.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let events: Vec<Event> = core::iter::from_fn(|| self.nic.poll_event()).collect();
        for event in &events {
            match event {
                Event::Completion { cookie } => self.fired.push(*cookie),
                Event::Async(event) => self.events.push(*event),
            }
        }
        events
    }

    /// Kinds of the asynchronous events of one QP, in order.
    pub(crate) fn events_of(&self, index: usize) -> Vec<AsyncEventKind> {
        let cookie = self.qps[index].cookie;
        self.events
            .iter()
            .filter(|event| event.cookie == cookie)
            .map(|event| event.kind)
            .collect()
    }
}

/// An address vector to `peer`.
pub(crate) fn vector(peer: IpAddr) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid: Gid::from_ip(peer),
        port_num: 1,
        ..AddressVector::default()
    }
}
