//! The memory of a read cache: a count of 8 bytes for each place, and then the places, a page each.

/// Pages of it.
pub const CACHED_PAGES: usize = 16_384;
/// Its length, bytes.
pub const CACHE_BYTES: usize = PAGES_AT + CACHED_PAGES * PAGE_BYTES;
/// Pages of one read, at most: a longer one is not cached.
pub const CACHED_READ_PAGES: u64 = 17;

const PAGE_BYTES: usize = 4096;
const PAGES_AT: usize = CACHED_PAGES * size_of::<u64>();

const _: () = assert!(PAGES_AT.is_multiple_of(PAGE_BYTES));

/// Where the bytes of a place are.
#[inline]
pub fn cached_page(place: u32) -> usize {
    PAGES_AT + place as usize * PAGE_BYTES
}
