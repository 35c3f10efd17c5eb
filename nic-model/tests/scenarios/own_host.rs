//! QPs of one NIC connected with each other, and a QP connected with itself (behaviours H7).

use crate::harness::host::Host;
use crate::harness::{Buffer, QpOptions, Recv, Wr};
use nic_model::frame::{TxBatch, Unlimited};
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::qp_attr::Access;
use nic_model::host_if::{Command, QpType, Reply};
use nic_model::sim::{LinkConfig, SimFrame, SimLink};
use nic_model::time::{Duration, Time};

/// A host whose packets come back to it.
struct Mirror {
    host: Host,
    link: SimLink,
    now: Time,
}

impl Mirror {
    fn new() -> Self {
        let link = SimLink::new(LinkConfig {
            delay: Duration::from_micros(1),
            ..LinkConfig::default()
        });
        Self {
            host: Host::new(0x30, "127.0.0.1".parse().unwrap(), 0, 16),
            link,
            now: Time::from_micros(1),
        }
    }

    fn buffer(&mut self, len: usize) -> Buffer {
        let mut buffer = Buffer::new(len);
        let pd = self.host.pd(0);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let command = Command::RegMr {
            pd,
            addr: buffer.addr,
            length: len as u64,
            iova: buffer.addr,
            access,
        };
        let Ok(Reply::Keys { lkey, .. }) = self.host.nic.handle_command(self.now, command) else {
            panic!("no MR")
        };
        buffer.key = lkey;
        buffer
    }

    fn connect(&mut self, index: usize, peer: usize) {
        let (now, addr, qpn) = (self.now, self.host.addr, self.host.qps[peer].qpn);
        self.host.init(now, index);
        self.host.ready_to_receive(now, index, addr, qpn);
        self.host.ready_to_send(now, index);
    }

    fn drive(&mut self) {
        let mut batch = TxBatch::new();
        loop {
            let (now, nic) = (self.now, &mut self.host.nic);
            nic.handle_doorbells(now);
            while let Some(frame) = self.link.deliver(now) {
                let (meta, bytes) = frame.open().unwrap();
                nic.handle_packet(now, &meta, bytes);
            }
            nic.handle_timeout(now);
            while nic.poll_transmit(now, &mut Unlimited, &mut batch) {
                SimFrame::seal_all(&batch).for_each(|frame| self.link.send(now, frame));
            }
            nic.flush_completions();
            let Some(next) = [nic.poll_timeout(), self.link.next_deadline()]
                .into_iter()
                .flatten()
                .min()
            else {
                break;
            };
            self.now = next;
        }
        for index in 0..self.host.qps.len() {
            self.host.poll_qp(index);
        }
    }
}

fn exchange(mirror: &mut Mirror, from: usize, to: usize) {
    let (mut mine, theirs) = (mirror.buffer(10_000), mirror.buffer(10_000));
    let data = mine.fill_pattern(1);
    mirror.host.post_recv(to, &Recv::into(&theirs, 0..3_000));
    for wr in [
        Wr::send(&mine, 0..3_000),
        Wr::write(&mine, 3_000..6_000, &theirs, 3_000),
        Wr::read(&mine, 6_000..9_000, &theirs, 3_000),
        Wr::fetch_add(&mine, 9_000, &theirs, 9_000, 5),
    ] {
        assert!(mirror.host.try_post(from, &wr));
    }
    mirror.drive();
    let statuses: Vec<u8> = mirror.host.qps[from].sends.iter().map(|cqe| cqe.status).collect();
    assert_eq!(statuses, [WcStatus::Success as u8; 4]);
    assert_eq!((mirror.host.qps[to].recvs.len(), theirs.word(9_000)), (1, 5));
    assert_eq!(
        (&theirs.bytes()[..6_000], &mine.bytes()[6_000..9_000]),
        (&data[..6_000], &data[3_000..6_000])
    );
}

#[test]
fn two_qps_of_one_nic() {
    let mut mirror = Mirror::new();
    let psn = |psn| QpOptions {
        psn,
        ..QpOptions::default()
    };
    let a = mirror.host.create_qp(mirror.now, QpType::Rc, &psn((5, 9)));
    let b = mirror.host.create_qp(mirror.now, QpType::Rc, &psn((9, 5)));
    mirror.connect(a, b);
    mirror.connect(b, a);
    exchange(&mut mirror, a, b);
}

#[test]
fn a_qp_connected_with_itself() {
    let mut mirror = Mirror::new();
    let qp = mirror.host.create_qp(
        mirror.now,
        QpType::Rc,
        &QpOptions {
            psn: (7, 7),
            ..QpOptions::default()
        },
    );
    mirror.connect(qp, qp);
    exchange(&mut mirror, qp, qp);
}
