//! The tree: where everything is.
//!
//! A copy-on-write B+tree that maps a [`Key`] to up to [`VALUE_BYTES_MAX`] bytes. The tree is a
//! value: a [`Root`] names one version of it, and [`apply`] makes the next one from a sorted batch
//! of changes. It knows neither slices, nor free space, nor when its pages are durable; a
//! [`PageStore`] does.
//!
//! # What it keeps true
//! - No page is ever overwritten: a version stays whole as long as its pages are not used again.
//! - A page that a batch touches is rewritten at most once in that batch; what it does not touch
//!   is shared with the version before, unread.
//! - On success `apply` has freed exactly the pages that the old version has and the new one has
//!   not; on failure exactly those that it wrote, so that the old version is as it was.
//! - Bytes from the medium are not believed: any bytes give an answer or [`TreeError::Damaged`],
//!   after a number of page reads that the pool's size bounds. (A child's level is below its
//!   parent's and its first key is the one that the parent says, parents' keys ascend: so no page
//!   is met twice in one pass.)
//!
//! # What is written in which order, and what a crash between leaves
//! Children before parents, all of them to blocks that no root in use reaches, and the new root by
//! the caller, after a fence. A crash before that leaves the old tree, and the new pages free.
//!
//! # The page
//! 4096 bytes. Numbers are little-endian; keys are big-endian, so that their bytes compare as they
//! do. Leaves (level 0) and inner pages (level above 0) have one layout: a sorted map.
//!
//! ```text
//!   0          4       5     6       8      10                    32
//!   +----------+-------+-----+-------+------+---------------------+
//!   | "NSTP"   | vers. |level| count | used | 22 bytes, zero      |
//!   +----------+-------+-----+-------+------+---------------------+
//!  32 + 19 * i                                17         19
//!   +---------------------------------------+----------+
//!   | key of entry i: object 8 kind 1 index 8 |  end   |  slot i, keys ascending
//!   +---------------------------------------+----------+
//!  32 + 19 * count
//!   +---------+---------+-- ... --+---------+---------------------+
//!   | value 0 | value 1 |         | value n | zeros to byte 4096  |
//!   +---------+---------+-- ... --+---------+---------------------+
//!             ^ end of slot 0               ^ end of slot n = used
//! ```
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..4 | magic | `NSTP` |
//! | 4 | version | 1 |
//! | 5 | level | 0: leaf; a child's is its parent's less one |
//! | 6..8 | count | entries, 1 to 213 |
//! | 8..10 | used | where the last value ends |
//! | 10..32 | zero | reserved |
//! | slot 0..17 | key | object (8 bytes), kind (1), index (8), big-endian |
//! | slot 17..19 | end | where the value ends in the page; it begins where the one before ends |
//!
//! The value of an inner page's entry is the 20 bytes of a [`PagePtr`]: address (8: slice << 40 |
//! block), address of the second copy or 0 (8), CRC32C of the page (4). Its key is *exactly* the
//! first key of that child; the child's keys are below the next entry's key. A page's checksum is
//! in its parent, the topmost page's in the root's record:
//!
//! ```text
//!   0               20       21          24        32
//!   +---------------+--------+-----------+---------+
//!   | page pointer  | height | 3 B, zero | entries |   all 0: the empty tree
//!   +---------------+--------+-----------+---------+
//! ```
//!
//! # Limits
//! [`VALUE_BYTES_MAX`] per value, so that two entries fit in every page; [`HEIGHT_MAX`] levels,
//! more than a pool has blocks for. An inner page has up to 104 children.

mod apply;
mod batch;
mod cursor;
mod error;
mod get;
mod key;
mod merge;
mod packer;
mod page;
mod pointer;
mod readable;
mod run;
mod walk;

#[cfg(test)]
mod tests;

pub use crate::addr::BlockAddr;
pub use apply::{Change, apply, apply_touching};
pub use cursor::{Cursor, scan};
pub use error::TreeError;
pub use get::{get, get_with};
pub use key::{KEY_BYTES, Key};
pub use merge::Work;
pub use pointer::{PAGE_PTR_BYTES, PagePtr, ROOT_BYTES, Root};
pub use readable::{Lost, Met, walk_readable};
pub use walk::{walk, walk_pointers};

use std::sync::Arc;

/// Bytes of a page; a page is a block.
pub const PAGE_BYTES: usize = 4096;
/// Bytes that a value has at most.
pub const VALUE_BYTES_MAX: usize = 1600;
/// Levels that a tree has at most.
pub const HEIGHT_MAX: u8 = 12;

/// A page in DRAM.
#[derive(Debug)]
pub struct PageCopy {
    /// What names it.
    pub ptr: PagePtr,
    /// Its bytes.
    pub bytes: [u8; PAGE_BYTES],
}

/// Where pages are read from.
pub trait PageRead {
    /// Reads the page that `ptr` names into `page` and verifies its checksum; where the first copy
    /// is bad and there is a second, reads that. `ptr` may come from a damaged page: an address
    /// that the pool does not have is an error.
    fn read_page(&self, ptr: &PagePtr, page: &mut [u8; PAGE_BYTES]) -> Result<(), TreeError>;

    /// The page that `ptr` names, verified, to be looked up in. Who keeps pages in DRAM gives them
    /// out again, and only then is the medium not read.
    fn page(&self, ptr: &PagePtr) -> Result<Arc<PageCopy>, TreeError> {
        let mut page = PageCopy { ptr: *ptr, bytes: [0; PAGE_BYTES] };
        self.read_page(ptr, &mut page.bytes)?;
        Ok(Arc::new(page))
    }
}

/// Where pages are written to.
pub trait PageStore: PageRead {
    /// Writes a new page to a block that no version of the tree in use has. It need not be durable
    /// before the root is written.
    fn write_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<PagePtr, TreeError>;

    /// The page is no longer part of the tree: one of the version before, whose block (and second
    /// copy) may be used again once the new root is committed; or, if `apply` fails, one that it
    /// wrote, which may be used again at once.
    fn free_page(&mut self, ptr: &PagePtr);
}

/// What the parent says about a page; the page must agree.
#[derive(Clone, Copy)]
struct Child {
    ptr: PagePtr,
    level: u8,
    /// Its first key; the topmost page has no parent that would say.
    first: Option<Key>,
    /// All its keys are below this one.
    upper: Option<Key>,
}

impl Child {
    /// The topmost page; None if the tree is empty.
    fn top(root: &Root) -> Result<Option<Child>, TreeError> {
        root.check()?;
        let level = root.height.checked_sub(1);
        Ok(level.map(|level| Child { ptr: root.page, level, first: None, upper: None }))
    }
}
