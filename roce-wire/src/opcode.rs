//! BTH opcodes in one table: service, operation, place in the message, headers, payload
//! (InfiniBand specification, 9.2 and A14 for XRC, A17 for the RoCEv2 congestion notification packet).
//!
//! The rows below are the only statement of these facts. Parser, packetizer, requester and responder look up
//! [`Opcode::info`].

use bitflags::bitflags;

bitflags! {
    /// Extension headers that follow the BTH, lowest bit first on the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct HeaderSet: u8 {
        /// Datagram extended transport header.
        const DETH = 1 << 0;
        /// XRC extended transport header.
        const XRCETH = 1 << 1;
        /// RDMA extended transport header.
        const RETH = 1 << 2;
        /// Atomic extended transport header.
        const ATOMIC = 1 << 3;
        /// ACK extended transport header.
        const AETH = 1 << 4;
        /// Atomic ACK extended transport header.
        const ATOMIC_ACK = 1 << 5;
        /// Immediate data.
        const IMM = 1 << 6;
        /// Invalidate extended transport header.
        const IETH = 1 << 7;
    }
}

impl HeaderSet {
    /// Bytes these headers take on the wire.
    pub const fn wire_len(self) -> usize {
        const LENGTHS: [usize; 8] = [8, 4, 16, 28, 4, 8, 4, 4];
        let mut total = 0;
        let mut bit = 0;
        while bit < LENGTHS.len() {
            if self.bits() & (1 << bit) != 0 {
                total += LENGTHS[bit];
            }
            bit += 1;
        }
        total
    }
}

/// Transport service of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// RoCEv2 congestion notification, of no service.
    Cnp,
}

/// Operation of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND, with or without immediate or invalidate.
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge, positive or negative.
    Ack,
    /// Acknowledge of an atomic, with the original value.
    AtomicAck,
    /// Compare-and-swap request.
    CmpSwap,
    /// Fetch-and-add request.
    FetchAdd,
    /// Congestion notification.
    Cnp,
}

impl Kind {
    /// Whether a responder handles it.
    #[inline]
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Send | Self::Write | Self::ReadRequest | Self::CmpSwap | Self::FetchAdd
        )
    }

    /// Whether a requester handles it.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::Ack | Self::AtomicAck)
    }

    /// Whether it is an atomic request.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FetchAdd)
    }
}

/// Place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Place {
    /// Whether a message begins with it.
    #[inline]
    pub const fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with it.
    #[inline]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What an opcode means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The opcode described.
    pub opcode: Opcode,
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub kind: Kind,
    /// Place in the message.
    pub place: Place,
    /// Extension headers.
    pub headers: HeaderSet,
    /// Whether payload may follow the headers.
    pub payload: bool,
    /// Bytes of BTH and extension headers.
    pub header_len: u8,
}

macro_rules! opcodes {
    ($($name:ident = $value:literal, $service:ident $kind:ident $place:ident [$($header:ident)*] $payload:literal, $doc:literal;)*) => {
        /// BTH opcode.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Opcode {
            $(#[doc = $doc] $name = $value,)*
        }

        static ROWS: &[OpcodeInfo] = &[
            $(row(
                Opcode::$name,
                Service::$service,
                Kind::$kind,
                Place::$place,
                HeaderSet::empty()$(.union(HeaderSet::$header))*,
                $payload,
            ),)*
        ];
    };
}

opcodes! {
    RcSendFirst = 0x00, Rc Send First [] true, "RC SEND first";
    RcSendMiddle = 0x01, Rc Send Middle [] true, "RC SEND middle";
    RcSendLast = 0x02, Rc Send Last [] true, "RC SEND last";
    RcSendLastImm = 0x03, Rc Send Last [IMM] true, "RC SEND last with immediate";
    RcSendOnly = 0x04, Rc Send Only [] true, "RC SEND only";
    RcSendOnlyImm = 0x05, Rc Send Only [IMM] true, "RC SEND only with immediate";
    RcWriteFirst = 0x06, Rc Write First [RETH] true, "RC RDMA WRITE first";
    RcWriteMiddle = 0x07, Rc Write Middle [] true, "RC RDMA WRITE middle";
    RcWriteLast = 0x08, Rc Write Last [] true, "RC RDMA WRITE last";
    RcWriteLastImm = 0x09, Rc Write Last [IMM] true, "RC RDMA WRITE last with immediate";
    RcWriteOnly = 0x0a, Rc Write Only [RETH] true, "RC RDMA WRITE only";
    RcWriteOnlyImm = 0x0b, Rc Write Only [RETH IMM] true, "RC RDMA WRITE only with immediate";
    RcReadRequest = 0x0c, Rc ReadRequest Only [RETH] false, "RC RDMA READ request";
    RcReadResponseFirst = 0x0d, Rc ReadResponse First [AETH] true, "RC RDMA READ response first";
    RcReadResponseMiddle = 0x0e, Rc ReadResponse Middle [] true, "RC RDMA READ response middle";
    RcReadResponseLast = 0x0f, Rc ReadResponse Last [AETH] true, "RC RDMA READ response last";
    RcReadResponseOnly = 0x10, Rc ReadResponse Only [AETH] true, "RC RDMA READ response only";
    RcAck = 0x11, Rc Ack Only [AETH] false, "RC acknowledge";
    RcAtomicAck = 0x12, Rc AtomicAck Only [AETH ATOMIC_ACK] false, "RC atomic acknowledge";
    RcCmpSwap = 0x13, Rc CmpSwap Only [ATOMIC] false, "RC compare-and-swap";
    RcFetchAdd = 0x14, Rc FetchAdd Only [ATOMIC] false, "RC fetch-and-add";
    RcSendLastInv = 0x16, Rc Send Last [IETH] true, "RC SEND last with invalidate";
    RcSendOnlyInv = 0x17, Rc Send Only [IETH] true, "RC SEND only with invalidate";

    UcSendFirst = 0x20, Uc Send First [] true, "UC SEND first";
    UcSendMiddle = 0x21, Uc Send Middle [] true, "UC SEND middle";
    UcSendLast = 0x22, Uc Send Last [] true, "UC SEND last";
    UcSendLastImm = 0x23, Uc Send Last [IMM] true, "UC SEND last with immediate";
    UcSendOnly = 0x24, Uc Send Only [] true, "UC SEND only";
    UcSendOnlyImm = 0x25, Uc Send Only [IMM] true, "UC SEND only with immediate";
    UcWriteFirst = 0x26, Uc Write First [RETH] true, "UC RDMA WRITE first";
    UcWriteMiddle = 0x27, Uc Write Middle [] true, "UC RDMA WRITE middle";
    UcWriteLast = 0x28, Uc Write Last [] true, "UC RDMA WRITE last";
    UcWriteLastImm = 0x29, Uc Write Last [IMM] true, "UC RDMA WRITE last with immediate";
    UcWriteOnly = 0x2a, Uc Write Only [RETH] true, "UC RDMA WRITE only";
    UcWriteOnlyImm = 0x2b, Uc Write Only [RETH IMM] true, "UC RDMA WRITE only with immediate";

    UdSendOnly = 0x64, Ud Send Only [DETH] true, "UD SEND only";
    UdSendOnlyImm = 0x65, Ud Send Only [DETH IMM] true, "UD SEND only with immediate";

    Cnp = 0x81, Cnp Cnp Only [] true, "RoCEv2 congestion notification; 16 reserved bytes follow the BTH";

    XrcSendFirst = 0xa0, Xrc Send First [XRCETH] true, "XRC SEND first";
    XrcSendMiddle = 0xa1, Xrc Send Middle [XRCETH] true, "XRC SEND middle";
    XrcSendLast = 0xa2, Xrc Send Last [XRCETH] true, "XRC SEND last";
    XrcSendLastImm = 0xa3, Xrc Send Last [XRCETH IMM] true, "XRC SEND last with immediate";
    XrcSendOnly = 0xa4, Xrc Send Only [XRCETH] true, "XRC SEND only";
    XrcSendOnlyImm = 0xa5, Xrc Send Only [XRCETH IMM] true, "XRC SEND only with immediate";
    XrcWriteFirst = 0xa6, Xrc Write First [XRCETH RETH] true, "XRC RDMA WRITE first";
    XrcWriteMiddle = 0xa7, Xrc Write Middle [XRCETH] true, "XRC RDMA WRITE middle";
    XrcWriteLast = 0xa8, Xrc Write Last [XRCETH] true, "XRC RDMA WRITE last";
    XrcWriteLastImm = 0xa9, Xrc Write Last [XRCETH IMM] true, "XRC RDMA WRITE last with immediate";
    XrcWriteOnly = 0xaa, Xrc Write Only [XRCETH RETH] true, "XRC RDMA WRITE only";
    XrcWriteOnlyImm = 0xab, Xrc Write Only [XRCETH RETH IMM] true, "XRC RDMA WRITE only with immediate";
    XrcReadRequest = 0xac, Xrc ReadRequest Only [XRCETH RETH] false, "XRC RDMA READ request";
    XrcReadResponseFirst = 0xad, Xrc ReadResponse First [AETH] true, "XRC RDMA READ response first";
    XrcReadResponseMiddle = 0xae, Xrc ReadResponse Middle [] true, "XRC RDMA READ response middle";
    XrcReadResponseLast = 0xaf, Xrc ReadResponse Last [AETH] true, "XRC RDMA READ response last";
    XrcReadResponseOnly = 0xb0, Xrc ReadResponse Only [AETH] true, "XRC RDMA READ response only";
    XrcAck = 0xb1, Xrc Ack Only [AETH] false, "XRC acknowledge";
    XrcAtomicAck = 0xb2, Xrc AtomicAck Only [AETH ATOMIC_ACK] false, "XRC atomic acknowledge";
    XrcCmpSwap = 0xb3, Xrc CmpSwap Only [XRCETH ATOMIC] false, "XRC compare-and-swap";
    XrcFetchAdd = 0xb4, Xrc FetchAdd Only [XRCETH ATOMIC] false, "XRC fetch-and-add";
    XrcSendLastInv = 0xb6, Xrc Send Last [XRCETH IETH] true, "XRC SEND last with invalidate";
    XrcSendOnlyInv = 0xb7, Xrc Send Only [XRCETH IETH] true, "XRC SEND only with invalidate";
}

const fn row(
    opcode: Opcode,
    service: Service,
    kind: Kind,
    place: Place,
    headers: HeaderSet,
    payload: bool,
) -> OpcodeInfo {
    let [header_len, ..] = (crate::bth::Bth::LEN + headers.wire_len()).to_le_bytes();
    OpcodeInfo {
        opcode,
        service,
        kind,
        place,
        headers,
        payload,
        header_len,
    }
}

const UNKNOWN: u8 = u8::MAX;

/// Row of each opcode value, [`UNKNOWN`] for values that are none.
static ROW_OF: [u8; 256] = {
    let mut rows = [UNKNOWN; 256];
    let mut row: u8 = 0;
    while (row as usize) < ROWS.len() {
        rows[ROWS[row as usize].opcode as usize] = row;
        row += 1;
    }
    rows
};

impl Opcode {
    /// The opcode of this value.
    #[inline]
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::info_of(value).map(|info| info.opcode)
    }

    /// Value on the wire.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Its row in the table.
    #[inline]
    pub fn info(self) -> &'static OpcodeInfo {
        &ROWS[usize::from(ROW_OF[usize::from(self as u8)])]
    }

    /// Row of the opcode of this value.
    #[inline]
    pub fn info_of(value: u8) -> Option<&'static OpcodeInfo> {
        ROWS.get(usize::from(ROW_OF[usize::from(value)]))
    }

    /// Every opcode, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|info| info.opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_round_trips_or_is_none() {
        let known = (0..=u8::MAX).filter_map(Opcode::from_u8).count();
        assert_eq!(known, ROWS.len());
        for opcode in Opcode::all() {
            assert_eq!(Opcode::from_u8(opcode.to_u8()), Some(opcode));
            assert_eq!(opcode.info().opcode, opcode);
        }
    }

    #[test]
    fn xrc_mirrors_rc_with_an_xrceth_on_requests() {
        for rc in Opcode::all()
            .map(Opcode::info)
            .filter(|info| info.service == Service::Rc)
        {
            let xrc = Opcode::info_of(rc.opcode.to_u8() | 0xa0).expect("same low bits");
            let added = if rc.kind.is_request() {
                HeaderSet::XRCETH
            } else {
                HeaderSet::empty()
            };
            assert_eq!((xrc.kind, xrc.place, xrc.payload), (rc.kind, rc.place, rc.payload));
            assert_eq!(xrc.headers, rc.headers.union(added));
        }
    }

    #[test]
    fn uc_mirrors_the_first_twelve_of_rc() {
        for value in 0..12 {
            let (rc, uc) = (
                Opcode::info_of(value).expect("RC"),
                Opcode::info_of(value | 0x20).expect("UC"),
            );
            assert_eq!((uc.kind, uc.place, uc.headers), (rc.kind, rc.place, rc.headers));
        }
    }
}
