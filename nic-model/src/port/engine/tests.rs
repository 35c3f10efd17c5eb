//! Two engines in one process, over loopback sockets.

use super::*;
use crate::host_if::cqe::WcStatus;
use crate::host_if::qp_attr::{Access, AddressVector, Gid, QpAttr, QpAttrMask as M, QpState, QpType};
use crate::host_if::ring::{CompletionQueue, WorkQueue};
use crate::host_if::wqe::{DataSeg, RecvCtrl, RemoteSeg, SendCtrl, WqeFlags, WrOpcode};
use crate::port::netdev;
use std::time::Duration;

#[derive(Debug)]
struct Silent;

impl Service for Silent {
    fn completion(&self, _: u64) {}
    fn async_event(&self, _: AsyncEvent) {}
    fn mad(&self, _: Mad) {}
    fn next_timeout(&self) -> Option<Time> {
        None
    }
    fn handle_timeout(&self, _: Time) {}
}

/// One end of a connection, with a region of `len` bytes.
struct End {
    engine: Arc<Engine>,
    qpn: u32,
    sq: Arc<WorkQueue>,
    rq: Arc<WorkQueue>,
    cq: Arc<CompletionQueue>,
    cq_id: u32,
    posted: u32,
    received: u32,
    consumed: u32,
    memory: Vec<u8>,
    key: u32,
}

impl End {
    fn open(addr: &str, len: usize) -> Self {
        let netdev = netdev::devices()
            .unwrap()
            .into_iter()
            .find(|device| device.is_loopback)
            .unwrap();
        let config = EngineConfig {
            netdev,
            addr: Some(addr.parse().unwrap()),
            faults: None,
            pcap: None,
            rcvbuf: None,
            line_rate: 0,
            guardian: None,
            service: Arc::new(Silent),
        };
        let engine = Engine::open(config).unwrap();
        let Ok(Reply::Id(pd)) = engine.command(Command::AllocPd) else {
            panic!("no PD")
        };
        let cq = Arc::new(CompletionQueue::new(1024));
        let create = Command::CreateCq {
            ring: Arc::clone(&cq),
            cqe: 1024,
            cookie: 1,
        };
        let Ok(Reply::Id(cq_id)) = engine.command(create) else {
            panic!("no CQ")
        };
        let (sq, rq) = (Arc::new(WorkQueue::new(512, 64)), Arc::new(WorkQueue::new(512, 64)));
        let create = Command::CreateQp {
            pd,
            qp_type: QpType::Rc,
            send_cq: cq_id,
            recv_cq: cq_id,
            sq: Arc::clone(&sq),
            rq: Arc::clone(&rq),
            max_send_wr: 512,
            max_recv_wr: 512,
            max_send_sge: 1,
            max_recv_sge: 1,
            sq_sig_all: true,
            cookie: 2,
        };
        let Ok(Reply::Qpn(qpn)) = engine.command(create) else {
            panic!("no QP")
        };
        let mut memory = vec![0u8; len];
        let addr = memory.as_mut_ptr() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let register = Command::RegMr {
            pd,
            addr,
            length: len as u64,
            iova: addr,
            access,
        };
        let Ok(Reply::Keys { lkey: key, .. }) = engine.command(register) else {
            panic!("no MR")
        };
        Self {
            engine,
            qpn,
            sq,
            rq,
            cq,
            cq_id,
            posted: 0,
            received: 0,
            consumed: 0,
            memory,
            key,
        }
    }

    fn modify(&self, attr: QpAttr, mask: M) {
        self.engine
            .command(Command::ModifyQp {
                qpn: self.qpn,
                attr,
                mask: mask | M::STATE,
            })
            .unwrap();
    }

    fn connect(&self, peer: &Self) {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let init = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            access,
            ..QpAttr::default()
        };
        self.modify(init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        let ah = AddressVector {
            is_global: true,
            dgid: Gid::from_ip(peer.engine.addrs()[0]),
            ..Default::default()
        };
        let rtr = QpAttr {
            qp_state: QpState::Rtr,
            ah,
            path_mtu: 5,
            dest_qp_num: peer.qpn,
            rq_psn: 0x00ff_fff0,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            ..QpAttr::default()
        };
        let mask = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        self.modify(rtr, mask);
        let rts = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: 0x00ff_fff0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            ..QpAttr::default()
        };
        self.modify(
            rts,
            M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
        );
    }

    fn post(&mut self, opcode: WrOpcode, length: usize, remote: &Self) {
        let mut wqe = [0u8; 64];
        let wr_id = u64::from(self.posted);
        let flags = WqeFlags::SIGNALED.bits();
        let ctrl = SendCtrl {
            opcode: opcode as u8,
            flags,
            num_sge: 1,
            wr_id,
            ..SendCtrl::default()
        };
        wqe[..16].copy_from_slice(bytemuck::bytes_of(&ctrl));
        let addr = remote.memory.as_ptr() as u64;
        wqe[16..32].copy_from_slice(bytemuck::bytes_of(&RemoteSeg {
            addr,
            rkey: remote.key,
            inline_len: 0,
        }));
        wqe[32..48].copy_from_slice(bytemuck::bytes_of(&self.segment(length)));
        self.sq.write(self.posted, &wqe);
        self.posted += 1;
        self.sq.publish(self.posted);
        self.engine.doorbells().ring(self.qpn);
    }

    fn segment(&self, length: usize) -> DataSeg {
        let length = u32::try_from(length).unwrap();
        DataSeg {
            addr: self.memory.as_ptr() as u64,
            length,
            lkey: self.key,
        }
    }

    fn post_receive(&mut self, length: usize) {
        let mut wqe = [0u8; 64];
        let ctrl = RecvCtrl {
            wr_id: u64::from(self.received),
            num_sge: 1,
            reserved: 0,
        };
        wqe[..16].copy_from_slice(bytemuck::bytes_of(&ctrl));
        wqe[16..32].copy_from_slice(bytemuck::bytes_of(&self.segment(length)));
        self.rq.write(self.received, &wqe);
        self.received += 1;
        self.rq.publish(self.received);
    }

    /// Poll until `count` completions came; all must be successes.
    fn complete(&mut self, count: u32) {
        let patience = Instant::now() + Duration::from_secs(20);
        let goal = self.consumed + count;
        while self.consumed < goal {
            match self.cq.read(self.consumed) {
                Some(cqe) => {
                    assert_eq!(cqe.status, WcStatus::Success as u8, "completion {}", self.consumed);
                    self.consumed += 1;
                    self.cq.publish_consumer(self.consumed);
                }
                None => {
                    self.engine.poll(self.cq_id);
                    assert!(
                        Instant::now() < patience,
                        "{} completions are missing",
                        goal - self.consumed
                    );
                }
            }
        }
    }
}

fn pair(a: &str, b: &str, len: usize) -> (End, End) {
    let (a, b) = (End::open(a, len), End::open(b, len));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

#[test]
fn writes_and_reads_arrive() {
    let (mut a, b) = pair("127.77.1.1", "127.77.1.2", 1 << 20);
    for (index, byte) in a.memory.iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    a.post(WrOpcode::RdmaWrite, 1 << 20, &b);
    a.engine.kick(0);
    a.complete(1);
    assert!(a.memory == b.memory, "the WRITE left the memories different");
    a.memory.fill(0);
    a.post(WrOpcode::RdmaRead, 1 << 20, &b);
    a.engine.kick(0);
    a.complete(1);
    assert!(a.memory == b.memory, "the READ left the memories different");
}

#[test]
fn sends_wait_for_receives_on_one_address() {
    let (mut a, mut b) = pair("127.77.2.1", "127.77.2.1", 4096);
    for _ in 0..100 {
        a.post(WrOpcode::Send, 64, &b);
    }
    a.engine.kick(0);
    for _ in 0..100 {
        b.post_receive(64);
    }
    b.complete(100);
    a.complete(100);
}
