//! Connections on a good link: what both sides learn, in which order, and what they may do.

use super::super::connection::RegistryChange;
use super::super::qp_attr::{QpAttributes, mask};
use super::*;

fn attributes(world: &mut World, node: usize, (file, id): (FileId, u32), qp_state: u32) -> QpAttributes {
    match world.command(node, file, Command::InitQpAttr { id, qp_state }) {
        Ok(Response::QpAttributes(attributes)) => *attributes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn parameters_reach_the_other_side_crossed() {
    let mut world = World::pair(1);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "0.0.0.0:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    let asked = ConnParam {
        private_data: b"ask".to_vec(),
        ..param(0x0001_0007)
    };
    world.connect(0, client, id, asked);
    let request = world.event(1, server);
    let seen = conn_param(&request);
    assert_eq!((seen.responder_resources, seen.initiator_depth), (5, 3));
    assert_eq!(
        (seen.retry_count, seen.rnr_retry_count, seen.qp_num),
        (6, 4, 0x0001_0007)
    );
    assert_eq!(
        (seen.private_data.0.len(), &seen.private_data.0[..4]),
        (56, &b"ask\0"[..])
    );

    let passive = (server, request.id);
    let rtr = attributes(&mut world, 1, passive, 2);
    assert_eq!(
        (rtr.dest_qp_num, rtr.path_mtu, rtr.max_dest_rd_atomic),
        (0x0001_0007, 5, 5)
    );
    let ah = rtr.ah.unwrap();
    assert_eq!(
        (ah.sgid_index, ah.hop_limit, &ah.dgid[10..]),
        (3, 64, &[255, 255, 10, 0, 0, 1][..])
    );
    let rts = attributes(&mut world, 1, passive, 3);
    assert_eq!(
        (rts.retry_cnt, rts.rnr_retry, rts.max_rd_atomic, rts.timeout),
        (6, 4, 3, 13)
    );

    let answer = ConnParam {
        private_data: b"yes".to_vec(),
        rnr_retry_count: 2,
        ..param(0x0002_0009)
    };
    world.accept(1, server, request.id, Some(answer)).unwrap();
    let response = world.event(0, client);
    let seen = conn_param(&response);
    assert_eq!(
        (response.kind, seen.private_data.0.len(), seen.qp_num),
        (EventKind::ConnectResponse, 196, 0x0002_0009)
    );
    let active_rtr = attributes(&mut world, 0, (client, id), 2);
    let active_rts = attributes(&mut world, 0, (client, id), 3);
    assert_eq!(
        active_rts.rnr_retry, 2,
        "the REP's RNR retry count is for the active side's QP"
    );
    assert_eq!(
        (active_rts.sq_psn, active_rtr.rq_psn),
        (rtr.rq_psn, rts.sq_psn),
        "each side's PSNs are the other's"
    );
    assert_eq!(active_rtr.mask & mask::AV, mask::AV);
}

#[test]
fn both_sides_hear_of_the_end_once() {
    for both in [false, true] {
        let mut world = World::pair(2);
        let Connected {
            client,
            server,
            listener,
        } = connected(&mut world);
        world
            .command(0, client.0, Command::Disconnect { id: client.1 })
            .unwrap();
        if both {
            world
                .command(1, server.0, Command::Disconnect { id: server.1 })
                .unwrap();
        }
        assert_eq!(world.event(1, server.0).kind, EventKind::Disconnected);
        world
            .command(1, server.0, Command::Disconnect { id: server.1 })
            .unwrap();
        assert_eq!(world.event(0, client.0).kind, EventKind::Disconnected);
        world
            .command(0, client.0, Command::Disconnect { id: client.1 })
            .unwrap();
        let tail = Duration::from_secs(5);
        assert_eq!(world.events_within(0, client.0, tail), [EventKind::TimewaitExit]);
        assert_eq!(world.events_within(1, server.0, tail), [EventKind::TimewaitExit]);
        for (node, (file, id)) in [(0, client), (1, server), (1, (server.0, listener))] {
            let destroyed = world.command(node, file, Command::DestroyId { id }).unwrap();
            assert!(matches!(destroyed, Response::EventsReported(count) if count > 0));
        }
        world.run_for(Duration::from_millis(300));
        for node in &world.nodes {
            assert_eq!(node.core.connections.len(), 0);
            assert_eq!(node.core.next_timeout(), None);
        }
    }
}

#[test]
fn a_rejection_carries_its_data() {
    let mut world = World::pair(3);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
    let reject = Command::Reject {
        id: request.id,
        reason: 0,
        private_data: b"no".to_vec(),
    };
    world.command(1, server, reject).unwrap();
    let rejected = world.event(0, client);
    let data = &conn_param(&rejected).private_data.0;
    assert_eq!(
        (rejected.kind, rejected.status, data.len(), &data[..3]),
        (EventKind::Rejected, 28, 148, &b"no\0"[..])
    );
    // The same QP may try again at once.
    let again = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, again, param(1));
    assert_eq!(world.event(1, server).kind, EventKind::ConnectRequest);
}

#[test]
fn nobody_listening_is_told_by_reason_8() {
    let mut world = World::pair(4);
    let client = world.nodes[0].core.open_file();
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:1");
    world.connect(0, client, id, param(1));
    let rejected = world.event(0, client);
    assert_eq!((rejected.kind, rejected.status), (EventKind::Rejected, 8));
}

#[test]
fn a_reused_qp_makes_the_old_connection_stale() {
    let mut world = World::pair(5);
    let Connected { client, server, .. } = connected(&mut world);
    let id = world.routed(0, client.0, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client.0, id, param(0x0001_0001));
    let rejected = world.event(0, client.0);
    assert_eq!(
        (rejected.kind, rejected.status, rejected.id),
        (EventKind::Rejected, 10, id)
    );
    // The server gives the old one up, which here is still there to hear of it.
    assert_eq!(world.event(0, client.0).kind, EventKind::Disconnected);
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    assert_eq!(world.event(1, server.0).kind, EventKind::Disconnected);
}

#[test]
fn a_closed_file_disconnects() {
    let mut world = World::pair(6);
    let Connected { client, server, .. } = connected(&mut world);
    let now = world.now;
    world.nodes[0].core.close_file(now, client.0);
    assert_eq!(world.event(1, server.0).kind, EventKind::Disconnected);
    world.command(1, server.0, Command::DestroyId { id: server.1 }).unwrap();
    world.run_for(Duration::from_secs(2));
    assert_eq!(
        world.nodes[0].core.connections.len() + world.nodes[1].core.connections.len(),
        0
    );
}

#[test]
fn data_before_the_rtu_can_be_notified() {
    let mut world = World::pair(7);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::TCP, "10.0.0.2:7471", 0);
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
    world.accept(1, server, request.id, Some(param(2))).unwrap();
    world
        .command(
            1,
            server,
            Command::Notify {
                id: request.id,
                event: 4,
            },
        )
        .unwrap();
    assert_eq!(world.event(1, server).kind, EventKind::Established);
    let again = world.command(
        1,
        server,
        Command::Notify {
            id: request.id,
            event: 4,
        },
    );
    assert_eq!(again, Err(libc::EISCONN));
    assert_eq!(world.event(0, client).kind, EventKind::ConnectResponse);
    world.accept(0, client, id, None).unwrap();
    assert_eq!(
        world.events_within(1, server, Duration::from_secs(5)),
        [],
        "the RTU is no second ESTABLISHED"
    );
}

#[test]
fn the_registry_sees_what_a_dead_process_would_leave() {
    let mut world = World::pair(8);
    let Connected { client, server, .. } = connected(&mut world);
    let opened = world.nodes[1].core.poll_change().unwrap();
    let RegistryChange::Opened(record) = opened else {
        panic!("{opened:?}")
    };
    assert_eq!((record.local_qpn, record.remote_qpn), (0x0002_0001, 0x0001_0001));
    assert_eq!(record.local_comm_id >> 24, 2, "the slot is the top byte");
    world
        .command(0, client.0, Command::Disconnect { id: client.1 })
        .unwrap();
    assert_eq!(world.event(1, server.0).kind, EventKind::Disconnected);
    assert_eq!(
        world.nodes[1].core.poll_change(),
        None,
        "not closed before the peer knows"
    );
    world
        .command(1, server.0, Command::Disconnect { id: server.1 })
        .unwrap();
    assert_eq!(
        world.nodes[1].core.poll_change(),
        Some(RegistryChange::Closed(record.local_comm_id))
    );
}

#[test]
fn too_much_private_data_is_refused() {
    let mut world = World::pair(9);
    let client = world.nodes[0].core.open_file();
    let id = world.routed(0, client, PortSpace::TCP, "10.0.0.2:7471");
    let long = ConnParam {
        private_data: vec![1; 57],
        ..param(1)
    };
    let refused = world.command(
        0,
        client,
        Command::Connect {
            id,
            param: long,
            ece: Ece::default(),
        },
    );
    assert_eq!(refused, Err(libc::EINVAL));
    let fits = ConnParam {
        private_data: vec![1; 56],
        ..param(1)
    };
    world.connect(0, client, id, fits);
}

#[test]
fn a_process_can_connect_to_itself() {
    let mut world = World::new(&["10.0.0.1"], 10);
    let file = world.nodes[0].core.open_file();
    world.listen(0, file, PortSpace::TCP, "10.0.0.1:7471", 0);
    let id = world.routed(0, file, PortSpace::TCP, "10.0.0.1:7471");
    world.connect(0, file, id, param(0x0001_0001));
    let request = world.event(0, file);
    world.accept(0, file, request.id, Some(param(0x0001_0002))).unwrap();
    assert_eq!(world.event(0, file).kind, EventKind::ConnectResponse);
    world.accept(0, file, id, None).unwrap();
    assert_eq!(world.event(0, file).kind, EventKind::Established);
    world.command(0, file, Command::Disconnect { id: request.id }).unwrap();
    assert_eq!(world.event(0, file).id, id);
    world.command(0, file, Command::DestroyId { id }).unwrap();
    assert_eq!(world.event(0, file).id, request.id);
}
