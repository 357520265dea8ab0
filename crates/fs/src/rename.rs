//! Renaming: one record, whatever it moves or replaces.

use crate::attr::Stored;
use crate::clock::now;
use crate::core::Core;
use crate::dir::{Dirent, Name};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::item;
use crate::keys;
use crate::namespace::{Locked, Touched, check_directory, check_name, lock_all};
use crate::rights::Caller;
use crate::short_name::ShortName;
use crate::slot::Freed;
use crate::types::{Attr, DIRECTORY_LINKS_MAX, FileKind, Ino, RenameMode, Timestamp};
use crate::unlink::{NameLoss, check_removable};
use pool::{KIND_CHANGE, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One end of a rename.
struct End<'e> {
    dir: Arc<Inode>,
    name: Name<'e>,
    /// The entry's cookie and inode.
    found: Option<(u64, Arc<Inode>)>,
}

impl Core {
    /// Renames in one atomic step. Returns what is left of an inode that lost its last name.
    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        caller: Option<&Caller>,
    ) -> Result<Option<Attr>> {
        for name in [from.1, to.1] {
            match name {
                b"." | b".." => return Err(Error::Invalid("neither . nor .. can be renamed")),
                name => check_name(name)?,
            }
        }
        let (from, to) = ((from.0, self.name(from.1)), (to.0, self.name(to.1)));
        self.change(|| {
            // directories move one at a time, so that no two moves make a circle together
            let _moves = self.moves.lock();
            loop {
                if let Some(result) = self.try_rename(from, to, mode, caller) {
                    return result;
                }
            }
        })
    }

    fn end<'e>(&self, (dir, name): (Ino, Name<'e>)) -> Result<End<'e>> {
        let dir = self.inode(dir)?;
        let found = self.child(&dir, name)?;
        Ok(End { dir, name, found })
    }

    /// `None`: a name changed meanwhile, look again.
    fn try_rename(
        &self,
        from: (Ino, Name<'_>),
        to: (Ino, Name<'_>),
        mode: RenameMode,
        caller: Option<&Caller>,
    ) -> Option<Result<Option<Attr>>> {
        let (from, to) = match (self.end(from), self.end(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
        };
        let Some((_, moved)) = from.found.clone() else { return Some(Err(Error::NotFound)) };
        let replaced = to.found.clone().map(|(_, inode)| inode);
        let exchange = mode == RenameMode::Exchange;
        let checked = self.check_ends(&from, &to, &moved, replaced.as_ref(), mode);
        match checked {
            Ok(true) => {}
            Ok(false) => return Some(Ok(None)),
            Err(error) => return Some(Err(error)),
        }
        // without one that is replaced, one is named twice
        let mut inodes = [&from.dir, &to.dir, &moved, replaced.as_ref().unwrap_or(&moved)];
        let mut locked = lock_all(&mut inodes);
        for end in [&from, &to] {
            let meta = locked.get(&end.dir);
            if let Err(error) = check_directory(&end.dir, meta) {
                return Some(Err(error));
            }
            let now = match self.find(&end.dir, meta, end.name) {
                Ok(now) => now,
                Err(error) => return Some(Err(error)),
            };
            if now != end.found.as_ref().map(|(cookie, inode)| (*cookie, inode.ino)) {
                return None;
            }
        }
        let (dirs, other) = ((&*from.dir, &*to.dir), (replaced.as_deref(), exchange));
        if let Err(error) = self.permit_rename(caller, &mut locked, dirs, &moved, other) {
            return Some(Err(error));
        }
        // under the locks: an entry may have come into the directory that is to be replaced
        if let (false, Some(other)) = (exchange, &replaced)
            && let Err(error) = check_removable(other, moved.kind == FileKind::Directory)
        {
            return Some(Err(error));
        }
        Some(match (exchange, &replaced) {
            (true, Some(other)) => {
                self.exchange(&mut locked, &from, &to, &moved, other).map(|()| None)
            }
            _ => self.move_entry(&mut locked, (&from, &to), &moved, replaced.as_ref(), mode),
        })
    }

    /// Whether there is anything to do.
    fn check_ends(
        &self,
        from: &End<'_>,
        to: &End<'_>,
        moved: &Arc<Inode>,
        replaced: Option<&Arc<Inode>>,
        mode: RenameMode,
    ) -> Result<bool> {
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        // two names of one inode: nothing happens (POSIX)
        if replaced.is_some_and(|other| other.ino == moved.ino) {
            return Ok(false);
        }
        let is_dir = |inode: &Arc<Inode>| inode.kind == FileKind::Directory;
        if is_dir(moved) && self.lies_in(&to.dir, moved)? {
            return Err(Error::Invalid("a directory cannot be moved into itself"));
        }
        if let Some(other) = replaced {
            let circle = is_dir(other) && self.lies_in(&from.dir, other)?;
            if mode == RenameMode::Exchange {
                return match circle {
                    true => Err(Error::Invalid("a directory cannot be moved into itself")),
                    false => Ok(true),
                };
            }
            if circle {
                return Err(Error::NotEmpty);
            }
        }
        Ok(true)
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn lies_in(&self, dir: &Arc<Inode>, ancestor: &Arc<Inode>) -> Result<bool> {
        let mut at = dir.clone();
        loop {
            if at.ino == ancestor.ino {
                return Ok(true);
            }
            if at.ino == Ino::ROOT {
                return Ok(false);
            }
            let up = at.meta.read().parent;
            at = self.inode(up)?;
        }
    }

    fn move_entry(
        &self,
        locked: &mut Locked<'_>,
        (from, to): (&End<'_>, &End<'_>),
        moved: &Arc<Inode>,
        replaced: Option<&Arc<Inode>>,
        mode: RenameMode,
    ) -> Result<Option<Attr>> {
        let time = now();
        let is_dir = moved.kind == FileKind::Directory;
        let same = from.dir.ino == to.dir.ino;
        let Some((from_cookie, _)) = from.found else { return Err(Error::NotFound) };
        let to_cookie = match &to.found {
            Some((cookie, _)) => *cookie,
            None => self.free_cookie(locked.get(&to.dir), to.name)?,
        };
        let entry = entry_of(moved, to.name);
        let stays = i64::from(matches!(mode, RenameMode::Whiteout { .. }));
        let subdir = i64::from(is_dir);
        let lost_dir = i64::from(replaced.is_some_and(|r| r.kind == FileKind::Directory));
        let lost = i64::from(replaced.is_some());
        let (from_touched, to_touched) = if same {
            let touched = self.counts(locked, &from.dir, -lost_dir, stays - lost);
            (None, touched)
        } else {
            let from_touched = self.counts(locked, &from.dir, -subdir, stays - 1);
            (Some(from_touched), self.counts(locked, &to.dir, subdir - lost_dir, 1 - lost))
        };
        if to_touched.links > DIRECTORY_LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let whiteout = self.push_left(&mut record, locked, from, from_cookie, mode)?;
        Self::push_entry(&mut record, &to.dir, to_cookie, &entry);
        if let Some(touched) = &from_touched {
            self.push_dir(&mut record, &from.dir, touched);
        }
        self.push_dir(&mut record, &to.dir, &to_touched);
        self.push_moved(&mut record, locked, moved, to.dir.ino, time);
        let loss: Option<NameLoss> = replaced.map(|other| {
            let meta = locked.get(other);
            self.push_unnamed(&mut record, other, meta, time)
        });
        let left =
            replaced.zip(loss).and_then(|(other, loss)| loss.left(other, locked.get(other), time));
        let inodes = [&from.dir, &to.dir, moved, replaced.unwrap_or(moved)];
        let mut freed = Freed::default();
        let mut published = Ok(());
        self.log(&mut record, &inodes, || {
            let left = whiteout.as_ref().map(|inode| entry_of(inode, from.name));
            self.set_entry(locked.get(&from.dir), from_cookie, left);
            self.set_entry(locked.get(&to.dir), to_cookie, Some(entry));
            whiteout.iter().for_each(|inode| self.was_born(inode));
            if let Some(touched) = &from_touched {
                self.touch_dir(&from.dir, locked.get(&from.dir), touched, time);
            }
            self.touch_dir(&to.dir, locked.get(&to.dir), &to_touched, time);
            self.moved(locked, moved, to.dir.ino, time);
            if let (Some(other), Some(loss)) = (replaced, loss) {
                published = self.unnamed(other, locked.get(other), loss, time, &mut freed);
            }
        })?;
        whiteout.iter().for_each(|inode| inode.stamped(from.dir.stamp_now()));
        self.retire(&freed);
        self.published(published)?;
        Ok(left)
    }

    /// Adds what is left of the old name: nothing, or a whiteout, which it returns.
    fn push_left(
        &self,
        record: &mut RecordBuffer,
        locked: &mut Locked<'_>,
        from: &End<'_>,
        cookie: u64,
        mode: RenameMode,
    ) -> Result<Option<Arc<Inode>>> {
        let RenameMode::Whiteout { uid, gid } = mode else {
            item::push_delete(record, from.dir.ino.0, keys::DIRENT, cookie);
            return Ok(None);
        };
        let meta = locked.get(&from.dir);
        let inode = self.push_whiteout(record, &from.dir, meta, (uid, gid), now())?;
        Self::push_entry(record, &from.dir, cookie, &entry_of(&inode, from.name));
        Ok(Some(inode))
    }

    fn exchange(
        &self,
        locked: &mut Locked<'_>,
        from: &End<'_>,
        to: &End<'_>,
        moved: &Arc<Inode>,
        other: &Arc<Inode>,
    ) -> Result<()> {
        let time = now();
        let (Some((from_cookie, _)), Some((to_cookie, _))) = (&from.found, &to.found) else {
            return Err(Error::NotFound);
        };
        let (at_to, at_from) = (entry_of(moved, to.name), entry_of(other, from.name));
        let subdir = |inode: &Arc<Inode>| i64::from(inode.kind == FileKind::Directory);
        let shift = if from.dir.ino == to.dir.ino { 0 } else { subdir(moved) - subdir(other) };
        let from_touched = self.counts(locked, &from.dir, -shift, 0);
        let to_touched = self.counts(locked, &to.dir, shift, 0);
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        Self::push_entry(&mut record, &from.dir, *from_cookie, &at_from);
        Self::push_entry(&mut record, &to.dir, *to_cookie, &at_to);
        self.push_dir(&mut record, &from.dir, &from_touched);
        self.push_dir(&mut record, &to.dir, &to_touched);
        self.push_moved(&mut record, locked, moved, to.dir.ino, time);
        self.push_moved(&mut record, locked, other, from.dir.ino, time);
        self.log(&mut record, &[&from.dir, &to.dir, moved, other], || {
            self.set_entry(locked.get(&from.dir), *from_cookie, Some(at_from));
            self.set_entry(locked.get(&to.dir), *to_cookie, Some(at_to));
            self.touch_dir(&from.dir, locked.get(&from.dir), &from_touched, time);
            self.touch_dir(&to.dir, locked.get(&to.dir), &to_touched, time);
            self.moved(locked, moved, to.dir.ino, time);
            self.moved(locked, other, from.dir.ino, time);
        })
    }

    /// A directory's counts after a change by these.
    fn counts(&self, locked: &mut Locked<'_>, dir: &Inode, links: i64, entries: i64) -> Touched {
        let meta = locked.get(dir);
        Touched {
            links: (i64::from(meta.links) + links).max(0) as u32,
            entries: (Self::entries(dir) as i64 + entries).max(0) as u64,
        }
    }

    fn push_moved(
        &self,
        record: &mut RecordBuffer,
        locked: &mut Locked<'_>,
        inode: &Inode,
        parent: Ino,
        time: i64,
    ) {
        let stored = inode.stored(locked.get(inode));
        let parent = if inode.kind == FileKind::Directory { parent } else { stored.parent };
        let stored = Stored { parent, changed: Timestamp(time), ..stored };
        item::push_put(record, inode.ino.0, keys::INODE, 0, &stored.encode());
    }

    fn moved(&self, locked: &mut Locked<'_>, inode: &Arc<Inode>, parent: Ino, time: i64) {
        if inode.kind == FileKind::Directory {
            locked.get(inode).parent = parent;
        }
        inode.changed.store(time, Ordering::Relaxed);
        self.mark_dirty(inode);
    }
}

/// The entry that gives an inode a name.
fn entry_of(inode: &Inode, name: Name<'_>) -> Dirent {
    Dirent { ino: inode.ino, kind: inode.kind, name: ShortName::new(name.bytes) }
}
