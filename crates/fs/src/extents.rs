//! Where the data of a file lies: for who wants to see it.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::layout::Layout;
use crate::leaf::{LEAF_BLOCKS, LEAF_INDEX_MAX};
use crate::placing::Placing;
use crate::slot::SlotView;
use crate::system::FileSystem;
use crate::types::{FileKind, Ino, SetAttr};
use placement::Levers;
use pool::{BLOCK_BYTES, BlockAddr};

/// Leaves that one call looks at (512 MiB of a file): it is over soon, whatever the file is like.
const LEAVES_MAX: u32 = 1024;

/// What an extent lies on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExtentOn {
    /// This slice.
    Slice(u8),
    /// This device of the capacity tier.
    Device(u8),
}

impl ExtentOn {
    fn of(addr: BlockAddr) -> ExtentOn {
        match addr.device() {
            Some(device) => ExtentOn::Device(device as u8),
            None => ExtentOn::Slice(addr.slice()),
        }
    }
}

/// A run of a file's blocks that lie one behind the other on one slice, or on one device of the
/// capacity tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// How long it is: whole blocks, also at the file's end.
    pub bytes: u64,
    /// What it lies on.
    pub on: ExtentOn,
    /// Where on that, bytes.
    pub at: u64,
}

/// What a file has beside its extents, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileExtras {
    /// Blocks that are set aside for holes, in slices or on devices.
    pub reserved: u64,
    /// Blocks in slices that hold what some of its blocks on devices do: they belong to nobody.
    pub clean: u64,
}

/// A slice, and who is near it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearSlice {
    /// Its place in the pool.
    pub slice: u8,
    /// The node that it lies on, as the kernel numbers nodes; of virtual ones, from 0.
    pub node: u32,
    /// CPUs that serve that node: its own, or where it has none those of the nearest that has.
    pub cpus: Vec<u32>,
}

impl FileSystem {
    /// Where new blocks of a file go, and of what is made in a directory.
    pub fn layout(&self, ino: Ino) -> Result<Layout> {
        Ok(self.core.inode(ino)?.layout())
    }

    /// Lays blocks that are written from now on elsewhere; those that are there stay until they are
    /// written anew.
    pub fn set_layout(&self, ino: Ino, layout: Layout) -> Result<()> {
        let change = SetAttr { layout: Some(layout), ..SetAttr::default() };
        self.core.setattr(ino, &change, None).map(drop)
    }

    /// Both that and [`levers`](FileSystem::levers).
    pub fn placing(&self, ino: Ino) -> Result<Placing> {
        Ok(self.core.inode(ino)?.placing())
    }

    /// How far a file's data may move, and threads to it, as somebody said of it; what is made in
    /// a directory begins with that, and what is said of the root directory counts for the whole
    /// pool.
    pub fn levers(&self, ino: Ino) -> Result<Levers> {
        Ok(self.core.inode(ino)?.placing().levers)
    }

    /// Says that. Nothing moves further than this pool's [`OpenOptions::levers`] let it.
    ///
    /// [`OpenOptions::levers`]: pool::OpenOptions::levers
    pub fn set_levers(&self, ino: Ino, Levers { threads, data }: Levers) -> Result<()> {
        let (move_threads, move_data) = (Some(threads), Some(data));
        let change = SetAttr { move_threads, move_data, ..SetAttr::default() };
        self.core.setattr(ino, &change, None).map(drop)
    }

    /// Some extents of a file from `offset` on, at most `max`, and where to go on; nowhere at its
    /// end. What small files and small writes have in the log and the trees is in none.
    pub fn extents(
        &self,
        ino: Ino,
        offset: u64,
        max: usize,
    ) -> Result<(Vec<FileExtent>, Option<u64>)> {
        let inode = self.core.inode(ino)?;
        match inode.kind {
            FileKind::File => self.core.extents(&inode, offset / BLOCK_BYTES, max),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only a regular file holds data")),
        }
    }

    /// What a file has beside its extents, from `offset` on, and where to go on; nowhere at its
    /// end.
    pub fn extras(&self, ino: Ino, offset: u64) -> Result<(FileExtras, Option<u64>)> {
        let inode = self.core.inode(ino)?;
        match inode.kind {
            FileKind::File => self.core.extras(&inode, offset / BLOCK_BYTES / LEAF_BLOCKS),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only a regular file holds data")),
        }
    }

    /// Bytes of a stripe of large files.
    pub fn stripe_bytes(&self) -> u64 {
        self.core.stripes.bytes()
    }

    /// The slices, and the CPUs near each.
    pub fn near_slices(&self) -> Vec<NearSlice> {
        let nodes = self.core.pool.nodes();
        let slice = |slice: u8| NearSlice {
            slice,
            node: nodes.of(slice).unwrap_or_default(),
            cpus: nodes.cpus_near(slice).to_vec(),
        };
        (0..self.core.pool.slices().len()).map(|index| slice(index as u8)).collect()
    }
}

impl Core {
    fn extents(
        &self,
        inode: &Inode,
        first: u64,
        max: usize,
    ) -> Result<(Vec<FileExtent>, Option<u64>)> {
        let mut found: Vec<FileExtent> = Vec::new();
        let mut index = self.first_leaf(inode, first / LEAF_BLOCKS)?;
        for _ in 0..LEAVES_MAX {
            if index > LEAF_INDEX_MAX {
                return Ok((found, None));
            }
            for (block, view) in (index * LEAF_BLOCKS..).zip(self.views_of(inode, index)?) {
                if block < first || view.addr.is_none() {
                    continue;
                }
                let last = found.last_mut().filter(|last| goes_on(last, block, view.addr));
                if let Some(last) = last {
                    last.bytes += BLOCK_BYTES;
                } else if found.len() == max {
                    return Ok((found, Some(block * BLOCK_BYTES)));
                } else {
                    found.push(FileExtent {
                        offset: block * BLOCK_BYTES,
                        bytes: BLOCK_BYTES,
                        on: ExtentOn::of(view.addr),
                        at: view.addr.block() * BLOCK_BYTES,
                    });
                }
            }
            // looking for the next one takes a while where there are many
            index = match index < LEAF_INDEX_MAX && self.leaf(inode, index + 1)?.is_some() {
                true => index + 1,
                false => self.first_leaf(inode, index + 1)?,
            };
        }
        Ok((found, Some(index * LEAF_BLOCKS * BLOCK_BYTES)))
    }

    fn extras(&self, inode: &Inode, first: u64) -> Result<(FileExtras, Option<u64>)> {
        let has_copy = |addr: BlockAddr| self.tier.as_ref().is_some_and(|tier| tier.has_copy(addr));
        let mut extras = FileExtras::default();
        let mut index = self.first_leaf(inode, first)?;
        for _ in 0..LEAVES_MAX {
            if index > LEAF_INDEX_MAX {
                return Ok((extras, None));
            }
            for view in self.views_of(inode, index)? {
                extras.reserved += u64::from(view.reserved) * BLOCK_BYTES;
                extras.clean += u64::from(has_copy(view.addr)) * BLOCK_BYTES;
            }
            index = self.first_leaf(inode, index + 1)?;
        }
        Ok((extras, Some(index * LEAF_BLOCKS * BLOCK_BYTES)))
    }

    /// All slots of a leaf as they were at one moment.
    pub fn views_of(&self, inode: &Inode, index: u64) -> Result<Vec<SlotView>> {
        loop {
            let Some(leaf) = self.leaf(inode, index)? else { return Ok(Vec::new()) };
            if let Some(sequence) = leaf.begin_read() {
                let views = (0..leaf.room()).map(|slot| leaf.view(slot)).collect();
                if leaf.still(sequence) {
                    return Ok(views);
                }
            }
        }
    }
}

fn goes_on(last: &FileExtent, block: u64, addr: BlockAddr) -> bool {
    last.on == ExtentOn::of(addr)
        && last.offset + last.bytes == block * BLOCK_BYTES
        && last.at + last.bytes == addr.block() * BLOCK_BYTES
}
