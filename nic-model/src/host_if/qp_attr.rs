//! QP attributes, states and address vectors as the command queue carries them.
//!
//! Numeric values are those of the verbs (`enum ibv_qp_state`, `ibv_qp_type`, `ibv_qp_attr_mask`), so that the driver
//! half converts by copying.

use bitflags::bitflags;

/// A 128-bit port address. RoCEv2 over IPv4 uses the IPv4-mapped form `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address the GID stands for.
    pub fn to_ip(self) -> core::net::IpAddr {
        let v6 = core::net::Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped()
            .map_or(core::net::IpAddr::V6(v6), core::net::IpAddr::V4)
    }

    /// The GID of an IP address.
    pub fn from_ip(ip: core::net::IpAddr) -> Self {
        match ip {
            core::net::IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            core::net::IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// Whether the entry is empty.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

/// QP state (IBTA 10.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Newly created or reset.
    #[default]
    Reset = 0,
    /// Initialised: receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained or draining.
    Sqd = 4,
    /// Send queue error (UD and UC only).
    Sqe = 5,
    /// Error.
    Err = 6,
}

impl QpState {
    /// The state of that value.
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => return None,
        })
    }
}

/// Transport service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpType {
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
}

bitflags! {
    /// Which attributes a MODIFY_QP command carries; the bits are those of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// `IBV_QP_STATE`.
        const STATE = 1;
        /// `IBV_QP_CUR_STATE`.
        const CUR_STATE = 1 << 1;
        /// `IBV_QP_EN_SQD_ASYNC_NOTIFY`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `IBV_QP_ACCESS_FLAGS`.
        const ACCESS_FLAGS = 1 << 3;
        /// `IBV_QP_PKEY_INDEX`.
        const PKEY_INDEX = 1 << 4;
        /// `IBV_QP_PORT`.
        const PORT = 1 << 5;
        /// `IBV_QP_QKEY`.
        const QKEY = 1 << 6;
        /// `IBV_QP_AV`.
        const AV = 1 << 7;
        /// `IBV_QP_PATH_MTU`.
        const PATH_MTU = 1 << 8;
        /// `IBV_QP_TIMEOUT`.
        const TIMEOUT = 1 << 9;
        /// `IBV_QP_RETRY_CNT`.
        const RETRY_CNT = 1 << 10;
        /// `IBV_QP_RNR_RETRY`.
        const RNR_RETRY = 1 << 11;
        /// `IBV_QP_RQ_PSN`.
        const RQ_PSN = 1 << 12;
        /// `IBV_QP_MAX_QP_RD_ATOMIC`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `IBV_QP_ALT_PATH`.
        const ALT_PATH = 1 << 14;
        /// `IBV_QP_MIN_RNR_TIMER`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `IBV_QP_SQ_PSN`.
        const SQ_PSN = 1 << 16;
        /// `IBV_QP_MAX_DEST_RD_ATOMIC`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `IBV_QP_PATH_MIG_STATE`.
        const PATH_MIG_STATE = 1 << 18;
        /// `IBV_QP_CAP`.
        const CAP = 1 << 19;
        /// `IBV_QP_DEST_QPN`.
        const DEST_QPN = 1 << 20;
        /// `IBV_QP_RATE_LIMIT`.
        const RATE_LIMIT = 1 << 25;
    }
}

bitflags! {
    /// Access rights of an MR or a QP; the bits are those of `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// `IBV_ACCESS_LOCAL_WRITE`.
        const LOCAL_WRITE = 1;
        /// `IBV_ACCESS_REMOTE_WRITE`.
        const REMOTE_WRITE = 1 << 1;
        /// `IBV_ACCESS_REMOTE_READ`.
        const REMOTE_READ = 1 << 2;
        /// `IBV_ACCESS_REMOTE_ATOMIC`.
        const REMOTE_ATOMIC = 1 << 3;
        /// `IBV_ACCESS_MW_BIND`.
        const MW_BIND = 1 << 4;
        /// `IBV_ACCESS_ZERO_BASED`.
        const ZERO_BASED = 1 << 5;
        /// `IBV_ACCESS_ON_DEMAND`.
        const ON_DEMAND = 1 << 6;
        /// `IBV_ACCESS_HUGETLB`.
        const HUGETLB = 1 << 7;
        /// `IBV_ACCESS_RELAXED_ORDERING`.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// Address vector: how to reach a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// Whether the GRH fields are given. On Ethernet they must be.
    pub is_global: bool,
    /// Peer GID.
    pub dgid: Gid,
    /// Own GID, an index into the port's table.
    pub sgid_index: u8,
    /// IPv6 flow label, 20 bits; also the source of UDP source-port entropy.
    pub flow_label: u32,
    /// IPv4 TTL or IPv6 hop limit; 0 is sent as 64.
    pub hop_limit: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate code.
    pub static_rate: u8,
    /// Source path bits.
    pub src_path_bits: u8,
    /// Destination LID, unused on Ethernet.
    pub dlid: u16,
    /// Port number, 1.
    pub port_num: u8,
}

/// QP attributes for MODIFY_QP and QUERY_QP, the fields of `struct ibv_qp_attr` less capacities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of struct ibv_qp_attr")]
pub struct QpAttr {
    pub qp_state: QpState,
    pub cur_qp_state: QpState,
    /// PMTU code: 1 = 256 … 5 = 4096 bytes.
    pub path_mtu: u8,
    pub path_mig_state: u8,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub access: Access,
    pub ah: AddressVector,
    pub pkey_index: u16,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code, 5 bits.
    pub min_rnr_timer: u8,
    pub port_num: u8,
    /// ACK timeout exponent: 4.096 µs · 2^timeout, 0 = never.
    pub timeout: u8,
    pub retry_cnt: u8,
    /// 7 = for ever.
    pub rnr_retry: u8,
    /// Kbit/s, 0 = unlimited.
    pub rate_limit: u32,
}
