//! The inodes that changed since the last cut: in parts, so that changes of different inodes meet
//! at no lock.

use crate::inode::Inode;
use crate::types::Ino;
use crossbeam_utils::CachePadded;
use locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PARTS: usize = 64;

type Part = Mutex<Vec<Arc<Inode>>>;

/// The inodes that changed since the last cut.
#[derive(Debug)]
pub struct DirtyInodes {
    parts: Box<[CachePadded<Part>]>,
}

impl DirtyInodes {
    /// None.
    pub fn new() -> DirtyInodes {
        DirtyInodes { parts: (0..PARTS).map(|_| CachePadded::default()).collect() }
    }

    /// Lists an inode; false: it is listed already.
    pub fn add(&self, inode: &Arc<Inode>) -> bool {
        let mut part = self.part(inode.ino).lock();
        let is_new = !inode.dirty.swap(true, Ordering::Relaxed);
        if is_new {
            inode.dirty_at.store(part.len() as u32, Ordering::Relaxed);
            part.push(inode.clone());
        }
        is_new
    }

    /// Takes an inode out; false: it is not listed.
    pub fn remove(&self, inode: &Arc<Inode>) -> bool {
        let mut part = self.part(inode.ino).lock();
        let was_listed = inode.dirty.swap(false, Ordering::Relaxed);
        if was_listed {
            let at = inode.dirty_at.load(Ordering::Relaxed);
            let listed = part.swap_remove(at as usize);
            assert!(Arc::ptr_eq(&listed, inode), "the list knows where an inode is");
            if let Some(moved) = part.get(at as usize) {
                moved.dirty_at.store(at, Ordering::Relaxed);
            }
        }
        was_listed
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().is_empty())
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.parts.iter().flat_map(|part| part.lock().clone()).collect()
    }

    /// Takes all of them out; they are dirty still.
    pub fn take(&self) -> Vec<Arc<Inode>> {
        let take = |part: &CachePadded<Part>| {
            let mut part = part.lock();
            // as many come again
            let empty = Vec::with_capacity(part.len());
            std::mem::replace(&mut *part, empty)
        };
        self.parts.iter().flat_map(take).collect()
    }

    fn part(&self, ino: Ino) -> &Part {
        &self.parts[(ino.0 ^ (ino.0 >> 8)) as usize % PARTS]
    }
}
