//! Arithmetic in GF(2)[x] modulo the CRC-32 polynomial: what one byte adds to a CRC, and un-shifting a CRC.
//!
//! Elements are CRC registers in reflected order: bit 31 is the coefficient of x⁰. Feeding a zero byte to a CRC
//! multiplies its register by x⁸; [`unshift_bytes`] divides by powers of x⁸.

/// CRC-32 (IEEE) polynomial, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// `FOLLOWED_BY[n][byte]`: register after `byte` and `n` zero bytes, from an empty register.
///
/// Sixty kilobytes, of which packets of one flow touch a few dozen cache lines.
pub(crate) static FOLLOWED_BY: [[u32; 256]; 60] = {
    let mut tables = [[0; 256]; 60];
    let mut byte = 0usize;
    while byte < 256 {
        let [low, ..] = byte.to_le_bytes();
        let mut register = low as u32;
        let mut zeros = 0;
        while zeros < tables.len() {
            register = times_x8(register);
            tables[zeros][byte] = register;
            zeros += 1;
        }
        byte += 1;
    }
    tables
};

/// x⁻⁸ⁱ.
static BY_BYTES: [u32; 256] = powers(divide_by_x8(ONE));
/// x⁻²⁰⁴⁸ⁱ.
static BY_PAGES: [u32; 256] = powers(times(BY_BYTES_LAST, divide_by_x8(ONE)));
const BY_BYTES_LAST: u32 = powers(divide_by_x8(ONE))[255];

/// The register that becomes `register` when `bytes` zero bytes are fed to it.
#[inline]
pub(crate) fn unshift_bytes(register: u32, bytes: u16) -> u32 {
    let [pages, bytes] = bytes.to_be_bytes();
    times(
        times(register, BY_BYTES[usize::from(bytes)]),
        BY_PAGES[usize::from(pages)],
    )
}

/// Product of two elements.
#[inline]
const fn times(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        // All ones where the coefficient of x^bit in `a` is set: a branch would be mispredicted half the time.
        product ^= b & 0u32.wrapping_sub((a << bit) >> 31);
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
        bit += 1;
    }
    product
}

const fn times_x8(mut value: u32) -> u32 {
    let mut step = 0;
    while step < 8 {
        value = (value >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(value & 1));
        step += 1;
    }
    value
}

const fn divide_by_x8(mut value: u32) -> u32 {
    let mut step = 0;
    while step < 8 {
        // Reduction set bit 31 exactly when the polynomial was added, as its bit 31 is set and a shift leaves zero.
        let reduced = value >> 31;
        value = ((value ^ (POLYNOMIAL & 0u32.wrapping_sub(reduced))) << 1) | reduced;
        step += 1;
    }
    value
}

const fn powers(base: u32) -> [u32; 256] {
    let mut table = [ONE; 256];
    let mut exponent = 1;
    while exponent < table.len() {
        table[exponent] = times(table[exponent - 1], base);
        exponent += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC register after `bytes` zero bytes, one bit at a time.
    fn shift_bytes(mut register: u32, bytes: u16) -> u32 {
        for _ in 0..u32::from(bytes) * 8 {
            register = if register & 1 == 1 {
                (register >> 1) ^ POLYNOMIAL
            } else {
                register >> 1
            };
        }
        register
    }

    #[test]
    fn one_is_neutral() {
        assert_eq!(times(ONE, 0x1234_5678), 0x1234_5678);
        assert_eq!(times(0x1234_5678, ONE), 0x1234_5678);
    }

    #[test]
    fn tabled_bytes_are_followed_by_zeros() {
        for (zeros, table) in (1..).zip(&FOLLOWED_BY) {
            for byte in [0u8, 1, 0x80, 0xff] {
                assert_eq!(
                    table[usize::from(byte)],
                    shift_bytes(u32::from(byte), zeros),
                    "{byte:#x}"
                );
            }
        }
    }

    #[test]
    fn unshift_undoes_feeding_zero_bytes() {
        for bytes in [0, 1, 2, 255, 256, 257, 1_100, 4_200, u16::MAX] {
            for register in [1, 0x8000_0000, 0xdead_beef, u32::MAX] {
                assert_eq!(
                    unshift_bytes(shift_bytes(register, bytes), bytes),
                    register,
                    "{bytes} bytes"
                );
            }
        }
    }
}
