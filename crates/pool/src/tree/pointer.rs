//! How a page is named: by its parent, or by the root's record.

use super::{HEIGHT_MAX, TreeError, error::damaged};
use crate::addr::BlockAddr;

/// Bytes of a [`PagePtr`] on the medium.
pub const PAGE_PTR_BYTES: usize = OFF_CRC + 4;

const OFF_ADDR: usize = 0;
const OFF_COPY: usize = OFF_ADDR + 8;
const OFF_CRC: usize = OFF_COPY + 8;
const _: () = assert!(PAGE_PTR_BYTES == 20);

/// Bytes of a [`Root`] on the medium.
pub const ROOT_BYTES: usize = OFF_ENTRIES + 8;

const OFF_PAGE: usize = 0;
const OFF_HEIGHT: usize = OFF_PAGE + PAGE_PTR_BYTES;
const OFF_ZERO: usize = OFF_HEIGHT + 1;
const OFF_ENTRIES: usize = OFF_ZERO + 3;
const _: () = assert!(ROOT_BYTES == 32);

/// Names a page: where it is and what its bytes sum to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PagePtr {
    /// Where the page is.
    pub addr: BlockAddr,
    /// Where its second copy is; none if there is none.
    pub copy: BlockAddr,
    /// CRC32C of the page's 4096 bytes.
    pub crc: u32,
}

impl PagePtr {
    /// No page.
    pub const NONE: PagePtr = PagePtr { addr: BlockAddr::NONE, copy: BlockAddr::NONE, crc: 0 };

    /// The blocks that it names: the page's, and its second copy's if it has one.
    pub fn blocks(&self) -> impl Iterator<Item = BlockAddr> + use<> {
        [self.addr, self.copy].into_iter().filter(|addr| !addr.is_none())
    }

    /// The pointer as it is stored.
    pub fn encode(&self) -> [u8; PAGE_PTR_BYTES] {
        let mut bytes = [0; PAGE_PTR_BYTES];
        bytes[OFF_ADDR..OFF_COPY].copy_from_slice(&self.addr.bits().to_le_bytes());
        bytes[OFF_COPY..OFF_CRC].copy_from_slice(&self.copy.bits().to_le_bytes());
        bytes[OFF_CRC..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// The pointer that `bytes` say; None if they are no addresses. Whether the pool has such
    /// blocks is for the reader of pages to say.
    pub fn decode(bytes: &[u8; PAGE_PTR_BYTES]) -> Option<PagePtr> {
        Some(PagePtr {
            addr: BlockAddr::from_bits(u64_at(bytes, OFF_ADDR)?)?,
            copy: BlockAddr::from_bits(u64_at(bytes, OFF_COPY)?)?,
            crc: u32::from_le_bytes(*bytes.get(OFF_CRC..)?.first_chunk()?),
        })
    }
}

/// Names a tree: its topmost page, its height and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root {
    /// The topmost page; none if the tree is empty.
    pub page: PagePtr,
    /// Levels of pages: 0 is an empty tree, 1 a single leaf.
    pub height: u8,
    /// Entries in the leaves.
    pub entries: u64,
}

impl Root {
    /// The empty tree.
    pub const EMPTY: Root = Root { page: PagePtr::NONE, height: 0, entries: 0 };

    /// The root as it is stored.
    pub fn encode(&self) -> [u8; ROOT_BYTES] {
        let mut bytes = [0; ROOT_BYTES];
        bytes[OFF_PAGE..OFF_HEIGHT].copy_from_slice(&self.page.encode());
        bytes[OFF_HEIGHT] = self.height;
        bytes[OFF_ENTRIES..].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }

    /// The root that `bytes` say, if they make sense.
    pub fn decode(bytes: &[u8; ROOT_BYTES]) -> Result<Root, TreeError> {
        let page = bytes.first_chunk().and_then(PagePtr::decode);
        let (Some(page), Some(entries)) = (page, u64_at(bytes, OFF_ENTRIES)) else {
            return damaged(BlockAddr::NONE, "the root names no block");
        };
        if bytes[OFF_ZERO..OFF_ENTRIES] != [0; OFF_ENTRIES - OFF_ZERO] {
            return damaged(BlockAddr::NONE, "the root's reserved bytes are in use");
        }
        let root = Root { page, height: bytes[OFF_HEIGHT], entries };
        root.check()?;
        Ok(root)
    }

    /// Whether the three agree with each other.
    pub(super) fn check(&self) -> Result<(), TreeError> {
        if self.height > HEIGHT_MAX {
            return damaged(self.page.addr, "the root is too high");
        }
        if self.height == 0 && (self.page != PagePtr::NONE || self.entries != 0) {
            return damaged(self.page.addr, "an empty tree has a page or entries");
        }
        if self.height > 0 && (self.page.addr.is_none() || self.entries == 0) {
            return damaged(self.page.addr, "the tree has levels and no page or no entries");
        }
        Ok(())
    }
}

/// The number at `at`, None if it does not lie in `bytes`.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
