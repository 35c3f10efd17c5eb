//! Connection managers joined by a link with virtual time and seeded faults.

mod connection;
mod datagram;
mod faults;
mod ids;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use nic_model::time::Time;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::command::{Command, ConnParam, Ece, FileId, PortSpace, Response, qp_type};
use super::environment::{Device, Environment, Errno, PortGuard, PortRequest, Timing};
use super::event::{Event, EventKind, Param};
use super::{Core, Mad, Received};

/// A host with one device and one address.
struct Host {
    ip: IpAddr,
    device: Device,
    random: Mutex<SmallRng>,
    claims: Arc<Mutex<BTreeSet<(u16, IpAddr, u16)>>>,
}

struct Claimed(Arc<Mutex<BTreeSet<(u16, IpAddr, u16)>>>, (u16, IpAddr, u16));

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

impl Environment for Host {
    fn device_for(&self, local: IpAddr) -> Option<Device> {
        (local == self.ip).then(|| self.device.clone())
    }
    fn devices(&self) -> Vec<Device> {
        vec![self.device.clone()]
    }
    fn source_for(&self, _: SocketAddr) -> Option<IpAddr> {
        Some(self.ip)
    }
    fn claim(&self, request: &PortRequest) -> Result<PortGuard, Errno> {
        let key = (request.space, request.addr, request.port);
        if self.claims.lock().unwrap().insert(key) {
            Ok(Arc::new(Claimed(Arc::clone(&self.claims), key)))
        } else {
            Err(libc::EADDRINUSE)
        }
    }
    fn may_bind_privileged(&self) -> bool {
        false
    }
    fn random(&self) -> u32 {
        self.random.lock().unwrap().random()
    }
}

/// What the link does to packets, in per cent.
#[derive(Clone, Copy, Default)]
struct Faults {
    drop: u32,
    duplicate: u32,
    reorder: u32,
}

struct Node {
    ip: IpAddr,
    core: Core,
}

/// The hosts and the link between them.
struct World {
    now: Time,
    nodes: Vec<Node>,
    flight: BTreeMap<(Time, u64), Mad>,
    sent: u64,
    faults: Faults,
    random: SmallRng,
    /// Drop MADs for which this says so.
    filter: Option<fn(&Mad) -> bool>,
}

const LATENCY: Duration = Duration::from_micros(50);

impl World {
    fn new(addresses: &[&str], seed: u64) -> Self {
        let nodes = (1u8..).zip(addresses).map(|(number, address)| {
            let ip: IpAddr = address.parse().unwrap();
            let host = Host {
                ip,
                device: Device {
                    guid: u64::from(number),
                    index: 0,
                    slot: number,
                    gid_index: 3,
                    mtu: 5,
                },
                random: Mutex::new(SmallRng::seed_from_u64(seed * 100 + u64::from(number))),
                claims: Arc::default(),
            };
            Node {
                ip,
                core: Core::new(Arc::new(host), Timing::default()),
            }
        });
        Self {
            now: Time::from_millis(1),
            nodes: nodes.collect(),
            flight: BTreeMap::new(),
            sent: 0,
            faults: Faults::default(),
            random: SmallRng::seed_from_u64(seed),
            filter: None,
        }
    }

    fn pair(seed: u64) -> Self {
        Self::new(&["10.0.0.1", "10.0.0.2"], seed)
    }

    fn command(&mut self, node: usize, file: FileId, command: Command) -> Result<Response, Errno> {
        self.nodes[node].core.command(self.now, file, command)
    }

    fn create(&mut self, node: usize, file: FileId, space: PortSpace) -> u32 {
        // The application's name for an id: any number but 0, which stands for "none".
        match self.command(
            node,
            file,
            Command::CreateId {
                uid: 1000,
                space,
                qp_type: qp_type::RC,
            },
        ) {
            Ok(Response::Id(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    fn listen(&mut self, node: usize, file: FileId, space: PortSpace, addr: &str, backlog: u32) -> u32 {
        let id = self.create(node, file, space);
        self.command(
            node,
            file,
            Command::Bind {
                id,
                addr: addr.parse().unwrap(),
            },
        )
        .unwrap();
        self.command(node, file, Command::Listen { id, backlog }).unwrap();
        id
    }

    /// An id with a resolved route.
    fn routed(&mut self, node: usize, file: FileId, space: PortSpace, to: &str) -> u32 {
        let id = self.create(node, file, space);
        self.command(
            node,
            file,
            Command::ResolveAddr {
                id,
                src: None,
                dst: to.parse().unwrap(),
            },
        )
        .unwrap();
        assert_eq!(self.event(node, file).kind, EventKind::AddrResolved);
        self.command(node, file, Command::ResolveRoute { id }).unwrap();
        assert_eq!(self.event(node, file).kind, EventKind::RouteResolved);
        id
    }

    fn connect(&mut self, node: usize, file: FileId, id: u32, param: ConnParam) {
        self.command(
            node,
            file,
            Command::Connect {
                id,
                param,
                ece: Ece::default(),
            },
        )
        .unwrap();
    }

    fn accept(&mut self, node: usize, file: FileId, id: u32, param: Option<ConnParam>) -> Result<Response, Errno> {
        self.command(
            node,
            file,
            Command::Accept {
                id,
                uid: 2000 + u64::from(id),
                param,
                ece: Ece::default(),
            },
        )
    }

    fn poll(&mut self, node: usize, file: FileId) -> Option<Event> {
        self.nodes[node].core.next_event(self.now, file)
    }

    /// The next event of a channel, which must come within a minute.
    fn event(&mut self, node: usize, file: FileId) -> Event {
        let limit = self.now + Duration::from_secs(60);
        loop {
            if let Some(event) = self.poll(node, file) {
                return event;
            }
            assert!(self.step() && self.now < limit, "no event on node {node}");
        }
    }

    /// Events within some time.
    fn events_within(&mut self, node: usize, file: FileId, time: Duration) -> Vec<EventKind> {
        self.run_for(time);
        std::iter::from_fn(|| self.poll(node, file))
            .map(|event| event.kind)
            .collect()
    }

    fn run_for(&mut self, time: Duration) {
        let limit = self.now + time;
        while self.next_time().is_some_and(|next| next <= limit) {
            self.step();
        }
        self.now = limit;
    }

    fn next_time(&mut self) -> Option<Time> {
        self.collect();
        let timers = self.nodes.iter().filter_map(|node| node.core.next_timeout());
        timers
            .chain(self.flight.first_key_value().map(|((time, _), _)| *time))
            .min()
    }

    /// Put what the cores send on the link.
    fn collect(&mut self) {
        for index in 0..self.nodes.len() {
            while let Some(mad) = self.nodes[index].core.poll_mad() {
                if self.filter.is_some_and(|lost| lost(&mad)) || self.chance(self.faults.drop) {
                    continue;
                }
                let copies = 1 + u32::from(self.chance(self.faults.duplicate));
                for _ in 0..copies {
                    let late = if self.chance(self.faults.reorder) {
                        self.random.random_range(0..400_000)
                    } else {
                        0
                    };
                    self.sent += 1;
                    let at = self.now + LATENCY + Duration::from_micros(late);
                    self.flight.insert((at, self.sent), mad.clone());
                }
            }
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        percent != 0 && self.random.random_range(0..100) < percent
    }

    /// Go to the next arrival or timeout; false when nothing will ever happen.
    fn step(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let sent = entry.remove();
            let Some(node) = self.nodes.iter_mut().find(|node| node.ip == sent.peer) else {
                continue;
            };
            let mad = Mad {
                local: sent.peer,
                peer: sent.local,
                ..sent
            };
            if matches!(node.core.receive(self.now, &mad), Received::NoListener { .. }) {
                node.core.refuse(self.now, &mad);
            }
        }
        for node in &mut self.nodes {
            node.core.handle_timeout(self.now);
        }
        self.collect();
        true
    }
}

fn param(qp_num: u32) -> ConnParam {
    ConnParam {
        qp_num,
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 4,
        ..Default::default()
    }
}

/// A connected pair: files and ids of client (node 0) and server (node 1).
struct Connected {
    client: (FileId, u32),
    server: (FileId, u32),
    listener: u32,
}

fn connected(world: &mut World) -> Connected {
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    let listener = world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(0x0001_0001));
    let request = world.event(1, server);
    assert_eq!(request.kind, EventKind::ConnectRequest);
    world.accept(1, server, request.id, Some(param(0x0002_0001))).unwrap();
    assert_eq!(world.event(0, client).kind, EventKind::ConnectResponse);
    world.accept(0, client, id, None).unwrap();
    assert_eq!(world.event(1, server).kind, EventKind::Established);
    Connected {
        client: (client, id),
        server: (server, request.id),
        listener,
    }
}

fn conn_param(event: &Event) -> &super::event::ConnectionParam {
    match &event.param {
        Param::Connection(param) => param,
        other => panic!("{other:?}"),
    }
}

fn attribute(mad: &Mad) -> u16 {
    u16::from_be_bytes([mad.bytes[16], mad.bytes[17]])
}
