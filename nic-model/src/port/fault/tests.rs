//! Against a port that keeps what it is given.

use proptest::prelude::*;

use super::*;

/// Keeps batches; has room for `room` of them, and cannot segment when `one_by_one`.
#[derive(Debug)]
struct Wire {
    sent: Vec<TxBatch>,
    room: usize,
    ids: bool,
    refuses_trains: bool,
}

impl Wire {
    fn new() -> Self {
        Self {
            sent: Vec::new(),
            room: usize::MAX,
            ids: true,
            refuses_trains: false,
        }
    }

    /// The packets in order, each with whether its ICRC is right.
    fn packets(&self) -> Vec<(Vec<u8>, bool)> {
        let mut packets = Vec::new();
        for batch in &self.sent {
            let context = IcrcContext::new(batch.path.src, batch.path.dst, 4791, 4791);
            for (index, segment) in batch.segments().enumerate() {
                let id = if self.ids { u16::try_from(index).unwrap() } else { 0 };
                packets.push((segment.to_vec(), context.verify(id, segment) == Ok(id)));
            }
        }
        packets
    }

    fn numbers(&self) -> Vec<u32> {
        self.packets().iter().map(|(bytes, _)| number(bytes)).collect()
    }
}

impl Port for Wire {
    fn send(&mut self, batch: &TxBatch) -> SendOutcome {
        if self.sent.len() >= self.room {
            return SendOutcome::WouldBlock;
        }
        if self.refuses_trains && self.ids && batch.len() > 1 {
            self.ids = false;
            return SendOutcome::Reseal;
        }
        self.sent.push(batch.clone());
        SendOutcome::Sent
    }

    fn receive(&mut self, _: &mut Sink<'_>) -> io::Result<usize> {
        Ok(0)
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn source_port(&self, _: &Path) -> u16 {
        4791
    }

    fn segments_have_ids(&self) -> bool {
        self.ids
    }
}

/// The number that [`batch`] wrote into a packet.
fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(*packet[16..].first_chunk().unwrap())
}

/// A batch of `count` packets numbered from `first`, sealed for `port`.
fn batch(port: &impl Port, first: u32, count: u32) -> TxBatch {
    let ip = std::net::IpAddr::from([127, 0, 0, 1]);
    let path = Path {
        src: ip,
        dst: ip,
        sport: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    };
    let mut batch = TxBatch {
        path,
        segment_size: 64,
        ..TxBatch::new()
    };
    for index in first..first + count {
        let mut packet = [0; 64];
        packet[16..20].copy_from_slice(&index.to_be_bytes());
        batch.bytes.extend_from_slice(&packet);
    }
    seal(port, &mut batch);
    batch
}

/// Send `packets` numbered packets in batches of `size` through faults.
fn run(config: &str, packets: u32, size: u32) -> FaultPort<Wire> {
    let mut port = FaultPort::new(Wire::new(), config.parse().unwrap());
    for first in (0..packets).step_by(size as usize) {
        let batch = batch(&port, first, size);
        assert!(matches!(port.send(&batch), SendOutcome::Sent));
    }
    port.flush();
    port
}

#[test]
fn without_faults_batches_pass_whole() {
    let port = run("seed=1", 640, 64);
    assert_eq!(port.inner.sent.len(), 10);
    assert!(port.inner.numbers().into_iter().eq(0..640));
    assert_eq!(
        port.counters(),
        FaultCounters {
            packets: 640,
            ..FaultCounters::default()
        }
    );
}

#[test]
fn faults_are_a_function_of_the_seed() {
    let config = "drop=0.02,reorder=0.02,dup=0.02,corrupt=0.01,ecn=0.02";
    let (a, b) = (
        run(&format!("{config},seed=5"), 10_240, 32),
        run(&format!("{config},seed=5"), 10_240, 32),
    );
    assert_eq!(a.counters(), b.counters());
    assert_eq!(a.inner.packets(), b.inner.packets());
    assert_ne!(a.counters(), run(&format!("{config},seed=6"), 10_240, 32).counters());
    // The fates do not depend on how packets are batched either.
    assert_eq!(a.counters(), run(&format!("{config},seed=5"), 10_240, 1).counters());
    // Wide bounds around the expected 205, 205, 200, 101 and 205.
    let FaultCounters {
        dropped,
        reordered,
        duplicated,
        corrupted,
        marked,
        ..
    } = a.counters();
    for count in [dropped, reordered, duplicated, corrupted * 2, marked] {
        assert!((120..300).contains(&count), "{:?}", a.counters());
    }
}

#[test]
fn counters_tell_what_is_on_the_wire() {
    let port = run("drop=0.1,reorder=0.1,dup=0.1,corrupt=0.1,ecn=0.1,seed=11", 6400, 64);
    let counters = port.counters();
    let packets = port.inner.packets();
    assert_eq!(
        packets.len() as u64,
        counters.packets - counters.dropped + counters.duplicated
    );
    // The fifth byte of the BTH is not covered: one flip in 64 hides there.
    let bad = packets.iter().filter(|(_, good)| !good).count() as u64;
    assert!(
        bad <= counters.corrupted && bad > counters.corrupted * 9 / 10,
        "{bad} of {}",
        counters.corrupted
    );
    let marked = port
        .inner
        .sent
        .iter()
        .filter(|batch| batch.path.traffic_class == 3)
        .map(TxBatch::len)
        .sum::<usize>();
    // A marked packet that is also duplicated is there twice.
    assert!(marked as u64 >= counters.marked);
    assert!(marked as u64 <= counters.marked + counters.duplicated);
}

#[test]
fn corruption_flips_one_bit() {
    let port = run("corrupt=1,seed=2", 64, 8);
    let clean = run("seed=2", 64, 1);
    for ((bad, _), (good, _)) in port.inner.packets().iter().zip(clean.inner.packets()) {
        let flipped: u32 = bad.iter().zip(good).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn held_packets_are_overtaken_and_not_lost() {
    let port = run("reorder=0.1,seed=3", 6400, 16);
    let numbers = port.inner.numbers();
    assert_eq!(numbers.len(), 6400);
    let mut late = 0;
    for (position, number) in numbers.iter().enumerate() {
        let overtakers = numbers[..position].iter().filter(|earlier| *earlier > number).count();
        assert!(overtakers <= 2 * MAX_OVERTAKERS as usize);
        late += u64::from(overtakers > 0);
    }
    // A packet is rarely held together with all that would have overtaken it.
    assert!(late > port.counters().reordered / 2);
    assert!(port.inner.packets().iter().all(|(_, good)| *good));
}

#[test]
fn a_held_packet_goes_out_in_time() {
    let mut port = FaultPort::new(Wire::new(), "reorder=1".parse().unwrap());
    port.poll(Time::from_millis(5));
    let batch = batch(&port, 0, 1);
    port.send(&batch);
    assert!(port.inner.sent.is_empty());
    let deadline = port.next_deadline().unwrap();
    assert_eq!(deadline, Time::from_millis(6));
    port.poll(deadline);
    assert_eq!(port.inner.numbers(), [0]);
    assert_eq!(port.next_deadline(), None);
}

#[test]
fn delay_keeps_order() {
    let mut port = FaultPort::new(Wire::new(), "delay=50us".parse().unwrap());
    for step in 0..10_u32 {
        port.poll(Time::from_micros(u64::from(step) * 10));
        let batch = batch(&port, step, 1);
        port.send(&batch);
        assert_eq!(port.inner.sent.len(), (step as usize + 1).saturating_sub(5));
        assert!(port.next_deadline().unwrap() > port.now);
    }
    port.poll(Time::from_millis(1));
    assert!(port.inner.numbers().into_iter().eq(0..10));
}

#[test]
fn a_full_inner_port_loses_nothing() {
    let mut port = FaultPort::new(Wire::new(), "dup=0.3,reorder=0.3,seed=4".parse().unwrap());
    let mut refused = 0;
    for first in 0..200 {
        let batch = batch(&port, first * 8, 8);
        port.inner.room = port.inner.sent.len() + 2;
        while matches!(port.send(&batch), SendOutcome::WouldBlock) {
            refused += 1;
            assert!(port.next_deadline().is_some());
            port.inner.room = port.inner.sent.len() + 2;
        }
    }
    port.inner.room = usize::MAX;
    port.flush();
    assert!(refused > 0);
    let mut numbers = port.inner.numbers();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.into_iter().eq(0..1600));
    assert!(port.inner.packets().iter().all(|(_, good)| *good));
}

#[test]
fn losing_segmentation_reseals_what_is_queued() {
    let mut port = FaultPort::new(Wire::new(), "delay=1ms".parse().unwrap());
    port.inner.refuses_trains = true;
    let several = [batch(&port, 0, 4), batch(&port, 4, 1), batch(&port, 5, 3)];
    several
        .iter()
        .for_each(|batch| assert!(matches!(port.send(batch), SendOutcome::Sent)));
    port.poll(Time::from_millis(1));
    assert!(port.inner.numbers().into_iter().eq(0..8));
    assert!(port.inner.packets().iter().all(|(_, good)| *good));
}

proptest! {
    #[test]
    fn every_packet_arrives_the_right_number_of_times(seed: u64, size in 1_u32..64, batches in 1_u32..20) {
        let config = format!("drop=0.1,reorder=0.2,dup=0.2,ecn=0.2,seed={seed}");
        let port = run(&config, size * batches, size);
        let counters = port.counters();
        let packets = port.inner.packets();
        prop_assert_eq!(packets.len() as u64, counters.packets - counters.dropped + counters.duplicated);
        prop_assert!(packets.iter().all(|(_, good)| *good));
        let mut numbers: Vec<u32> = packets.iter().map(|(bytes, _)| number(bytes)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len() as u64, counters.packets - counters.dropped);
    }
}
