//! Files that are mapped as memory: who keeps copies of their bytes learns of each change before
//! the call that made it returns.

use crate::away::away;
use crate::change_dues::ChangeDues;
use crate::core::Core;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::leased;
use crate::privileges::{MAPPED, TOLD_BEFORE};
use crate::system::{FileSystem, holds_data};
use crate::write::blocks_of;
use arc_swap::ArcSwap;
use pool::BLOCK_BYTES;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Keeps copies of a file's bytes. It is told while their range is held: changes of the same bytes
/// come one after the other, in the order in which they were made. It must not call the file system
/// meanwhile.
pub trait Mapped: Debug + Send + Sync {
    /// Whether it is to be told by `changes`. It is always or never.
    fn is_told_before(&self) -> bool;

    /// Something is going to become of these blocks: told before anybody can see what. It may be
    /// told again of the same change, where that was tried again. An error ends the attempt.
    fn changes(&self, _blocks: &RangeInclusive<u64>, _before: &Before<'_>) -> Result<()> {
        Ok(())
    }

    /// These bytes were written.
    fn written(&self, offset: u64, data: &[u8]);

    /// Something became of these bytes: what is known of them is old.
    fn changed(&self, offset: u64, len: u64);

    /// The file is going to be cut, and to end here: told behind `changes`, before anybody can see
    /// it.
    fn cuts(&self, _end: u64) {}

    /// What a call waits for that is to return when all this keeps is of the file as it is.
    fn keeps_up(&self) -> Option<Wait> {
        None
    }

    /// Whether it is right also of a file of which ranges are leased: it keeps no bytes that
    /// somebody else has a lease of, stores what is written under one by itself, and is told of a
    /// change where a lease begins and where it ends. It is not told of what is folded. (Who does
    /// not is told of all, and keeps the file from being leased.)
    fn heeds_leases(&self) -> bool {
        false
    }
}

/// What a file holds before a change.
pub struct Before<'c> {
    core: &'c Core,
    inode: &'c Inode,
}

impl Before<'_> {
    /// Reads the bytes of a block; zeros behind the file's end.
    pub fn read(&self, block: u64, bytes: &mut [u8]) -> Result<()> {
        self.core.read_held(self.inode, block.saturating_mul(BLOCK_BYTES), bytes)
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.inode.size.load(Ordering::Acquire)
    }

    /// Has `wait` called when the change has been made and nothing is held, before the call that
    /// made it returns.
    pub fn wait(&self, wait: Wait) {
        // ordering: this thread reads it, at the end of its change
        self.core.dues.add(ChangeDues::WAITS);
        WAITS.with_borrow_mut(|waits| waits.push(wait));
    }
}

/// What a call waits for before it returns.
pub type Wait = Box<dyn FnOnce()>;

thread_local! {
    static WAITS: RefCell<Vec<Wait>> = const { RefCell::new(Vec::new()) };
    /// Whether somebody else than the engine waits for them.
    static DEFERS: Cell<bool> = const { Cell::new(false) };
}

/// Makes changes, and gives what they would have waited for: it is the caller's to do so.
pub fn deferring_waits<T>(change: impl FnOnce() -> T) -> (T, Vec<Wait>) {
    struct Ends(bool);
    impl Drop for Ends {
        fn drop(&mut self) {
            DEFERS.set(self.0);
        }
    }
    let _ends = Ends(DEFERS.replace(true));
    let changed = change();
    (changed, WAITS.take())
}

/// Waits for what the thread's changes are to wait for, unless somebody else does.
#[cold]
pub fn wait_for_all() {
    if !DEFERS.get() {
        WAITS.take().into_iter().for_each(|wait| wait());
    }
}

/// Who keeps copies of a file's bytes.
#[derive(Debug, Default)]
pub struct Mappings {
    /// How many do not heed leases.
    heedless: AtomicU32,
    all: ArcSwap<Vec<Arc<dyn Mapped>>>,
}

impl Mappings {
    fn change(&self, change: impl Fn(&mut Vec<Arc<dyn Mapped>>)) {
        self.all.rcu(|all| {
            let mut all = Vec::clone(all);
            change(&mut all);
            all
        });
    }

    fn any_heedless(&self) -> bool {
        // ordering: a lender says that it lends, and then looks; who maps does it the other way
        self.heedless.load(Ordering::SeqCst) > 0
    }

    fn has(&self, mapped: &Arc<dyn Mapped>) -> bool {
        self.all.load().iter().any(|other| Arc::ptr_eq(other, mapped))
    }

    fn each(&self, mut tell: impl FnMut(&dyn Mapped)) {
        // ordering: what was published is seen by whoever reads after this, or what he says that
        // he reads is seen here
        fence(Ordering::SeqCst);
        self.all.load().iter().for_each(|mapped| tell(&**mapped));
    }

    /// The same, but that who heeds leases is not told of what is folded.
    #[cold]
    fn each_but_of_folds(&self, mut tell: impl FnMut(&dyn Mapped)) {
        let is_folded = leased::folds();
        self.each(|mapped| {
            if !(is_folded && mapped.heeds_leases()) {
                tell(mapped);
            }
        });
    }
}

impl Inode {
    /// Whether anybody keeps copies of its bytes who does not heed leases.
    pub fn has_heedless_mappings(&self) -> bool {
        self.mappings.any_heedless()
    }

    /// Whether copies of its bytes may be kept.
    // on the way of every write, where it is one look
    #[inline]
    fn is_mapped(&self) -> bool {
        self.marks.has(MAPPED)
    }

    fn change_mappings(&self, change: impl Fn(&mut Vec<Arc<dyn Mapped>>)) {
        self.mappings.change(change);
        // a reader of the file's bytes learns after this of what changes them later: a change that
        // does not see the mark was published before
        self.marks.set(MAPPED, true);
    }

    /// Blocks of a file with this mark are going to be changed; their range is held.
    pub fn tell_changes(&self, core: &Core, blocks: &RangeInclusive<u64>) -> Result<()> {
        let before = Before { core, inode: self };
        let mut told = Ok(());
        self.mappings.each_but_of_folds(|mapped| {
            if let Err(error) = mapped.changes(blocks, &before) {
                told = Err(error);
            }
        });
        told
    }

    /// Bytes were written, and are published; their range is held.
    #[inline]
    pub fn tell_written(&self, offset: u64, data: &[u8]) {
        if self.is_mapped() {
            self.mappings.each_but_of_folds(|mapped| mapped.written(offset, data));
        }
    }

    /// The file is going to be cut; the range behind its new end is held.
    pub fn tell_cuts(&self, end: u64) {
        if self.is_mapped() {
            self.mappings.each(|mapped| mapped.cuts(end));
        }
    }

    /// Something became of these bytes, and is published; their range is held.
    #[inline]
    pub fn tell_changed(&self, offset: u64, len: u64) {
        if len > 0 && self.is_mapped() {
            self.mappings.each(|mapped| mapped.changed(offset, len));
        }
    }
}

impl FileSystem {
    /// What to wait for so that all who keep copies of the file's bytes have dropped what was
    /// changed before; the caller holds nothing meanwhile.
    pub fn keeping_up(&self, handle: &Handle) -> Vec<Wait> {
        let mut waits = Vec::new();
        if handle.inode.is_mapped() {
            handle.inode.mappings.each(|mapped| waits.extend(mapped.keeps_up()));
        }
        waits
    }

    /// From now on tells `mapped` of every change of the file's bytes. No range of the file is
    /// leased when this returns.
    pub fn tell(&self, handle: &Handle, mapped: &Arc<dyn Mapped>) {
        if !mapped.heeds_leases() {
            handle.inode.mappings.heedless.fetch_add(1, Ordering::SeqCst);
        }
        self.tell_beside_leases(handle, mapped);
        self.recall_all(handle);
    }

    /// Whether `mapped` is told of every change of the file's bytes.
    pub fn is_told(&self, handle: &Handle, mapped: &Arc<dyn Mapped>) -> bool {
        handle.inode.mappings.has(mapped)
    }

    /// The same for who heeds leases, also those that there are already: they stay.
    pub fn tell_beside_leases(&self, handle: &Handle, mapped: &Arc<dyn Mapped>) {
        handle.inode.change_mappings(|all| all.push(mapped.clone()));
        if mapped.is_told_before() {
            handle.inode.marks.set(TOLD_BEFORE, true);
        }
    }

    /// Reads bytes, zeros behind the file's end, and gives them to `take` before anybody can change
    /// them: it must not call the file system. So who keeps copies fills them with what is there
    /// when it comes there.
    pub fn copy_out(
        &self,
        handle: &Handle,
        offset: u64,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let (first, last) = blocks_of(offset, buffer.len().max(1));
        self.fetching(handle, || {
            let _range = handle.inode.ranges.lock(first, last);
            self.core.read_held(&handle.inode, offset, buffer)?;
            take(buffer);
            Ok(())
        })
    }

    /// Reads as [`read`](FileSystem::read) does, and gives the bytes to `take` before anybody can
    /// change them, or add to them where the file ends there: it must not call the file system. So
    /// who caches what was read has what is there when it comes there. Nobody is waited for: where
    /// somebody changes these bytes, or what is behind their end, `take` is not called.
    pub fn read_and_take(
        &self,
        handle: &Handle,
        offset: u64,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<usize> {
        holds_data(&handle.inode)?;
        let (inode, end) = (&handle.inode, offset.saturating_add(buffer.len() as u64));
        let (first, last) = blocks_of(offset, buffer.len().max(1));
        let read = self.fetching(handle, || {
            // who adds to the file changes what comes behind these bytes
            let is_end = || inode.size.load(Ordering::Acquire) < end;
            let last = if is_end() { u64::MAX } else { last };
            let range = inode.ranges.try_lock(first, last);
            if range.is_none() || is_end() && last != u64::MAX {
                drop(range);
                return Ok(None);
            }
            let read = self.core.read_in_memory(inode, offset, buffer)?;
            take(&buffer[..read]);
            Ok(Some(read))
        })?;
        let Some(read) = read else { return self.read(handle, offset, buffer) };
        self.core.was_read(inode);
        Ok(read)
    }

    /// Reads what is in memory, and again when what was missing has been fetched.
    fn fetching<T>(&self, handle: &Handle, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let core = &self.core;
        core.settle(&handle.inode);
        let mut result = read();
        while let Err(Some(addr)) = result.as_ref().map_err(away) {
            result = core.fetch(&[addr]).and_then(|()| read());
        }
        core.let_go();
        result
    }

    /// A lease of these blocks begins or ends: who heeds leases keeps none of them from before.
    /// Nobody changes them meanwhile.
    pub fn tell_lent(&self, handle: &Handle, blocks: &RangeInclusive<u64>) {
        let offset = blocks.start().saturating_mul(BLOCK_BYTES);
        let end = blocks.end().saturating_add(1).saturating_mul(BLOCK_BYTES);
        if handle.inode.is_mapped() {
            let mappings = &handle.inode.mappings;
            mappings.each(|mapped| {
                if mapped.heeds_leases() {
                    mapped.changed(offset, end - offset);
                }
            });
        }
    }

    /// From now on does not: a change that is under way may still be told of.
    pub fn tell_no_more(&self, handle: &Handle, mapped: &Arc<dyn Mapped>) {
        let mappings = &handle.inode.mappings;
        let was_told = mappings.has(mapped);
        handle.inode.change_mappings(|all| all.retain(|other| !Arc::ptr_eq(other, mapped)));
        if was_told && !mapped.heeds_leases() {
            mappings.heedless.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
