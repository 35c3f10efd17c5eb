//! RESOLVE_ADDR and RESOLVE_ROUTE: both are answered at once, as there is neither ARP nor a subnet administrator to ask.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::command::Response;
use super::event::{EventKind, Param};
use super::id::IdState;
use super::path::{PathRecord, life_time};
use super::{Core, Errno};

impl Core {
    /// RESOLVE_ADDR and RESOLVE_IP: choose source address and device.
    pub(super) fn resolve_addr(
        &mut self,
        handle: u32,
        src: Option<SocketAddr>,
        dst: SocketAddr,
    ) -> Result<Response, Errno> {
        let state = self.ids.get(handle).ok_or(libc::ENOENT)?.state;
        match state {
            IdState::Idle => {
                let any = match dst {
                    SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                };
                self.bind(handle, src.unwrap_or_else(|| SocketAddr::new(any, 0)))?;
            }
            IdState::Bound => {}
            _ => return Err(libc::EINVAL),
        }
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        let bound = id.src.ok_or(libc::EINVAL)?;
        if bound.is_ipv4() != dst.is_ipv4() {
            return Err(libc::EINVAL);
        }
        let mut dst = dst;
        if dst.ip().is_unspecified() {
            // "This host", as for sockets.
            dst.set_ip(match dst {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            });
        }
        let found = self.source_and_device(bound, dst);
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        id.dst = Some(dst);
        match found {
            Ok((src, device)) => {
                id.src = Some(src);
                id.device = Some(device);
                id.state = IdState::AddressResolved;
                self.report(handle, EventKind::AddrResolved, 0, Param::None);
            }
            Err(errno) => self.report(handle, EventKind::AddrError, -errno, Param::None),
        }
        Ok(Response::Done)
    }

    fn source_and_device(
        &self,
        bound: SocketAddr,
        dst: SocketAddr,
    ) -> Result<(SocketAddr, super::environment::Device), Errno> {
        let mut src = bound;
        if src.ip().is_unspecified() {
            src.set_ip(self.env.source_for(dst).ok_or(libc::ENETUNREACH)?);
        }
        let device = self.env.device_for(src.ip()).ok_or(libc::ENODEV)?;
        Ok((src, device))
    }

    /// RESOLVE_ROUTE: make the path record.
    pub(super) fn resolve_route(&mut self, handle: u32) -> Result<Response, Errno> {
        let timing = self.timing;
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        let (Some(device), Some(src), Some(dst)) = (&id.device, id.src, id.dst) else {
            return Err(libc::EINVAL);
        };
        if id.state != IdState::AddressResolved {
            return Err(libc::EINVAL);
        }
        let life_time = life_time(id.ack_timeout, &timing);
        id.path = Some(PathRecord::new(device, src, dst, id.type_of_service, life_time));
        id.state = IdState::RouteResolved;
        self.report(handle, EventKind::RouteResolved, 0, Param::None);
        Ok(Response::Done)
    }
}
