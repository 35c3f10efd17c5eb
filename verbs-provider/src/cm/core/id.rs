//! `rdma_cm_id`: what the kernel keeps for one, and the commands that only touch it.

use core::net::SocketAddr;

use super::command::{Command, FileId, IdOption, PortSpace, Response, RouteInfo, qp_type};
use super::environment::Device;
use super::path::PathRecord;
use super::ports::CLOSING;
use super::timer::Timer;
use super::{Core, Errno};

/// How far an id has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdState {
    Idle,
    Bound,
    Listening,
    AddressResolved,
    RouteResolved,
    Connecting,
    Disconnected,
}

/// What an id talks through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Nothing yet.
    #[default]
    None,
    /// The connection with this local communication id.
    Connection(u32),
    /// The datagram service request it sent, by request id.
    ServiceRequest(u32),
    /// The datagram service request it received.
    ServiceReply(super::sidr::RemoteRequest),
}

/// One id.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) file: FileId,
    /// The application's name for it; 0 until a new connection is accepted.
    pub(super) uid: u64,
    /// Whether the application has heard of it: true but for requests still in a queue.
    pub(super) announced: bool,
    pub(super) space: PortSpace,
    pub(super) qp_type: u8,
    pub(super) state: IdState,
    pub(super) src: Option<SocketAddr>,
    pub(super) dst: Option<SocketAddr>,
    /// Whether `src` is bound in the port table.
    pub(super) owns_port: bool,
    pub(super) device: Option<Device>,
    pub(super) path: Option<PathRecord>,
    pub(super) type_of_service: u8,
    pub(super) reuse: bool,
    pub(super) v6_only: bool,
    pub(super) ack_timeout: Option<u8>,
    pub(super) qp_num: u32,
    pub(super) qkey: Option<u32>,
    pub(super) endpoint: Endpoint,
    /// Requests a listener still takes before it drops them.
    pub(super) room: u32,
    /// The request a listener gave out last, and until when the next one waits for it, see `event.rs`.
    pub(super) pace: Option<(u32, nic_model::time::Time)>,
    /// The listener that waits for the application to take up this id.
    pub(super) listener: Option<u32>,
    pub(super) events_reported: u32,
}

impl Id {
    pub(super) const fn new(file: FileId, uid: u64, space: PortSpace, qp_type: u8) -> Self {
        Self {
            file,
            uid,
            announced: true,
            space,
            qp_type,
            state: IdState::Idle,
            src: None,
            dst: None,
            owns_port: false,
            device: None,
            path: None,
            type_of_service: 0,
            reuse: false,
            v6_only: false,
            ack_timeout: None,
            qp_num: 0,
            qkey: None,
            endpoint: Endpoint::None,
            room: 0,
            pace: None,
            listener: None,
            events_reported: 0,
        }
    }

    /// Whether it exchanges datagram service messages instead of connecting.
    pub(super) const fn is_datagram(&self) -> bool {
        self.qp_type == qp_type::UD
    }
}

impl Core {
    /// The id of a handle, if it belongs to this channel and the application knows of it.
    pub(super) fn id(&self, file: FileId, handle: u32) -> Result<&Id, Errno> {
        self.ids
            .get(handle)
            .filter(|id| id.announced && id.file == file)
            .ok_or(libc::ENOENT)
    }

    /// CREATE_ID. The port space decides the QP type except where it leaves the choice.
    pub(super) fn create_id(&mut self, file: FileId, uid: u64, space: PortSpace, kind: u8) -> Result<Response, Errno> {
        let kind = match space {
            PortSpace::TCP => qp_type::RC,
            PortSpace::UDP | PortSpace::IPOIB => qp_type::UD,
            PortSpace::IB => kind,
            _ => return Err(libc::EINVAL),
        };
        let handle = self.ids.insert(Id::new(file, uid, space, kind)).ok_or(libc::ENOMEM)?;
        Ok(Response::Id(handle))
    }

    /// QUERY and QUERY_ROUTE.
    pub(super) fn query(&self, handle: u32) -> Result<Response, Errno> {
        let id = self.ids.get(handle).ok_or(libc::ENOENT)?;
        Ok(Response::Route(Box::new(RouteInfo {
            device: id.device.clone(),
            src: id.src,
            dst: id.dst,
            path: id.path.clone(),
            space: id.space,
        })))
    }

    /// SET_OPTION.
    pub(super) fn set_option(&mut self, handle: u32, option: IdOption) -> Result<Response, Errno> {
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        match option {
            IdOption::TypeOfService(value) => id.type_of_service = value,
            IdOption::ReuseAddress(on) => {
                // Once bound, sharing can no longer be asked for, only given up.
                if on && id.state != IdState::Idle && !id.reuse {
                    return Err(libc::EINVAL);
                }
                id.reuse = on;
            }
            IdOption::AddressFamilyOnly(on) => {
                if !matches!(id.state, IdState::Idle | IdState::Bound) {
                    return Err(libc::EINVAL);
                }
                id.v6_only = on;
            }
            IdOption::AckTimeout(value) => {
                if !matches!(id.qp_type, qp_type::RC | qp_type::XRC_SEND) {
                    return Err(libc::EINVAL);
                }
                id.ack_timeout = (value != 0).then_some(value & 0x1F);
            }
        }
        Ok(Response::Done)
    }

    /// DESTROY_ID: what it was doing is ended, what it had not told is forgotten.
    pub(super) fn destroy_id(&mut self, handle: u32) -> Result<Response, Errno> {
        for child in self.purge_events(handle) {
            let _ = self.destroy_id(child);
        }
        self.taken_up(handle);
        let id = self.ids.remove(handle).ok_or(libc::ENOENT)?;
        if let Some((_, until)) = id.pace {
            self.timers.remove(&(until, Timer::Pace(handle)));
        }
        self.leave_all_groups(handle);
        match id.endpoint {
            Endpoint::None => {}
            Endpoint::Connection(comm_id) => self.abandon_connection(comm_id),
            Endpoint::ServiceRequest(request) => self.abandon_service_request(request),
            Endpoint::ServiceReply(request) => self.abandon_service_reply(&request),
        }
        if let Some(src) = id.src.filter(|_| id.owns_port)
            && self.ports.release(id.space, src.port(), handle)
        {
            let timer = Timer::Port(id.space, src.port());
            self.timers.insert((self.now + CLOSING, timer));
        }
        Ok(Response::EventsReported(id.events_reported))
    }

    /// The handle a command is about, if it is about an existing id.
    pub(super) const fn subject(command: &Command) -> Option<u32> {
        match command {
            Command::CreateId { .. } | Command::LeaveMulticast { .. } | Command::MigrateId { .. } => None,
            Command::DestroyId { id }
            | Command::Bind { id, .. }
            | Command::ResolveAddr { id, .. }
            | Command::ResolveRoute { id }
            | Command::Query { id }
            | Command::Connect { id, .. }
            | Command::Listen { id, .. }
            | Command::Accept { id, .. }
            | Command::Reject { id, .. }
            | Command::Disconnect { id }
            | Command::InitQpAttr { id, .. }
            | Command::SetOption { id, .. }
            | Command::Notify { id, .. }
            | Command::JoinMulticast { id, .. } => Some(*id),
        }
    }
}
