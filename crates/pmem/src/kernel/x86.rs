//! Non-temporal stores of x86-64, with the checksum in the same pass where the CPU has the
//! instruction for it.
//!
//! The stores are inline assembly: it needs no instruction set enabled at compile time, and the
//! compiler can neither split nor repeat what it does to memory that others read.

use super::{Kernels, portable};
use crate::LINE_BYTES;
use crate::crc::{
    hardware::{self, Pass},
    table,
};
use std::arch::asm;
use std::marker::PhantomData;

/// SSE2 alone: streaming stores, checksums from tables in a second pass.
pub(crate) static SSE2_TABLE: Kernels = Kernels {
    name: "sse2-table",
    streams: true,
    copy: copy::<Sse2>,
    copy_crc: copy_then_table::<Sse2>,
    read_crc: portable::read_crc,
    crc: table::crc,
    difference: table::difference,
    shift: table::shift,
};
/// SSE2, with SSE4.2 and PCLMULQDQ for the checksum.
pub(crate) static SSE2: Kernels = fused::<Sse2>("sse2");
/// AVX2, with SSE4.2 and PCLMULQDQ for the checksum.
pub(crate) static AVX2: Kernels = fused::<Avx2>("avx2");
/// AVX-512F, with SSE4.2 and PCLMULQDQ for the checksum.
pub(crate) static AVX512: Kernels = fused::<Avx512>("avx512");

const fn fused<L: Line + 'static>(name: &'static str) -> Kernels {
    Kernels {
        name,
        streams: true,
        copy: copy::<L>,
        copy_crc: copy_crc::<L>,
        read_crc: read_crc::<L>,
        crc: hardware::crc,
        difference: hardware::difference,
        shift: hardware::shift,
    }
}

/// A way to copy one line past the caches.
trait Line {
    /// Copies the line at `from + at` to `to + at`.
    ///
    /// # Safety
    /// Both are valid, `to + at` lies on a line's boundary, and the CPU has what it takes.
    unsafe fn copy(to: *mut u8, from: *const u8, at: usize);

    /// Copies the line at `from + at` to `to + at` through the caches.
    ///
    /// # Safety
    /// Both are valid, and the CPU has what it takes.
    unsafe fn copy_out(to: *mut u8, from: *const u8, at: usize);

    /// Leaves the registers as other code wants them.
    ///
    /// # Safety
    /// The CPU has what it takes.
    #[inline(always)]
    unsafe fn finish() {}
}

struct Sse2;

impl Line for Sse2 {
    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "movups {a}, [{from} + {at}]",
                "movups {b}, [{from} + {at} + 16]",
                "movups {c}, [{from} + {at} + 32]",
                "movups {d}, [{from} + {at} + 48]",
                "movntps [{to} + {at}], {a}",
                "movntps [{to} + {at} + 16], {b}",
                "movntps [{to} + {at} + 32], {c}",
                "movntps [{to} + {at} + 48], {d}",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn copy_out(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "movups {a}, [{from} + {at}]",
                "movups {b}, [{from} + {at} + 16]",
                "movups {c}, [{from} + {at} + 32]",
                "movups {d}, [{from} + {at} + 48]",
                "movups [{to} + {at}], {a}",
                "movups [{to} + {at} + 16], {b}",
                "movups [{to} + {at} + 32], {c}",
                "movups [{to} + {at} + 48], {d}",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

struct Avx2;

impl Line for Avx2 {
    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "vmovups ymm14, [{from} + {at}]",
                "vmovups ymm15, [{from} + {at} + 32]",
                "vmovntps [{to} + {at}], ymm14",
                "vmovntps [{to} + {at} + 32], ymm15",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn copy_out(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "vmovups ymm14, [{from} + {at}]",
                "vmovups ymm15, [{from} + {at} + 32]",
                "vmovups [{to} + {at}], ymm14",
                "vmovups [{to} + {at} + 32], ymm15",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn finish() {
        // Dirty upper halves slow down every SSE instruction that follows.
        // SAFETY: it clears upper halves, which code compiled for SSE2 does not use.
        unsafe { asm!("vzeroupper", options(nomem, nostack, preserves_flags)) }
    }
}

struct Avx512;

impl Line for Avx512 {
    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, at: usize) {
        // A register above 15 has no upper half that SSE code could stumble over.
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "vmovups zmm16, [{from} + {at}]",
                "vmovntps [{to} + {at}], zmm16",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                out("xmm16") _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn copy_out(to: *mut u8, from: *const u8, at: usize) {
        // A register above 15 has no upper half that SSE code could stumble over.
        // SAFETY: the caller's promise; the assembly touches these two lines only.
        unsafe {
            asm!(
                "vmovups zmm16, [{from} + {at}]",
                "vmovups [{to} + {at}], zmm16",
                from = in(reg) from,
                to = in(reg) to,
                at = in(reg) at,
                out("xmm16") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Copies lines past the caches.
///
/// # Safety
/// As the kernel's type says: both ranges are valid for it, `to` lies on a line's boundary, and
/// the CPU has what it takes.
unsafe fn copy<L: Line>(to: *mut u8, from: *const u8, lines: usize) {
    let mut at = 0;
    let end = lines * LINE_BYTES;
    // SAFETY: all offsets are below `end`; the rest is the caller's promise.
    unsafe {
        while end - at >= 4 * LINE_BYTES {
            L::copy(to, from, at);
            L::copy(to, from, at + LINE_BYTES);
            L::copy(to, from, at + 2 * LINE_BYTES);
            L::copy(to, from, at + 3 * LINE_BYTES);
            at += 4 * LINE_BYTES;
        }
        while at < end {
            L::copy(to, from, at);
            at += LINE_BYTES;
        }
        L::finish();
    }
}

/// Copies lines, then takes their checksum from tables.
///
/// # Safety
/// As the kernel's type says: both ranges are valid for it, `to` lies on a line's boundary, and
/// the CPU has what it takes.
unsafe fn copy_then_table<L: Line>(to: *mut u8, from: *const u8, lines: usize, state: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        copy::<L>(to, from, lines);
        table::crc(from, lines * LINE_BYTES, state)
    }
}

/// Copies lines and takes their checksum in the same pass.
///
/// # Safety
/// As the kernel's type says: both ranges are valid for it, `to` lies on a line's boundary, and
/// the CPU has what it takes.
unsafe fn copy_crc<L: Line>(to: *mut u8, from: *const u8, lines: usize, state: u32) -> u32 {
    let pass = Stream::<L> { to, from, line: PhantomData };
    // SAFETY: the pass covers exactly these lines; the CPU is the caller's promise.
    unsafe {
        let state = hardware::lines(&pass, lines, state);
        L::finish();
        state
    }
}

/// Copies each line on, in order; the words come from the source, which nobody changes.
struct Stream<L> {
    to: *mut u8,
    from: *const u8,
    line: PhantomData<L>,
}

impl<L: Line> Pass for Stream<L> {
    #[inline(always)]
    unsafe fn line(&self, at: usize) {
        // SAFETY: the caller's promise.
        unsafe { L::copy(self.to, self.from, at) }
    }

    #[inline(always)]
    unsafe fn word(&self, at: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { hardware::Look(self.from).word(at) }
    }
}

/// How far the copy of [`read_crc`] runs ahead of its checksum.
const AHEAD_LINES: usize = hardware::BLOCK_LINES;

/// Copies bytes out and takes the checksum of the copy.
///
/// # Safety
/// As the kernel's type says: both ranges are valid for it, and the CPU has what it takes.
unsafe fn read_crc<L: Line>(to: *mut u8, from: *const u8, len: usize, state: u32) -> u32 {
    let whole = len / LINE_BYTES;
    let rest = whole * LINE_BYTES;
    let ahead = whole.min(AHEAD_LINES);
    // SAFETY: all parts lie inside the caller's ranges; the CPU is the caller's promise. Every
    // byte is copied first, once, and its checksum taken of the copy, which nobody changes.
    unsafe {
        for line in 0..ahead {
            L::copy_out(to, from, line * LINE_BYTES);
        }
        let state =
            hardware::lines(&CopyOut::<L> { to, from, line: PhantomData }, whole - ahead, state);
        let state =
            hardware::lines(&hardware::Look(to.add(rest - ahead * LINE_BYTES)), ahead, state);
        L::finish();
        to.add(rest).copy_from_nonoverlapping(from.add(rest), len - rest);
        hardware::tail(to.add(rest), len - rest, state)
    }
}

/// Copies lines out of the mapping, in order and ahead of the words, which come from the copy.
struct CopyOut<L> {
    to: *mut u8,
    from: *const u8,
    line: PhantomData<L>,
}

impl<L: Line> Pass for CopyOut<L> {
    #[inline(always)]
    unsafe fn line(&self, at: usize) {
        // SAFETY: the caller's promise: the pass is `AHEAD_LINES` shorter than the buffers.
        unsafe { L::copy_out(self.to, self.from, at + AHEAD_LINES * LINE_BYTES) }
    }

    #[inline(always)]
    unsafe fn word(&self, at: usize) -> u64 {
        // SAFETY: the caller's promise; the line that holds it has been copied.
        unsafe { hardware::Look(self.to).word(at) }
    }
}
