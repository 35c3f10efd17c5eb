//! The datagram that asks "who sits at index i of this address's socket group?".
//!
//! It goes to (address, 4791) like a RoCEv2 packet, but its first byte 0xFF is no BTH opcode, so a device that does not
//! know it drops it. [`super::filter`] sends it to the index it names; who receives it answers over the slot sockets.

const MAGIC: [u8; 7] = *b"\xffADVERB";
const VERSION: u8 = 1;

/// Length of a probe.
pub const PROBE_LEN: usize = 12;

/// Whether a UDP payload is a probe and no RoCEv2 packet.
pub fn is_probe(payload: &[u8]) -> bool {
    payload.starts_with(&MAGIC)
}

/// Offset of the index, read by the filter.
pub(super) const INDEX_OFFSET: u32 = 8;
/// The first two 32-bit words of every probe, read by the filter.
pub(super) const WORDS: [u32; 2] = [
    u32::from_be_bytes([MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3]]),
    u32::from_be_bytes([MAGIC[4], MAGIC[5], MAGIC[6], VERSION]),
];

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Index of the group it goes to.
    pub index: u8,
    /// Slot of the process that asks.
    pub prober: u8,
    /// Tells the rounds of one prober apart.
    pub round: u16,
}

impl Probe {
    /// The datagram.
    pub fn emit(&self) -> [u8; PROBE_LEN] {
        let mut out = [0; PROBE_LEN];
        out[..7].copy_from_slice(&MAGIC);
        out[7] = VERSION;
        out[8] = self.index;
        out[9] = self.prober;
        out[10..].copy_from_slice(&self.round.to_le_bytes());
        out
    }

    /// Reads a datagram; `None` when it is no probe.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let [head @ .., index, prober, round0, round1] = datagram else {
            return None;
        };
        let expected = [
            MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], MAGIC[4], MAGIC[5], MAGIC[6], VERSION,
        ];
        (head == expected && *prober != 0).then_some(Self {
            index: *index,
            prober: *prober,
            round: u16::from_le_bytes([*round0, *round1]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let probe = Probe {
            index: 3,
            prober: 200,
            round: 0x1234,
        };
        let wire = probe.emit();
        assert_eq!(Probe::parse(&wire), Some(probe));
        assert_eq!(Probe::parse(&wire[..11]), None);
        assert_eq!(Probe::parse(&[wire.as_slice(), &[0]].concat()), None);
        assert_eq!(Probe::parse(&Probe { prober: 0, ..probe }.emit()), None);
        for byte in 0..8 {
            let mut bad = wire;
            bad[byte] ^= 1;
            assert_eq!(Probe::parse(&bad), None);
        }
    }
}
