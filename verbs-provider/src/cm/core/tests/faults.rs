//! Connections on a bad link.

use super::*;

/// How many connections each end has seen through, as an application of each side would make them.
#[derive(Default)]
struct Tally {
    requests: usize,
    established: usize,
    ended: usize,
    odd: Vec<(EventKind, i32)>,
}

/// Connect `count` times, then disconnect all, while both applications answer every event.
fn storm(count: usize, faults: Faults, seed: u64) -> [Tally; 2] {
    let mut world = World::pair(seed);
    world.faults = faults;
    let files = [world.nodes[0].core.open_file(), world.nodes[1].core.open_file()];
    world.listen(1, files[1], PortSpace::TCP, "0.0.0.0:7471", 0);
    let ids: Vec<u32> = (0..count).map(|_| world.create(0, files[0], PortSpace::TCP)).collect();
    for &id in &ids {
        let dst = "10.0.0.2:7471".parse().unwrap();
        world
            .command(0, files[0], Command::ResolveAddr { id, src: None, dst })
            .unwrap();
    }
    let mut tallies = [Tally::default(), Tally::default()];
    let mut disconnecting = false;
    let limit = world.now + Duration::from_secs(600);
    loop {
        for node in 0..2 {
            while let Some(event) = world.poll(node, files[node]) {
                answer(&mut world, node, files[node], &event, &mut tallies[node]);
            }
        }
        if !disconnecting && tallies[0].established == count {
            disconnecting = true;
            for &id in &ids {
                world.command(0, files[0], Command::Disconnect { id }).unwrap();
            }
        }
        if !world.step() || world.now > limit {
            break;
        }
    }
    for node in &world.nodes {
        assert_eq!(node.core.next_timeout(), None, "everything came to rest");
    }
    tallies
}

fn answer(world: &mut World, node: usize, file: FileId, event: &Event, tally: &mut Tally) {
    let id = event.id;
    match event.kind {
        EventKind::AddrResolved => drop(world.command(node, file, Command::ResolveRoute { id }).unwrap()),
        EventKind::RouteResolved => world.connect(node, file, id, param(0x0001_0000 + id)),
        EventKind::ConnectRequest => {
            tally.requests += 1;
            world.accept(node, file, id, Some(param(0x0002_0000 + id))).unwrap();
        }
        EventKind::ConnectResponse => {
            tally.established += 1;
            world.accept(node, file, id, None).unwrap();
        }
        EventKind::Established => tally.established += 1,
        EventKind::Disconnected => {
            tally.ended += 1;
            if event.status != 0 {
                tally.odd.push((event.kind, event.status));
            }
            world.command(node, file, Command::Disconnect { id }).unwrap();
        }
        EventKind::TimewaitExit => drop(world.command(node, file, Command::DestroyId { id }).unwrap()),
        kind => tally.odd.push((kind, event.status)),
    }
}

#[test]
fn a_thousand_connections() {
    let [client, server] = storm(1000, Faults::default(), 40);
    assert_eq!((client.established, client.ended), (1000, 1000));
    assert_eq!((server.requests, server.established, server.ended), (1000, 1000, 1000));
    assert!(client.odd.is_empty() && server.odd.is_empty());
}

#[test]
fn loss_duplication_and_reordering_change_nothing() {
    for seed in 0..20 {
        let faults = Faults {
            drop: 20,
            duplicate: 20,
            reorder: 30,
        };
        let [client, server] = storm(50, faults, 100 + seed);
        assert_eq!(
            (client.established, client.ended),
            (50, 50),
            "seed {seed} {:?} {:?}",
            client.odd,
            server.odd
        );
        // ESTABLISHED may be overtaken by the end, and is then not told.
        assert_eq!((server.requests, server.ended), (50, 50), "seed {seed}");
        assert!(
            client.odd.is_empty() && server.odd.is_empty(),
            "seed {seed} {:?} {:?}",
            client.odd,
            server.odd
        );
    }
}

#[test]
fn silence_ends_in_unreachable() {
    let mut world = World::pair(60);
    let client = world.nodes[0].core.open_file();
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.9:7471");
    world.connect(0, client, id, param(1));
    let began = world.now;
    let lost = world.event(0, client);
    assert_eq!((lost.kind, lost.status), (EventKind::Unreachable, -libc::ETIMEDOUT));
    assert!(world.now.since(began) > Duration::from_secs(5), "not at the first loss");
    world.command(0, client, Command::DestroyId { id }).unwrap();
    assert_eq!(world.nodes[0].core.connections.len(), 0);
}

#[test]
fn a_slow_acceptor_keeps_its_client_waiting() {
    let mut world = World::pair(61);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
    assert_eq!(world.events_within(0, client, Duration::from_secs(300)), []);
    assert_eq!(
        world.events_within(1, server, Duration::ZERO),
        [],
        "and the request comes once"
    );
    world.accept(1, server, request.id, Some(param(2))).unwrap();
    assert_eq!(world.event(0, client).kind, EventKind::ConnectResponse);
    assert_eq!(world.events_within(1, server, Duration::from_secs(300)), []);
    world.accept(0, client, id, None).unwrap();
    assert_eq!(world.event(1, server).kind, EventKind::Established);
}

#[test]
fn a_lost_rejection_is_not_a_second_request() {
    let mut world = World::pair(62);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
    world.filter = Some(|mad| attribute(mad) == 0x12);
    world
        .command(
            1,
            server,
            Command::Reject {
                id: request.id,
                reason: 0,
                private_data: vec![],
            },
        )
        .unwrap();
    world.command(1, server, Command::DestroyId { id: request.id }).unwrap();
    world.run_for(Duration::from_millis(50));
    world.filter = None;
    let rejected = world.event(0, client);
    assert_eq!((rejected.kind, rejected.status), (EventKind::Rejected, 28));
    assert_eq!(world.events_within(1, server, Duration::from_secs(10)), []);
}

#[test]
fn a_dead_peer_ends_a_disconnect() {
    let mut world = World::pair(63);
    let Connected { client, .. } = connected(&mut world);
    world.filter = Some(|_| true);
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    let ended = world.event(0, client.0);
    assert_eq!((ended.kind, ended.status), (EventKind::Disconnected, -libc::ETIMEDOUT));
}

#[test]
fn a_peer_that_forgot_is_answered() {
    let mut world = World::pair(64);
    let Connected { client, server, .. } = connected(&mut world);
    // The server's process dies without a word and another takes its address.
    let now = world.now;
    world.filter = Some(|_| true);
    world.nodes[1].core.close_file(now, server.0);
    world.run_for(Duration::from_secs(120));
    world.filter = None;
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    let ended = world.event(0, client.0);
    assert_eq!((ended.kind, ended.status), (EventKind::Disconnected, 0));
}

#[test]
fn hostile_mads_do_nothing() {
    let mut world = World::pair(65);
    let Connected { client, server, .. } = connected(&mut world);
    let mut random = SmallRng::seed_from_u64(65);
    for round in 0..20_000u32 {
        let mut bytes = [0; 256];
        random.fill(&mut bytes[..]);
        // Plausible headers, so that every parser is reached.
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16] = 0;
        bytes[17] = 0x10 + u8::try_from(round % 12).unwrap();
        let mad = Mad {
            local: "10.0.0.2".parse().unwrap(),
            peer: "10.0.0.1".parse().unwrap(),
            traffic_class: 0,
            hop_limit: 64,
            bytes,
        };
        let now = world.now;
        let core = &mut world.nodes[1].core;
        if matches!(core.receive(now, &mad), Received::NoListener { .. }) {
            core.refuse(now, &mad);
        }
        while core.poll_mad().is_some() {}
    }
    assert_eq!(
        world.events_within(1, server.0, Duration::from_secs(1)),
        [],
        "the connection has not noticed"
    );
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    assert_eq!(world.event(1, server.0).kind, EventKind::Disconnected);
}
