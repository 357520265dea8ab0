//! Values that a lost page had, taken from the checkpoint before.
//!
//! They may be older than what is lost. An inode's stamp says whether: where its attributes are to
//! be read in both checkpoints and have one stamp, nothing of it changed between them.

use crate::attr::Stored;
use crate::keys;
use crate::repair::Repair;
use crate::repair::doubts::{ChangeTime, Doubt};
use crate::repair::put_aside::OLDER_TREE;
use crate::types::Ino;
use pool::tree::{Change, Key, Met};

impl Repair {
    /// Doubts the inodes of which these values, of a slice's tree, may be older than what is lost.
    pub(super) fn doubt_older(&mut self, slice: usize, before: &[(Key, Change)]) {
        for values in before.chunk_by(|(one, _), (other, _)| one.object == other.object) {
            let Some((Key { object, .. }, _)) = values.first() else { continue };
            let ino = Ino(*object);
            let was = self.attributes_before(slice, ino);
            let is = self.core.pool.get(slice as u8, &keys::key(ino, keys::INODE, 0));
            let is = is.ok().flatten().and_then(|value| Stored::decode(&value));
            let unchanged = was.zip(is).is_some_and(|(was, is)| was.stamp == is.stamp);
            if *object == 0 || unchanged {
                continue;
            }
            for (key, _) in values {
                match key.kind {
                    keys::INODE | keys::MAP | keys::PATCH => {
                        let from = was.map(|was| was.changed.0);
                        let time = ChangeTime { from, to: None };
                        self.doubts.add(ino, Doubt { what: OLDER_TREE, offset: None, time });
                    }
                    keys::DIRENT => {
                        self.older_entries.insert((ino, key.index));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The attributes that an inode had at the checkpoint before.
    fn attributes_before(&self, slice: usize, ino: Ino) -> Option<Stored> {
        let (key, mut found) = (keys::key(ino, keys::INODE, 0), None);
        self.core.pool.readable_before(slice, key, &mut |met| match met {
            Met::Entry(first, value) => {
                found = Stored::decode(value).filter(|_| first == key);
                false
            }
            _ => true,
        });
        found
    }
}
