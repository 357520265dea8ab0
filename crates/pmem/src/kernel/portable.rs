//! Plain loads and stores: for CPUs that this crate knows no better way on, and for tools that
//! do not know the better one.

use super::Kernels;
use crate::{LINE_BYTES, crc::table};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Ordinary stores and table look-ups.
pub(crate) static PORTABLE: Kernels = Kernels {
    name: "portable",
    streams: false,
    copy,
    copy_crc,
    read_crc,
    crc: table::crc,
    difference: table::difference,
    shift: table::shift,
};

/// Copies `len` bytes with ordinary stores; a word that is aligned in the destination changes
/// at once.
///
/// # Safety
/// `from` is valid for reads of `len` bytes that do not change, `to` for writes; they are apart.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promise, and the words are aligned where they are all there is.
    unsafe {
        if (to.addr() | len).is_multiple_of(8) {
            store_words(to, from, len / 8);
        } else {
            store_unaligned(to, from, len);
        }
    }
}

/// # Safety
/// As for [`store`].
#[inline(never)]
unsafe fn store_unaligned(to: *mut u8, from: *const u8, len: usize) {
    let head = to.align_offset(8).min(len);
    let words = (len - head) / 8;
    let tail = head + words * 8;
    // SAFETY: all offsets are below `len`, and the words are aligned.
    unsafe {
        store_bytes(to, from, head);
        store_words(to.add(head), from.add(head), words);
        store_bytes(to.add(tail), from.add(tail), len - tail);
    }
}

/// # Safety
/// As for [`store`], of so many words; `to` is aligned.
#[inline]
unsafe fn store_words(to: *mut u8, from: *const u8, words: usize) {
    for word in 0..words {
        let at = word * 8;
        // SAFETY: the word lies inside and is aligned, and every other access to the mapping from
        // this program is made by raw copies too.
        unsafe {
            let value = from.add(at).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(to.add(at).cast()).store(value, Ordering::Relaxed);
        }
    }
}

/// # Safety
/// As for [`store`].
unsafe fn store_bytes(to: *mut u8, from: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: at < len.
        unsafe { AtomicU8::from_ptr(to.add(at)).store(from.add(at).read(), Ordering::Relaxed) };
    }
}

unsafe fn copy(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: the caller's promise.
    unsafe { store(to, from, lines * LINE_BYTES) }
}

/// Also the way of CPUs with streaming stores but without a CRC instruction.
unsafe fn copy_crc(to: *mut u8, from: *const u8, lines: usize, state: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        copy(to, from, lines);
        table::crc(from, lines * LINE_BYTES, state)
    }
}

/// # Safety
/// As [`Kernels`] says.
pub(crate) unsafe fn read_crc(to: *mut u8, from: *const u8, len: usize, state: u32) -> u32 {
    // SAFETY: the caller's promise. The checksum is taken of the copy, which nobody changes.
    unsafe {
        to.copy_from_nonoverlapping(from, len);
        table::crc(to, len, state)
    }
}
