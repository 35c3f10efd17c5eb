//! The two hosts, the cable between them, and time.

use super::buffer::Buffer;
use super::host::{ALL, Host, Qp, QpId, QpOptions, Side};
use super::log::{Log, Sighting};
use super::wr::{Recv, Wr};
use super::{A, B};
use nic_model::frame::TxBatch;
use nic_model::host_if::cqe::WcStatus;
use nic_model::host_if::qp_attr::Access;
use nic_model::host_if::{AsyncEventKind, Command, CommandError, Cqe, QpAttr, QpAttrMask, QpState, QpType, Reply};
use nic_model::sim::{Faults, LinkConfig, SimFrame, SimLink};
use nic_model::time::{Duration, Time};

/// Knobs of a pair.
#[derive(Clone, Debug)]
pub(crate) struct PairConfig {
    pub(crate) seed: u64,
    /// Of both links.
    pub(crate) link: LinkConfig,
    /// Line rate the NICs believe in.
    pub(crate) line_rate: u64,
    /// Most segments of one QP in a turn.
    pub(crate) quantum: u16,
    /// Bytes a NIC keeps waiting for its line before it pauses; `None`: it hands over all it has.
    pub(crate) egress: Option<usize>,
    /// Addresses of the hosts.
    pub(crate) addrs: [&'static str; 2],
    /// Keep a record of every packet sent.
    pub(crate) record: bool,
}

impl Default for PairConfig {
    fn default() -> Self {
        let link = LinkConfig {
            rate_bps: 100_000_000_000,
            delay: Duration::from_micros(1),
            ..LinkConfig::default()
        };
        let addrs = ["10.0.0.1", "10.0.0.2"];
        Self {
            seed: 1,
            link,
            line_rate: 0,
            quantum: 64,
            egress: None,
            addrs,
            record: true,
        }
    }
}

impl PairConfig {
    /// The default with these faults in both directions.
    pub(crate) fn faulty(seed: u64, faults: Faults) -> Self {
        let config = Self::default();
        Self {
            seed,
            link: LinkConfig { faults, ..config.link },
            ..config
        }
    }
}

/// Two hosts and the links from the first to the second and back.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) hosts: [Host; 2],
    /// `links[side]` carries what `side` sends.
    pub(crate) links: [SimLink; 2],
    /// Every packet sent, when recorded.
    pub(crate) sent: Vec<Sighting>,
    log: Log,
    record: bool,
    egress: Option<usize>,
    /// When a NIC that waits for its line goes on.
    resumes: [Option<Time>; 2],
    batch: TxBatch,
    steps_now: u32,
}

/// Steps at one instant after which nothing can be getting on.
const LIVELOCK: u32 = 20_000;
/// Virtual time after which nothing can be going on.
const FOREVER: Duration = Duration::from_secs(3_600);

impl Default for Pair {
    fn default() -> Self {
        Self::new(&PairConfig::default())
    }
}

impl Pair {
    pub(crate) fn new(config: &PairConfig) -> Self {
        let [a, b] = config.addrs.map(|addr| addr.parse().unwrap());
        let link = |salt| {
            SimLink::new(LinkConfig {
                seed: config.seed.wrapping_mul(2) + salt,
                ..config.link
            })
        };
        Self {
            now: Time::from_micros(1),
            hosts: [
                Host::new(0x10, a, config.line_rate, config.quantum),
                Host::new(0x20, b, config.line_rate, config.quantum),
            ],
            links: [link(0), link(1)],
            sent: Vec::new(),
            log: Log::new(config.seed),
            record: config.record,
            egress: config.egress,
            resumes: [None; 2],
            batch: TxBatch::new(),
            steps_now: 0,
        }
    }

    /// A connected pair of RC QPs with these options on both sides.
    pub(crate) fn connect(&mut self, options: &QpOptions) -> (QpId, QpId) {
        let peer = QpOptions {
            psn: (options.psn.1, options.psn.0),
            ..options.clone()
        };
        self.connect_each(options, &peer)
    }

    /// A connected pair of RC QPs, each with its own options.
    pub(crate) fn connect_each(&mut self, a: &QpOptions, b: &QpOptions) -> (QpId, QpId) {
        let (a, b) = self.introduce(a, b);
        for qp in [a, b] {
            self.hosts[qp.side].ready_to_send(self.now, qp.index);
        }
        (a, b)
    }

    /// A pair of RC QPs in RTR.
    pub(crate) fn introduce(&mut self, a: &QpOptions, b: &QpOptions) -> (QpId, QpId) {
        let now = self.now;
        let a = QpId {
            side: A,
            index: self.hosts[A].create_qp(now, QpType::Rc, a),
        };
        let b = QpId {
            side: B,
            index: self.hosts[B].create_qp(now, QpType::Rc, b),
        };
        for (qp, peer) in [(a, b), (b, a)] {
            let (addr, qpn) = (self.hosts[peer.side].addr, self.qp(peer).qpn);
            self.hosts[qp.side].init(now, qp.index);
            self.hosts[qp.side].ready_to_receive(now, qp.index, addr, qpn);
        }
        (a, b)
    }

    /// A UD QP in RTS.
    pub(crate) fn datagram(&mut self, side: Side, options: &QpOptions) -> QpId {
        let index = self.hosts[side].create_qp(self.now, QpType::Ud, options);
        self.hosts[side].ud_ready(self.now, index);
        QpId { side, index }
    }

    pub(crate) fn qp(&self, qp: QpId) -> &Qp {
        &self.hosts[qp.side].qps[qp.index]
    }

    /// Memory of `side` with every right.
    pub(crate) fn buffer(&mut self, side: Side, len: usize) -> Buffer {
        self.buffer_with(side, len, ALL, 0)
    }

    pub(crate) fn buffer_with(&mut self, side: Side, len: usize, access: Access, pd: usize) -> Buffer {
        let mut buffer = Buffer::new(len);
        let pd = self.hosts[side].pd(pd);
        let command = Command::RegMr {
            pd,
            addr: buffer.addr,
            length: len as u64,
            iova: buffer.addr,
            access,
        };
        match self.command(side, command) {
            Ok(Reply::Keys { lkey, .. }) => buffer.key = lkey,
            other => panic!("registration answers {other:?}"),
        }
        buffer
    }

    pub(crate) fn command(&mut self, side: Side, command: Command) -> Result<Reply, CommandError> {
        self.hosts[side].nic.handle_command(self.now, command)
    }

    pub(crate) fn modify(&mut self, qp: QpId, attr: QpAttr, mask: QpAttrMask) -> Result<(), CommandError> {
        self.hosts[qp.side].modify(self.now, qp.index, attr, mask)
    }

    /// Command a state that needs no attributes.
    pub(crate) fn set_state(&mut self, qp: QpId, qp_state: QpState) {
        self.modify(
            qp,
            QpAttr {
                qp_state,
                ..QpAttr::default()
            },
            QpAttrMask::STATE,
        )
        .unwrap();
    }

    pub(crate) fn state(&mut self, qp: QpId) -> QpState {
        self.hosts[qp.side].query(self.now, qp.index).qp_state
    }

    /// Post a send work request; the SQ has room.
    pub(crate) fn post(&mut self, qp: QpId, wr: &Wr) {
        assert!(self.hosts[qp.side].try_post(qp.index, wr), "the SQ is full");
    }

    pub(crate) fn post_recv(&mut self, qp: QpId, recv: &Recv) {
        self.hosts[qp.side].post_recv(qp.index, recv);
    }

    /// Post and wait for the completion of this one request.
    pub(crate) fn run(&mut self, qp: QpId, wr: &Wr) -> Cqe {
        let before = self.qp(qp).sends.len();
        self.post(qp, wr);
        self.drive_until(Duration::from_secs(100), |pair| pair.qp(qp).sends.len() > before);
        self.qp(qp).sends[before]
    }

    /// [`run`](Self::run), which must succeed.
    pub(crate) fn succeed(&mut self, qp: QpId, wr: &Wr) -> Cqe {
        let cqe = self.run(qp, wr);
        assert_eq!((cqe.status, cqe.wr_id), (WcStatus::Success as u8, wr.wr_id));
        cqe
    }

    /// One turn of everything at the present instant, or, when there is nothing to do, time passes to the next deadline.
    /// Returns false when there is none.
    pub(crate) fn step(&mut self) -> bool {
        let mut busy = false;
        for side in [A, B] {
            busy |= self.turn(side);
        }
        if busy {
            self.steps_now += 1;
            assert!(self.steps_now < LIVELOCK, "livelock at {:?}", self.now);
            return true;
        }
        self.steps_now = 0;
        let Some(next) = self.next_deadline() else { return false };
        assert!(next > self.now, "a deadline at {next:?} was not met at {:?}", self.now);
        self.now = next;
        true
    }

    fn next_deadline(&self) -> Option<Time> {
        let nics = self.hosts.iter().filter_map(|host| host.nic.poll_timeout());
        let links = self.links.iter().filter_map(SimLink::next_deadline);
        nics.chain(links).chain(self.resumes.into_iter().flatten()).min()
    }

    /// Doorbells, received packets, timers, packets to send, completions, as the engine does it.
    fn turn(&mut self, side: Side) -> bool {
        let now = self.now;
        let host = &mut self.hosts[side];
        host.nic.handle_doorbells(now);
        let mut busy = false;
        while let Some(frame) = self.links[1 - side].deliver(now) {
            busy = true;
            match frame.open() {
                Ok((meta, bytes)) => {
                    self.log.delivered(Sighting::of(now, 1 - side, &frame));
                    host.nic.handle_packet(now, &meta, bytes);
                }
                Err(_) => {
                    self.log.damaged(now, side);
                    host.nic.counters_mut().icrc_errors += 1;
                }
            }
        }
        if host.nic.poll_timeout().is_some_and(|deadline| deadline <= now) {
            host.nic.handle_timeout(now);
            busy = true;
        }
        self.resumes[side] = None;
        loop {
            if let Some(limit) = self.egress.filter(|limit| self.links[side].queued(now) > *limit) {
                self.resumes[side] = Some(self.links[side].room_at(limit).max(now + Duration::from_nanos(1)));
                break;
            }
            if !host.nic.poll_transmit(now, &mut *host.budget, &mut self.batch) {
                break;
            }
            busy = true;
            for frame in SimFrame::seal_all(&self.batch) {
                let sighting = Sighting::of(now, side, &frame);
                self.log.sent(sighting);
                if self.record {
                    self.sent.push(sighting);
                }
                self.links[side].send(now, frame);
            }
        }
        busy |= host.nic.flush_completions() > 0;
        for event in host.take_events() {
            busy = true;
            self.log.raised(now, side, event);
        }
        for index in 0..host.qps.len() {
            if host.qps[index].options.poll {
                for cqe in host.poll_qp(index) {
                    self.log.completed(now, side, cqe);
                }
            }
        }
        busy
    }

    /// Run until nothing is left to do.
    pub(crate) fn drive(&mut self) {
        let limit = self.now + FOREVER;
        while self.step() {
            assert!(self.now < limit, "still busy after an hour");
        }
    }

    /// Run until `done`, which must come within `limit` of virtual time.
    pub(crate) fn drive_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let limit = self.now + limit;
        while !done(self) {
            assert!(
                self.step(),
                "nothing left to do, and what was waited for has not happened"
            );
            assert!(self.now <= limit, "what was waited for has not happened in time");
        }
    }

    /// Let this much time pass.
    pub(crate) fn drive_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next = self.next_deadline();
            let idle = !self.hosts.iter().any(|host| host.nic.doorbells().is_pending());
            if idle && self.steps_now == 0 && next.is_none_or(|next| next > end) {
                // One more turn may have been due at this instant.
                if !self.turn(A) && !self.turn(B) {
                    break;
                }
                continue;
            }
            if !self.step() {
                break;
            }
        }
        self.now = end;
    }

    /// Statuses of the send completions of a QP, in order.
    pub(crate) fn send_statuses(&self, qp: QpId) -> Vec<WcStatus> {
        self.qp(qp).sends.iter().map(status).collect()
    }

    /// Statuses of the receive completions of a QP, in order.
    pub(crate) fn recv_statuses(&self, qp: QpId) -> Vec<WcStatus> {
        self.qp(qp).recvs.iter().map(status).collect()
    }

    /// Asynchronous events of a QP, in order.
    pub(crate) fn events(&self, qp: QpId) -> Vec<AsyncEventKind> {
        self.hosts[qp.side].events_of(qp.index)
    }
}

/// Status of a completion.
pub(crate) fn status(cqe: &Cqe) -> WcStatus {
    use WcStatus as S;
    let known = [
        S::Success,
        S::LocLenErr,
        S::LocQpOpErr,
        S::LocProtErr,
        S::WrFlushErr,
        S::BadRespErr,
        S::LocAccessErr,
        S::RemInvReqErr,
        S::RemAccessErr,
        S::RemOpErr,
        S::RetryExcErr,
        S::RnrRetryExcErr,
        S::FatalErr,
        S::GeneralErr,
    ];
    known
        .into_iter()
        .find(|status| *status as u8 == cqe.status)
        .expect("a status of the verbs")
}
