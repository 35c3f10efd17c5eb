//! Invariant CRC of RoCEv2 packets (InfiniBand specification, 7.8.1 and A17.3.3).
//!
//! CRC-32 (IEEE, reflected) over a pseudo header and the packet, little-endian at the packet's end:
//! ```text
//! 8 × FF | IP header | UDP header | BTH | the rest, pad included
//! ```
//! with the fields a router may change replaced by ones: traffic class, TTL or hop limit, flow label, both checksums,
//! and the fifth byte of the BTH. The IPv4 identification is covered, yet a UDP socket neither sets nor shows it, so:
//! * sending, the caller knows what the kernel will put there ([`IcrcContext::seal`]);
//! * receiving, it is solved for: the CRC is linear, so the difference between the CRC found and the one computed
//!   for a guessed identification is the difference of the two identifications, shifted by the number of bytes that
//!   follow. Two multiplications in GF(2³²) by tabled powers of x⁻¹ shift it back, and a result of more than sixteen
//!   bits means that something else differs, too.
//!
//! Solving for an unknown identification spends 16 of the 32 check bits: one in 65,536 damaged packets passes.

use crate::bth::Bth;
use crate::gf2;
use crate::net::{IPV4_LEN, IPV6_LEN, UDP_LEN, v6_octets};
use crate::packet::ICRC_LEN;
use core::net::IpAddr;
use crc32fast::Hasher;
use thiserror::Error;

/// CRC over the eight bytes of ones that stand for a link header.
const SEED: u32 = 0x2144_df1c;
/// Byte of the BTH that switches may change.
const MASKED: usize = 4;
/// Bytes between each field that differs from packet to packet and the end of the BTH.
const UDP_LENGTH: usize = 2 + Bth::LEN;
const IPV4_ID: usize = IPV4_LEN - 6 + UDP_LEN + Bth::LEN;
const IPV4_TOTAL_LEN: usize = IPV4_ID + 2;
const IPV6_PAYLOAD_LEN: usize = IPV6_LEN - 6 + UDP_LEN + Bth::LEN;

/// The packet is damaged or was sent to another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invariant CRC does not match")]
pub struct BadIcrc;

/// Addresses and ports of one path, as the ICRC sees them.
///
/// The CRC is linear, so that of the pseudo header and BTH is the sum of a part that is the same for every packet of
/// the path, kept here, and a tabled part for each byte that is not: lengths, identification, BTH. The lookups do not
/// wait for each other, which is twice as fast as a CRC over the header, and only the payload is left to run one over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcContext {
    constant: u32,
    is_ipv4: bool,
}

impl IcrcContext {
    /// For packets from `src`:`sport` to `dst`:`dport`. IPv4-mapped addresses mean IPv4.
    pub fn new(src: IpAddr, dst: IpAddr, sport: u16, dport: u16) -> Self {
        let mut crc = Hasher::new_with_initial(SEED);
        let is_ipv4 = match (src.to_canonical(), dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                // Version and header length, TOS (masked), total length, identification, DF, TTL (masked), UDP,
                // checksum (masked).
                crc.update(&[0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                crc.update(&src.octets());
                crc.update(&dst.octets());
                true
            }
            (src, dst) => {
                // Version, traffic class and flow label (masked), payload length, UDP, hop limit (masked).
                crc.update(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                crc.update(&v6_octets(src));
                crc.update(&v6_octets(dst));
                false
            }
        };
        crc.update(&sport.to_be_bytes());
        crc.update(&dport.to_be_bytes());
        // UDP length, checksum (masked), BTH with its fifth byte masked.
        crc.update(&[0, 0, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]);
        Self {
            constant: crc.finalize(),
            is_ipv4,
        }
    }

    /// ICRC of the packet whose bytes before the ICRC are `covered`, sent with IPv4 identification `ip_id`.
    #[inline]
    pub fn compute(&self, ip_id: u16, covered: &[u8]) -> [u8; ICRC_LEN] {
        self.crc(ip_id, covered).to_le_bytes()
    }

    /// Fill in the ICRC of every packet in `bytes`.
    ///
    /// The packets lie back to back, all `segment_size` long except the last, ICRC included; packet `k` is sent with
    /// IPv4 identification `first_id + k`, which is what segmentation offload gives it.
    #[inline]
    pub fn seal(&self, first_id: u16, segment_size: usize, bytes: &mut [u8]) {
        let mut id = first_id;
        for packet in bytes.chunks_mut(segment_size.max(1)) {
            if let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
                *icrc = self.compute(id, covered);
            }
            id = id.wrapping_add(1);
        }
    }

    /// Check the ICRC that ends `packet` and return the IPv4 identification it was computed for.
    ///
    /// `hint_id` is tried first, and costs least when it is right. Any other identification is solved for. IPv6 has
    /// none: the hint is returned.
    #[inline]
    pub fn verify(&self, hint_id: u16, packet: &[u8]) -> Result<u16, BadIcrc> {
        let (covered, icrc) = packet.split_last_chunk::<ICRC_LEN>().ok_or(BadIcrc)?;
        if covered.len() < Bth::LEN {
            return Err(BadIcrc);
        }
        let difference = self.crc(hint_id, covered) ^ u32::from_le_bytes(*icrc);
        if difference == 0 {
            return Ok(hint_id);
        }
        if self.is_ipv4 {
            recover_id(hint_id, difference, covered.len()).ok_or(BadIcrc)
        } else {
            Err(BadIcrc)
        }
    }

    #[inline]
    fn crc(&self, ip_id: u16, covered: &[u8]) -> u32 {
        let Some((bth, rest)) = covered.split_first_chunk::<{ Bth::LEN }>() else {
            return 0;
        };
        let udp_len = length_field(UDP_LEN, covered);
        let header = if self.is_ipv4 {
            let total_len = length_field(IPV4_LEN + UDP_LEN, covered);
            share::<IPV4_TOTAL_LEN>(total_len) ^ share::<IPV4_ID>(ip_id.to_be_bytes())
        } else {
            share::<IPV6_PAYLOAD_LEN>(udp_len)
        };
        let mut bth_share = 0;
        for (place, byte) in bth.iter().enumerate().filter(|(place, _)| *place != MASKED) {
            bth_share ^= gf2::FOLLOWED_BY[Bth::LEN - 1 - place][usize::from(*byte)];
        }
        let mut crc = Hasher::new_with_initial(self.constant ^ header ^ share::<UDP_LENGTH>(udp_len) ^ bth_share);
        crc.update(rest);
        crc.finalize()
    }
}

/// What a two-byte field adds to the CRC up to the end of the BTH, `AFTER` bytes after it.
#[inline]
fn share<const AFTER: usize>([high, low]: [u8; 2]) -> u32 {
    gf2::FOLLOWED_BY[AFTER + 1][usize::from(high)] ^ gf2::FOLLOWED_BY[AFTER][usize::from(low)]
}

/// A 16-bit length field that counts `before`, the packet and its ICRC. No datagram is too long for it.
#[inline]
fn length_field(before: usize, covered: &[u8]) -> [u8; 2] {
    let [low, high, ..] = (before + covered.len() + ICRC_LEN).to_le_bytes();
    [high, low]
}

/// The identification that explains `difference` to the CRC computed with `guess`.
fn recover_id(guess: u16, difference: u32, covered_len: usize) -> Option<u16> {
    // From the first byte of the identification to the end.
    let bytes = u16::try_from(2 + IPV4_ID - Bth::LEN + covered_len).ok()?;
    // Two bytes enter the CRC register at its low end, first byte lowest.
    let bits = u16::try_from(gf2::unshift_bytes(difference, bytes)).ok()?;
    Some(guess ^ bits.swap_bytes())
}
