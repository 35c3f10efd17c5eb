//! One UDP socket of a device: bound to (address, 4791), shared with the other processes of the host that use the
//! address, and set up so that the kernel sends IPv4 packets with a known identification.
//!
//! * `SO_REUSEPORT`, and never `SO_REUSEADDR`: with both, a later socket takes all packets and the group's selector
//!   is not asked.
//! * Not connected, and path-MTU discovery `PROBE`: then the identification is 0 and Don't Fragment set, without the
//!   path-MTU cache shrinking packets (a RoCE PMTU is agreed by the two ends and is never changed by the network).

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::super::{ROCE_PORT, sys};

/// Receive buffer asked for by default, as [`super::UdpConfig::rcvbuf`] counts.
const DEFAULT_RCVBUF: usize = 8 << 20;
/// Send buffer asked for: some sixty full segmentation-offload sends.
const SNDBUF: usize = 4 << 20;

/// A bound socket and its address.
#[derive(Debug)]
pub(super) struct RoceSocket {
    addr: IpAddr,
    scope: u32,
    socket: Socket,
}

impl RoceSocket {
    /// A socket for `addr`, an address of interface `ifindex`.
    pub(super) fn bind(addr: IpAddr, ifindex: u32, rcvbuf: Option<usize>) -> io::Result<Self> {
        // Non-blocking and close-on-exec.
        let socket = Socket::new(
            Domain::for_address((addr, 0).into()),
            Type::DGRAM.nonblocking(),
            Some(Protocol::UDP),
        )?;
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        match addr {
            IpAddr::V4(_) => {
                sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
                for option in [libc::IP_RECVTOS, libc::IP_RECVTTL, libc::IP_PKTINFO] {
                    sys::set_option(fd, libc::IPPROTO_IP, option, 1)?;
                }
            }
            IpAddr::V6(_) => {
                socket.set_only_v6(true)?;
                sys::set_option(
                    fd,
                    libc::IPPROTO_IPV6,
                    libc::IPV6_MTU_DISCOVER,
                    libc::IPV6_PMTUDISC_PROBE,
                )?;
                for option in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVPKTINFO] {
                    sys::set_option(fd, libc::IPPROTO_IPV6, option, 1)?;
                }
            }
        }
        set_buffers(fd, rcvbuf);
        if let Err(error) = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1) {
            tracing::debug!(%error, "no UDP receive coalescing; packets come one by one");
        }
        let scope = match addr {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => ifindex,
            _ => 0,
        };
        let bound = Self { addr, scope, socket };
        bound
            .socket
            .bind(&bound.peer(addr).into())
            .map_err(|error| explain(addr, error))?;
        Ok(bound)
    }

    /// The address it is bound to.
    pub(super) const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Where packets to `dst` go from this socket.
    pub(super) fn peer(&self, dst: IpAddr) -> SocketAddr {
        match dst {
            IpAddr::V4(_) => SocketAddr::new(dst, ROCE_PORT),
            IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, ROCE_PORT, 0, self.scope)),
        }
    }

    /// Whether the kernel can cut one send into several datagrams.
    pub(super) fn can_segment(&self) -> bool {
        // Zero is the option's default: "do not".
        sys::set_option(self.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
    }
}

impl AsFd for RoceSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ask for buffers; the kernel grants what `net.core.rmem_max` and `wmem_max` allow, or all to root.
fn set_buffers(fd: BorrowedFd<'_>, rcvbuf: Option<usize>) {
    // The kernel doubles what it is told, to allow for its overhead, and reports and enforces the doubled value.
    let halved = |bytes: usize| i32::try_from(bytes / 2).unwrap_or(i32::MAX);
    let receive = halved(rcvbuf.unwrap_or(DEFAULT_RCVBUF));
    let is_root = nix::unistd::geteuid().is_root();
    for (forced, plain, value) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, halved(SNDBUF)),
    ] {
        // Root of a user namespace lacks the capability, so a refusal is not the end.
        if is_root && sys::set_option(fd, libc::SOL_SOCKET, forced, value).is_ok() {
            continue;
        }
        if let Err(error) = sys::set_option(fd, libc::SOL_SOCKET, plain, value) {
            tracing::debug!(%error, "socket buffer size refused; the default stays");
        }
    }
}

/// A bind error with what to do about it.
fn explain(addr: IpAddr, error: io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {ROCE_PORT} of {addr} is taken: by a process of another user, or by Soft-RoCE (rdma_rxe) in the \
             kernel"
        ),
        io::ErrorKind::AddrNotAvailable => format!("{addr} is not an address of this host"),
        _ => format!("cannot bind UDP port {ROCE_PORT} of {addr}: {error}"),
    };
    io::Error::new(error.kind(), text)
}
