//! RDMA WRITE bandwidth, like `ib_write_bw`: one QP, a queue of WRITEs kept full, every n-th one signaled.
//!
//! ```text
//! adverb run -- target/release/examples/write_bw server
//! adverb run -- target/release/examples/write_bw client --host 127.0.0.1
//! ```

mod verbs;

use std::io;
use std::time::Instant;

use clap::Parser;
use rdma_sys::ibv_wr_opcode;
use verbs::{Endpoint, Request, Role};

#[derive(Parser)]
struct Args {
    role: Role,
    /// Where the server is
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// TCP port on which the peers meet
    #[arg(long, default_value_t = 18601)]
    port: u16,
    /// Device; the first one if not given
    #[arg(long)]
    device: Option<String>,
    /// Message size in bytes
    #[arg(long, default_value_t = 65536)]
    size: u32,
    /// WRITEs
    #[arg(long, default_value_t = 20000)]
    iterations: u64,
    /// WRITEs outstanding
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=512))]
    depth: u64,
    /// WRITEs to a completion
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=512))]
    signal_every: u64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let mut endpoint = Endpoint::open(args.device.as_deref(), args.size as usize)?;
    let stream = verbs::meet(args.role, &args.host, args.port)?;
    let peer = verbs::swap(&stream, &endpoint.card())?;
    endpoint.connect(&peer)?;
    verbs::say(&stream, "ready")?;
    verbs::hear(&stream)?;

    match args.role {
        Role::Client => {
            // The server looks for this word at the end.
            endpoint.store(0, args.iterations);
            let elapsed = write(&endpoint, &args, (peer.va, peer.rkey))?;
            let gbits = args.iterations as f64 * f64::from(args.size) * 8.0 / elapsed / 1e9;
            println!("{} WRITEs of {} bytes, {gbits:.2} Gbit/s", args.iterations, args.size);
            verbs::say(&stream, "done")?;
            verbs::hear(&stream)?;
        }
        Role::Server => {
            // A target of WRITEs has nothing to do.
            verbs::hear(&stream)?;
            verbs::say(&stream, "done")?;
            if args.size >= 8 && endpoint.load(0) != args.iterations {
                return Err(io::Error::other("the buffer does not hold what was written"));
            }
        }
    }
    Ok(())
}

/// Writes everything and returns the seconds it took.
fn write(endpoint: &Endpoint, args: &Args, remote: (u64, u32)) -> io::Result<f64> {
    let signal_every = args.signal_every.min(args.depth);
    let started = Instant::now();
    let (mut posted, mut completed) = (0, 0);
    while completed < args.iterations {
        while posted < args.iterations && posted - completed < args.depth {
            posted += 1;
            let signaled = posted % signal_every == 0 || posted == args.iterations;
            let (opcode, length) = (ibv_wr_opcode::IBV_WR_RDMA_WRITE, args.size);
            endpoint.post(&Request {
                id: posted,
                opcode,
                offset: 0,
                length,
                signaled,
                remote,
                add: 0,
            })?;
        }
        // Completions are in order: this one stands for all before it.
        completed = endpoint.completion()?.id;
    }
    Ok(started.elapsed().as_secs_f64())
}
