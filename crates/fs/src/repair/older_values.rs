//! Values that a lost page had, taken from the checkpoint before.
//!
//! They may be older than what is lost. An inode's stamp says whether: where its attributes are to
//! be read in both checkpoints and have one stamp, nothing of it changed between them.

use crate::attr::Stored;
use crate::dir::Dirent;
use crate::keys;
use crate::repair::Repair;
use crate::repair::doubts::{ChangeTime, Doubt};
use crate::repair::put_aside::OLDER_TREE;
use crate::types::{FileKind, Ino};
use pool::tree::{Change, Key, Met};

impl Repair {
    /// Doubts the inodes of which these values may be older than what is lost.
    pub(super) fn doubt_older(&mut self, before: &[(Key, Change)]) {
        for values in before.chunk_by(|(one, _), (other, _)| one.object == other.object) {
            let Some((Key { object, .. }, _)) = values.first() else { continue };
            let ino = Ino(*object);
            let was = self.attributes_before(ino);
            let is = self.attributes_now(ino);
            let unchanged = was.zip(is).is_some_and(|(was, is)| was.stamp == is.stamp);
            if *object == 0 || unchanged {
                continue;
            }
            for (key, change) in values {
                match key.kind {
                    keys::INODE | keys::MAP | keys::PATCH => {
                        let from = was.map(|was| was.changed.0);
                        let time = ChangeTime { from, to: None };
                        self.doubts.add(ino, Doubt { what: OLDER_TREE, offset: None, time });
                    }
                    keys::DIRENT if self.has_changed_target(change) => {
                        self.older_entries.insert((ino, key.index));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Whether an entry names a file that was changed since the checkpoint before: every change of
    /// its names is one. A file whose attributes are lost keeps the name, and is in doubt.
    fn has_changed_target(&self, change: &Change) -> bool {
        let Change::Put(value) = change else { return false };
        let Some(entry) = Dirent::decode(value) else { return false };
        let is = self.attributes_now(entry.ino).filter(|_| entry.kind != FileKind::Directory);
        let was = || self.attributes_before(entry.ino);
        is.is_some_and(|is| was().is_none_or(|was| was.stamp != is.stamp))
    }

    /// The attributes that the last checkpoint has of an inode, if they can be read.
    fn attributes_now(&self, ino: Ino) -> Option<Stored> {
        let value = self.core.pool.get(keys::home(ino), &keys::key(ino, keys::INODE, 0));
        value.ok().flatten().and_then(|value| Stored::decode(&value))
    }

    /// The attributes that it had at the checkpoint before.
    fn attributes_before(&self, ino: Ino) -> Option<Stored> {
        let (key, mut found) = (keys::key(ino, keys::INODE, 0), None);
        let slice = usize::from(keys::home(ino));
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
