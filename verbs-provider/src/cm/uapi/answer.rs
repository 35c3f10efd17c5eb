//! Answers and events, written where the application wants them.
//!
//! Answers are cut to the room there is, down to the length the structure had when it was introduced.
//!
//! `unsafe` here: writing where the application's response pointer says, and one union.

use core::net::SocketAddr;

use super::plain::{Plain, bytes_of, zeroed};
use super::sockaddr::{PKEY, SOCKADDR_IB_LEN, sockaddr, sockaddr_ib};
use super::{Reply, Shape};
use crate::abi::kern::{
    IB_PATH_BIDIRECTIONAL, IB_PATH_GMP, IB_PATH_PRIMARY, ib_path_rec_data, ib_user_path_rec, ib_uverbs_ah_attr,
    ib_uverbs_qp_attr,
};
use crate::abi::rdma_ucm::*;
use crate::cm::core::command::{Response, RouteInfo};
use crate::cm::core::event::{Event, Param};
use crate::cm::core::path::{AddressHandle, PathRecord, gid};
use crate::cm::core::qp_attr::QpAttributes;
use crate::cm::core::{Device, Errno};

/// "Exactly": selector of path record members.
const EXACTLY: u8 = 2;

/// `rdma_ucm_query_path_resp` with room for its one path.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PathsResponse {
    num_paths: u32,
    reserved: u32,
    path: ib_path_rec_data,
}

impl Reply {
    pub(super) const fn new(address: u64, room: u16, shape: Shape) -> Self {
        Self {
            address,
            room: room as usize,
            shape,
        }
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
        (Shape::EventsReported, Response::EventsReported(count)) => reply.put(&rdma_ucm_destroy_id_resp {
            events_reported: *count,
        }),
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
    out.ece = rdma_ucm_ece {
        vendor_id: event.ece.vendor_id,
        attr_mod: event.ece.attr_mod,
    };
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
        let service_id =
            |addr: Option<SocketAddr>| u64::from(info.space.0) << 16 | u64::from(addr.map_or(0, |addr| addr.port()));
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
