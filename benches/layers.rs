//! Criterion benchmarks of the layers that every packet passes: ICRC, packet headers, rings.
//!
//! The Tonic engines have their own in `nic-model/benches`.
#![allow(missing_docs, reason = "criterion_group! makes a public function")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nic_model::host_if::cqe::Cqe;
use nic_model::host_if::ring::{CompletionQueue, WorkQueue};
use roce_wire::bth::Bth;
use roce_wire::ext::Reth;
use roce_wire::icrc::IcrcContext;
use roce_wire::opcode::Opcode;
use roce_wire::packet::{Headers, Packet};
use roce_wire::psn::Psn;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A batch of WRITE MIDDLE packets as it is handed to the kernel, at the two common PMTUs, and one of small SENDs.
fn batches() -> [(&'static str, Opcode, usize, usize); 3] {
    [
        ("pmtu 4096", Opcode::RcWriteMiddle, 4096, 15),
        ("pmtu 1024", Opcode::RcWriteMiddle, 1024, 62),
        ("64 bytes", Opcode::RcSendOnly, 64, 64),
    ]
}

fn batch(opcode: Opcode, payload: usize, count: usize) -> (usize, Vec<u8>) {
    let headers = Headers::new(Bth::new(opcode, 0x0100_0001, Psn::new(7)));
    let length = headers.len() + payload + 4;
    let mut bytes = vec![0x5a; length * count];
    for packet in bytes.chunks_mut(length) {
        headers.emit(packet);
    }
    (length, bytes)
}

fn icrc(criterion: &mut Criterion) {
    let context = IcrcContext::new(LOOPBACK, LOOPBACK, 0xc123, 4791);
    let mut group = criterion.benchmark_group("icrc");
    for (name, opcode, payload, count) in batches() {
        let (length, mut bytes) = batch(opcode, payload, count);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("seal, {name}"), |bencher| {
            bencher.iter(|| context.seal(0, length, black_box(&mut bytes)));
        });
        context.seal(0, length, &mut bytes);
        group.bench_function(format!("verify, {name}"), |bencher| {
            bencher.iter(|| {
                for (id, packet) in (0..).zip(black_box(&bytes).chunks(length)) {
                    context.verify(id, packet).expect("sealed just now");
                }
            });
        });
    }
    // A peer whose identification is not known: the CRC's linearity finds it.
    let (length, mut bytes) = batch(Opcode::RcWriteMiddle, 1024, 1);
    context.seal(0x718c, length, &mut bytes);
    group.throughput(Throughput::Elements(1));
    group.bench_function("recover an identification", |bencher| {
        bencher.iter(|| context.verify(0, black_box(&bytes)).expect("sealed just now"));
    });
    group.finish();
}

fn headers(criterion: &mut Criterion) {
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 0x0100_0001, Psn::new(7)));
    headers.reth = Some(Reth {
        va: 0x7fff_0000_1000,
        rkey: 0x1234,
        dma_len: 64,
    });
    let length = headers.len() + 64 + 4;
    let mut bytes = vec![0; length];
    headers.emit(&mut bytes);
    let mut group = criterion.benchmark_group("headers");
    group.throughput(Throughput::Elements(1));
    group.bench_function("emit BTH and RETH", |bencher| {
        bencher.iter(|| black_box(&headers).emit(black_box(&mut bytes)));
    });
    group.bench_function("parse a WRITE ONLY", |bencher| {
        bencher.iter(|| Packet::parse(black_box(&bytes)).expect("well formed").payload.len());
    });
    group.finish();
}

fn rings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rings");
    group.throughput(Throughput::Elements(1));
    let queue = WorkQueue::new(1024, 64);
    let (mut index, mut fetched) = (0_u32, [0; 64]);
    group.bench_function("a WQE written, published and fetched", |bencher| {
        bencher.iter(|| {
            queue.write(index, black_box(&[7; 64]));
            index = index.wrapping_add(1);
            queue.publish(index);
            queue.read(queue.producer().wrapping_sub(1), &mut fetched);
            black_box(&fetched);
        });
    });
    let queue = CompletionQueue::new(1024);
    let (mut index, cqe) = (0_u32, Cqe::default());
    group.bench_function("a CQE written, polled and consumed", |bencher| {
        bencher.iter(|| {
            queue.write(index, black_box(&cqe));
            let polled = queue.read(index);
            index = index.wrapping_add(1);
            queue.publish_consumer(index);
            polled
        });
    });
    group.finish();
}

criterion_group!(layers, icrc, headers, rings);
criterion_main!(layers);
