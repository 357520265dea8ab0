//! Arithmetic of polynomials over GF(2), modulo CRC-32C's.
//!
//! Numbers are bit-reflected, as the CRC is: the top bit is x^0.

use crate::LINE_BYTES;

/// x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11
/// + x^10 + x^9 + x^8 + x^6 + 1 (Castagnoli), without its x^32.
pub(crate) const CASTAGNOLI: u32 = 0x82F6_3B78;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// a * b modulo the polynomial.
pub(crate) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        // b * x
        b = (b >> 1) ^ (CASTAGNOLI & 0u32.wrapping_sub(b & 1));
        bit >>= 1;
    }
    product
}

/// x^n modulo the polynomial.
pub(crate) const fn power_of_x(mut n: u64) -> u32 {
    let mut power = ONE;
    let mut square = ONE >> 1;
    while n != 0 {
        if n & 1 != 0 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        n >>= 1;
    }
    power
}

/// What moves a state by 1 byte, by 2, by 4 and so on.
pub(crate) static DOUBLINGS: [u32; u64::BITS as usize] = {
    let mut doublings = [power_of_x(8); u64::BITS as usize];
    let mut n = 1;
    while n < doublings.len() {
        doublings[n] = multiply(doublings[n - 1], doublings[n - 1]);
        n += 1;
    }
    doublings
};

/// x^(8 * bytes) modulo the polynomial, for whole lines and for the bytes of a line: two products
/// move a state by any number of bytes up to a page.
#[derive(Debug)]
pub(crate) struct Shifts {
    lines: [u32; 4096 / LINE_BYTES + 1],
    bytes: [u32; LINE_BYTES],
}

impl Shifts {
    /// Each power times `factor`.
    pub(crate) const fn new(factor: u32) -> Shifts {
        let mut shifts = Shifts { lines: [0; 4096 / LINE_BYTES + 1], bytes: [0; LINE_BYTES] };
        let mut n = 0;
        while n < shifts.lines.len() {
            let line_bits = 8 * LINE_BYTES as u64;
            shifts.lines[n] = multiply(power_of_x(line_bits * n as u64), factor);
            n += 1;
        }
        n = 0;
        while n < shifts.bytes.len() {
            shifts.bytes[n] = multiply(power_of_x(8 * n as u64), factor);
            n += 1;
        }
        shifts
    }

    /// The factors that together move by `bytes`, at most 4096.
    #[inline]
    pub(crate) fn factors(&self, bytes: usize) -> [u32; 2] {
        [self.lines[bytes / LINE_BYTES], self.bytes[bytes % LINE_BYTES]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_add_up() {
        assert_eq!(power_of_x(0), ONE);
        assert_eq!(power_of_x(32), CASTAGNOLI);
        for (a, b) in [(1, 1), (31, 2), (1000, 24), (8 * 4096, 479)] {
            assert_eq!(multiply(power_of_x(a), power_of_x(b)), power_of_x(a + b));
        }
    }
}
