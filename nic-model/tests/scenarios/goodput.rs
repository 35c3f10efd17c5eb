//! Goodput against loss and delay, as a table: a change of the transport shows as a change of text.

use crate::harness::{A, B, Pair, PairConfig, QpOptions, Wr};
use nic_model::sim::{Faults, LinkConfig};
use nic_model::time::Duration;
use std::fmt::Write;

const LINE: u64 = 10_000_000_000;
const MESSAGE: usize = 250_000;
const MESSAGES: usize = 40;

/// Gbit/s of back-to-back messages over a 10 Gbit/s link.
fn goodput(read: bool, loss: f64, delay: Duration) -> f64 {
    let faults = Faults {
        loss,
        ..Faults::default()
    };
    let link = LinkConfig {
        rate_bps: LINE,
        delay,
        faults,
        ..LinkConfig::default()
    };
    let egress = Some(20_000);
    let mut pair = Pair::new(&PairConfig {
        link,
        line_rate: LINE,
        egress,
        record: false,
        ..PairConfig::default()
    });
    let (a, _) = pair.connect(&QpOptions {
        mtu: 5,
        ..QpOptions::default()
    });
    let (mine, theirs) = (pair.buffer(A, MESSAGE), pair.buffer(B, MESSAGE));
    let start = pair.now;
    for _ in 0..MESSAGES {
        let range = 0..MESSAGE;
        pair.post(
            a,
            &if read {
                Wr::read(&mine, range, &theirs, 0)
            } else {
                Wr::write(&mine, range, &theirs, 0)
            },
        );
    }
    pair.drive_until(Duration::from_secs(60), |pair| pair.qp(a).sends.len() == MESSAGES);
    (MESSAGES * MESSAGE * 8) as f64 / pair.now.since(start).as_secs_f64() / 1e9
}

#[test]
fn loss_and_delay() {
    let mut table = String::from("loss      delay   WRITE    READ  (Gbit/s)\n");
    for loss in [0.0, 0.000_1, 0.001, 0.01, 0.05] {
        for micros in [1, 10, 100] {
            let delay = Duration::from_micros(micros);
            let (write, read) = (goodput(false, loss, delay), goodput(true, loss, delay));
            let _ = writeln!(table, "{loss:<6}  {micros:>4} µs  {write:>6.1}  {read:>6.1}");
        }
    }
    insta::assert_snapshot!(table);
}
