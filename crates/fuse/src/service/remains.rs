//! What is left of inodes that are gone, as long as the kernel knows them.
//!
//! A handle keeps an inode that has lost its last name, but the kernel says nothing when a program
//! holds one in another way: it opened a fifo or a device, stands in a directory, or has an O_PATH
//! descriptor. fstat(2) is to answer there, too: with the last attributes, and no link.
//!
//! An entry is made before the removal is answered, so before the kernel can forget the inode, and
//! goes when it does. That it does is certain only where every name that the kernel removes stands
//! for the inode that it takes it for: so nothing is kept where there are other doors.

use std::collections::HashMap;

use nearside::files::{Attr, Ino, SetAttr, Timestamp};
use parking_lot::Mutex;

/// Parts of the table with a lock each, so that removals on different CPUs seldom meet.
const SHARDS: usize = 16;

/// The last attributes of inodes that are gone.
#[derive(Default)]
pub(crate) struct Remains {
    shards: [Mutex<HashMap<u64, Attr>>; SHARDS],
}

impl Remains {
    /// Keeps the attributes that an inode had when it lost its last name.
    pub(crate) fn keep(&self, attr: &Attr) {
        let left = Attr { links: 0, changed: Timestamp::now(), ..*attr };
        self.shard(attr.ino).lock().insert(attr.ino.0, left);
    }

    /// What is left of an inode.
    pub(crate) fn get(&self, ino: Ino) -> Option<Attr> {
        self.shard(ino).lock().get(&ino.0).copied()
    }

    /// Changes what is left of an inode, as fchmod(2) and the like ask for; `None` when there is
    /// nothing of it here, or its content is concerned, of which nothing is left.
    pub(crate) fn change(&self, ino: Ino, change: &SetAttr) -> Option<Attr> {
        if change.size.is_some() {
            return None;
        }
        let mut shard = self.shard(ino).lock();
        let left = shard.get_mut(&ino.0)?;
        left.mode = change.mode.unwrap_or(left.mode);
        left.uid = change.uid.unwrap_or(left.uid);
        left.gid = change.gid.unwrap_or(left.gid);
        left.changed = Timestamp::now();
        let touched = change.touches.then_some(left.changed);
        left.accessed = touched.or(change.accessed).unwrap_or(left.accessed);
        left.modified = touched.or(change.modified).unwrap_or(left.modified);
        Some(*left)
    }

    /// The kernel does not know the inode any more.
    pub(crate) fn forget(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino.0);
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<u64, Attr>> {
        // The lowest byte of a number is its slice.
        &self.shards[(ino.0 >> 8) as usize % SHARDS]
    }
}
