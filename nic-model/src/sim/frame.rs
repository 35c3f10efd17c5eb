//! One packet on a cable: addressing, and the bytes from BTH to ICRC.

use crate::frame::{Path, RxMeta, TxBatch};
use core::net::IpAddr;
use roce_wire::icrc::{BadIcrc, IcrcContext};

/// UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Preamble, Ethernet header, FCS and inter-frame gap.
const ETHERNET_OVERHEAD: usize = 8 + 14 + 4 + 12;
const UDP_HEADER: usize = 8;
/// ECN field of the traffic class (RFC 3168).
const ECN_MASK: u8 = 3;

/// A sealed packet.
///
/// Its IPv4 identification is 0, as that of an unfragmented packet may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimFrame {
    /// Addressing.
    pub path: Path,
    /// BTH … ICRC.
    pub bytes: Vec<u8>,
}

impl SimFrame {
    /// The packets of a batch, each with its ICRC.
    pub fn seal_all(batch: &TxBatch) -> impl Iterator<Item = Self> + '_ {
        let context = context(&batch.path);
        batch.segments().map(move |segment| {
            let mut bytes = segment.to_vec();
            let length = bytes.len();
            context.seal(0, length, &mut bytes);
            Self {
                path: batch.path,
                bytes,
            }
        })
    }

    /// What the NIC at the far end sees, if the ICRC is right.
    ///
    /// # Errors
    /// [`BadIcrc`] for a damaged packet.
    pub fn open(&self) -> Result<(RxMeta, &[u8]), BadIcrc> {
        let path = &self.path;
        context(path).verify(0, &self.bytes)?;
        let meta = RxMeta {
            src: path.src,
            dst: path.dst,
            sport: path.sport,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
        };
        Ok((meta, &self.bytes))
    }

    /// Bytes of line time it takes, Ethernet framing included.
    pub fn wire_len(&self) -> usize {
        let ip = match self.path.dst {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        };
        ETHERNET_OVERHEAD + ip + UDP_HEADER + self.bytes.len()
    }

    /// Mark Congestion Experienced if the sender declared itself capable; returns whether it did.
    pub fn mark_congestion(&mut self) -> bool {
        let capable = self.path.traffic_class & ECN_MASK != 0;
        if capable {
            self.path.traffic_class |= ECN_MASK;
        }
        capable
    }
}

fn context(path: &Path) -> IcrcContext {
    IcrcContext::new(path.src, path.dst, path.sport, ROCE_PORT)
}
