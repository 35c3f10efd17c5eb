//! AETH syndromes, end-to-end credit codes and RNR timer codes (InfiniBand specification, 9.7.5.2).

use core::time::Duration;

/// Syndrome field of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Positive acknowledgement.
    Ack {
        /// Five-bit credit code, [`NO_CREDIT_LIMIT`] when the responder does not limit. See [`credit_count`].
        credits: u8,
    },
    /// Receiver not ready: retry after the timer.
    RnrNak {
        /// Five-bit timer code, see [`rnr_timer`].
        timer: u8,
    },
    /// Negative acknowledgement.
    Nak(NakCode),
    /// Any other byte.
    Reserved(u8),
}

/// Reason of a negative acknowledgement.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// PSN sequence error: packets are missing before this one.
    PsnSequence = 0,
    /// The request is malformed or not allowed on this QP.
    InvalidRequest = 1,
    /// The request touches memory it may not.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// Wrong reliable-datagram domain.
    InvalidRd = 4,
}

/// Credit code of a responder without end-to-end flow control.
pub const NO_CREDIT_LIMIT: u8 = 31;

impl Syndrome {
    /// Acknowledgement without a credit limit.
    pub const ACK: Self = Self::Ack {
        credits: NO_CREDIT_LIMIT,
    };

    /// From its byte.
    #[inline]
    pub const fn from_u8(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Self::Ack { credits: value },
            1 => Self::RnrNak { timer: value },
            3 => match value {
                0 => Self::Nak(NakCode::PsnSequence),
                1 => Self::Nak(NakCode::InvalidRequest),
                2 => Self::Nak(NakCode::RemoteAccess),
                3 => Self::Nak(NakCode::RemoteOperational),
                4 => Self::Nak(NakCode::InvalidRd),
                _ => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    /// As its byte.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 0x20 | (timer & 0x1f),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Time to wait for each RNR timer code, in units of 10 µs. Code 0 is the longest.
const RNR_TIMER_10_US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Time a requester waits after an RNR NAK with this five-bit timer code.
#[inline]
pub const fn rnr_timer(code: u8) -> Duration {
    Duration::from_micros(RNR_TIMER_10_US[(code & 0x1f) as usize] as u64 * 10)
}

/// Receive WQEs for each credit code: 0 to 4, then two steps a power of two.
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096,
    6_144, 8_192, 12_288, 16_384, 24_576, 32_768,
];

/// Receive WQEs that a credit code promises, `None` for no limit.
#[inline]
pub fn credit_count(code: u8) -> Option<u16> {
    CREDITS.get(usize::from(code & 0x1f)).copied()
}

/// Largest credit code that promises no more than `count` receive WQEs.
#[inline]
pub fn credit_code(count: u32) -> u8 {
    let above = CREDITS.partition_point(|&promised| u32::from(promised) <= count);
    let [code, ..] = above.saturating_sub(1).to_le_bytes();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_u8(byte).to_u8(), byte);
        }
        assert_eq!(Syndrome::from_u8(0x1f), Syndrome::ACK);
        assert_eq!(Syndrome::from_u8(0x60), Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(Syndrome::from_u8(0x2c), Syndrome::RnrNak { timer: 12 });
        assert_eq!(Syndrome::from_u8(0x65), Syndrome::Reserved(0x65));
    }

    #[test]
    fn rnr_timers_of_the_specification() {
        assert_eq!(rnr_timer(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timer(1), Duration::from_micros(10));
        assert_eq!(rnr_timer(12), Duration::from_micros(640));
        assert_eq!(rnr_timer(31), Duration::from_micros(491_520));
    }

    #[test]
    fn credit_codes_round_down() {
        for code in 0..31 {
            let count = credit_count(code).expect("limited");
            assert_eq!(credit_code(u32::from(count)), code);
        }
        assert_eq!(credit_count(NO_CREDIT_LIMIT), None);
        assert_eq!(credit_code(5), 4);
        assert_eq!(credit_code(u32::MAX), 30);
    }
}
