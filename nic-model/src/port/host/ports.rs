//! CM ports of the host: who listens where, and the way to them.
//!
//! A claim is the abstract datagram socket `adverb/cm/<port space>/<address or *>/<port>`; the name is exclusive in the
//! network namespace and freed at death, the socket is the mailbox for connection requests. A REQ names a port but no
//! communication id of ours, so whichever process gets it delivers it by name: exact address first, then `*`.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::bind;
use rand::Rng;

use super::message::{MAX_MESSAGE, Message};
use super::slot::{Slot, abstract_address, abstract_names, datagram_socket, name_is_taken, receive_datagram, rng};
use crate::frame::RxMeta;

/// RDMA port space of connected services (RDMA_PS_TCP).
pub const SPACE_TCP: u16 = 0x0106;
/// RDMA port space of datagram services (RDMA_PS_UDP).
pub const SPACE_UDP: u16 = 0x0111;
/// RDMA port space of raw InfiniBand service ids (RDMA_PS_IB).
pub const SPACE_IB: u16 = 0x013f;

/// A port held by this process.
#[derive(Debug)]
pub struct PortClaim {
    space: u16,
    addr: Option<IpAddr>,
    port: u16,
    socket: OwnedFd,
    buffer: Vec<u8>,
}

fn name(space: u16, addr: Option<IpAddr>, port: u16) -> String {
    match addr {
        Some(addr) => format!("adverb/cm/{space}/{addr}/{port}"),
        None => format!("adverb/cm/{space}/*/{port}"),
    }
}

impl PortClaim {
    /// Claims `port` of `space` at `addr`, or at every address when that is `None`. A process confined to one address
    /// claims that one instead of all.
    ///
    /// # Errors
    /// EADDRINUSE when the port is claimed at this address, at every address, or, for a claim of every address, at any;
    /// EACCES below the first unprivileged port without CAP_NET_BIND_SERVICE; EINVAL for port 0.
    pub fn claim(space: u16, addr: Option<IpAddr>, port: u16) -> io::Result<Self> {
        if port == 0 {
            return Err(Errno::EINVAL.into());
        }
        if port < first_unprivileged_port() && !may_bind_privileged() {
            return Err(Errno::EACCES.into());
        }
        let mut attempt = 0;
        loop {
            let socket = datagram_socket()?;
            bind(socket.as_raw_fd(), &abstract_address(&name(space, addr, port))?)?;
            // Own name first, then the look: of two processes that claim overlapping names at once, at most one wins.
            if !overlaps(space, addr, port)? {
                return Ok(Self {
                    space,
                    addr,
                    port,
                    socket,
                    buffer: Vec::new(),
                });
            }
            drop(socket);
            // Both may have seen each other and both withdrawn: once more, not in step.
            attempt += 1;
            if attempt == 3 {
                return Err(Errno::EADDRINUSE.into());
            }
            std::thread::sleep(std::time::Duration::from_micros(rng().random_range(100..2000)));
        }
    }

    /// Claims a free port of `range`, from a random start.
    ///
    /// # Errors
    /// EADDRINUSE when all are taken, or what [`Self::claim`] reports.
    pub fn ephemeral(space: u16, addr: Option<IpAddr>, range: RangeInclusive<u16>) -> io::Result<Self> {
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        if first > last {
            return Err(Errno::EINVAL.into());
        }
        let count = last - first + 1;
        let start = rng().random_range(0..count);
        for offset in 0..count {
            let port = u16::try_from(first + (start + offset) % count).unwrap_or(u16::MAX);
            let in_use = Errno::EADDRINUSE as i32;
            // A look spares the retries of an explicit claim, which must cope with simultaneous ones.
            if name_is_taken(&name(space, addr, port)) || overlaps(space, addr, port)? {
                continue;
            }
            match Self::claim(space, addr, port) {
                Err(error) if error.raw_os_error() == Some(in_use) => {}
                result => return result,
            }
        }
        Err(Errno::EADDRINUSE.into())
    }

    /// Port space.
    pub const fn space(&self) -> u16 {
        self.space
    }

    /// Address; `None` for every one.
    pub const fn addr(&self) -> Option<IpAddr> {
        self.addr
    }

    /// Port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The mailbox, to wait for requests with epoll.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Hands the waiting MADs to `sink`; returns how many. Never blocks.
    ///
    /// # Errors
    /// What recvmsg reports, other than there being nothing to read.
    pub fn receive(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8; 256])) -> io::Result<usize> {
        self.buffer.resize(MAX_MESSAGE.min(1024), 0);
        let mut count = 0;
        while let Some((_, len, _)) = receive_datagram(self.socket.as_raw_fd(), &mut self.buffer)? {
            if let Some(Message::Mad { meta, bytes }) = Message::parse(&self.buffer[..len]) {
                sink(&meta, bytes);
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Delivers `mad` to whoever claims `port` of `space` at `dst`: the claim of that address, else that of every address.
/// Returns whether there is one; the MAD is sent, or waits in `slot`'s backlog while the mailbox is full.
pub fn deliver(slot: &mut Slot, space: u16, dst: IpAddr, port: u16, meta: &RxMeta, mad: &[u8; 256]) -> bool {
    let message = Message::Mad {
        meta: *meta,
        bytes: mad,
    };
    let mut sent = |addr| slot.send_to_name(&name(space, addr, port), &message).is_ok();
    sent(Some(dst)) || sent(None)
}

/// Whether a claim under another name covers an address of this one.
fn overlaps(space: u16, addr: Option<IpAddr>, port: u16) -> io::Result<bool> {
    if addr.is_some() {
        return Ok(name_is_taken(&name(space, None, port)));
    }
    let (own, port) = (name(space, None, port), format!("/{port}"));
    let names = abstract_names(&format!("adverb/cm/{space}/"))?;
    Ok(names.iter().any(|name| name.ends_with(&port) && *name != own))
}

fn first_unprivileged_port() -> u16 {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// Whether this process has CAP_NET_BIND_SERVICE in its effective set.
fn may_bind_privileged() -> bool {
    const CAP_NET_BIND_SERVICE: u32 = 10;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> CAP_NET_BIND_SERVICE & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn errno(result: io::Result<PortClaim>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    // Spaces of their own keep these tests apart from each other and from programs that run meanwhile.

    #[test]
    fn specific_and_wildcard_claims_conflict() {
        const SPACE: u16 = 0x7101;
        let specific = PortClaim::claim(SPACE, addr("127.72.0.1"), 7000).unwrap();
        let other = PortClaim::claim(SPACE, addr("127.72.0.2"), 7000).unwrap();
        let v6 = PortClaim::claim(SPACE, addr("::1"), 7000).unwrap();
        let in_use = Some(libc::EADDRINUSE);
        assert_eq!(errno(PortClaim::claim(SPACE, addr("127.72.0.1"), 7000)), in_use);
        assert_eq!(errno(PortClaim::claim(SPACE, None, 7000)), in_use);
        drop((specific, other));
        assert_eq!(errno(PortClaim::claim(SPACE, None, 7000)), in_use);
        drop(v6);
        let all = PortClaim::claim(SPACE, None, 7000).unwrap();
        assert_eq!(errno(PortClaim::claim(SPACE, None, 7000)), in_use);
        assert_eq!(errno(PortClaim::claim(SPACE, addr("127.72.0.9"), 7000)), in_use);
        PortClaim::claim(SPACE, addr("127.72.0.9"), 17000).unwrap();
        PortClaim::claim(SPACE + 1, addr("127.72.0.9"), 7000).unwrap();
        drop(all);
        PortClaim::claim(SPACE, addr("127.72.0.9"), 7000).unwrap();
    }

    #[test]
    fn ephemeral_ports_are_distinct_until_none_is_left() {
        const SPACE: u16 = 0x7103;
        let claims: Vec<PortClaim> = (0..10)
            .map(|_| PortClaim::ephemeral(SPACE, addr("127.72.1.1"), 40_000..=40_009).unwrap())
            .collect();
        let mut ports: Vec<u16> = claims.iter().map(PortClaim::port).collect();
        ports.sort_unstable();
        assert_eq!(ports, (40_000..=40_009).collect::<Vec<u16>>());
        assert_eq!(
            errno(PortClaim::ephemeral(SPACE, addr("127.72.1.1"), 40_000..=40_009)),
            Some(libc::EADDRINUSE)
        );
        assert_eq!(
            errno(PortClaim::ephemeral(SPACE, None, 40_000..=40_009)),
            Some(libc::EADDRINUSE)
        );
    }

    #[test]
    fn requests_go_to_the_exact_address_then_to_all() {
        const SPACE: u16 = 0x7104;
        let mut slot = Slot::claim().unwrap();
        let dst: IpAddr = "127.72.2.1".parse().unwrap();
        let meta = RxMeta {
            src: dst,
            dst,
            sport: 1,
            traffic_class: 2,
            hop_limit: 3,
        };
        let mad = [9; 256];
        assert!(!deliver(&mut slot, SPACE, dst, 7000, &meta, &mad));
        let mut all = PortClaim::claim(SPACE, None, 7000).unwrap();
        // More than the mailbox holds at once.
        for _ in 0..30 {
            assert!(deliver(&mut slot, SPACE, dst, 7000, &meta, &mad));
        }
        let mut got = 0;
        while got < 30 {
            got += all
                .receive(&mut |seen, bytes| assert_eq!((*seen, *bytes), (meta, mad)))
                .unwrap();
            slot.flush();
        }
        drop(all);
        let mut exact = PortClaim::claim(SPACE, Some(dst), 7000).unwrap();
        assert!(deliver(&mut slot, SPACE, dst, 7000, &meta, &mad));
        assert!(!deliver(
            &mut slot,
            SPACE,
            "127.72.2.2".parse().unwrap(),
            7000,
            &meta,
            &mad
        ));
        assert_eq!(exact.receive(&mut |_, _| {}).unwrap(), 1);
    }

    #[test]
    fn simultaneous_overlapping_claims_never_both_succeed() {
        const SPACE: u16 = 0x7105;
        for port in 5000..5040 {
            let barrier = std::sync::Barrier::new(2);
            let [one, two] = std::thread::scope(|scope| {
                [addr("127.72.3.1"), None]
                    .map(|addr| {
                        let barrier = &barrier;
                        scope.spawn(move || {
                            barrier.wait();
                            PortClaim::claim(SPACE, addr, port)
                        })
                    })
                    .map(|thread| thread.join().unwrap())
            });
            assert!(one.is_err() || two.is_err(), "port {port}");
        }
    }

    #[test]
    fn low_ports_need_the_capability() {
        const SPACE: u16 = 0x7106;
        let result = PortClaim::claim(SPACE, addr("127.72.4.1"), 1);
        let allowed = may_bind_privileged() || first_unprivileged_port() <= 1;
        assert_eq!(errno(result), (!allowed).then_some(libc::EACCES));
        assert_eq!(errno(PortClaim::claim(SPACE, None, 0)), Some(libc::EINVAL));
    }
}
