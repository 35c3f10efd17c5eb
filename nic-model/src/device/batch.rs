//! Forming batches: which packet may join the batch being built.

use crate::frame::{MAX_BATCH_BYTES, MAX_BATCH_SEGMENTS, Path, TxBatch};
use roce_wire::packet::Headers;

/// Bytes of ICRC behind every packet, filled in when the batch is sealed.
pub(super) const ICRC_LEN: usize = 4;

/// Whether a packet of `length` bytes (ICRC included) may be appended.
///
/// All packets of a batch go to one socket and have the length of the first, except the last, which may be shorter.
#[inline]
pub(super) fn admits(batch: &TxBatch, path: &Path, dest_qpn: u32, length: usize) -> bool {
    if batch.is_empty() {
        return true;
    }
    let closed = !batch.bytes.len().is_multiple_of(batch.segment_size);
    !closed
        && length <= batch.segment_size
        && batch.bytes.len() + length <= MAX_BATCH_BYTES
        && batch.len() < MAX_BATCH_SEGMENTS
        && batch.dest_qpn >> 16 == dest_qpn >> 16
        && batch.path == *path
}

/// Open the batch for a packet of `length` bytes if it is the first.
#[inline]
fn open(batch: &mut TxBatch, path: &Path, dest_qpn: u32, length: usize) {
    if batch.is_empty() {
        batch.path = *path;
        batch.dest_qpn = dest_qpn;
        batch.segment_size = length;
    }
}

/// Append headers, leaving payload, pad and ICRC to the caller ([`finish`]).
#[inline]
pub(super) fn begin(batch: &mut TxBatch, path: &Path, dest_qpn: u32, headers: &Headers, length: usize) {
    open(batch, path, dest_qpn, length);
    let start = batch.bytes.len();
    batch.bytes.resize(start + headers.len(), 0);
    headers.emit(&mut batch.bytes[start..]);
}

/// Append pad and room for the ICRC.
#[inline]
pub(super) fn finish(batch: &mut TxBatch, pad: usize) {
    let end = batch.bytes.len() + pad + ICRC_LEN;
    batch.bytes.resize(end, 0);
}

/// Pad bytes for a payload of that length.
#[inline]
pub(super) const fn pad_of(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

/// Length of a packet with those headers and payload.
#[inline]
pub(super) fn packet_length(headers: &Headers, payload: usize) -> usize {
    headers.len() + payload + pad_of(payload) + ICRC_LEN
}
