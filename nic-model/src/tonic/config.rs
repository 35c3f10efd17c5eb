//! Configuration and statistics of the engines.

use super::SegNo;
use super::program::{Program, programs};
use super::{FlowId, bitmap};
use crate::time::Duration;

/// Largest window in segments.
pub const MAX_WINDOW: u16 = 1_024;
const _: () = assert!(MAX_WINDOW as u64 == bitmap::RING_BITS);

/// Configuration of the engines of one NIC.
#[derive(Clone, Debug)]
pub struct TonicConfig {
    /// N, the most segment addresses a flow may have between the engines; bounds a burst.
    pub ring: u16,
    /// A rate-limited flow saves credit for a burst that lasts this long (and is no longer than its quantum). Zero:
    /// each segment leaves as soon as it is paid for.
    pub pacing_burst: Duration,
    /// Credit that a waiting flow goes on earning when it is polled late.
    pub lateness: Duration,
    /// Flows that may recover from loss at once before the engines allocate more state for them.
    pub recovering: usize,
}

impl Default for TonicConfig {
    fn default() -> Self {
        Self {
            ring: 128,
            pacing_burst: Duration::from_micros(20),
            lateness: Duration::from_micros(50),
            recovering: 256,
        }
    }
}

/// Configuration of one flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowConfig {
    /// The transport.
    pub program: &'static dyn Program,
    /// Payload of a full segment, the path MTU.
    pub segment_size: u32,
    /// Line rate in bits a second, 0 for unknown: what is not limited by congestion is not limited.
    pub line_rate_bps: u64,
    /// Largest window in segments, clamped to 1..=[`MAX_WINDOW`].
    pub window: u16,
    /// Local ACK timeout, `None` for never.
    pub timeout: Option<Duration>,
    /// False for a flow nobody acknowledges (READ responses): a segment counts as acknowledged once transmitted.
    pub reliable: bool,
    /// Most segments of one turn, clamped to 1..=[`TonicConfig::ring`]. 1 is the paper's round robin by segment.
    pub quantum: u16,
    /// Try the oldest un-acknowledged segment again after `max(8 × smoothed RTT, 1 ms)` without progress (2 ms before
    /// the first round trip was measured; rounded up to few lengths, at most half longer), then each time that wait has
    /// doubled, until the ACK timeout ends. Probes are not reported as timeouts and consume no retry. They make lossy
    /// links usable although ACK timeouts of verbs are tens of milliseconds and more.
    pub early_retransmit: bool,
}

impl Default for FlowConfig {
    /// A reliable flow of the default program with a window of 512 segments of 1,024 bytes.
    fn default() -> Self {
        Self {
            program: programs()[0],
            segment_size: 1_024,
            line_rate_bps: 0,
            window: 512,
            timeout: None,
            reliable: true,
            quantum: 64,
            early_retransmit: true,
        }
    }
}

/// Neighbouring segments of one flow that leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The flow.
    pub flow: FlowId,
    /// First segment.
    pub first: SegNo,
    /// Number of segments, at least 1 and at most the flow's quantum.
    pub count: u16,
    /// Whether they were sent before.
    pub retransmission: bool,
    /// Transmission id of all of them: number of earlier transmissions, saturating at 3.
    pub transmission: u8,
}

/// A flow at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Window in segments.
    pub window: u16,
    /// Rate limit in bits a second, 0 for none.
    pub rate_bps: u64,
    /// First un-acknowledged segment.
    pub una: SegNo,
    /// Next segment to be generated for the first time.
    pub next_new: SegNo,
    /// One past the highest segment sent.
    pub sent_end: SegNo,
    /// Segments generated and not sent yet.
    pub outstanding: u16,
    /// Segments marked as lost and not generated again yet.
    pub marked: u16,
    /// Transmissions, retransmissions included.
    pub total_sent: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Smoothed round trip, if one was measured.
    pub smoothed_rtt: Option<Duration>,
}
