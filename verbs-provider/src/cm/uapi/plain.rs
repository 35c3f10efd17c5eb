//! Structures as bytes and back.
//!
//! `unsafe` here: structures made from bytes and seen as bytes.

use super::answer::PathsResponse;
use crate::abi::kern::{ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr};
use crate::abi::rdma_ucm::*;

/// Structures of integers and byte arrays, for which all bit patterns are values.
///
/// # Safety
/// The type must be `repr(C)` and hold nothing but integers, arrays of them, unions of such, and such structures.
pub(super) unsafe trait Plain: Copy {}

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

pub(super) fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that all bit patterns, so also zeros, are values of T.
    unsafe { core::mem::zeroed() }
}

/// The structure at the front of `bytes`, zeros for what they lack.
pub(super) fn decode<T: Plain>(bytes: &[u8]) -> T {
    let mut value: T = zeroed();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: `len` bytes are readable in the slice and writable in `value`, which does not overlap it; `Plain` promises
    // that the result is a value.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), len) };
    value
}

pub(super) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the slice covers exactly the value, for as long as it is borrowed. Callers only pass structures without
    // padding or built from `zeroed`, so every byte is initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}
