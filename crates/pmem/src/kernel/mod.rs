//! The loops that touch mapped bytes, one set per kind of CPU.
//!
//! Built with `RUSTFLAGS="--cfg miri"` (Miri runs no assembly), the crate is what other
//! architectures than x86-64 get; so this can be tested without such a machine.

pub(crate) mod portable;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86;

/// One set of loops. Checksum states are not inverted; lines are of 64 bytes.
///
/// All are unsafe to call: the CPU must have what the set needs, the pointers must be valid for
/// the lengths, and a destination line must lie on a line's boundary. The bytes on the mapped
/// side may change meanwhile: then what was read is of no use, and nothing else happens.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// For messages and tests.
    pub(crate) name: &'static str,
    /// Whether `copy` bypasses the caches (non-temporal stores), so that no flush has to follow.
    pub(crate) streams: bool,
    /// Copies lines into the mapping: (destination, source, lines).
    pub(crate) copy: unsafe fn(*mut u8, *const u8, usize),
    /// The same, and gives the state after the source's bytes.
    pub(crate) copy_crc: unsafe fn(*mut u8, *const u8, usize, u32) -> u32,
    /// Copies bytes out, and gives the state after those that were copied: each byte is read
    /// from the mapping once, so that the checksum is the copy's. (destination, source, bytes)
    pub(crate) read_crc: unsafe fn(*mut u8, *const u8, usize, u32) -> u32,
    /// The state after bytes in place.
    pub(crate) crc: unsafe fn(*const u8, usize, u32) -> u32,
    /// The state after the sum (exclusive or) of two ranges, from 0: (one, other, bytes).
    pub(crate) difference: unsafe fn(*const u8, *const u8, usize) -> u32,
    /// The state moved by a number of bytes, up to 4096.
    pub(crate) shift: unsafe fn(u32, usize) -> u32,
}

/// How lines are flushed from the CPU's caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// There is no need to, or no way.
    None,
    /// Every x86-64 has it; one line at a time.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflush,
    /// In parallel; the line leaves the cache.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clflushopt,
    /// In parallel; the line may stay.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Clwb,
}

impl Flush {
    /// Whether this program knows a way to flush at all on this architecture.
    pub(crate) fn exists() -> bool {
        cfg!(all(target_arch = "x86_64", not(miri)))
    }

    /// Flushes every line that `len` bytes at `start` touch.
    ///
    /// # Safety
    /// The bytes are mapped, and the CPU has the instruction.
    #[inline]
    pub(crate) unsafe fn range(self, start: *const u8, len: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let skip = start.addr() % crate::LINE_BYTES;
            let mut at = 0;
            while at < skip + len {
                let line = start.wrapping_sub(skip).wrapping_add(at);
                // SAFETY: the line holds at least one byte of the range, and a mapping begins
                // and ends at line boundaries; the CPU is the caller's promise.
                unsafe { self.line(line) };
                at += crate::LINE_BYTES;
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (start, len);
    }

    /// Flushes one line.
    ///
    /// # Safety
    /// The line is mapped, and the CPU has the instruction.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    unsafe fn line(self, line: *const u8) {
        use std::arch::asm;
        // SAFETY: a flush changes no byte; the line is mapped and the CPU has the instruction
        // (the caller's promise). Without `nomem` no store is moved past it by the compiler.
        unsafe {
            match self {
                Flush::None => {}
                Flush::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack)),
                Flush::Clflushopt => asm!("clflushopt [{}]", in(reg) line, options(nostack)),
                Flush::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack)),
            }
        }
    }
}
