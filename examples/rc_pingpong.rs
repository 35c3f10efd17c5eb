//! SEND/RECV ping-pong over a reliable connection, like `ibv_rc_pingpong`, every message checked.
//!
//! ```text
//! adverb run -- target/debug/examples/rc_pingpong server
//! adverb run -- target/debug/examples/rc_pingpong client --host 127.0.0.1
//! ```

mod verbs;

use std::io;
use std::time::Instant;

use clap::Parser;
use rdma_sys::ibv_wr_opcode;
use verbs::{Endpoint, Request, Role};

/// RECVs kept posted.
const RECEIVES: u32 = 16;
const SEND_ID: u64 = 1 << 32;

#[derive(Parser)]
struct Args {
    role: Role,
    /// Where the server is
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// TCP port on which the peers meet
    #[arg(long, default_value_t = 18600)]
    port: u16,
    /// Device; the first one if not given
    #[arg(long)]
    device: Option<String>,
    /// Message size in bytes, a multiple of 8
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Messages each way
    #[arg(long, default_value_t = 1000)]
    iterations: u64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let size = args.size.next_multiple_of(8).max(8);
    let words = size as usize / 8;
    // One message to send, then the ones to receive into.
    let mut endpoint = Endpoint::open(args.device.as_deref(), size as usize * (1 + RECEIVES as usize))?;
    let receive_into = |slot: u64| size as usize * (1 + usize::try_from(slot).unwrap_or_default());
    let stream = verbs::meet(args.role, &args.host, args.port)?;
    let peer = verbs::swap(&stream, &endpoint.card())?;
    endpoint.connect(&peer)?;
    for slot in 0..u64::from(RECEIVES) {
        endpoint.post_receive(slot, receive_into(slot), size)?;
    }
    // Both QPs are ready before the first SEND.
    verbs::say(&stream, "ready")?;
    verbs::hear(&stream)?;

    let send = |endpoint: &Endpoint, round: u64| {
        for word in 0..words {
            endpoint.store(word, round.wrapping_mul(31).wrapping_add(word as u64));
        }
        let (opcode, remote) = (ibv_wr_opcode::IBV_WR_SEND, (0, 0));
        endpoint.post(&Request {
            id: SEND_ID,
            opcode,
            offset: 0,
            length: size,
            signaled: true,
            remote,
            add: 0,
        })
    };
    let started = Instant::now();
    if args.role == Role::Client {
        send(&endpoint, 0)?;
    }
    let (mut received, mut sent) = (0, 0);
    while received < args.iterations || sent < args.iterations {
        let completion = endpoint.completion()?;
        if completion.id == SEND_ID {
            sent += 1;
            continue;
        }
        let first = receive_into(completion.id) / 8;
        for word in 0..words {
            let expected = received.wrapping_mul(31).wrapping_add(word as u64);
            if completion.bytes != size || endpoint.load(first + word) != expected {
                return Err(io::Error::other(format!(
                    "message {received} differs at byte {}",
                    word * 8
                )));
            }
        }
        endpoint.post_receive(completion.id, receive_into(completion.id), size)?;
        received += 1;
        // The client is one message ahead. A send buffer may be reused once its SEND has completed.
        let answer = if args.role == Role::Client {
            received
        } else {
            received - 1
        };
        if answer < args.iterations {
            while sent < answer {
                let completion = endpoint.completion()?;
                debug_assert_eq!(completion.id, SEND_ID, "the peer waits for us");
                sent += 1;
            }
            send(&endpoint, answer)?;
        }
    }
    let elapsed = started.elapsed();
    let usec = elapsed.as_secs_f64() * 1e6 / args.iterations as f64;
    println!(
        "{} messages of {size} bytes each way in {elapsed:.2?}, {usec:.2} µs a round trip",
        args.iterations
    );
    // Neither side leaves while the other may still need an ACK.
    verbs::say(&stream, "done")?;
    verbs::hear(&stream)?;
    Ok(())
}
