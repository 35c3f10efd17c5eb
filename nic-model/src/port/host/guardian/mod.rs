//! The guardian: speaks for processes that have ended.
//!
//! A kernel or a card outlives the program that used it: it repeats a lost DREP, acknowledges a duplicate, disconnects
//! what was left connected. A NIC inside the process dies with it. So a small process of its own keeps a duplicate of
//! each client's slot and UDP sockets, silent until the client's end, which it sees as end-of-file:
//!
//! ```text
//!  client (nic in a process)                       guardian, one per network namespace and effective user
//!  attach ─ Hello, sockets ───────────────────────► keeps them, reads none
//!  opened / closed / tombstone ───────────────────► [`estate`]
//!  exit, kill -9 ─ end-of-file ───────────────────► [`departed`]: DREQ ×3 for each open connection, DREP to DREQs,
//!                                                   duplicates of closed QPs re-acknowledged, strays handed over;
//!                                                   sockets closed after [`LINGER`] (at once if nothing was left)
//!                                                   [`server`]: exits [`LINGER`] after the last
//! ```
//!
//! It is started by the first client, detached from it in every way (`sys::spawn_daemon`), found by its name, and only
//! talks to processes of its own effective user, for it holds their sockets.

mod client;
mod departed;
mod estate;
mod record;
mod server;

use std::time::Duration;

pub use client::{Guardian, Launch};
pub use record::{Connection, Tombstone};
pub use server::{run, serve};

/// How long a dead process stays answerable, and an idle guardian stays.
pub const LINGER: Duration = Duration::from_secs(2);

/// The name of the guardian of this effective user.
pub fn default_name() -> String {
    format!("adverb/guardian/{}", nix::unistd::geteuid())
}

/// Whether the process at the other end of `stream` has our effective user: the descriptors passed give full control
/// of a client's sockets.
fn is_same_user(stream: &std::os::fd::OwnedFd) -> bool {
    let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials);
    peer.is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests;
