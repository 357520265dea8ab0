//! The inodes in DRAM, by number: found, loaded, listed as changed, let go.

use crate::attr::Stored;
use crate::core::{Core, damaged_value};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_hash::InodeHash;
use crate::keys;
use crate::types::{FileKind, Ino};
use ::locks::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SHARDS: usize = 64;

/// Units of an inode's attributes; see `Core::dirty_units`.
pub const INODE_UNITS: u64 = 2;

/// A part of the inodes in DRAM, by number.
type Shard = RwLock<HashMap<u64, Arc<Inode>, InodeHash>>;

/// All of them.
pub type InodeTable = Box<[Shard]>;

/// A table without any.
pub fn new() -> InodeTable {
    let hash = InodeHash::new();
    (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(hash.clone()))).collect()
}

impl Core {
    fn shard(&self, ino: Ino) -> &Shard {
        &self.table[(ino.0 ^ (ino.0 >> 8)) as usize % SHARDS]
    }

    /// The inode, if it is in DRAM.
    pub fn cached_inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shard(ino).read().get(&ino.0).cloned()
    }

    /// The inode, loaded if need be.
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.inode_to_lock(ino)?;
        if inode.meta.read().gone { Err(Error::NotFound) } else { Ok(inode) }
    }

    /// The root directory, of a pool that is opened.
    pub fn root(&self) -> Result<Arc<Inode>> {
        match self.inode(Ino::ROOT) {
            Ok(root) if root.kind == FileKind::Directory => Ok(root),
            Ok(_) => Err(Error::Damaged("the root directory is no directory".to_owned())),
            Err(Error::NotFound) => Err(Error::Damaged("there is no root directory".to_owned())),
            Err(error) => Err(error),
        }
    }

    /// The same for who locks it then, and looks whether it is gone: where many change one
    /// directory, waiting for its lock once is enough.
    pub fn inode_to_lock(&self, ino: Ino) -> Result<Arc<Inode>> {
        match self.cached_inode(ino) {
            Some(inode) => Ok(inode),
            None => self.load_inode(ino),
        }
    }

    fn load_inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let home = keys::home(ino);
        if usize::from(home) >= self.pool.slices().len() {
            return Err(Error::NotFound);
        }
        let mut shard = self.shard(ino).write();
        if let Some(inode) = shard.get(&ino.0) {
            return Ok(inode.clone());
        }
        let key = keys::key(ino, keys::INODE, 0);
        let value = self.pool.get(home, &key)?.ok_or(Error::NotFound)?;
        let stored = Stored::decode(&value).ok_or_else(|| damaged_value(&key))?;
        let inode = Arc::new(Inode::new(ino, &stored, true));
        inode.meta.write().orphan = stored.links == 0;
        shard.insert(ino.0, inode.clone());
        Ok(inode)
    }

    /// Takes a new inode into DRAM.
    pub fn insert_inode(&self, inode: &Arc<Inode>) {
        self.shard(inode.ino).write().insert(inode.ino.0, inode.clone());
    }

    /// Lets go of an inode that is gone from the trees, too.
    pub fn forget_inode(&self, ino: Ino) {
        self.shard(ino).write().remove(&ino.0);
    }

    /// Inodes in DRAM.
    pub fn cached_inodes(&self) -> usize {
        self.table.iter().map(|shard| shard.read().len()).sum()
    }

    /// Inodes in DRAM, by slice.
    pub fn cached_inodes_by_slice(&self) -> Vec<u64> {
        let mut counts = vec![0; self.pool.slices().len()];
        for shard in &self.table {
            for ino in shard.read().keys() {
                if let Some(count) = counts.get_mut(usize::from(keys::home(Ino(*ino)))) {
                    *count += 1;
                }
            }
        }
        counts
    }

    /// Lets go of inodes for which `keep` is false. Only with the gate closed.
    pub fn retain_inodes(&self, keep: &mut dyn FnMut(&Arc<Inode>) -> bool) {
        for shard in &self.table {
            shard.write().retain(|_, inode| {
                let kept = keep(inode);
                if !kept && inode.kind == FileKind::Directory {
                    let counted = inode.meta.read().dir.as_ref().map_or(0, |dir| dir.counted);
                    self.dirents.add(keys::home(inode.ino), counted.wrapping_neg());
                }
                kept
            });
        }
    }

    /// Puts the inode on the list of those that the next checkpoint folds.
    #[inline]
    pub fn mark_dirty(&self, inode: &Arc<Inode>) {
        // ordering: the gate orders this against the cut that clears it; the list's lock the rest
        if !inode.dirty.load(Ordering::Relaxed) {
            self.list_dirty(inode);
        }
    }

    #[cold]
    fn list_dirty(&self, inode: &Arc<Inode>) {
        if self.dirty.add(inode) {
            self.dirty_units.fetch_add(INODE_UNITS, Ordering::Relaxed);
        }
    }

    /// Forgets an inode that came and went between two cuts: no tree will ever know of it.
    pub fn forget_unstored(&self, inode: &Arc<Inode>) {
        if self.dirty.remove(inode) {
            self.dirty_units.fetch_sub(INODE_UNITS, Ordering::Relaxed);
        }
        self.forget_inode(inode.ino);
    }
}
