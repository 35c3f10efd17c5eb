//! Commands and answers of the emulated `rdma_cm` device, decoded: what `cm::uapi` makes of the C structures.

use core::net::SocketAddr;

use super::environment::Device;
use super::path::PathRecord;
use super::qp_attr::QpAttributes;

/// An open `rdma_cm` file: an event channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// An RDMA port space (`enum rdma_ucm_port_space`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// Connections.
    pub const TCP: Self = Self(0x0106);
    /// Datagrams.
    pub const UDP: Self = Self(0x0111);
    /// Any QP type.
    pub const IB: Self = Self(0x013F);
    /// IP over InfiniBand datagrams.
    pub const IPOIB: Self = Self(0x0002);
}

/// `enum ibv_qp_type` values the connection manager tells apart.
pub mod qp_type {
    /// Reliable connection.
    pub const RC: u8 = 2;
    /// Unreliable connection.
    pub const UC: u8 = 3;
    /// Unreliable datagram.
    pub const UD: u8 = 4;
    /// XRC initiator.
    pub const XRC_SEND: u8 = 9;
    /// XRC target.
    pub const XRC_RECV: u8 = 10;
}

/// Connection parameters of CONNECT and ACCEPT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnParam {
    /// Own QP.
    pub qp_num: u32,
    /// Queue key of a datagram QP; 0 for the port space's default.
    pub qkey: u32,
    /// The application's bytes.
    pub private_data: Vec<u8>,
    /// Whether the QP has a shared receive queue.
    pub srq: bool,
    /// Reads and atomics this side serves at once.
    pub responder_resources: u8,
    /// Reads and atomics this side sends at once.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries the peer is to make.
    pub rnr_retry_count: u8,
}

/// Enhanced connection establishment options, passed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// Vendor of the options.
    pub vendor_id: u32,
    /// The options.
    pub attr_mod: u32,
}

/// One option of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOption {
    /// Type of service.
    TypeOfService(u8),
    /// Share the port.
    ReuseAddress(bool),
    /// IPv6 only.
    AddressFamilyOnly(bool),
    /// Local ACK timeout exponent.
    AckTimeout(u8),
}

/// A command. `id` is the handle CREATE_ID or a connection request gave out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members are those of the commands in rdma_user_cm.h")]
pub enum Command {
    CreateId {
        uid: u64,
        space: PortSpace,
        qp_type: u8,
    },
    DestroyId {
        id: u32,
    },
    Bind {
        id: u32,
        addr: SocketAddr,
    },
    ResolveAddr {
        id: u32,
        src: Option<SocketAddr>,
        dst: SocketAddr,
    },
    ResolveRoute {
        id: u32,
    },
    Query {
        id: u32,
    },
    Connect {
        id: u32,
        param: ConnParam,
        ece: Ece,
    },
    Listen {
        id: u32,
        backlog: u32,
    },
    Accept {
        id: u32,
        uid: u64,
        param: Option<ConnParam>,
        ece: Ece,
    },
    Reject {
        id: u32,
        reason: u8,
        private_data: Vec<u8>,
    },
    Disconnect {
        id: u32,
    },
    InitQpAttr {
        id: u32,
        qp_state: u32,
    },
    SetOption {
        id: u32,
        option: IdOption,
    },
    Notify {
        id: u32,
        event: u32,
    },
    JoinMulticast {
        id: u32,
        uid: u64,
        group: SocketAddr,
    },
    LeaveMulticast {
        group: u32,
    },
    MigrateId {
        id: u32,
        from: FileId,
    },
}

/// Everything QUERY and QUERY_ROUTE report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The device, once bound to one.
    pub device: Option<Device>,
    /// Own address.
    pub src: Option<SocketAddr>,
    /// Peer's address.
    pub dst: Option<SocketAddr>,
    /// The path, once resolved.
    pub path: Option<PathRecord>,
    /// The port space, for service ids.
    pub space: PortSpace,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Nothing to report.
    Done,
    /// A new handle.
    Id(u32),
    /// Events the application has taken for the object, which it must acknowledge before freeing it.
    EventsReported(u32),
    /// Addresses and path.
    Route(Box<RouteInfo>),
    /// Attributes for `ibv_modify_qp`.
    QpAttributes(Box<QpAttributes>),
}
