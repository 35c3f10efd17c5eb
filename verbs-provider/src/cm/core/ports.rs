//! Ports inside one process: who bound what, and what is reserved among the processes of the host.
//!
//! The rules are the kernel's: two ids may share a port when their addresses differ, or when both asked for reuse and
//! neither listens. A port that an application names, or listens on, is reserved host-wide; an ephemeral one that only
//! connects is not, as nothing can be sent to it.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::command::PortSpace;
use super::environment::{Environment, Errno, PortGuard, PortRequest};

/// Range ephemeral ports are taken from, as Linux's default.
const EPHEMERAL: core::ops::Range<u16> = 32_768..61_000;
/// Ports below this one need a privilege.
const PRIVILEGED: u16 = 1024;

/// What an id asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) owner: u32,
    pub(super) space: PortSpace,
    pub(super) addr: SocketAddr,
    pub(super) reuse: bool,
    pub(super) v6_only: bool,
}

struct Binding {
    owner: u32,
    ip: IpAddr,
    reuse: bool,
    v6_only: bool,
    listening: bool,
    guard: Option<PortGuard>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("owner", &self.owner)
            .field("ip", &self.ip)
            .finish_non_exhaustive()
    }
}

/// The bound ports of a process.
#[derive(Debug, Default)]
pub(super) struct Ports {
    bound: BTreeMap<(PortSpace, u16), Vec<Binding>>,
    /// Listeners given up a moment ago, their claims still held. A server that takes one connection for control often
    /// listens anew for the next while its client already asks for it; that request is not refused but asked again.
    closing: BTreeMap<(PortSpace, u16), Binding>,
}

/// How long a listener's port is kept after it is given up.
pub(super) const CLOSING: Duration = Duration::from_millis(250);

impl Ports {
    /// Bind; port 0 means any. Returns the port.
    pub(super) fn bind(&mut self, env: &dyn Environment, wish: &Wish) -> Result<u16, Errno> {
        let port = wish.addr.port();
        if port == 0 {
            let port = self.ephemeral(env, wish)?;
            self.bound
                .entry((wish.space, port))
                .or_default()
                .push(wish.binding(None));
            return Ok(port);
        }
        if port < PRIVILEGED && !env.may_bind_privileged() {
            return Err(libc::EACCES);
        }
        let others = self.bound.get(&(wish.space, port)).map_or(&[][..], Vec::as_slice);
        let conflict = others.iter().any(|other| {
            overlap(other.ip, other.v6_only, wish.addr.ip(), wish.v6_only)
                && !(other.reuse && wish.reuse && !other.listening)
        });
        if conflict {
            return Err(libc::EADDRINUSE);
        }
        // One wildcard covers both families.
        let same = |ip: IpAddr| ip == wish.addr.ip() || (ip.is_unspecified() && wish.addr.ip().is_unspecified());
        let closing = self.closing.get(&(wish.space, port)).into_iter();
        let guard = match others
            .iter()
            .chain(closing)
            .find(|other| same(other.ip) && other.guard.is_some())
        {
            Some(other) => other.guard.clone(),
            None => Some(env.claim(&wish.request(port))?),
        };
        self.bound
            .entry((wish.space, port))
            .or_default()
            .push(wish.binding(guard));
        Ok(port)
    }

    /// Become a listener: nobody else may share the port, and the whole host must know.
    pub(super) fn listen(&mut self, env: &dyn Environment, wish: &Wish) -> Result<(), Errno> {
        let port = wish.addr.port();
        let bindings = self.bound.get_mut(&(wish.space, port)).ok_or(libc::EINVAL)?;
        let conflict = bindings.iter().any(|other| {
            other.owner != wish.owner
                && (other.listening || !(other.reuse && wish.reuse))
                && overlap(other.ip, other.v6_only, wish.addr.ip(), wish.v6_only)
        });
        if conflict {
            return Err(libc::EADDRINUSE);
        }
        let own = bindings
            .iter_mut()
            .find(|binding| binding.owner == wish.owner)
            .ok_or(libc::EINVAL)?;
        if own.guard.is_none() {
            own.guard = Some(env.claim(&wish.request(port))?);
        }
        own.v6_only = wish.v6_only;
        own.listening = true;
        Ok(())
    }

    /// Give up an id's port. Returns whether it was a listener's, which is to be forgotten ([`Self::forget`]) only after
    /// [`CLOSING`].
    pub(super) fn release(&mut self, space: PortSpace, port: u16, owner: u32) -> bool {
        let Some(bindings) = self.bound.get_mut(&(space, port)) else {
            return false;
        };
        let position = bindings.iter().position(|binding| binding.owner == owner);
        let binding = position.map(|position| bindings.swap_remove(position));
        if bindings.is_empty() {
            self.bound.remove(&(space, port));
        }
        let Some(binding) = binding.filter(|binding| binding.listening) else {
            return false;
        };
        self.closing.insert((space, port), binding);
        true
    }

    /// Let go of a listener's port that was given up.
    pub(super) fn forget(&mut self, space: PortSpace, port: u16) {
        self.closing.remove(&(space, port));
    }

    /// The listener a request to this address and port is for: the exact address, else a wildcard.
    pub(super) fn listener(&self, space: PortSpace, to: IpAddr, port: u16) -> Option<u32> {
        let bindings = self.bound.get(&(space, port))?;
        let listening = || bindings.iter().filter(|binding| binding.listening);
        listening()
            .find(|binding| binding.ip == to)
            .or_else(|| listening().find(|b| b.ip.is_unspecified() && b.ip.is_ipv4() == to.is_ipv4()))
            .or_else(|| listening().find(|b| b.ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !b.v6_only))
            .map(|binding| binding.owner)
    }

    /// Whether a server of this process has that port but does not listen yet, or was listening a moment ago.
    pub(super) fn is_starting(&self, space: PortSpace, to: IpAddr, port: u16) -> bool {
        let covers = |binding: &Binding| binding.ip == to || binding.ip.is_unspecified();
        let bound = self.bound.get(&(space, port)).map_or(&[][..], Vec::as_slice);
        bound.iter().any(|binding| !binding.listening && covers(binding))
            || self.closing.get(&(space, port)).is_some_and(covers)
    }

    fn ephemeral(&self, env: &dyn Environment, wish: &Wish) -> Result<u16, Errno> {
        let count = u32::from(EPHEMERAL.end - EPHEMERAL.start);
        let start = env.random() % count;
        for step in 0..count {
            let offset = u16::try_from((start + step) % count).unwrap_or(0);
            let port = EPHEMERAL.start + offset;
            if !self.bound.contains_key(&(wish.space, port)) {
                return Ok(port);
            }
        }
        Err(libc::EADDRNOTAVAIL)
    }
}

impl Wish {
    const fn request(&self, port: u16) -> PortRequest {
        PortRequest {
            space: self.space.0,
            addr: self.addr.ip(),
            port,
            v6_only: self.v6_only,
        }
    }

    const fn binding(&self, guard: Option<PortGuard>) -> Binding {
        Binding {
            owner: self.owner,
            ip: self.addr.ip(),
            reuse: self.reuse,
            v6_only: self.v6_only,
            listening: false,
            guard,
        }
    }
}

/// Whether a packet could be for both addresses.
fn overlap(a: IpAddr, a_v6_only: bool, b: IpAddr, b_v6_only: bool) -> bool {
    if a.is_ipv4() == b.is_ipv4() {
        return a == b || a.is_unspecified() || b.is_unspecified();
    }
    let (v6, v6_only) = if a.is_ipv6() { (a, a_v6_only) } else { (b, b_v6_only) };
    v6.is_unspecified() && !v6_only
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_as_sockets_do() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(overlap(ip("127.0.0.1"), false, ip("0.0.0.0"), false));
        assert!(!overlap(ip("127.0.0.1"), false, ip("127.0.0.2"), false));
        assert!(overlap(ip("::"), false, ip("127.0.0.1"), false));
        assert!(!overlap(ip("::"), true, ip("127.0.0.1"), false));
        assert!(!overlap(ip("::1"), false, ip("127.0.0.1"), false));
    }
}
