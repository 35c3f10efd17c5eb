//! Datagram service resolution and multicast.

use super::super::qp_attr::UDP_QKEY;
use super::*;

fn datagram(event: &Event) -> &super::super::event::DatagramParam {
    match &event.param {
        Param::Datagram(param) => param,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_datagram_peer_learns_qp_and_key() {
    let mut world = World::pair(20);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::UDP, "10.0.0.2:7174", 0);
    let id = world.routed(0, client, PortSpace::UDP, "10.0.0.2:7174");
    world.connect(
        0,
        client,
        id,
        ConnParam {
            private_data: b"who".to_vec(),
            ..param(1)
        },
    );
    let request = world.event(1, server);
    let data = &datagram(&request).private_data.0;
    assert_eq!(
        (request.kind, data.len(), &data[..4]),
        (EventKind::ConnectRequest, 180, &b"who\0"[..])
    );
    world.accept(1, server, request.id, Some(param(0x0002_0033))).unwrap();
    let established = world.event(0, client);
    let param = datagram(&established);
    assert_eq!(
        (established.kind, param.qp_num, param.qkey),
        (EventKind::Established, 0x0002_0033, UDP_QKEY)
    );
    assert_eq!(
        (param.private_data.0.len(), param.ah.sgid_index, param.ah.hop_limit),
        (136, 3, 64)
    );
}

#[test]
fn a_lost_answer_is_given_again_without_a_second_event() {
    let mut world = World::pair(21);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::UDP, "10.0.0.2:7174", 0);
    let id = world.routed(0, client, PortSpace::UDP, "10.0.0.2:7174");
    world.filter = Some(|mad| attribute(mad) == 0x18);
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
    world.accept(1, server, request.id, Some(param(2))).unwrap();
    world.command(1, server, Command::DestroyId { id: request.id }).unwrap();
    world.run_for(Duration::from_millis(80));
    world.filter = None;
    assert_eq!(world.event(0, client).kind, EventKind::Established);
    assert_eq!(world.events_within(1, server, Duration::from_secs(20)), []);
    assert!(world.nodes[1].core.replies.is_empty());
}

#[test]
fn refused_and_unanswered_requests_are_unreachable() {
    let mut world = World::pair(22);
    let server = world.nodes[1].core.open_file();
    let client = world.nodes[0].core.open_file();
    world.listen(1, server, PortSpace::UDP, "10.0.0.2:7174", 0);
    let id = world.routed(0, client, PortSpace::UDP, "10.0.0.2:7174");
    world.connect(0, client, id, param(1));
    let request = world.event(1, server);
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
    let refused = world.event(0, client);
    assert_eq!((refused.kind, refused.status), (EventKind::Unreachable, 2));

    let id = world.routed(0, client, PortSpace::UDP, "10.0.0.9:7174");
    world.connect(0, client, id, param(1));
    let lost = world.event(0, client);
    assert_eq!((lost.kind, lost.status), (EventKind::Unreachable, -libc::ETIMEDOUT));
}

#[test]
fn joining_a_group_gives_its_address_vector() {
    let mut world = World::pair(23);
    let file = world.nodes[0].core.open_file();
    let id = world.create(0, file, PortSpace::UDP);
    world
        .command(
            0,
            file,
            Command::Bind {
                id,
                addr: "10.0.0.1:0".parse().unwrap(),
            },
        )
        .unwrap();
    let join = Command::JoinMulticast {
        id,
        uid: 77,
        group: "239.1.1.1:0".parse().unwrap(),
    };
    let Ok(Response::Id(group)) = world.command(0, file, join) else {
        panic!()
    };
    let joined = world.event(0, file);
    assert_eq!(
        (joined.kind, joined.uid, joined.id),
        (EventKind::MulticastJoin, 77, group)
    );
    let param = datagram(&joined);
    assert_eq!((param.qp_num, param.qkey), (0xFF_FFFF, UDP_QKEY));
    assert_eq!(param.ah.dgid[10..], [255, 255, 239, 1, 1, 1]);
    let left = world.command(0, file, Command::LeaveMulticast { group });
    assert_eq!(left, Ok(Response::EventsReported(1)));
    assert_eq!(
        world.command(0, file, Command::LeaveMulticast { group }),
        Err(libc::ENOENT)
    );
}
