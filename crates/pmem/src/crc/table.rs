//! CRC-32C from tables, eight bytes a step: for CPUs without instructions for it.

use super::polynomial::{CASTAGNOLI, Shifts, multiply, power_of_x};

/// `TABLES[k][b]` is what byte `b` contributes when `k` more bytes follow it in the step.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ (CASTAGNOLI & 0u32.wrapping_sub(state & 1));
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// The state after `len` bytes at `data`, from `state` (not inverted).
///
/// # Safety
/// `data` is valid for reads of `len` bytes, which may change meanwhile (then the result is of no
/// use, and nothing else happens).
pub(crate) unsafe fn crc(data: *const u8, len: usize, mut state: u32) -> u32 {
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: at + 8 <= len, and every bit pattern is a u64.
        let word = unsafe { data.add(at).cast::<u64>().read_unaligned() };
        let word = (u64::from_le(word) ^ u64::from(state)).to_le_bytes();
        state = 0;
        for (k, byte) in word.into_iter().enumerate() {
            state ^= TABLES[7 - k][usize::from(byte)];
        }
        at += 8;
    }
    while at < len {
        // SAFETY: at < len.
        let byte = unsafe { data.add(at).read() };
        state = (state >> 8) ^ TABLES[0][usize::from(state as u8 ^ byte)];
        at += 1;
    }
    state
}

/// The state after the sum (exclusive or) of two ranges of `len` bytes, from 0.
///
/// # Safety
/// As for [`crc`], for both.
pub(crate) unsafe fn difference(one: *const u8, other: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise. From 0 a state is linear in the bytes.
    unsafe { crc(one, len, 0) ^ crc(other, len, 0) }
}

/// What `shift` multiplies by.
static SHIFTS: Shifts = Shifts::new(power_of_x(0));

/// The state (not inverted) after `bytes` zeros, at most 4096, without what it began from.
///
/// # Safety
/// Safe; unsafe as its peers are.
pub(crate) unsafe fn shift(state: u32, bytes: usize) -> u32 {
    SHIFTS.factors(bytes).into_iter().fold(state, |state, factor| multiply(factor, state))
}
