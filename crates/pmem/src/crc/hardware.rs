//! CRC-32C with SSE4.2's instruction, and whatever else is to be done to the same bytes.
//!
//! The instruction takes 8 bytes a cycle but answers after 3 cycles, so a block is cut into four
//! streams that advance together; carry-less products join their states at the block's end
//! (Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", 2011).
//! A [`Pass`] rides along: the copy of a line waits for memory, the checksum for the ALU, and the
//! CPU overlaps them.

use super::polynomial::{Shifts, power_of_x};
use crate::LINE_BYTES;
use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm_xor_si128,
};

/// What is done to bytes on the way through the checksum. Offsets are from the pass's start.
pub(crate) trait Pass {
    /// Does what is done to the whole line at `at`; once per line, in order.
    ///
    /// # Safety
    /// The line lies inside what the pass was made for.
    unsafe fn line(&self, at: usize);

    /// Gives the word at `at`, and does what is done to single words; once per word, in any order.
    ///
    /// # Safety
    /// The word lies inside what the pass was made for.
    unsafe fn word(&self, at: usize) -> u64;
}

/// Only looks.
pub(crate) struct Look(pub(crate) *const u8);

impl Pass for Look {
    #[inline(always)]
    unsafe fn line(&self, _at: usize) {}

    #[inline(always)]
    unsafe fn word(&self, at: usize) -> u64 {
        // SAFETY: the caller's promise; every bit pattern is a u64.
        unsafe { self.0.add(at).cast::<u64>().read_unaligned() }
    }
}

/// The state after `lines` lines of `pass`, from `state` (not inverted).
///
/// # Safety
/// The CPU has SSE4.2 and PCLMULQDQ, and `pass` was made for at least so many lines.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn lines<P: Pass>(pass: &P, lines: usize, mut state: u32) -> u32 {
    let mut done = 0;
    // SAFETY: each block ends at or before `lines`; the caller vouches for the CPU.
    unsafe {
        while lines - done >= BLOCK_LINES {
            state = Block::<BLOCK_LINES>::run(pass, done * LINE_BYTES, state);
            done += BLOCK_LINES;
        }
        while lines - done >= 4 {
            state = Block::<4>::run(pass, done * LINE_BYTES, state);
            done += 4;
        }
        while done < lines {
            let at = done * LINE_BYTES;
            pass.line(at);
            let mut wide = u64::from(state);
            for word in 0..LINE_BYTES / 8 {
                wide = _mm_crc32_u64(wide, pass.word(at + word * 8));
            }
            state = wide as u32;
            done += 1;
        }
    }
    state
}

/// The state after `len` bytes at `data`, from `state` (not inverted).
///
/// # Safety
/// The CPU has SSE4.2 and PCLMULQDQ; `data` is valid for reads of `len` bytes, which may change
/// meanwhile (then the result is of no use, and nothing else happens).
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn crc(data: *const u8, len: usize, state: u32) -> u32 {
    let whole = len / LINE_BYTES;
    // SAFETY: both parts lie inside the caller's range.
    unsafe {
        let state = lines(&Look(data), whole, state);
        tail(data.add(whole * LINE_BYTES), len % LINE_BYTES, state)
    }
}

/// [`crc`] of less than a line.
///
/// # Safety
/// As for [`crc`].
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn tail(data: *const u8, len: usize, state: u32) -> u32 {
    let mut wide = u64::from(state);
    let look = Look(data);
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: the word ends at or before `len`.
        wide = _mm_crc32_u64(wide, unsafe { look.word(at) });
        at += 8;
    }
    let mut state = wide as u32;
    while at < len {
        // SAFETY: at < len.
        state = _mm_crc32_u8(state, unsafe { data.add(at).read() });
        at += 1;
    }
    state
}

/// The state after the sum (exclusive or) of two ranges of `len` bytes, from 0.
///
/// # Safety
/// As for [`crc`], for both.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn difference(one: *const u8, other: *const u8, len: usize) -> u32 {
    let (one, other) = (Look(one), Look(other));
    let mut wide = 0;
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: the word ends at or before `len`.
        wide = _mm_crc32_u64(wide, unsafe { one.word(at) ^ other.word(at) });
        at += 8;
    }
    let mut state = wide as u32;
    while at < len {
        // SAFETY: at < len.
        state = _mm_crc32_u8(state, unsafe { one.0.add(at).read() ^ other.0.add(at).read() });
        at += 1;
    }
    state
}

/// The order of x: x^ORDER is 1 modulo the polynomial.
const ORDER: u64 = (1 << 31) - 1;

/// What `shift` multiplies by: 33 less, as for a block's shifts.
static SHIFTS: Shifts = Shifts::new(power_of_x(ORDER - 33));

/// The state (not inverted) after `bytes` zeros, at most 4096, without what it began from.
///
/// # Safety
/// The CPU has SSE4.2 and PCLMULQDQ.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn shift(state: u32, bytes: usize) -> u32 {
    SHIFTS.factors(bytes).into_iter().fold(state, |state, factor| {
        let factor = _mm_cvtsi64_si128(i64::from(factor));
        let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(i64::from(state)), factor);
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) as u32
    })
}

/// Lines of the larger block. More would keep fewer joins, but walk four streams so far apart that
/// the CPU's prefetcher, which follows one a page, loses them.
pub(crate) const BLOCK_LINES: usize = 16;

/// A block of `LINES` lines, in four streams of a quarter each.
struct Block<const LINES: usize>;

impl<const LINES: usize> Block<LINES> {
    const STREAM_BYTES: usize = LINES * LINE_BYTES / 4;

    /// What moves the state before the block, and the first, second and third stream's, to the
    /// block's end.
    ///
    /// A product of reflected numbers is one power of x short, and the CRC instruction that
    /// reduces it multiplies by x^32: hence 33 less than the distance in bits.
    const SHIFTS: [i64; 4] = [
        power_of_x(Self::STREAM_BYTES as u64 * 32 - 33) as i64,
        power_of_x(Self::STREAM_BYTES as u64 * 24 - 33) as i64,
        power_of_x(Self::STREAM_BYTES as u64 * 16 - 33) as i64,
        power_of_x(Self::STREAM_BYTES as u64 * 8 - 33) as i64,
    ];

    /// The state after the block at `at`.
    ///
    /// The streams do not wait for the state before: so the CPU begins them while the block
    /// before is not yet joined.
    ///
    /// # Safety
    /// As for [`lines`].
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    unsafe fn run<P: Pass>(pass: &P, at: usize, state: u32) -> u32 {
        let (mut a, mut b, mut c, mut d) = (0, 0, 0, 0);
        let stream = Self::STREAM_BYTES;
        for line in 0..LINES {
            // 16 bytes of each stream are a line of the block.
            let word = at + line * 16;
            // SAFETY: line < LINES, so that the last word ends where the block does.
            unsafe {
                pass.line(at + line * LINE_BYTES);
                a = _mm_crc32_u64(a, pass.word(word));
                b = _mm_crc32_u64(b, pass.word(word + stream));
                c = _mm_crc32_u64(c, pass.word(word + 2 * stream));
                d = _mm_crc32_u64(d, pass.word(word + 3 * stream));
                a = _mm_crc32_u64(a, pass.word(word + 8));
                b = _mm_crc32_u64(b, pass.word(word + stream + 8));
                c = _mm_crc32_u64(c, pass.word(word + 2 * stream + 8));
                d = _mm_crc32_u64(d, pass.word(word + 3 * stream + 8));
            }
        }
        join([u64::from(state), a, b, c], &Self::SHIFTS) ^ d as u32
    }
}

/// The sum of the states, each moved by its shift.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn join(states: [u64; 4], shifts: &[i64; 4]) -> u32 {
    let product = |at: usize| {
        let (state, shift) = (_mm_cvtsi64_si128(states[at] as i64), _mm_cvtsi64_si128(shifts[at]));
        _mm_clmulepi64_si128::<0>(state, shift)
    };
    let streams = _mm_xor_si128(_mm_xor_si128(product(1), product(2)), product(3));
    let sum = _mm_xor_si128(streams, product(0));
    _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64) as u32
}
