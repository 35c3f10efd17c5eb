//! The C structures of the `rdma_cm` device, to and from the core's types.
//!
//! A command is `rdma_ucm_cmd_hdr` and one structure, in which the application names the place for the answer. Short
//! structures are those of older libraries: what is missing reads as zero. This file decodes, [`answer`](mod@answer) encodes.
//!
//! `unsafe` here: reading an option's value where the application's pointer says.

mod answer;
mod plain;
mod sockaddr;

pub(crate) use answer::{answer, answer_event, check_room};

use plain::{bytes_of, decode};
use sockaddr::{address, optional_address};

use super::core::Errno;
use super::core::command::{Command, ConnParam, Ece, FileId, IdOption, PortSpace};
use crate::abi::rdma_ucm::*;

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
            let command = Command::CreateId {
                uid: c.uid,
                space: PortSpace(c.ps),
                qp_type: c.qp_type,
            };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_DESTROY_ID => {
            let c: rdma_ucm_destroy_id = decode(body);
            Request::Command(
                Command::DestroyId { id: c.id },
                reply(c.response, Shape::EventsReported),
            )
        }
        RDMA_USER_CM_CMD_BIND_IP => {
            let c: rdma_ucm_bind_ip = decode(body);
            Request::Command(
                Command::Bind {
                    id: c.id,
                    addr: address(bytes_of(&c.addr))?,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_BIND => {
            let c: rdma_ucm_bind = decode(body);
            Request::Command(
                Command::Bind {
                    id: c.id,
                    addr: address(bytes_of(&c.addr))?,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_RESOLVE_IP => {
            let c: rdma_ucm_resolve_ip = decode(body);
            let src = optional_address(bytes_of(&c.src_addr))?;
            Request::Command(
                Command::ResolveAddr {
                    id: c.id,
                    src,
                    dst: address(bytes_of(&c.dst_addr))?,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_RESOLVE_ADDR => {
            let c: rdma_ucm_resolve_addr = decode(body);
            let src = if c.src_size == 0 {
                None
            } else {
                optional_address(bytes_of(&c.src_addr))?
            };
            Request::Command(
                Command::ResolveAddr {
                    id: c.id,
                    src,
                    dst: address(bytes_of(&c.dst_addr))?,
                },
                none,
            )
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
            let command = Command::Connect {
                id: c.id,
                param: conn_param(&c.conn_param),
                ece: ece(c.ece),
            };
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
            Request::Command(
                Command::Accept {
                    id: c.id,
                    uid: c.uid,
                    param,
                    ece: ece(c.ece),
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_REJECT => {
            let c: rdma_ucm_reject = decode(body);
            let private_data = c.private_data[..usize::from(c.private_data_len)].to_vec();
            Request::Command(
                Command::Reject {
                    id: c.id,
                    reason: c.reason,
                    private_data,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_DISCONNECT => {
            let c: rdma_ucm_disconnect = decode(body);
            Request::Command(Command::Disconnect { id: c.id }, none)
        }
        RDMA_USER_CM_CMD_INIT_QP_ATTR => {
            let c: rdma_ucm_init_qp_attr = decode(body);
            let command = Command::InitQpAttr {
                id: c.id,
                qp_state: c.qp_state,
            };
            Request::Command(command, reply(c.response, Shape::QpAttributes))
        }
        RDMA_USER_CM_CMD_GET_EVENT => {
            let c: rdma_ucm_get_event = decode(body);
            Request::NextEvent(reply(c.response, Shape::Event))
        }
        RDMA_USER_CM_CMD_SET_OPTION => {
            let c: rdma_ucm_set_option = decode(body);
            Request::Command(
                Command::SetOption {
                    id: c.id,
                    option: option(&c)?,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_NOTIFY => {
            let c: rdma_ucm_notify = decode(body);
            Request::Command(
                Command::Notify {
                    id: c.id,
                    event: c.event,
                },
                none,
            )
        }
        RDMA_USER_CM_CMD_JOIN_IP_MCAST => {
            let c: rdma_ucm_join_ip_mcast = decode(body);
            let command = Command::JoinMulticast {
                id: c.id,
                uid: c.uid,
                group: address(bytes_of(&c.addr))?,
            };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_JOIN_MCAST => {
            let c: rdma_ucm_join_mcast = decode(body);
            if u32::from(c.join_flags) >= RDMA_MC_JOIN_FLAG_RESERVED {
                return Err(libc::EINVAL);
            }
            let command = Command::JoinMulticast {
                id: c.id,
                uid: c.uid,
                group: address(bytes_of(&c.addr))?,
            };
            Request::Command(command, reply(c.response, Shape::Id))
        }
        RDMA_USER_CM_CMD_LEAVE_MCAST => {
            let c: rdma_ucm_destroy_id = decode(body);
            Request::Command(
                Command::LeaveMulticast { group: c.id },
                reply(c.response, Shape::EventsReported),
            )
        }
        RDMA_USER_CM_CMD_MIGRATE_ID => {
            let c: rdma_ucm_migrate_id = decode(body);
            let from = i32::try_from(c.fd).ok().and_then(file_of).ok_or(libc::ENOENT)?;
            Request::Command(
                Command::MigrateId { id: c.id, from },
                reply(c.response, Shape::EventsReported),
            )
        }
        RDMA_USER_CM_CMD_GET_OPTION => return Err(libc::ENOSYS),
        _ => return Err(libc::EINVAL),
    })
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
    Ece {
        vendor_id: c.vendor_id,
        attr_mod: c.attr_mod,
    }
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
