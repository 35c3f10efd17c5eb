//! Counters of one function, with the names of Soft-RoCE's `hw_counters` where it has them.

use serde::Serialize;

/// Event counts since the function was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each name says what is counted")]
pub struct Counters {
    pub sent_pkts: u64,
    pub rcvd_pkts: u64,
    pub sent_bytes: u64,
    pub rcvd_bytes: u64,
    pub duplicate_request: u64,
    pub out_of_seq_request: u64,
    pub rcvd_rnr_err: u64,
    pub send_rnr_err: u64,
    pub rcvd_seq_err: u64,
    pub ack_deferred: u64,
    pub retry_exceeded_err: u64,
    pub retry_rnr_exceeded_err: u64,
    pub completer_retry_err: u64,
    pub send_err: u64,
    pub retransmitted_pkts: u64,
    pub ack_timeouts: u64,
    pub rdma_sends: u64,
    pub rdma_recvs: u64,
    pub doorbells: u64,
    pub wqes_fetched: u64,
    pub cqes_written: u64,
    pub acks_sent: u64,
    pub cnp_sent: u64,
    pub cnp_handled: u64,
    pub ecn_marked_pkts: u64,
    pub icrc_errors: u64,
    pub malformed_pkts: u64,
    pub wrong_qpn_pkts: u64,
    pub wrong_peer_pkts: u64,
    pub wrong_state_pkts: u64,
    pub remote_access_err: u64,
    pub remote_invalid_req_err: u64,
    pub ud_dropped_pkts: u64,
    pub cq_overruns: u64,
    pub backpressure_stalls: u64,
}
