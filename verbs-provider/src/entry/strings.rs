//! Names of statuses, states and events, in rdma-core's words: scripts match on them.

use std::ffi::{CStr, c_char};

use crate::abi::verbs::{ibv_event_type, ibv_node_type, ibv_port_state, ibv_wc_status};

const UNKNOWN: &CStr = c"unknown";

/// Indexed by `ibv_wc_status`.
const WC_STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// Indexed by `ibv_node_type`; there is no type 0.
const NODE_TYPE: [&CStr; 8] = [
    UNKNOWN,
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// Indexed by `ibv_port_state`.
const PORT_STATE: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

/// Indexed by `ibv_event_type`.
const EVENT_TYPE: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

fn lookup(names: &[&'static CStr], index: Option<usize>) -> *const c_char {
    index.and_then(|index| names.get(index)).unwrap_or(&UNKNOWN).as_ptr()
}

/// Describes a completion status.
pub extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    lookup(&WC_STATUS, usize::try_from(status).ok())
}

/// Describes a node type.
pub extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    lookup(&NODE_TYPE, usize::try_from(node_type).ok())
}

/// Describes a port state.
pub extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    lookup(&PORT_STATE, usize::try_from(port_state).ok())
}

/// Describes an asynchronous event.
pub extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    lookup(&EVENT_TYPE, usize::try_from(event).ok())
}
