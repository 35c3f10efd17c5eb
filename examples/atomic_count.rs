//! A shared counter: the client adds one to the server's word with fetch-and-add, and the server counts the result.
//!
//! Run it over a faulty network to see that every request is executed exactly once:
//!
//! ```text
//! adverb run --faults drop=0.02,seed=1 -- target/debug/examples/atomic_count server --count 100000
//! adverb run --faults drop=0.02,seed=2 -- target/debug/examples/atomic_count client --count 100000
//! ```

mod verbs;

use std::io;

use clap::Parser;
use rdma_sys::ibv_wr_opcode;
use verbs::{Endpoint, Request, Role};

/// Requests outstanding; each has a word of its own for the value fetched.
const OUTSTANDING: u64 = 64;

#[derive(Parser)]
struct Args {
    role: Role,
    /// Where the server is
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// TCP port on which the peers meet
    #[arg(long, default_value_t = 18602)]
    port: u16,
    /// Device; the first one if not given
    #[arg(long)]
    device: Option<String>,
    /// How often to add
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let mut endpoint = Endpoint::open(args.device.as_deref(), 8 * usize::try_from(OUTSTANDING).unwrap_or(1))?;
    let stream = verbs::meet(args.role, &args.host, args.port)?;
    let peer = verbs::swap(&stream, &endpoint.card())?;
    endpoint.connect(&peer)?;
    verbs::say(&stream, "ready")?;
    verbs::hear(&stream)?;

    match args.role {
        Role::Client => {
            count(&endpoint, args.count, (peer.va, peer.rkey))?;
            verbs::say(&stream, "done")?;
            verbs::hear(&stream)?;
        }
        Role::Server => {
            verbs::hear(&stream)?;
            let counter = endpoint.load(0);
            println!("counter {counter}");
            verbs::say(&stream, "done")?;
            if counter != args.count {
                return Err(io::Error::other(format!("{} were added", args.count)));
            }
        }
    }
    Ok(())
}

/// Adds, and checks that the values fetched are 0, 1, 2 …: one requester's atomics are executed in order.
fn count(endpoint: &Endpoint, count: u64, remote: (u64, u32)) -> io::Result<()> {
    let (mut posted, mut fetched) = (0, 0);
    while fetched < count {
        while posted < count && posted - fetched < OUTSTANDING {
            let offset = 8 * usize::try_from(posted % OUTSTANDING).unwrap_or_default();
            let opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            endpoint.post(&Request {
                id: posted,
                opcode,
                offset,
                length: 8,
                signaled: true,
                remote,
                add: 1,
            })?;
            posted += 1;
        }
        let completion = endpoint.completion()?;
        let value = endpoint.load(usize::try_from(completion.id % OUTSTANDING).unwrap_or_default());
        if completion.id != fetched || value != fetched {
            return Err(io::Error::other(format!("request {fetched} fetched {value}")));
        }
        fetched += 1;
    }
    Ok(())
}
