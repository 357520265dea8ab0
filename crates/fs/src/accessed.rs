//! Times of the last read, as Linux's relatime keeps them: a read moves the time on when the last
//! change is not older than it, or when it is a day old.
//!
//! No read writes to the medium for it. The new time lies in DRAM, with the inode on the list of
//! changed ones; the next record about the inode or the next checkpoint takes it along. A crash
//! before that loses it, which is allowed: nothing else depends on it. What is read while a
//! checkpoint is being cut comes onto that list with the next one. Where a checkpoint is due, the
//! time stays as it is, and the next read tries again.

use crate::clock::now;
use crate::core::Core;
use crate::inode::Inode;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How old a time is moved on in any case, ns: a day.
const AGE_MAX_NS: i64 = 24 * 3600 * 1_000_000_000;

thread_local! {
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// Reads and lists for a descriptor with O_NOATIME: the times of the last read stay as they are.
/// This is the thread's, not an argument: no read looks at it but one that would move the time.
pub fn keeping_access_times<T>(read: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            KEPT.set(self.0);
        }
    }
    let _before = Before(KEPT.replace(true));
    read()
}

/// Whether a read moves the time on.
#[inline]
fn is_due(accessed: i64, modified: i64, changed: i64, too_old: i64) -> bool {
    accessed <= modified || accessed <= changed || accessed <= too_old
}

impl Core {
    /// The inode was read.
    #[inline]
    pub fn was_read(&self, inode: &Arc<Inode>) {
        // ordering: a time that comes a read later does no harm
        let load = |time: &std::sync::atomic::AtomicI64| time.load(Ordering::Relaxed);
        let (modified, changed) = (load(&inode.modified), load(&inode.changed));
        if is_due(load(&inode.accessed), modified, changed, load(&self.accessed_too_old)) {
            self.move_accessed(inode);
        }
    }

    #[cold]
    fn move_accessed(&self, inode: &Arc<Inode>) {
        let time = now();
        if !self.keeps_accessed || KEPT.get() || inode.accessed.load(Ordering::Relaxed) == time {
            return;
        }
        let dirty = self.dirty_units.load(Ordering::Relaxed);
        if dirty > self.dirty_max.load(Ordering::Relaxed) / 2 {
            return self.ask_for_checkpoint();
        }
        let entered = self.pool.try_enter();
        inode.accessed.store(time, Ordering::Relaxed);
        match entered {
            // inside the gate: the cut that takes the inode off the list has seen the time
            Some(_entered) => self.mark_dirty(inode),
            // a read does not wait for it: it may hold what a change inside waits for
            None => self.accessed_late.lock().push(inode.clone()),
        }
    }

    /// Puts onto the list of changed inodes what was read while a checkpoint was being cut.
    pub fn list_accessed_late(&self) {
        let late = std::mem::take(&mut *self.accessed_late.lock());
        let _entered = self.pool.enter();
        late.iter().filter(|inode| !inode.meta.read().gone).for_each(|it| self.mark_dirty(it));
    }

    /// Takes note of what time it is, so that reads need not ask.
    pub fn note_time(&self) {
        self.accessed_too_old.store(now().saturating_sub(AGE_MAX_NS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::is_due;
    use crate::types::{Creation, Ino, NewNode, SetAttr, Timestamp};
    use crate::{FileSystem, format};
    use pool::{FormatOptions, OpenOptions, SliceSpec};

    /// A read does not wait for the gate: it may hold what a change inside waits for.
    #[test]
    fn what_is_read_while_a_checkpoint_is_cut_counts_and_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let slices = vec![SliceSpec::default()];
        let (slice_bytes, process) = (8 << 20, true);
        let options = FormatOptions { slices, slice_bytes, process, ..FormatOptions::default() };
        format(dir.path(), &options).unwrap();
        let open = || FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
        let fs = open();
        let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let ino = fs.create(Ino::ROOT, b"file", NewNode::File, by).unwrap().ino;
        let handle = fs.open(ino).unwrap();
        fs.write(&handle, 0, b"read").unwrap();
        let old = Timestamp(1_000_000_000);
        fs.setattr(ino, &SetAttr { accessed: Some(old), ..SetAttr::default() }).unwrap();
        fs.checkpoint().unwrap();
        let closed = fs.core.pool.close_gate();
        fs.read(&handle, 0, &mut [0; 4]).unwrap();
        let read = fs.core.inode(ino).unwrap().accessed.load(std::sync::atomic::Ordering::Relaxed);
        assert!(read > old.0);
        drop(closed);
        drop(handle);
        fs.close().unwrap();
        drop(fs);
        let fs = open();
        assert_eq!(fs.getattr(ino).unwrap().accessed, Timestamp(read));
        fs.close().unwrap();
    }

    #[test]
    fn a_read_counts_after_a_change_and_after_a_day() {
        assert!(!is_due(10, 9, 9, 5));
        assert!(is_due(10, 10, 9, 5), "in the same moment");
        assert!(is_due(10, 11, 9, 5));
        assert!(is_due(10, 9, 10, 5), "attributes count, too");
        assert!(is_due(10, 9, 9, 10), "a day");
    }
}
