//! Limits of the device, as `ibv_query_device` reports them.

/// Device limits. One set per profile; [`DeviceCaps::default`] is the `adverb` profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// QPs one function can hold; indices are 16 bits and 0 is never used.
    pub max_qp: u32,
    /// CQs one function can hold.
    pub max_cq: u32,
    /// MRs one function can hold.
    pub max_mr: u32,
    /// PDs one function can hold.
    pub max_pd: u32,
    /// Address handles one function can hold.
    pub max_ah: u32,
    /// WQEs in one SQ or RQ.
    pub max_qp_wr: u32,
    /// Data segments in one WQE.
    pub max_sge: u32,
    /// Bytes of inline data in one send WQE.
    pub max_inline: u32,
    /// CQEs in one CQ.
    pub max_cqe: u32,
    /// READs and atomics one QP may have outstanding in either role.
    pub max_rd_atomic: u8,
    /// Longest message in bytes.
    pub max_msg_size: u32,
}

impl Default for DeviceCaps {
    fn default() -> Self {
        Self {
            max_qp: 65_535,
            max_cq: 65_535,
            max_mr: 1 << 20,
            max_pd: 1 << 16,
            max_ah: 1 << 16,
            max_qp_wr: 32_768,
            max_sge: 30,
            max_inline: 928,
            max_cqe: 4_194_303,
            max_rd_atomic: 16,
            max_msg_size: 1 << 31,
        }
    }
}
