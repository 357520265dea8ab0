//! Every store to a mapping.
//!
//! Whole lines go past the caches with non-temporal stores, parts of lines are stored and then
//! flushed: on persistent memory the former needs no line to be read, and leaves none to flush.
//!
//! A recorder is told of a store before it is made and of a fence or sync after: so whoever acts
//! on what another thread stored is recorded later, and what follows a recorded fence was
//! ordered by it.

use crate::access::within;
use crate::kernel::portable;
use crate::mapping::Mapping;
use crate::state::{Deferred, Dirty, InFlight};
use crate::through_file::write_at;
use crate::{LINE_BYTES, crc32c};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "recorder")]
use crate::{kernel::Flush, recorder::EventKind};

/// What `zero` copies from.
static ZEROS: [u8; 4096] = [0; 4096];

/// Storing panics where the range does not lie inside the mapping, or the mapping is read-only:
/// offsets of stores come from an allocator, never from outside.
impl Mapping {
    /// Writes with non-temporal stores (whole lines) and store + flush (edges).
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn write(&self, offset: u64, data: &[u8]) -> InFlight {
        match self.direct(offset, data.len()) {
            Some(target) if is_whole_lines(offset, data.len()) => {
                self.write_lines(target, offset, data);
            }
            Some(target) => self.write_parts(target, offset, data),
            None => self.store_far(offset, data, true),
        }
        InFlight::none()
    }

    /// The same, to this copy alone where it has a mirror.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn write_own(&self, offset: u64, data: &[u8]) -> InFlight {
        self.store_to_one(offset, data, true);
        InFlight::none()
    }

    /// Writes like `write`, and gives the CRC-32C of the data, in one pass.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn write_crc(&self, offset: u64, data: &[u8]) -> (InFlight, u32) {
        let crc = match self.direct(offset, data.len()) {
            Some(target) if is_whole_lines(offset, data.len()) => {
                self.write_lines_crc(target, offset, data, 0)
            }
            Some(target) => self.write_parts_crc(target, offset, data),
            None => {
                self.store_far(offset, data, true);
                crc32c(0, data)
            }
        };
        (InFlight::none(), crc)
    }

    /// Writes whole blocks like `write`, one behind the other: as many as there are `sums`, which
    /// get the CRC-32C of each, in one pass.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn write_blocks(&self, offset: u64, data: &[u8], sums: &mut [u32]) -> InFlight {
        let bytes = data.len() / sums.len().max(1);
        assert!(bytes * sums.len() == data.len() && is_whole_lines(offset, bytes), "whole blocks");
        // one access for the memory
        self.charge_write(offset, data.len());
        for (index, sum) in sums.iter_mut().enumerate() {
            let (from, at) = (index * bytes, offset + (index * bytes) as u64);
            let block = &data[from..from + bytes];
            *sum = match self.direct(at, bytes) {
                Some(target) => self.write_lines_crc(target, at, block, 0),
                None => {
                    self.store_to_both(at, block, true);
                    crc32c(0, block)
                }
            };
        }
        InFlight::none()
    }

    /// Ordinary stores, to be flushed.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn store(&self, offset: u64, data: &[u8]) -> Dirty {
        self.store_anyhow(offset, data);
        Dirty::new()
    }

    /// Ordinary stores, to be flushed with `flush_deferred` by whoever holds the result.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn store_deferred(&self, offset: u64, data: &[u8]) -> Deferred {
        self.store_anyhow(offset, data);
        Deferred { offset, len: data.len() as u32 }
    }

    /// Flushes what `store_deferred` stored, each line once, and gives the number of lines.
    /// The stores happened before the call.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn flush_deferred(&self, mut stored: Vec<Deferred>) -> (InFlight, u64) {
        stored.sort_unstable();
        let line_bytes = LINE_BYTES as u64;
        let (mut next, mut lines) = (0, 0);
        for stored in stored {
            let end = (stored.offset + u64::from(stored.len)).next_multiple_of(line_bytes);
            let from = next.max(stored.offset - stored.offset % line_bytes);
            if from < end {
                let len = (end - from) as usize;
                self.flush_both(self.target(from, len), from, len);
                lines += (end - from) / line_bytes;
                next = end;
            }
        }
        (InFlight::none(), lines)
    }

    /// Stores a little-endian word at `offset`, which is a multiple of 8: a power cut and other
    /// threads see the old one or the new one. Stores before it are visible before it (release).
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn store_u64(&self, offset: u64, word: u64) -> Dirty {
        let target = self.target(offset, 8);
        assert!(offset.is_multiple_of(8), "a word at {offset} is not aligned");
        #[cfg(feature = "recorder")]
        self.record(EventKind::Store { offset, data: &word.to_le_bytes() });
        // SAFETY: the word is mapped, writable and aligned.
        unsafe { AtomicU64::from_ptr(target.cast()).store(word.to_le(), Ordering::Release) };
        if let Some(mirror) = &self.mirror {
            let _ = mirror.mapping.store_u64(offset, word);
        }
        Dirty::new()
    }

    /// Writes zeros like `write`.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn zero(&self, offset: u64, len: usize) -> InFlight {
        self.target(offset, len);
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            // The first piece ends at a line, so that the others begin at one.
            let skip = (at % LINE_BYTES as u64) as usize;
            let piece = (ZEROS.len() - skip).min(len - done);
            let _ = self.write(at, &ZEROS[..piece]);
            done += piece;
        }
        InFlight::none()
    }

    /// Flushes what `store` made dirty there.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn flush(&self, dirty: Dirty, offset: u64, len: usize) -> InFlight {
        let _ = dirty;
        let target = self.target(offset, len);
        self.flush_both(target, offset, len);
        InFlight::none()
    }

    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn store_anyhow(&self, offset: u64, data: &[u8]) {
        match self.direct(offset, data.len()) {
            Some(target) => self.store_plain(target, offset, data),
            None => self.store_far(offset, data, false),
        }
    }

    /// The long way: through the file, to a mirror, or where stores wait for a machine that is
    /// played.
    #[inline(never)]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn store_far(&self, offset: u64, data: &[u8], past_caches: bool) {
        self.charge_write(offset, data.len());
        self.store_to_both(offset, data, past_caches);
    }

    /// To this copy: through the file where that is so; else past the caches where that can be, or
    /// in them.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub(crate) fn store_to_one(&self, offset: u64, data: &[u8], past_caches: bool) {
        let target = self.target(offset, data.len());
        match (self.through_file, past_caches) {
            (true, _) => self.write_file(target, offset, data),
            (false, true) => self.write_parts(target, offset, data),
            (false, false) => self.store_plain(target, offset, data),
        }
    }

    /// Through the file; what cannot be written so is stored to the mapping, where a medium that
    /// fails shows itself as it always did.
    #[inline(never)]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn write_file(&self, target: *mut u8, offset: u64, data: &[u8]) {
        #[cfg(feature = "recorder")]
        self.record(EventKind::Store { offset, data });
        let done = match &self.file {
            None => 0,
            Some(file) => match write_at(file, self.file_offset + offset, data) {
                Ok(()) => return self.written(offset, data.len()),
                Err((done, _)) => done,
            },
        };
        let rest = &data[done..];
        // SAFETY: `target` came from the range's check, and `done` is at most the data's length;
        // no slice of safe code lies in a mapping.
        unsafe { portable::store(target.add(done), rest.as_ptr(), rest.len()) };
    }

    /// Where the range begins, if it lies inside what is stored to straight away: one question for
    /// both on the way of every write.
    #[inline(always)]
    pub(crate) fn direct(&self, offset: u64, len: usize) -> Option<*mut u8> {
        // SAFETY: offset <= the bytes mapped.
        within(offset, len, self.direct_len)
            .then(|| unsafe { self.addresses.base().add(offset as usize) })
    }

    /// Where the range begins; panics where it does not lie inside what may be written.
    #[inline(always)]
    fn target(&self, offset: u64, len: usize) -> *mut u8 {
        if !within(offset, len, self.writable_len) {
            self.refuse(offset, len);
        }
        // SAFETY: offset <= the bytes mapped.
        unsafe { self.addresses.base().add(offset as usize) }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, offset: u64, len: usize) -> ! {
        let kind = if self.read_only() { "read-only " } else { "" };
        panic!("a store of {len} bytes at {offset} into {} {kind}bytes", self.len())
    }

    #[inline(always)]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub(crate) fn write_lines(&self, target: *mut u8, offset: u64, data: &[u8]) {
        #[cfg(feature = "recorder")]
        self.record_lines(offset, data);
        // SAFETY: `target` came from the range's check and lies on a line, as the mapping's base
        // lies on a page; the data are whole lines, and the kernels are for this CPU.
        unsafe { (self.kernels.copy)(target, data.as_ptr(), data.len() / LINE_BYTES) };
        self.flush_lines(target, offset, data.len());
    }

    #[inline(always)]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn write_lines_crc(&self, target: *mut u8, offset: u64, data: &[u8], seed: u32) -> u32 {
        #[cfg(feature = "recorder")]
        self.record_lines(offset, data);
        let lines = data.len() / LINE_BYTES;
        // SAFETY: as in `write_lines`.
        let state = unsafe { (self.kernels.copy_crc)(target, data.as_ptr(), lines, !seed) };
        self.flush_lines(target, offset, data.len());
        !state
    }

    /// After whole lines: needed where they were written through the caches.
    #[inline(always)]
    #[cfg_attr(feature = "recorder", track_caller)]
    pub(crate) fn flush_lines(&self, target: *mut u8, offset: u64, len: usize) {
        if !self.kernels.streams {
            self.flush_range(target, offset, len);
        }
    }

    #[inline(never)]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn write_parts(&self, target: *mut u8, offset: u64, data: &[u8]) {
        let parts = Parts::new(offset, data);
        self.write_part(target, offset, parts.head);
        // SAFETY: the parts' lengths add up to the data's, which the caller has checked.
        let target = unsafe { target.add(parts.head.len()) };
        let offset = offset + parts.head.len() as u64;
        self.write_lines(target, offset, parts.lines);
        // SAFETY: as above.
        let target = unsafe { target.add(parts.lines.len()) };
        self.write_part(target, offset + parts.lines.len() as u64, parts.tail);
    }

    #[inline(never)]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn write_parts_crc(&self, target: *mut u8, offset: u64, data: &[u8]) -> u32 {
        let parts = Parts::new(offset, data);
        self.write_part(target, offset, parts.head);
        let crc = crc32c(0, parts.head);
        // SAFETY: the parts' lengths add up to the data's, which the caller has checked.
        let target = unsafe { target.add(parts.head.len()) };
        let offset = offset + parts.head.len() as u64;
        let crc = self.write_lines_crc(target, offset, parts.lines, crc);
        // SAFETY: as above.
        let target = unsafe { target.add(parts.lines.len()) };
        self.write_part(target, offset + parts.lines.len() as u64, parts.tail);
        crc32c(crc, parts.tail)
    }

    /// Less than a line, within one line.
    #[cfg_attr(feature = "recorder", track_caller)]
    fn write_part(&self, target: *mut u8, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.store_plain(target, offset, data);
            self.flush_range(target, offset, data.len());
        }
    }

    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn store_plain(&self, target: *mut u8, offset: u64, data: &[u8]) {
        #[cfg(feature = "recorder")]
        self.record(EventKind::Store { offset, data });
        #[cfg(not(feature = "recorder"))]
        let _ = offset;
        // SAFETY: `target` came from the range's check; no slice of safe code lies in a mapping.
        unsafe { portable::store(target, data.as_ptr(), data.len()) };
    }

    /// There, and in the mirror.
    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn flush_both(&self, target: *mut u8, offset: u64, len: usize) {
        self.flush_range(target, offset, len);
        if let Some(mirror) = &self.mirror {
            let mirror = &mirror.mapping;
            mirror.flush_range(mirror.target(offset, len), offset, len);
        }
    }

    #[inline]
    #[cfg_attr(feature = "recorder", track_caller)]
    fn flush_range(&self, target: *mut u8, offset: u64, len: usize) {
        // SAFETY: the range is mapped, and the instruction was chosen for this CPU.
        unsafe { self.flush.range(target, len) };
        #[cfg(feature = "recorder")]
        if self.flush != Flush::None {
            self.record(EventKind::Flush { offset, len });
        }
        #[cfg(not(feature = "recorder"))]
        let _ = offset;
    }

    #[cfg(feature = "recorder")]
    #[track_caller]
    fn record_lines(&self, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.record(if self.kernels.streams {
                EventKind::NtStore { offset, data }
            } else {
                EventKind::Store { offset, data }
            });
        }
    }
}

#[inline(always)]
fn is_whole_lines(offset: u64, len: usize) -> bool {
    (offset | len as u64).is_multiple_of(LINE_BYTES as u64)
}

/// A range cut at lines' boundaries.
struct Parts<'a> {
    head: &'a [u8],
    lines: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Parts<'a> {
    fn new(offset: u64, data: &'a [u8]) -> Parts<'a> {
        let before = offset.wrapping_neg() % LINE_BYTES as u64;
        let (head, rest) = data.split_at(data.len().min(before as usize));
        let (lines, tail) = rest.split_at(rest.len() - rest.len() % LINE_BYTES);
        Parts { head, lines, tail }
    }
}
