//! Steering between members of one process, each with a slot and a socket of its own.

use std::net::UdpSocket;

use socket2::{Domain, Socket, Type};

use super::*;

/// A process of the test: slot, socket, steering.
struct Member {
    slot: Slot,
    socket: UdpSocket,
    steering: Option<Steering>,
    got: Vec<Vec<u8>>,
}

fn bind_member(addr: IpAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(addr, 0)), Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::new(addr, ROCE_PORT).into()).unwrap();
    socket.into()
}

fn drain(socket: &UdpSocket, mut consumed: impl FnMut(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    let mut rest = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        if !consumed(&buffer[..len]) {
            rest.push(buffer[..len].to_vec());
        }
    }
    rest
}

impl Member {
    fn join(addr: IpAddr) -> Self {
        let mut slot = Slot::claim().unwrap();
        let lock = Steering::lock(addr, Duration::from_secs(5)).unwrap();
        let socket = bind_member(addr);
        let mut got = Vec::new();
        let fd = socket.as_raw_fd();
        let steering =
            Steering::join(&lock, &mut slot, addr, fd, &mut |sink| got.extend(drain(&socket, sink))).unwrap();
        Self {
            slot,
            socket,
            steering: Some(steering),
            got,
        }
    }

    fn run_once(&mut self) {
        let Some(steering) = &mut self.steering else { return };
        let slot = &mut self.slot;
        self.got
            .extend(drain(&self.socket, |packet| steering.handle_probe(packet, slot)));
        slot.receive(&mut |_, message, _| {
            if let Message::ProbeReply {
                slot,
                index,
                round,
                addr,
            } = message
            {
                steering.on_reply(slot, index, round, addr);
            }
        })
        .unwrap();
        steering.poll().unwrap();
    }

    /// Serves on a thread while `f` runs.
    fn while_serving<T>(members: &mut [&mut Self], f: impl FnOnce() -> T) -> T {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for member in members {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        member.run_once();
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            }
            let result = f();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            result
        })
    }

    fn settle(&mut self) {
        while self.steering.as_ref().is_some_and(|s| s.next_timeout().is_some()) {
            self.run_once();
        }
    }
}

fn packet_for(slot: u8, mark: u8) -> [u8; 16] {
    let mut packet = [0; 16];
    packet[0] = 4;
    packet[5] = slot;
    packet[15] = mark;
    packet
}

/// Sends one packet to each member's slot from a foreign socket and asserts where each arrives.
fn assert_steered(addr: IpAddr, members: &mut [&mut Member]) {
    let foreign = UdpSocket::bind(SocketAddr::new(addr, 0)).unwrap();
    for member in &mut *members {
        member.got.clear();
        foreign
            .send_to(&packet_for(member.slot.number(), 1), (addr, ROCE_PORT))
            .unwrap();
    }
    for member in members {
        member
            .got
            .extend(drain(&member.socket, |packet| Probe::parse(packet).is_some()));
        assert_eq!(
            member.got,
            vec![packet_for(member.slot.number(), 1).to_vec()],
            "slot {}",
            member.slot.number()
        );
    }
}

#[test]
fn packets_reach_their_slot_also_after_the_first_member_leaves() {
    let addr: IpAddr = "127.71.0.1".parse().unwrap();
    let mut a = Member::join(addr);
    let mut b = Member::while_serving(&mut [&mut a], || Member::join(addr));
    let mut c = Member::while_serving(&mut [&mut a, &mut b], || Member::join(addr));
    assert_eq!(c.steering.as_ref().unwrap().table().len(), 3);
    assert_steered(addr, &mut [&mut a, &mut b, &mut c]);

    // The kernel moves c, the last, into a's place.
    drop(a);
    b.steering.as_mut().unwrap().repair();
    Member::while_serving(&mut [&mut c], || b.settle());
    assert_eq!(b.steering.as_ref().unwrap().repairs(), 2);
    assert_steered(addr, &mut [&mut b, &mut c]);

    let mut d = Member::while_serving(&mut [&mut b, &mut c], || Member::join(addr));
    assert_steered(addr, &mut [&mut b, &mut c, &mut d]);
}

#[test]
fn a_member_that_does_not_answer_is_left_out_and_repaired_later() {
    let addr: IpAddr = "127.71.0.2".parse().unwrap();
    let mut a = Member::join(addr);
    let mut b = Member::join(addr); // a does not answer
    let table = b.steering.as_ref().unwrap().table().clone();
    assert_eq!(
        (table.index_of(a.slot.number()), table.index_of(b.slot.number())),
        (None, Some(1))
    );
    b.steering.as_mut().unwrap().repair_after = Instant::now();
    b.steering.as_mut().unwrap().repair();
    Member::while_serving(&mut [&mut a], || b.settle());
    assert_steered(addr, &mut [&mut a, &mut b]);
}

#[test]
fn a_slow_member_is_waited_for() {
    let addr: IpAddr = "127.71.0.3".parse().unwrap();
    let mut a = Member::join(addr);
    let mut b = std::thread::scope(|scope| {
        let joining = scope.spawn(|| Member::join(addr));
        std::thread::sleep(Duration::from_millis(30));
        while !joining.is_finished() {
            a.run_once();
        }
        joining.join().unwrap()
    });
    assert_steered(addr, &mut [&mut a, &mut b]);
}

#[test]
fn twenty_members_need_more_than_one_chunk() {
    let addr: IpAddr = "127.71.0.4".parse().unwrap();
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..20 {
        let mut serving: Vec<&mut Member> = members.iter_mut().collect();
        let member = Member::while_serving(&mut serving, || Member::join(addr));
        members.push(member);
    }
    assert_steered(addr, &mut members.iter_mut().collect::<Vec<_>>());
}

#[test]
fn the_kernel_takes_the_largest_program() {
    let socket = bind_member("127.71.0.6".parse().unwrap());
    let table = Table::from_answers((1..=255).map(|slot| (slot, 255 - slot)));
    sys::attach_reuseport_filter(socket.as_raw_fd(), &program(&table)).unwrap();
}

#[test]
fn the_lock_is_exclusive() {
    let addr: IpAddr = "127.71.0.5".parse().unwrap();
    let lock = Steering::lock(addr, Duration::ZERO).unwrap();
    assert_eq!(
        Steering::lock(addr, Duration::ZERO).unwrap_err().kind(),
        io::ErrorKind::TimedOut
    );
    drop(lock);
    Steering::lock(addr, Duration::ZERO).unwrap();
}
