//! Whole packets: the UDP payload of a RoCEv2 datagram.
//!
//! ```text
//! BTH | extension headers | payload | pad | ICRC
//! ```
//! [`Packet::parse`] checks that the length fits opcode and pad count; what the fields mean for a QP, the P_Key and
//! the transport version are the device's business. [`Headers::emit`] writes what [`Packet::parse`] reads; payload,
//! pad and ICRC follow it.

use crate::bth::Bth;
use crate::ext::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth, XrcEth};
use crate::opcode::{HeaderSet, Opcode};
use thiserror::Error;

/// Bytes of invariant CRC that end every packet.
pub const ICRC_LEN: usize = 4;
/// Most bytes of headers an opcode has: BTH and AtomicETH and XRCETH.
pub const MAX_HEADER_LEN: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;
/// Reserved bytes that follow the BTH of a congestion notification packet.
pub const CNP_PAYLOAD_LEN: usize = 16;

/// BTH and extension headers.
///
/// The extension headers present must be those of the opcode's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram extended transport header.
    pub deth: Option<Deth>,
    /// XRC extended transport header.
    pub xrceth: Option<XrcEth>,
    /// RDMA extended transport header.
    pub reth: Option<Reth>,
    /// Atomic extended transport header.
    pub atomic: Option<AtomicEth>,
    /// ACK extended transport header.
    pub aeth: Option<Aeth>,
    /// Atomic ACK extended transport header.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Invalidate extended transport header.
    pub ieth: Option<Ieth>,
}

impl Headers {
    /// A BTH without extension headers.
    #[inline]
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            xrceth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
        }
    }

    /// The extension headers present.
    pub fn set(&self) -> HeaderSet {
        let mut set = HeaderSet::empty();
        set.set(HeaderSet::DETH, self.deth.is_some());
        set.set(HeaderSet::XRCETH, self.xrceth.is_some());
        set.set(HeaderSet::RETH, self.reth.is_some());
        set.set(HeaderSet::ATOMIC, self.atomic.is_some());
        set.set(HeaderSet::AETH, self.aeth.is_some());
        set.set(HeaderSet::ATOMIC_ACK, self.atomic_ack.is_some());
        set.set(HeaderSet::IMM, self.imm.is_some());
        set.set(HeaderSet::IETH, self.ieth.is_some());
        set
    }

    /// Bytes on the wire.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a BTH is always there")]
    pub fn len(&self) -> usize {
        usize::from(self.bth.opcode.info().header_len)
    }

    /// Write the headers to the front of `out`, in the order of the wire; returns their length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Headers::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        debug_assert_eq!(
            self.set(),
            self.bth.opcode.info().headers,
            "headers of {:?}",
            self.bth.opcode
        );
        self.bth.emit(out);
        let mut at = Bth::LEN;
        macro_rules! emit {
            ($($field:ident: $header:ident),*) => {$(
                if let Some(header) = &self.$field {
                    header.emit(&mut out[at..]);
                    at += $header::LEN;
                }
            )*};
        }
        emit!(deth: Deth, xrceth: XrcEth, reth: Reth, atomic: AtomicEth, aeth: Aeth);
        emit!(atomic_ack: AtomicAckEth, imm: ImmDt, ieth: Ieth);
        at
    }
}

/// A packet: headers and what they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload, without pad and ICRC.
    pub payload: &'a [u8],
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Shorter than the headers of its opcode, the pad and the ICRC.
    #[error("packet of {0} bytes is too short for its opcode")]
    TooShort(usize),
    /// An opcode of no service spoken here.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// Not a whole number of 32-bit words.
    #[error("packet of {0} bytes is not a whole number of words")]
    Unaligned(usize),
    /// Payload or pad after an opcode that has none.
    #[error("{0:?} carries payload")]
    UnexpectedPayload(Opcode),
}

impl<'a> Packet<'a> {
    /// Parse a UDP payload, ICRC included but not verified.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort(packet.len());
        let (covered, _icrc) = packet.split_last_chunk::<ICRC_LEN>().ok_or(too_short)?;
        let (bth, mut rest) = covered.split_first_chunk::<{ Bth::LEN }>().ok_or(too_short)?;
        let info = Opcode::info_of(bth[0]).ok_or(ParseError::UnknownOpcode(bth[0]))?;
        let mut headers = Headers::new(Bth::from_wire(info.opcode, bth));
        macro_rules! take {
            ($($bit:ident $field:ident: $header:ident),*) => {$(
                if info.headers.contains(HeaderSet::$bit) {
                    headers.$field = Some($header::parse(rest).ok_or(too_short)?);
                    rest = &rest[$header::LEN..];
                }
            )*};
        }
        take!(DETH deth: Deth, XRCETH xrceth: XrcEth, RETH reth: Reth, ATOMIC atomic: AtomicEth, AETH aeth: Aeth);
        take!(ATOMIC_ACK atomic_ack: AtomicAckEth, IMM imm: ImmDt, IETH ieth: Ieth);
        if rest.len() % 4 != 0 {
            return Err(ParseError::Unaligned(packet.len()));
        }
        let pad = usize::from(headers.bth.pad_count);
        let payload = rest
            .len()
            .checked_sub(pad)
            .and_then(|end| rest.get(..end))
            .ok_or(too_short)?;
        if !info.payload && !rest.is_empty() {
            return Err(ParseError::UnexpectedPayload(info.opcode));
        }
        Ok(Self { headers, payload })
    }

    /// Bytes on the wire: headers, payload, pad and ICRC.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.headers.len() + self.payload.len() + usize::from(self.headers.bth.pad_count) + ICRC_LEN
    }

    /// Write headers, payload and zero pad to the front of `out` and leave room for the ICRC; returns the length
    /// including it.
    ///
    /// # Panics
    /// When `out` is shorter than [`Packet::wire_len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let start = self.headers.emit(out);
        let end = start + self.payload.len();
        out[start..end].copy_from_slice(self.payload);
        let total = end + usize::from(self.headers.bth.pad_count) + ICRC_LEN;
        out[end..total].fill(0);
        total
    }
}

/// Pad bytes that make `payload_len` a whole number of words.
#[inline]
pub const fn pad_count(payload_len: usize) -> u8 {
    let [low, ..] = payload_len.to_le_bytes();
    low.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psn::Psn;

    fn bytes_of(opcode: Opcode, pad: u8, len: usize) -> Vec<u8> {
        let bth = Bth {
            pad_count: pad,
            ..Bth::new(opcode, 7, Psn::new(9))
        };
        let mut bytes = vec![0; len];
        bth.emit(&mut bytes);
        bytes
    }

    #[test]
    fn table_and_header_lengths_agree() {
        for opcode in Opcode::all() {
            let bytes = bytes_of(opcode, 0, usize::from(opcode.info().header_len) + ICRC_LEN);
            let packet = Packet::parse(&bytes).expect("complete");
            assert_eq!(packet.headers.set(), opcode.info().headers);
            assert!(packet.headers.len() <= MAX_HEADER_LEN);
            let mut out = [0; MAX_HEADER_LEN];
            assert_eq!(packet.headers.emit(&mut out), packet.headers.len());
            let cut = &bytes[..bytes.len() - 4];
            assert_eq!(Packet::parse(cut), Err(ParseError::TooShort(cut.len())));
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        assert_eq!(Packet::parse(&[]), Err(ParseError::TooShort(0)));
        assert_eq!(
            Packet::parse(&bytes_of(Opcode::RcAck, 0, 16)),
            Err(ParseError::TooShort(16))
        );
        assert_eq!(
            Packet::parse(&bytes_of(Opcode::RcSendOnly, 1, 16)),
            Err(ParseError::TooShort(16))
        );
        assert_eq!(
            Packet::parse(&bytes_of(Opcode::RcSendOnly, 0, 17)),
            Err(ParseError::Unaligned(17))
        );
        let long_ack = bytes_of(Opcode::RcAck, 0, 24);
        assert_eq!(
            Packet::parse(&long_ack),
            Err(ParseError::UnexpectedPayload(Opcode::RcAck))
        );
    }

    #[test]
    fn pad_is_removed() {
        let bytes = bytes_of(Opcode::RcSendOnly, 3, 12 + 4 + 4);
        assert_eq!(Packet::parse(&bytes).expect("padded").payload.len(), 1);
        assert_eq!(
            [pad_count(0), pad_count(1), pad_count(2), pad_count(3), pad_count(4)],
            [0, 3, 2, 1, 0]
        );
    }
}
