//! BIND and LISTEN.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::command::{Command, Response};
use super::id::IdState;
use super::ports::Wish;
use super::{Core, Errno};

/// Backlog when the application leaves it open, and the most it can have, as the kernel's `rdma_ucm.max_backlog`.
const MAX_BACKLOG: u32 = 1024;

impl Core {
    /// BIND and BIND_IP.
    pub(super) fn bind(&mut self, handle: u32, addr: SocketAddr) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        if id.state != IdState::Idle {
            return Err(libc::EINVAL);
        }
        let device = if addr.ip().is_unspecified() {
            None
        } else {
            Some(self.env.device_for(addr.ip()).ok_or(libc::ENODEV)?)
        };
        let wish = self.wish(handle, addr)?;
        let port = self.ports.bind(&*self.env, &wish)?;
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        let mut bound = addr;
        bound.set_port(port);
        id.src = Some(bound);
        id.owns_port = true;
        id.device = device;
        id.state = IdState::Bound;
        Ok(Response::Done)
    }

    /// LISTEN. An id without an address listens on an ephemeral port of every IPv4 address.
    pub(super) fn listen(&mut self, handle: u32, backlog: u32) -> Result<Response, Errno> {
        if self.ids.get(handle).ok_or(libc::ENOENT)?.state == IdState::Idle {
            self.bind(handle, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
        }
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        let Some(src) = id.src.filter(|_| id.state == IdState::Bound) else {
            return Err(libc::EINVAL);
        };
        let wish = self.wish(handle, src)?;
        self.ports.listen(&*self.env, &wish)?;
        if src.ip().is_unspecified() {
            // Requests may come in at any of them.
            let _ = self.env.devices();
        }
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        id.state = IdState::Listening;
        id.room = if backlog == 0 {
            MAX_BACKLOG
        } else {
            backlog.min(MAX_BACKLOG)
        };
        Ok(Response::Done)
    }

    /// Whether a command is for all addresses of the host: a listener on a wildcard, or the port that may become one.
    #[must_use]
    pub fn concerns_every_address(&self, command: &Command) -> bool {
        match command {
            Command::Bind { addr, .. } => addr.ip().is_unspecified() && addr.port() != 0,
            Command::Listen { id, .. } => self
                .ids
                .get(*id)
                .is_some_and(|id| id.src.is_none_or(|src| src.ip().is_unspecified())),
            _ => false,
        }
    }

    fn wish(&self, handle: u32, addr: SocketAddr) -> Result<Wish, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        Ok(Wish {
            owner: handle,
            space: id.space,
            addr,
            reuse: id.reuse,
            v6_only: id.v6_only,
        })
    }
}
