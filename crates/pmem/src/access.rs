//! Reading a mapping: copies out, and checksums in place.

use crate::charge::any;
use crate::crc::BEHIND_BYTES_MAX;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use std::sync::atomic::{AtomicU64, Ordering};

impl Mapping {
    /// Copies out.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.copy_out(offset, buffer)?;
        if any() {
            let len = buffer.len();
            return self.look_or((), offset, len, |other| other.read(offset, buffer));
        }
        Ok(())
    }

    /// Copies out of this copy, also where it has a mirror.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn read_own(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.copy_out(offset, buffer)?;
        self.seen(offset, buffer.len())
    }

    #[inline(always)]
    pub(crate) fn copy_out(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let source = self.readable(offset, buffer.len())?;
        // SAFETY: the range is mapped, and no buffer of safe code lies in the mapping. Bytes that
        // change meanwhile arrive old or new; the caller's protocol finds that out.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(source, buffer.len()) };
        Ok(())
    }

    /// Copies out and gives the CRC-32C of the bytes, in one pass.
    ///
    /// It is the CRC of what lies in `buffer` afterwards, whatever others write meanwhile.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn read_crc(&self, offset: u64, buffer: &mut [u8]) -> Result<u32> {
        let crc = self.copy_out_crc(offset, buffer)?;
        if any() {
            let len = buffer.len();
            return self.look_or(crc, offset, len, |other| other.read_crc(offset, buffer));
        }
        Ok(crc)
    }

    /// The same of this copy, also where it has a mirror.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn read_crc_own(&self, offset: u64, buffer: &mut [u8]) -> Result<u32> {
        let crc = self.copy_out_crc(offset, buffer)?;
        self.seen(offset, buffer.len()).map(|()| crc)
    }

    #[inline(always)]
    fn copy_out_crc(&self, offset: u64, buffer: &mut [u8]) -> Result<u32> {
        let source = self.readable(offset, buffer.len())?;
        let (to, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the range is mapped, the buffer is apart from it and of that length, and the
        // kernels were chosen for this CPU.
        Ok(!unsafe { (self.kernels.read_crc)(to, source, len, !0) })
    }

    /// CRC-32C of `len` bytes in place, of this copy.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn crc(&self, offset: u64, len: usize) -> Result<u32> {
        let source = self.readable(offset, len)?;
        // SAFETY: the range is mapped, and the kernels were chosen for this CPU.
        let crc = !unsafe { (self.kernels.crc)(source, len, !0) };
        self.seen(offset, len).map(|()| crc)
    }

    /// What the CRC-32C of a page changes by when `data` take the place of the bytes at `offset`,
    /// `behind` bytes before its end: see [`crc32c_difference`](crate::crc32c_difference).
    ///
    /// # Errors
    /// `OutOfRange`, `Media`.
    #[inline]
    pub fn crc_difference(&self, offset: u64, data: &[u8], behind: usize) -> Result<u32> {
        let source = self.readable(offset, data.len())?;
        assert!(behind <= BEHIND_BYTES_MAX, "one page");
        // SAFETY: both ranges are valid for the length, and the kernels were chosen for this CPU.
        let crc = unsafe {
            let state = (self.kernels.difference)(source, data.as_ptr(), data.len());
            (self.kernels.shift)(state, behind)
        };
        self.seen(offset, data.len()).map(|()| crc)
    }

    /// The little-endian word at `offset`, which is a multiple of 8: all of it old or all new.
    ///
    /// What the writer stored before it with a fence between is visible after it (acquire).
    ///
    /// # Errors
    /// `Media`; `OutOfRange`, also where the offset is not a multiple of 8.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> Result<u64> {
        let source = self.readable(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(self.out_of_range(offset, 8));
        }
        // SAFETY: the word is mapped and aligned. AtomicU64 may be made of read-only memory for
        // relaxed and acquire loads of this size on every 64-bit target.
        let word = unsafe { AtomicU64::from_ptr(source.cast_mut().cast()).load(Ordering::Acquire) };
        let word = u64::from_le(word);
        if any() {
            return self.look_or(word, offset, 8, |other| other.read_u64(offset));
        }
        Ok(word)
    }

    /// Tells the CPU that `len` bytes at `offset` will be read soon. Never fails.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Ok(source) = self.source(offset, len) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for at in (0..len).step_by(crate::LINE_BYTES) {
                // SAFETY: a prefetch has no effect that a program can see, at any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(at).cast()) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (offset, len);
    }

    /// Where the range begins, if all of it is mapped; it will be read.
    #[inline(always)]
    pub(crate) fn readable(&self, offset: u64, len: usize) -> Result<*const u8> {
        let source = self.source(offset, len)?;
        #[cfg(feature = "recorder")]
        self.record_read(offset, len);
        Ok(source)
    }

    /// Where the range begins, if all of it is mapped.
    #[inline(always)]
    fn source(&self, offset: u64, len: usize) -> Result<*const u8> {
        if within(offset, len, self.addresses.len()) {
            // SAFETY: offset <= the bytes mapped.
            Ok(unsafe { self.addresses.base().add(offset as usize) })
        } else {
            Err(self.out_of_range(offset, len))
        }
    }

    /// What was read, or where a page of the range has failed what the mirror says, if there is
    /// one.
    #[cold]
    #[inline(never)]
    fn look_or<T>(
        &self,
        read: T,
        offset: u64,
        len: usize,
        other: impl FnOnce(&Mapping) -> Result<T>,
    ) -> Result<T> {
        match (self.seen(offset, len), self.mirror()) {
            (Ok(()), _) => Ok(read),
            (Err(_), Some(mirror)) => other(mirror),
            (Err(error), None) => Err(error),
        }
    }

    #[cold]
    fn out_of_range(&self, offset: u64, len: usize) -> Error {
        Error::OutOfRange { offset, len, size: self.len() }
    }
}

/// Whether `len` bytes at `offset` lie inside `size` bytes.
#[inline(always)]
pub(crate) fn within(offset: u64, len: usize, size: usize) -> bool {
    len <= size && offset <= (size - len) as u64
}
