//! Ids, channels and ports.

use super::*;

#[test]
fn ports_follow_the_rules_of_sockets() {
    let mut world = World::pair(30);
    let file = world.nodes[0].core.open_file();
    let bind = |world: &mut World, addr: &str| {
        let id = world.create(0, file, PortSpace::TCP);
        (
            id,
            world.command(
                0,
                file,
                Command::Bind {
                    id,
                    addr: addr.parse().unwrap(),
                },
            ),
        )
    };
    let (first, bound) = bind(&mut world, "10.0.0.1:5000");
    bound.unwrap();
    assert_eq!(bind(&mut world, "10.0.0.1:5000").1, Err(libc::EADDRINUSE));
    assert_eq!(bind(&mut world, "0.0.0.0:5000").1, Err(libc::EADDRINUSE));
    assert_eq!(bind(&mut world, "[::]:5000").1, Err(libc::EADDRINUSE));
    assert_eq!(bind(&mut world, "10.0.0.1:80").1, Err(libc::EACCES));
    assert_eq!(bind(&mut world, "192.0.2.1:5000").1, Err(libc::ENODEV));
    let (any, ephemeral) = bind(&mut world, "10.0.0.1:0");
    ephemeral.unwrap();
    let Ok(Response::Route(info)) = world.command(0, file, Command::Query { id: any }) else {
        panic!()
    };
    assert!(info.src.unwrap().port() >= 32_768 && info.device.is_some());
    world.command(0, file, Command::DestroyId { id: first }).unwrap();
    bind(&mut world, "0.0.0.0:5000").1.unwrap();
}

#[test]
fn reuse_is_for_all_or_none_and_never_for_listeners() {
    use super::super::command::IdOption;
    let mut world = World::pair(31);
    let file = world.nodes[0].core.open_file();
    let ids = [0; 3].map(|_| world.create(0, file, PortSpace::TCP));
    for id in ids {
        world
            .command(
                0,
                file,
                Command::SetOption {
                    id,
                    option: IdOption::ReuseAddress(true),
                },
            )
            .unwrap();
    }
    let addr = "10.0.0.1:5000".parse().unwrap();
    world.command(0, file, Command::Bind { id: ids[0], addr }).unwrap();
    world.command(0, file, Command::Bind { id: ids[1], addr }).unwrap();
    world
        .command(0, file, Command::Listen { id: ids[0], backlog: 0 })
        .unwrap();
    assert_eq!(
        world.command(0, file, Command::Listen { id: ids[1], backlog: 0 }),
        Err(libc::EADDRINUSE)
    );
    assert_eq!(
        world.command(0, file, Command::Bind { id: ids[2], addr }),
        Err(libc::EADDRINUSE)
    );
}

#[test]
fn wildcard_listeners_serve_both_families_unless_told_otherwise() {
    use super::super::command::IdOption;
    for (only, status) in [(false, None), (true, Some(8))] {
        let mut world = World::pair(32);
        let server = world.nodes[1].core.open_file();
        let client = world.nodes[0].core.open_file();
        let listener = world.create(1, server, PortSpace::TCP);
        let option = IdOption::AddressFamilyOnly(only);
        world
            .command(1, server, Command::SetOption { id: listener, option })
            .unwrap();
        world
            .command(
                1,
                server,
                Command::Bind {
                    id: listener,
                    addr: "[::]:7471".parse().unwrap(),
                },
            )
            .unwrap();
        world
            .command(
                1,
                server,
                Command::Listen {
                    id: listener,
                    backlog: 0,
                },
            )
            .unwrap();
        let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
        world.connect(0, client, id, param(1));
        match status {
            None => assert_eq!(world.event(1, server).kind, EventKind::ConnectRequest),
            Some(status) => assert_eq!(world.event(0, client).status, status),
        }
    }
}

#[test]
fn a_full_backlog_makes_the_client_wait() {
    let mut world = World::pair(33);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 2);
    for qpn in 1..=3 {
        let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
        world.connect(0, client, id, param(qpn));
    }
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.event(1, server).kind, EventKind::ConnectRequest);
    assert_eq!(world.event(1, server).kind, EventKind::ConnectRequest);
    assert_eq!(
        world.event(1, server).kind,
        EventKind::ConnectRequest,
        "the third comes again until there is room"
    );
}

#[test]
fn ids_migrate_with_their_events() {
    let mut world = World::pair(34);
    let Connected { client, server, .. } = connected(&mut world);
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    world.run_for(Duration::from_millis(10));
    let other = world.nodes[1].core.open_file();
    // ESTABLISHED has been taken from the old channel.
    let migrated = world.command(
        1,
        other,
        Command::MigrateId {
            id: server.1,
            from: server.0,
        },
    );
    assert_eq!(migrated, Ok(Response::EventsReported(1)));
    assert_eq!(world.poll(1, server.0), None);
    assert_eq!(world.event(1, other).kind, EventKind::Disconnected);
    assert_eq!(
        world.command(1, server.0, Command::Disconnect { id: server.1 }),
        Err(libc::ENOENT)
    );
    world.command(1, other, Command::Disconnect { id: server.1 }).unwrap();
    let again = world.command(
        1,
        server.0,
        Command::MigrateId {
            id: server.1,
            from: server.0,
        },
    );
    assert_eq!(again, Err(libc::ENOENT), "it is no longer there");
}

#[test]
fn events_not_taken_die_with_their_id() {
    let mut world = World::pair(35);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    let listener = world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(1));
    world.run_for(Duration::from_millis(1));
    assert!(world.nodes[1].core.has_event(server));
    let destroyed = world.command(1, server, Command::DestroyId { id: listener });
    assert_eq!(destroyed, Ok(Response::EventsReported(0)));
    assert!(!world.nodes[1].core.has_event(server));
    let rejected = world.event(0, client);
    assert_eq!((rejected.kind, rejected.status), (EventKind::Rejected, 28));
}

#[test]
fn addresses_without_a_device_are_an_address_error() {
    let mut world = World::pair(36);
    let file = world.nodes[0].core.open_file();
    let id = world.create(0, file, PortSpace::TCP);
    let dst = "10.0.0.2:1".parse().unwrap();
    let src = Some("10.0.0.7:0".parse().unwrap());
    assert_eq!(
        world.command(0, file, Command::ResolveAddr { id, src, dst }),
        Err(libc::ENODEV)
    );
    let native = Command::CreateId {
        uid: 1,
        space: PortSpace(0x99),
        qp_type: 2,
    };
    assert_eq!(world.command(0, file, native), Err(libc::EINVAL));
    assert_eq!(
        world.command(0, file, Command::Disconnect { id: 99 }),
        Err(libc::ENOENT)
    );
    assert_eq!(
        world.command(0, FileId(99), Command::DestroyId { id }),
        Err(libc::ENODEV)
    );
}

#[test]
fn requests_of_a_listener_are_given_out_one_by_one() {
    let mut world = World::pair(37);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    for qpn in 1..=3 {
        let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
        world.connect(0, client, id, param(qpn));
    }
    world.run_for(Duration::from_millis(1));
    let first = world.poll(1, server).unwrap();
    assert!(world.poll(1, server).is_none() && !world.nodes[1].core.has_event(server));
    world.command(1, server, Command::Query { id: first.id }).unwrap();
    assert!(world.poll(1, server).is_none(), "looking at it is not dealing with it");
    world
        .command(
            1,
            server,
            Command::InitQpAttr {
                id: first.id,
                qp_state: 1,
            },
        )
        .unwrap();
    assert!(world.poll(1, server).is_some());
    world.run_for(Duration::from_millis(201));
    assert!(world.poll(1, server).is_some(), "nor does it wait for ever");
}
