//! Big-endian fields of odd widths.

/// Low 24 bits of a 32-bit value.
pub(crate) const MASK_24: u32 = 0x00ff_ffff;

/// A 24-bit big-endian field.
#[inline]
pub(crate) const fn be24(high: u8, mid: u8, low: u8) -> u32 {
    u32::from_be_bytes([0, high, mid, low])
}

/// The low 24 bits of `value`, big-endian.
#[inline]
pub(crate) const fn to_be24(value: u32) -> [u8; 3] {
    let [_, high, mid, low] = value.to_be_bytes();
    [high, mid, low]
}

/// The `N` bytes at `offset`, zeros where `bytes` ends before them.
///
/// For messages of a fixed size, where the offset is a constant inside the message: the compiler removes the test.
#[inline]
pub(crate) fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    match bytes.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(found) => *found,
        None => [0; N],
    }
}

/// Write `value` at `offset`; nothing happens where `bytes` ends before that.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(offset..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// The 24-bit big-endian field at `offset`, 0 where `bytes` ends before it.
#[inline]
pub(crate) fn at24(bytes: &[u8], offset: usize) -> u32 {
    let [high, mid, low] = at(bytes, offset);
    be24(high, mid, low)
}
