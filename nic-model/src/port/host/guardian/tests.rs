//! The guardian as its clients and peers see it, with real processes.
//!
//! The test binary runs itself again: as a client (`client_process`) that the test kills, and as the guardian
//! (`guardian_process`). Both are ignored as tests of their own and do nothing without their environment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_wire::bth::Bth;
use roce_wire::cm::{Drep, Dreq, Message as CmMessage, SidrReq, ip::PortSpace};
use roce_wire::icrc::IcrcContext;
use roce_wire::mad::{MadHeader, gsi_headers};
use roce_wire::opcode::Opcode;
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::port::host::slot::{abstract_names, is_live};
use crate::port::host::{Message as HostMessage, PortClaim, ROCE_PORT, Sender, Slot, ports};

const NAME: &str = "ADVERB_TEST_GUARDIAN";
const ROLE: &str = "ADVERB_TEST_ROLE";
/// Far beyond anything expected: reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Full name of a test of this module in the test binary.
fn test_name(function: &str) -> String {
    let module = module_path!().split_once("::").map_or("", |(_, path)| path);
    format!("{module}::{function}")
}

fn unique_name(test: &str) -> String {
    format!("{}/test/{test}/{}", default_name(), std::process::id())
}

fn launch(name: &str) -> Launch {
    Launch {
        exe: std::env::current_exe().unwrap(),
        args: [&test_name("guardian_process"), "--exact", "--ignored"]
            .map(str::to_owned)
            .to_vec(),
        env: vec![format!("{NAME}={name}")],
        name: name.to_owned(),
    }
}

#[test]
#[ignore = "run by other tests as the guardian process"]
fn guardian_process() {
    if let Ok(name) = std::env::var(NAME) {
        serve(&name).unwrap();
    }
}

fn roce_socket(addr: IpAddr) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.bind(&SocketAddr::new(addr, ROCE_PORT).into()).unwrap();
    socket.into()
}

/// The client of `last` octet and its peer.
fn addresses(last: u8) -> (IpAddr, IpAddr) {
    (IpAddr::from([127, 75, 0, last]), IpAddr::from([127, 75, 1, last]))
}

fn connection(slot: u8, last: u8) -> Connection {
    let (local, peer) = addresses(last);
    Connection {
        local_comm_id: u32::from(slot) << 24 | 0x11,
        remote_comm_id: 0x0900_0022,
        local,
        peer,
        local_qpn: u32::from(slot) << 16 | 0x33,
        remote_qpn: 0x09_0044,
        tid: 0x5566,
    }
}

#[test]
#[ignore = "run by other tests as a process to be killed"]
fn client_process() {
    let (Ok(name), Ok(role)) = (std::env::var(NAME), std::env::var(ROLE)) else {
        return;
    };
    let last: u8 = role.parse().unwrap();
    let slot = Slot::claim().unwrap();
    let (local, peer) = addresses(last);
    let socket = roce_socket(local);
    let mut guardian = Guardian::attach_with(launch(&name), &slot, &[socket.as_fd()]).unwrap();
    guardian.opened(connection(slot.number(), last));
    guardian.tombstone(Tombstone {
        qpn: u32::from(slot.number()) << 16 | 0x99,
        local,
        peer,
        peer_qpn: 0x09_0098,
        expected_psn: 0x10,
        msn: 7,
        linger: Duration::from_secs(5),
    });
    println!("\nslot {}", slot.number());
    std::io::stdout().flush().unwrap();
    std::thread::sleep(PATIENCE * 2);
}

/// A client process, killed; what is left of it.
struct Killed {
    slot: u8,
    name: String,
    peer: UdpSocket,
    local: IpAddr,
}

fn kill_a_client(test: &str, last: u8) -> Killed {
    let name = unique_name(test);
    let (local, peer) = addresses(last);
    let peer = roce_socket(peer);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&test_name("client_process"), "--exact", "--ignored", "--nocapture"])
        .env(NAME, &name)
        .env(ROLE, last.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let slot = loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the client ended early");
        if let Some(slot) = line.trim().strip_prefix("slot ") {
            break slot.parse().unwrap();
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    // Ends although the guardian lives on: it has closed what it inherited.
    let killed_at = Instant::now();
    output.read_to_end(&mut Vec::new()).unwrap();
    assert!(is_serving(&name), "guardian gone after {:?}", killed_at.elapsed());
    Killed {
        slot,
        name,
        peer,
        local,
    }
}

fn is_serving(name: &str) -> bool {
    let table = abstract_names(name).unwrap();
    table.iter().any(|taken| taken == name)
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Killed {
    /// The next packet for the peer, ICRC verified.
    fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let (len, from) = self.peer.recv_from(&mut buffer).unwrap();
        let packet = buffer[..len].to_vec();
        let to = self.peer.local_addr().unwrap().ip();
        assert_eq!(from, SocketAddr::new(self.local, ROCE_PORT));
        assert_eq!(
            IcrcContext::new(self.local, to, ROCE_PORT, ROCE_PORT).verify(0, &packet),
            Ok(0)
        );
        packet
    }

    fn receive_cm(&self) -> CmMessage {
        CmMessage::parse(Packet::parse(&self.receive()).unwrap().payload)
            .unwrap()
            .1
    }

    fn send(&self, packet: &Packet<'_>) {
        let mut bytes = vec![0; packet.wire_len()];
        let len = packet.emit(&mut bytes);
        let from = self.peer.local_addr().unwrap().ip();
        IcrcContext::new(from, self.local, ROCE_PORT, ROCE_PORT).seal(0, len, &mut bytes);
        self.peer.send_to(&bytes, (self.local, ROCE_PORT)).unwrap();
    }

    fn send_cm(&self, message: &CmMessage) {
        let mad = message.emit(&MadHeader::cm(77));
        self.send(&Packet {
            headers: gsi_headers(Psn::new(1)),
            payload: &mad,
        });
    }

    fn assert_all_ends(&self) {
        // Another process may get the number, but no packet for it is answered by the guardian any more.
        wait_until("the guardian is gone", || !is_serving(&self.name));
        let slot = (0..2000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Slot::claim_number(self.slot).unwrap()
        });
        assert!(slot.is_some(), "slot still taken");
    }
}

#[test]
fn a_killed_process_has_its_connections_closed() {
    let killed = kill_a_client("unanswered", 1);
    let expected = connection(killed.slot, 1);
    for _ in 0..3 {
        let CmMessage::Dreq(dreq) = killed.receive_cm() else {
            panic!("no DREQ")
        };
        assert_eq!(
            (dreq.local_comm_id, dreq.remote_comm_id, dreq.remote_qpn),
            (expected.local_comm_id, expected.remote_comm_id, expected.remote_qpn)
        );
    }
    assert!(is_live(killed.slot), "nobody else gets the slot meanwhile");
    killed.assert_all_ends();
}

#[test]
fn a_killed_process_stays_answerable() {
    let killed = kill_a_client("answerable", 2);
    let ours = connection(killed.slot, 2);
    let CmMessage::Dreq(dreq) = killed.receive_cm() else {
        panic!("no DREQ")
    };
    let drep = Drep {
        local_comm_id: ours.remote_comm_id,
        remote_comm_id: dreq.local_comm_id,
        private_data: [0; 224],
    };
    killed.send_cm(&drep.into());

    // No further DREQ: the next packet is the answer to ours, a duplicate of what the closed QP has received.
    let mut bth = Bth::new(Opcode::RcSendOnly, u32::from(killed.slot) << 16 | 0x99, Psn::new(0x0f));
    bth.ack_req = true;
    killed.send(&Packet {
        headers: Headers::new(bth),
        payload: &[0; 16],
    });
    let ack = killed.receive();
    let ack = Packet::parse(&ack).unwrap().headers;
    assert_eq!(
        (ack.bth.opcode, ack.bth.dest_qpn, ack.bth.psn.get()),
        (Opcode::RcAck, 0x09_0098, 0x0f)
    );
    assert_eq!(ack.aeth.unwrap().msn, 7);

    let dreq = Dreq {
        local_comm_id: ours.remote_comm_id,
        remote_comm_id: ours.local_comm_id,
        remote_qpn: ours.local_qpn,
        private_data: [0; 220],
    };
    killed.send_cm(&dreq.into());
    let CmMessage::Drep(drep) = killed.receive_cm() else {
        panic!("no DREP")
    };
    assert_eq!(drep.remote_comm_id, ours.remote_comm_id);
    killed.assert_all_ends();
}

#[test]
fn strays_reach_their_owner_through_the_guardian() {
    const PORT: u16 = 7075;
    let killed = kill_a_client("strays", 5);
    let mut other = Slot::claim().unwrap();
    let headers = Headers::new(Bth::new(
        Opcode::RcSendOnly,
        u32::from(other.number()) << 16 | 1,
        Psn::new(5),
    ));
    killed.send(&Packet {
        headers,
        payload: &[3; 4],
    });
    let mut handed_over = Vec::new();
    wait_until("the packet is handed over", || {
        other
            .receive(&mut |sender, message, _| {
                if let HostMessage::HandOver { meta, bytes, .. } = message {
                    handed_over.push((sender.clone(), meta, bytes.to_vec()));
                }
            })
            .unwrap();
        !handed_over.is_empty()
    });
    let (sender, meta, bytes) = handed_over.remove(0);
    let peer = killed.peer.local_addr().unwrap();
    assert_eq!(
        (sender, meta.src, meta.dst),
        (Sender::Slot(killed.slot), peer.ip(), killed.local)
    );
    assert_eq!(Packet::parse(&bytes).unwrap().payload, [3; 4]);

    let mut claim = PortClaim::claim(ports::SPACE_TCP, Some(killed.local), PORT).unwrap();
    let sidr = SidrReq {
        request_id: 0x0900_0001,
        pkey: 0xffff,
        service_id: PortSpace::Tcp.service_id(PORT),
        private_data: [0; 216],
    };
    killed.send_cm(&sidr.into());
    let mut requests = 0;
    wait_until("the request is delivered", || {
        requests += claim
            .receive(&mut |meta, _| assert_eq!(meta.dst, killed.local))
            .unwrap();
        requests > 0
    });
}

#[test]
fn a_process_that_left_nothing_frees_its_slot_at_once() {
    let name = unique_name("nothing");
    let slot = Slot::claim().unwrap();
    let number = slot.number();
    let mut guardian = Guardian::attach_with(launch(&name), &slot, &[]).unwrap();
    guardian.poll();
    assert!(guardian.is_attached());
    drop(slot);
    assert!(is_live(number), "held by the guardian and by the client's duplicate");
    drop(guardian);
    wait_until("the slot is free", || Slot::claim_number(number).unwrap().is_some());
    wait_until("the guardian is gone", || !is_serving(&name));
}

#[test]
fn a_lost_guardian_is_replaced_and_told_everything() {
    let name = unique_name("replaced");
    let slot = Slot::claim().unwrap();
    let (local, peer) = addresses(3);
    let socket = roce_socket(local);
    let peer = roce_socket(peer);
    let mut guardian = Guardian::attach_with(launch(&name), &slot, &[socket.as_fd()]).unwrap();
    guardian.opened(connection(slot.number(), 3));
    let first = guardian.server_pid().unwrap();
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_until("another guardian is there", || {
        guardian.poll();
        guardian.is_attached() && guardian.server_pid().is_some_and(|pid| pid != first)
    });
    let killed = Killed {
        slot: slot.number(),
        name,
        peer,
        local,
    };
    drop((guardian, slot, socket));
    assert!(matches!(killed.receive_cm(), CmMessage::Dreq(_)));
    killed.assert_all_ends();
}

#[test]
fn a_guardian_that_cannot_start_is_an_error_at_once() {
    let slot = Slot::claim().unwrap();
    let launch = Launch {
        exe: "/nonexistent/adverb".into(),
        ..launch(&unique_name("missing"))
    };
    let error = Guardian::attach_with(launch, &slot, &[]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn many_records_do_not_block_the_caller() {
    let name = unique_name("many");
    let slot = Slot::claim().unwrap();
    let mut guardian = Guardian::attach_with(launch(&name), &slot, &[]).unwrap();
    let connection = connection(slot.number(), 4);
    for id in 0..20_000 {
        guardian.opened(Connection {
            local_comm_id: id,
            ..connection
        });
        guardian.closed(id);
    }
    wait_until("all is told", || {
        guardian.poll();
        guardian.is_attached() && guardian.pending_records() == 0
    });
}
