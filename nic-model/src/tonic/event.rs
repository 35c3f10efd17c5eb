//! What arrives at a flow: the control signals of tonic.md §1.1.

use super::SegNo;
use crate::time::Duration;

/// A signal from the peer (or from the device on the peer's behalf).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming {
    /// Every segment below `cum` has arrived.
    Ack {
        /// First segment the peer still expects.
        cum: SegNo,
    },
    /// As [`Ack`](Self::Ack), and segment `seg` has arrived out of order.
    Sack {
        /// First segment the peer still expects.
        cum: SegNo,
        /// A segment that arrived.
        seg: SegNo,
        /// Transmission id the segment carried: its number of earlier transmissions, saturating at 3.
        tx_id: u8,
    },
    /// Go-back-N refusal: everything below `cum` has arrived, something after a gap was discarded.
    Nack {
        /// First segment the peer still expects.
        cum: SegNo,
    },
    /// Refusal of one segment, for instance because a switch trimmed its payload.
    NackSegment {
        /// First segment the peer still expects.
        cum: SegNo,
        /// The segment whose payload did not arrive.
        seg: SegNo,
    },
    /// Resend from here, without a sign of congestion: receiver not ready, or a loss the requester inferred.
    Rewind {
        /// First segment to send again.
        from: SegNo,
    },
    /// Congestion notification packet.
    Cnp,
    /// As [`Ack`](Self::Ack), with the number of arrivals that carried a congestion mark.
    EcnEcho {
        /// First segment the peer still expects.
        cum: SegNo,
        /// Segments that arrived since the last echo.
        received: u16,
        /// How many of them were marked.
        marked: u16,
    },
    /// As [`Ack`](Self::Ack), with the delay measured by an echoed time stamp.
    Delay {
        /// First segment the peer still expects.
        cum: SegNo,
        /// Round trip, or the part of it the program cares for.
        delay: Duration,
    },
    /// Grant tokens: the counter is cumulative, so a lost pull is made good by the next.
    Pull {
        /// Tokens granted since the flow began.
        counter: u64,
    },
    /// The peer is alive and working on the oldest segment (a READ response is streaming): no segment is
    /// acknowledged, but the retransmission timer starts again.
    Progress,
}

impl Incoming {
    /// The cumulative acknowledgement it carries.
    #[inline]
    pub const fn cumulative(&self) -> Option<SegNo> {
        match *self {
            Self::Ack { cum }
            | Self::Sack { cum, .. }
            | Self::Nack { cum }
            | Self::NackSegment { cum, .. }
            | Self::EcnEcho { cum, .. }
            | Self::Delay { cum, .. } => Some(cum),
            Self::Rewind { .. } | Self::Cnp | Self::Pull { .. } | Self::Progress => None,
        }
    }
}
