//! Two NICs joined by a simulated cable, without any C ABI: `cargo run --release --example two_nics_in_memory`.
//!
//! Everything a driver does to the device, in one file: objects by commands, WQEs into rings, a doorbell, CQEs out of
//! rings. Time is virtual, so the figures are those of the cable and the protocol, not of this machine.

use nic_model::device::{Nic, NicConfig};
use nic_model::frame::{TxBatch, Unlimited};
use nic_model::host_if::qp_attr::{Access, AddressVector, Gid};
use nic_model::host_if::wqe::{WqeFlags, WrOpcode};
use nic_model::host_if::{
    Command, CompletionQueue, Cqe, DeviceCaps, QpAttr, QpAttrMask as M, QpState, QpType, Reply, WorkQueue,
};
use nic_model::sim::{LinkConfig, SimFrame, SimLink};
use nic_model::time::{Duration, Time};
use std::net::IpAddr;
use std::sync::Arc;

const BYTES: usize = 64 << 20;
const PMTU_4096: u8 = 5;

/// A NIC, its driver half, and the cable that carries what it sends.
struct Host {
    nic: Nic,
    addr: IpAddr,
    cable: SimLink,
    memory: Vec<u8>,
    key: u32,
    qpn: u32,
    sq: Arc<WorkQueue>,
    posted: u32,
    cq: Arc<CompletionQueue>,
    polled: u32,
}

impl Host {
    fn new(slot: u8, addr: &str) -> Self {
        let addr = addr.parse().expect("an address");
        let program = nic_model::tonic::program("roce-dcqcn").expect("the default program");
        let mut nic = Nic::new(NicConfig {
            slot,
            first_qp: 1,
            caps: DeviceCaps::default(),
            port_mtu: PMTU_4096,
            line_rate: 100_000_000_000,
            program,
            quantum: 16,
        });
        let mut command = |command| nic.handle_command(Time::ZERO, command).expect("the device accepts");
        command(Command::SetGid {
            index: 0,
            gid: Gid::from_ip(addr),
        });
        let Reply::Id(pd) = command(Command::AllocPd) else {
            unreachable!()
        };

        let mut memory = vec![slot; BYTES];
        let start = memory.as_mut_ptr() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = Command::RegMr {
            pd,
            addr: start,
            length: BYTES as u64,
            iova: start,
            access,
        };
        let Reply::Keys { lkey: key, .. } = command(region) else {
            unreachable!()
        };

        let (cq, sq) = (Arc::new(CompletionQueue::new(16)), Arc::new(WorkQueue::new(16, 64)));
        let Reply::Id(cq_id) = command(Command::CreateCq {
            ring: cq.clone(),
            cqe: 16,
            cookie: 0,
        }) else {
            unreachable!()
        };
        let Reply::Qpn(qpn) = command(Command::CreateQp {
            pd,
            qp_type: QpType::Rc,
            send_cq: cq_id,
            recv_cq: cq_id,
            sq: sq.clone(),
            rq: Arc::new(WorkQueue::new(1, 64)),
            max_send_wr: 16,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            sq_sig_all: false,
            cookie: 0,
        }) else {
            unreachable!()
        };
        let delay = Duration::from_micros(1);
        let cable = SimLink::new(LinkConfig {
            rate_bps: 100_000_000_000,
            delay,
            ..LinkConfig::default()
        });
        Self {
            nic,
            addr,
            cable,
            memory,
            key,
            qpn,
            sq,
            posted: 0,
            cq,
            polled: 0,
        }
    }

    /// RESET → INIT → RTR → RTS.
    fn connect(&mut self, peer: IpAddr, dest_qp_num: u32) {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let ah = AddressVector {
            is_global: true,
            dgid: Gid::from_ip(peer),
            ..AddressVector::default()
        };
        let base = QpAttr {
            port_num: 1,
            access,
            ah,
            dest_qp_num,
            path_mtu: PMTU_4096,
            ..QpAttr::default()
        };
        let base = QpAttr {
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..base
        };
        let init = M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let rts = M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        for (qp_state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let modify = Command::ModifyQp {
                qpn: self.qpn,
                attr: QpAttr { qp_state, ..base },
                mask: mask | M::STATE,
            };
            self.nic
                .handle_command(Time::ZERO, modify)
                .expect("the transition is allowed");
        }
    }

    /// Write a WQE into the SQ and ring: all own memory, against all memory of the peer.
    fn post(&mut self, opcode: WrOpcode, remote_addr: u64, rkey: u32) {
        let mut wqe = [0u8; 48];
        wqe[..3].copy_from_slice(&[opcode as u8, WqeFlags::SIGNALED.bits(), 1]); // control: one data segment
        wqe[16..24].copy_from_slice(&remote_addr.to_ne_bytes()); // remote segment
        wqe[24..28].copy_from_slice(&rkey.to_ne_bytes());
        wqe[32..40].copy_from_slice(&(self.memory.as_ptr() as u64).to_ne_bytes()); // data segment
        wqe[40..44].copy_from_slice(&u32::try_from(BYTES).expect("fits").to_ne_bytes());
        wqe[44..48].copy_from_slice(&self.key.to_ne_bytes());
        self.sq.write(self.posted, &wqe);
        self.posted += 1;
        self.sq.publish(self.posted);
        self.nic.doorbells().ring(self.qpn);
    }

    fn poll(&mut self) -> Option<Cqe> {
        let cqe = self.cq.read(self.polled)?;
        self.polled += 1;
        self.cq.publish_consumer(self.polled);
        Some(cqe)
    }

    /// What the engine does around a device, with a cable in place of a socket.
    fn turn(&mut self, now: Time, from_peer: &mut SimLink) {
        self.nic.handle_doorbells(now);
        while let Some(frame) = from_peer.deliver(now) {
            let (meta, bytes) = frame.open().expect("an undamaged packet");
            self.nic.handle_packet(now, &meta, bytes);
        }
        if self.nic.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.nic.handle_timeout(now);
        }
        let mut batch = TxBatch::new();
        while self.nic.poll_transmit(now, &mut Unlimited, &mut batch) {
            SimFrame::seal_all(&batch).for_each(|frame| self.cable.send(now, frame));
        }
        self.nic.flush_completions();
    }

    fn next_deadline(&self) -> Option<Time> {
        [self.nic.poll_timeout(), self.cable.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Post on `a` and let time pass until it completes.
fn run(name: &str, opcode: WrOpcode, now: &mut Time, a: &mut Host, b: &mut Host) {
    let (start, before) = (*now, (a.cable.stats().sent, b.cable.stats().sent));
    a.post(opcode, b.memory.as_ptr() as u64, b.key);
    let cqe = loop {
        a.turn(*now, &mut b.cable);
        b.turn(*now, &mut a.cable);
        if let Some(cqe) = a.poll() {
            break cqe;
        }
        *now = [a.next_deadline(), b.next_deadline()]
            .into_iter()
            .flatten()
            .min()
            .expect("something is under way");
    };
    assert_eq!(cqe.status, 0, "the operation failed");
    let micros = now.since(start).as_secs_f64() * 1e6;
    let gbits = BYTES as f64 * 8.0 / micros / 1e3;
    let (sent, received) = (a.cable.stats().sent - before.0, b.cable.stats().sent - before.1);
    println!("{name:5} {BYTES} bytes in {micros:.1} µs: {gbits:.1} Gbit/s, {sent} packets out, {received} back");
}

fn main() {
    let (mut a, mut b) = (Host::new(1, "10.0.0.1"), Host::new(2, "10.0.0.2"));
    a.connect(b.addr, b.qpn);
    b.connect(a.addr, a.qpn);
    let mut now = Time::ZERO;
    run("WRITE", WrOpcode::RdmaWrite, &mut now, &mut a, &mut b);
    assert!(b.memory == a.memory, "the WRITE has arrived");
    b.memory.fill(7);
    run("READ", WrOpcode::RdmaRead, &mut now, &mut a, &mut b);
    assert!(a.memory == b.memory, "the READ has arrived");
}
