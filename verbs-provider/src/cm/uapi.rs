//! The C structures of the `rdma_cm` device, to and from the core's types.
//!
//! A command is `rdma_ucm_cmd_hdr` and one structure, in which the application names the place for the answer. Short
//! structures are those of older libraries: what is missing reads as zero. Answers are cut to the room there is.
//!
//! `unsafe` here: reading the application's command buffer, and writing where its response pointer says.

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::core::command::{Command, ConnParam, Ece, FileId, IdOption, PortSpace, Response, RouteInfo};
use super::core::event::{Event, Param};
use super::core::path::{AddressHandle, PathRecord, gid};
use super::core::qp_attr::QpAttributes;
use super::core::{Device, Errno};
use crate::abi::kern::{
    IB_PATH_BIDIRECTIONAL, IB_PATH_GMP, IB_PATH_PRIMARY, ib_path_rec_data, ib_user_path_rec, ib_uverbs_ah_attr,
    ib_uverbs_qp_attr,
};
use crate::abi::rdma_ucm::*;

/// Address family of native InfiniBand addresses, which are not offered.
const AF_IB: u16 = 27;
/// `struct sockaddr_ib`.
const SOCKADDR_IB_LEN: u16 = 48;
const SOCKADDR_IN_LEN: u16 = 16;
const SOCKADDR_IN6_LEN: u16 = 28;
/// Partition key as on the wire.
const PKEY: u16 = 0xFFFF;
/// "Exactly": selector of path record members.
const EXACTLY: u8 = 2;

/// A decoded write to the device.
#[derive(Debug)]
pub(crate) enum Request {
    /// A command, and where its answer goes.
    Command(Command, Reply),
    /// GET_EVENT.
    NextEvent(Reply),
}

/// Where an answer goes and in which shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    address: u64,
    room: usize,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    None,
    Id,
    EventsReported,
    Route,
    Addresses,
    Gids,
    Paths,
    QpAttributes,
    Event,
}

/// Structures of integers and byte arrays, for which all bit patterns are values.
///
/// # Safety
/// The type must be `repr(C)` and hold nothing but integers, arrays of them, unions of such, and such structures.
unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),* $(,)?) => {
        // SAFETY: each is a structure of rdma_user_cm.h or ib_user_*.h: integers and byte arrays only.
        $(unsafe impl Plain for $name {})*
    };
}
plain!(
    rdma_ucm_cmd_hdr,
    rdma_ucm_create_id,
    rdma_ucm_create_id_resp,
    rdma_ucm_destroy_id,
    rdma_ucm_destroy_id_resp,
    rdma_ucm_bind_ip,
    rdma_ucm_bind,
    rdma_ucm_resolve_ip,
    rdma_ucm_resolve_addr,
    rdma_ucm_resolve_route,
    rdma_ucm_query,
    rdma_ucm_query_route_resp,
    rdma_ucm_query_addr_resp,
    rdma_ucm_connect,
    rdma_ucm_listen,
    rdma_ucm_accept,
    rdma_ucm_reject,
    rdma_ucm_disconnect,
    rdma_ucm_init_qp_attr,
    rdma_ucm_notify,
    rdma_ucm_join_ip_mcast,
    rdma_ucm_join_mcast,
    rdma_ucm_get_event,
    rdma_ucm_event_resp,
    rdma_ucm_event_resp_param,
    rdma_ucm_set_option,
    rdma_ucm_migrate_id,
    ib_uverbs_qp_attr,
    ib_uverbs_ah_attr,
    ib_user_path_rec,
    libc::sockaddr_in6,
    libc::sockaddr_storage,
    PathsResponse,
);

/// `rdma_ucm_query_path_resp` with room for its one path.
#[repr(C)]
#[derive(Clone, Copy)]
struct PathsResponse {
    num_paths: u32,
    reserved: u32,
    path: ib_path_rec_data,
}

fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that all bit patterns, so also zeros, are values of T.
    unsafe { core::mem::zeroed() }
}

/// The structure at the front of `bytes`, zeros for what they lack.
fn decode<T: Plain>(bytes: &[u8]) -> T {
    let mut value: T = zeroed();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: `len` bytes are readable in the slice and writable in `value`, which does not overlap it; `Plain` promises
    // that the result is a value.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), len) };
    value
}

fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the slice covers exactly the value, for as long as it is borrowed. Callers only pass structures without
    // padding or built from `zeroed`, so every byte is initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

impl Reply {
    const fn new(address: u64, room: u16, shape: Shape) -> Self {
        Self { address, room: room as usize, shape }
    }

    /// Write `value` where the application wants it.
    fn put<T: Plain>(&self, value: &T) -> Result<(), Errno> {
        self.put_at_least(value, size_of::<T>())
    }

    fn put_at_least<T: Plain>(&self, value: &T, least: usize) -> Result<(), Errno> {
        if self.room < least {
            return Err(libc::ENOSPC);
        }
        let pointer = usize::try_from(self.address).map_err(|_| libc::EFAULT)? as *mut u8;
        if pointer.is_null() {
            return Err(libc::EFAULT);
        }
        let bytes = bytes_of(value);
        let len = bytes.len().min(self.room);
        // SAFETY: the application promised `room` writable bytes at the response address of its command; it owns them
        // until the command returns, and they cannot overlap `value`, which lives on this stack.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, len) };
        Ok(())
    }
}

/// Decode a write. `file_of` knows the channels by descriptor number.
pub(crate) fn parse(bytes: &[u8], file_of: impl Fn(i32) -> Option<FileId>) -> Result<Request, Errno> {
    let header_len = size_of::<rdma_ucm_cmd_hdr>();
    if bytes.len() < header_len {
        return Err(libc::EINVAL);
    }
    let header: rdma_ucm_cmd_hdr = decode(bytes);
    let body = bytes[header_len..].get(..usize::from(header.in_)).ok_or(libc::EINVAL)?;
    let none = Reply::new(0, 0, Shape::None);
    let reply = |address, shape| Reply::new(address, header.out, shape);
    Ok(match header.cmd {
        RDMA_USER_CM_CMD_CREATE_ID => {
            let c: rdma_ucm_create_id = decode(body);
            let command = Command::CreateId { uid: c.uid, space: PortSpace(c.ps), qp_type: c.qp_type };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_DESTROY_ID => {
            let c: rdma_ucm_destroy_id = decode(body);
            Request::Command(Command::DestroyId { id: c.id }, reply(c.response, Shape::EventsReported))
        }
        RDMA_USER_CM_CMD_BIND_IP => {
            let c: rdma_ucm_bind_ip = decode(body);
            Request::Command(Command::Bind { id: c.id, addr: address(bytes_of(&c.addr))? }, none)
        }
        RDMA_USER_CM_CMD_BIND => {
            let c: rdma_ucm_bind = decode(body);
            Request::Command(Command::Bind { id: c.id, addr: address(bytes_of(&c.addr))? }, none)
        }
        RDMA_USER_CM_CMD_RESOLVE_IP => {
            let c: rdma_ucm_resolve_ip = decode(body);
            let src = optional_address(bytes_of(&c.src_addr))?;
            Request::Command(Command::ResolveAddr { id: c.id, src, dst: address(bytes_of(&c.dst_addr))? }, none)
        }
        RDMA_USER_CM_CMD_RESOLVE_ADDR => {
            let c: rdma_ucm_resolve_addr = decode(body);
            let src = if c.src_size == 0 { None } else { optional_address(bytes_of(&c.src_addr))? };
            Request::Command(Command::ResolveAddr { id: c.id, src, dst: address(bytes_of(&c.dst_addr))? }, none)
        }
        RDMA_USER_CM_CMD_RESOLVE_ROUTE => {
            let c: rdma_ucm_resolve_route = decode(body);
            Request::Command(Command::ResolveRoute { id: c.id }, none)
        }
        RDMA_USER_CM_CMD_QUERY_ROUTE => {
            let c: rdma_ucm_query = decode(body);
            Request::Command(Command::Query { id: c.id }, reply(c.response, Shape::Route))
        }
        RDMA_USER_CM_CMD_QUERY => {
            let c: rdma_ucm_query = decode(body);
            let shape = match c.option {
                RDMA_USER_CM_QUERY_ADDR => Shape::Addresses,
                RDMA_USER_CM_QUERY_PATH => Shape::Paths,
                RDMA_USER_CM_QUERY_GID => Shape::Gids,
                _ => return Err(libc::ENOSYS),
            };
            Request::Command(Command::Query { id: c.id }, reply(c.response, shape))
        }
        RDMA_USER_CM_CMD_CONNECT => {
            let c: rdma_ucm_connect = decode(body);
            if c.conn_param.valid == 0 {
                return Err(libc::EINVAL);
            }
            let command = Command::Connect { id: c.id, param: conn_param(&c.conn_param), ece: ece(c.ece) };
            Request::Command(command, none)
        }
        RDMA_USER_CM_CMD_LISTEN => {
            let c: rdma_ucm_listen = decode(body);
            // The kernel's backlog is signed: a negative one is as good as none.
            let backlog = if i32::try_from(c.backlog).is_ok() { c.backlog } else { 0 };
            Request::Command(Command::Listen { id: c.id, backlog }, none)
        }
        RDMA_USER_CM_CMD_ACCEPT => {
            let c: rdma_ucm_accept = decode(body);
            let param = (c.conn_param.valid != 0).then(|| conn_param(&c.conn_param));
            Request::Command(Command::Accept { id: c.id, uid: c.uid, param, ece: ece(c.ece) }, none)
        }
        RDMA_USER_CM_CMD_REJECT => {
            let c: rdma_ucm_reject = decode(body);
            let private_data = c.private_data[..usize::from(c.private_data_len)].to_vec();
            Request::Command(Command::Reject { id: c.id, reason: c.reason, private_data }, none)
        }
        RDMA_USER_CM_CMD_DISCONNECT => {
            let c: rdma_ucm_disconnect = decode(body);
            Request::Command(Command::Disconnect { id: c.id }, none)
        }
        RDMA_USER_CM_CMD_INIT_QP_ATTR => {
            let c: rdma_ucm_init_qp_attr = decode(body);
            let command = Command::InitQpAttr { id: c.id, qp_state: c.qp_state };
            Request::Command(command, reply(c.response, Shape::QpAttributes))
        }
        RDMA_USER_CM_CMD_GET_EVENT => {
            let c: rdma_ucm_get_event = decode(body);
            Request::NextEvent(reply(c.response, Shape::Event))
        }
        RDMA_USER_CM_CMD_SET_OPTION => {
            let c: rdma_ucm_set_option = decode(body);
            Request::Command(Command::SetOption { id: c.id, option: option(&c)? }, none)
        }
        RDMA_USER_CM_CMD_NOTIFY => {
            let c: rdma_ucm_notify = decode(body);
            Request::Command(Command::Notify { id: c.id, event: c.event }, none)
        }
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => {
            let c: rdma_ucm_join_ip_mcast = decode(body);
            let command = Command::JoinMulticast { id: c.id, uid: c.uid, group: address(bytes_of(&c.addr))? };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_JOIN_MCAST => {
            let c: rdma_ucm_join_mcast = decode(body);
            if u32::from(c.join_flags) >= RDMA_MC_JOIN_FLAG_RESERVED {
                return Err(libc::EINVAL);
            }
            let command = Command::JoinMulticast { id: c.id, uid: c.uid, group: address(bytes_of(&c.addr))? };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_LEAVE_MCAST => {
            let c: rdma_ucm_destroy_id = decode(body);
            Request::Command(Command::LeaveMulticast { group: c.id }, reply(c.response, Shape::EventsReported))
        }
        RDMA_USER_CM_CMD_MIGRATE_ID => {
            let c: rdma_ucm_migrate_id = decode(body);
            let from = i32::try_from(c.fd).ok().and_then(file_of).ok_or(libc::ENOENT)?;
            Request::Command(Command::MigrateId { id: c.id, from }, reply(c.response, Shape::EventsReported))
        }
        RDMA_USER_CM_CMD_GET_OPTION => return Err(libc::ENOSYS),
        _ => return Err(libc::EINVAL),
    })
}

/// Whether there is room for the answer, asked before the command changes anything.
pub(crate) fn check_room(reply: &Reply) -> Result<(), Errno> {
    let least = match reply.shape {
        Shape::None => 0,
        Shape::Id | Shape::EventsReported => 4,
        Shape::Route => size_of::<rdma_ucm_query_route_resp>() - IBDEV_INDEX_LEN,
        Shape::Addresses | Shape::Gids => size_of::<rdma_ucm_query_addr_resp>() - IBDEV_INDEX_LEN,
        Shape::Paths => size_of::<rdma_ucm_query_path_resp>(),
        Shape::QpAttributes => size_of::<ib_uverbs_qp_attr>(),
        Shape::Event => size_of::<rdma_ucm_event_resp>() - EVENT_TAIL_LEN,
    };
    if reply.room < least { Err(libc::ENOSPC) } else { Ok(()) }
}

/// `ibdev_index` and what follows came later.
const IBDEV_INDEX_LEN: usize = 8;
/// `reserved` and `ece` came later.
const EVENT_TAIL_LEN: usize = 12;

/// Write a command's answer.
pub(crate) fn answer(reply: &Reply, response: &Response) -> Result<(), Errno> {
    match (reply.shape, response) {
        (Shape::Id, Response::Id(id)) => reply.put(&rdma_ucm_create_id_resp { id: *id }),
        (Shape::EventsReported, Response::EventsReported(count)) => {
            reply.put(&rdma_ucm_destroy_id_resp { events_reported: *count })
        }
        (Shape::Route, Response::Route(info)) => {
            reply.put_at_least(&route(info), size_of::<rdma_ucm_query_route_resp>() - IBDEV_INDEX_LEN)
        }
        (Shape::Addresses, Response::Route(info)) => {
            let response = addresses(info, false);
            reply.put_at_least(&response, size_of::<rdma_ucm_query_addr_resp>() - IBDEV_INDEX_LEN)
        }
        (Shape::Gids, Response::Route(info)) => {
            let response = addresses(info, true);
            reply.put_at_least(&response, size_of::<rdma_ucm_query_addr_resp>() - IBDEV_INDEX_LEN)
        }
        (Shape::Paths, Response::Route(info)) => {
            reply.put_at_least(&paths(info), size_of::<rdma_ucm_query_path_resp>())
        }
        (Shape::QpAttributes, Response::QpAttributes(attributes)) => reply.put(&qp_attributes(attributes)),
        _ => Ok(()),
    }
}

/// Write an event.
pub(crate) fn answer_event(reply: &Reply, event: &Event) -> Result<(), Errno> {
    let mut out: rdma_ucm_event_resp = zeroed();
    out.uid = event.uid;
    out.id = event.id;
    out.event = event.kind as u32;
    out.status = event.status.cast_unsigned();
    out.ece = rdma_ucm_ece { vendor_id: event.ece.vendor_id, attr_mod: event.ece.attr_mod };
    match &event.param {
        Param::None => {}
        Param::Connection(param) => {
            // SAFETY: the union is all zeros, a value of each member; `conn` is the one written.
            let conn = unsafe { &mut out.param.conn };
            conn.qp_num = param.qp_num;
            conn.srq = u8::from(param.srq);
            conn.responder_resources = param.responder_resources;
            conn.initiator_depth = param.initiator_depth;
            conn.flow_control = u8::from(param.flow_control);
            conn.retry_count = param.retry_count;
            conn.rnr_retry_count = param.rnr_retry_count;
            conn.private_data_len = fill(&mut conn.private_data, &param.private_data.0);
        }
        Param::Datagram(param) => {
            // SAFETY: as above, with `ud`.
            let ud = unsafe { &mut out.param.ud };
            ud.qp_num = param.qp_num;
            ud.qkey = param.qkey;
            ud.ah_attr = ah(&param.ah);
            ud.private_data_len = fill(&mut ud.private_data, &param.private_data.0);
        }
    }
    reply.put_at_least(&out, size_of::<rdma_ucm_event_resp>() - EVENT_TAIL_LEN)
}

fn fill(to: &mut [u8; 256], from: &[u8]) -> u8 {
    let len = u8::try_from(from.len()).unwrap_or(u8::MAX);
    to[..usize::from(len)].copy_from_slice(&from[..usize::from(len)]);
    len
}

fn conn_param(c: &rdma_ucm_conn_param) -> ConnParam {
    ConnParam {
        qp_num: c.qp_num,
        // Only native addresses let the application choose the key.
        qkey: 0,
        private_data: c.private_data[..usize::from(c.private_data_len)].to_vec(),
        srq: c.srq != 0,
        responder_resources: c.responder_resources,
        initiator_depth: c.initiator_depth,
        flow_control: c.flow_control != 0,
        retry_count: c.retry_count,
        rnr_retry_count: c.rnr_retry_count,
    }
}

const fn ece(c: rdma_ucm_ece) -> Ece {
    Ece { vendor_id: c.vendor_id, attr_mod: c.attr_mod }
}

fn option(c: &rdma_ucm_set_option) -> Result<IdOption, Errno> {
    if c.level != RDMA_OPTION_ID {
        return Err(libc::ENOSYS);
    }
    let width = match c.optname {
        RDMA_OPTION_ID_TOS | RDMA_OPTION_ID_ACK_TIMEOUT => 1,
        RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY => 4,
        _ => return Err(libc::ENOSYS),
    };
    if c.optlen != width {
        return Err(libc::EINVAL);
    }
    let pointer = usize::try_from(c.optval).map_err(|_| libc::EFAULT)? as *const u8;
    if pointer.is_null() {
        return Err(libc::EFAULT);
    }
    let mut value = [0u8; 4];
    // SAFETY: the application promised `optlen` readable bytes at `optval`; `width` is that length and at most 4.
    unsafe { core::ptr::copy_nonoverlapping(pointer, value.as_mut_ptr(), width as usize) };
    let on = u32::from_ne_bytes(value) != 0;
    Ok(match c.optname {
        RDMA_OPTION_ID_TOS => IdOption::TypeOfService(value[0]),
        RDMA_OPTION_ID_ACK_TIMEOUT => IdOption::AckTimeout(value[0]),
        RDMA_OPTION_ID_REUSEADDR => IdOption::ReuseAddress(on),
        _ => IdOption::AddressFamilyOnly(on),
    })
}

/// A socket address as bytes: family, then what the family says.
fn address(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    optional_address(bytes)?.ok_or(libc::EINVAL)
}

fn optional_address(bytes: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    let at = |offset: usize| bytes.get(offset..);
    let u16_at = |offset| at(offset).and_then(<[u8]>::first_chunk).copied();
    let u32_at = |offset| at(offset).and_then(<[u8]>::first_chunk).copied();
    let family = u16::from_ne_bytes(u16_at(0).ok_or(libc::EINVAL)?);
    let port = u16::from_be_bytes(u16_at(2).ok_or(libc::EINVAL)?);
    match i32::from(family) {
        0 => Ok(None),
        libc::AF_INET => {
            let ip: [u8; 4] = u32_at(4).ok_or(libc::EINVAL)?;
            Ok(Some(SocketAddrV4::new(ip.into(), port).into()))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *at(8).and_then(<[u8]>::first_chunk).ok_or(libc::EINVAL)?;
            let flow = u32::from_be_bytes(u32_at(4).ok_or(libc::EINVAL)?);
            let scope = u32::from_ne_bytes(u32_at(24).ok_or(libc::EINVAL)?);
            Ok(Some(SocketAddrV6::new(ip.into(), port, flow, scope).into()))
        }
        _ if family == AF_IB => Err(libc::ENODEV),
        _ => Err(libc::EINVAL),
    }
}

fn sockaddr<T: Plain>(addr: Option<SocketAddr>) -> (T, u16) {
    let mut bytes = [0u8; 128];
    let len = match addr {
        None => 0,
        Some(SocketAddr::V4(v4)) => {
            bytes[..2].copy_from_slice(&family(libc::AF_INET));
            bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            SOCKADDR_IN_LEN
        }
        Some(SocketAddr::V6(v6)) => {
            bytes[..2].copy_from_slice(&family(libc::AF_INET6));
            bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            SOCKADDR_IN6_LEN
        }
    };
    (decode(&bytes), len)
}

fn sockaddr_ib(ip: Option<IpAddr>, service_id: u64) -> libc::sockaddr_storage {
    let mut bytes = [0u8; 128];
    bytes[..2].copy_from_slice(&AF_IB.to_ne_bytes());
    bytes[2..4].copy_from_slice(&PKEY.to_be_bytes());
    bytes[8..24].copy_from_slice(&ip.map_or([0; 16], gid));
    bytes[24..32].copy_from_slice(&service_id.to_be_bytes());
    decode(&bytes)
}

fn family(value: i32) -> [u8; 2] {
    u16::try_from(value).unwrap_or(0).to_ne_bytes()
}

fn guid(device: &Device) -> u64 {
    device.guid.to_be()
}

fn path_record(path: &PathRecord) -> ib_user_path_rec {
    let mut record: ib_user_path_rec = zeroed();
    record.dgid = gid(path.dst);
    record.sgid = gid(path.src);
    record.flow_label = path.flow_label.to_be();
    record.reversible = 1;
    record.mtu = u32::from(path.mtu);
    record.pkey = PKEY.to_be();
    record.hop_limit = path.hop_limit;
    record.traffic_class = path.traffic_class;
    record.numb_path = 1;
    record.sl = path.sl;
    record.mtu_selector = EXACTLY;
    record.rate_selector = EXACTLY;
    record.rate = path.rate;
    record.packet_life_time_selector = EXACTLY;
    record.packet_life_time = path.packet_life_time;
    record
}

fn route(info: &RouteInfo) -> rdma_ucm_query_route_resp {
    let mut out: rdma_ucm_query_route_resp = zeroed();
    out.src_addr = sockaddr(info.src).0;
    out.dst_addr = sockaddr(info.dst).0;
    let Some(device) = &info.device else { return out };
    out.node_guid = guid(device);
    out.ibdev_index = device.index;
    out.port_num = 1;
    if let Some(path) = &info.path {
        out.num_paths = 1;
        out.ib_route[0] = path_record(path);
    } else {
        out.ib_route[0].dgid = info.dst.map_or([0; 16], |dst| gid(dst.ip()));
        out.ib_route[0].sgid = info.src.map_or([0; 16], |src| gid(src.ip()));
        out.ib_route[0].pkey = PKEY.to_be();
    }
    out
}

fn addresses(info: &RouteInfo, gids: bool) -> rdma_ucm_query_addr_resp {
    let mut out: rdma_ucm_query_addr_resp = zeroed();
    if let Some(device) = &info.device {
        out.node_guid = guid(device);
        out.ibdev_index = device.index;
        out.port_num = 1;
        out.pkey = PKEY.to_be();
    }
    if gids {
        let service_id = |addr: Option<SocketAddr>| {
            u64::from(info.space.0) << 16 | u64::from(addr.map_or(0, |addr| addr.port()))
        };
        out.src_addr = sockaddr_ib(info.src.map(|src| src.ip()), service_id(info.src));
        out.dst_addr = sockaddr_ib(info.dst.map(|dst| dst.ip()), service_id(info.dst));
        (out.src_size, out.dst_size) = (SOCKADDR_IB_LEN, SOCKADDR_IB_LEN);
    } else {
        (out.src_addr, out.src_size) = sockaddr(info.src);
        (out.dst_addr, out.dst_size) = sockaddr(info.dst);
    }
    out
}

fn paths(info: &RouteInfo) -> PathsResponse {
    let mut out: PathsResponse = zeroed();
    let Some(path) = &info.path else { return out };
    out.num_paths = 1;
    out.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    // struct ibv_path_record, as on the wire of the subnet administrator.
    let mut record = [0u8; 64];
    record[8..24].copy_from_slice(&gid(path.dst));
    record[24..40].copy_from_slice(&gid(path.src));
    record[44..48].copy_from_slice(&(path.flow_label << 8 | u32::from(path.hop_limit)).to_be_bytes());
    record[48] = path.traffic_class;
    record[49] = 0x81;
    record[50..52].copy_from_slice(&PKEY.to_be_bytes());
    record[53] = path.sl & 0xF;
    record[54] = EXACTLY << 6 | path.mtu;
    record[55] = EXACTLY << 6 | path.rate;
    record[56] = EXACTLY << 6 | path.packet_life_time;
    for (word, bytes) in out.path.path_rec.iter_mut().zip(record.chunks_exact(4)) {
        *word = decode_word(bytes);
    }
    out
}

fn decode_word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default())
}

fn ah(handle: &AddressHandle) -> ib_uverbs_ah_attr {
    let mut out: ib_uverbs_ah_attr = zeroed();
    out.grh.dgid = handle.dgid;
    out.grh.flow_label = handle.flow_label;
    out.grh.sgid_index = handle.sgid_index;
    out.grh.hop_limit = handle.hop_limit;
    out.grh.traffic_class = handle.traffic_class;
    out.sl = handle.sl;
    out.static_rate = handle.static_rate;
    let present = u8::from(handle.dgid != [0; 16]);
    out.is_global = present;
    out.port_num = present;
    out
}

fn qp_attributes(attributes: &QpAttributes) -> ib_uverbs_qp_attr {
    let mut out: ib_uverbs_qp_attr = zeroed();
    out.qp_attr_mask = attributes.mask;
    out.qp_state = attributes.qp_state;
    out.path_mtu = u32::from(attributes.path_mtu);
    out.qkey = attributes.qkey;
    out.rq_psn = attributes.rq_psn;
    out.sq_psn = attributes.sq_psn;
    out.dest_qp_num = attributes.dest_qp_num;
    out.qp_access_flags = attributes.access_flags;
    if let Some(handle) = &attributes.ah {
        out.ah_attr = ah(handle);
    }
    out.max_rd_atomic = attributes.max_rd_atomic;
    out.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
    out.port_num = attributes.port_num;
    out.timeout = attributes.timeout;
    out.retry_cnt = attributes.retry_cnt;
    out.rnr_retry = attributes.rnr_retry;
    out
}
