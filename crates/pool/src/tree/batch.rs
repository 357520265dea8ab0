//! One batch of changes on its way down the tree and back up.

use super::{
    Child, Key, PAGE_BYTES, PagePtr, PageStore, TreeError,
    merge::{Merge, Step, Survey, Work},
    packer::Packer,
    page::Page,
};

/// Called with key, old value and new value (None: deleted) of what a batch removes or replaces.
pub(super) type Dropped<'a> = &'a mut dyn FnMut(Key, &[u8], Option<&[u8]>);

/// What a batch has done so far.
pub(super) struct Batch<'a, S> {
    pages: &'a mut S,
    dropped: Dropped<'a>,
    /// Pages of the old version that the new one has not; they are freed when all has gone well.
    old: Vec<PagePtr>,
    /// Pages of the new version; they are freed when not.
    new: Vec<PagePtr>,
    inserted: u64,
    removed: u64,
}

impl<'a, S: PageStore> Batch<'a, S> {
    /// A batch that has done nothing.
    pub fn new(pages: &'a mut S, dropped: Dropped<'a>) -> Batch<'a, S> {
        let (old, new) = (Vec::new(), Vec::new());
        Batch { pages, dropped, old, new, inserted: 0, removed: 0 }
    }

    /// Reads a page and checks all of it: a damaged one is not built upon.
    pub fn read<'p>(
        &self,
        child: &Child,
        bytes: &'p mut [u8; PAGE_BYTES],
    ) -> Result<Page<'p>, TreeError> {
        self.pages.read_page(&child.ptr, bytes)?;
        let page = Page::open(bytes, child)?;
        page.check(child)?;
        Ok(page)
    }

    /// Writes a new page.
    pub fn write(&mut self, page: &[u8; PAGE_BYTES]) -> Result<PagePtr, TreeError> {
        let ptr = self.pages.write_page(page)?;
        self.new.push(ptr);
        Ok(ptr)
    }

    /// The new version will not have this page.
    pub fn drop_page(&mut self, child: &Child) {
        self.old.push(child.ptr);
    }

    /// How many entries a tree of `entries` now has; None if that makes no sense.
    pub fn entries_after(&self, entries: u64) -> Option<u64> {
        entries.checked_add(self.inserted)?.checked_sub(self.removed)
    }

    /// Ends the batch: frees the pages that are of no use, now that it has gone well or not.
    pub fn end(self, well: bool) {
        for ptr in if well { &self.old } else { &self.new } {
            self.pages.free_page(ptr);
        }
    }

    /// Puts what becomes of the page `child`, and of all below it, into `into`. Goes one level
    /// deeper with each call, [`super::HEIGHT_MAX`] at most.
    pub fn change(
        &mut self,
        child: &Child,
        work: Work<'_>,
        into: &mut Packer,
    ) -> Result<(), TreeError> {
        let mut bytes = [0; PAGE_BYTES];
        let page = self.read(child, &mut bytes)?;
        let changed = if child.level == 0 {
            self.change_leaf(page, work, into, |batch| batch.drop_page(child))?
        } else {
            self.change_inner(child, page, work, into)?
        };
        if changed { Ok(()) } else { into.keep(self, child, page.key(0)) }
    }

    /// Puts the entries of a leaf that changes into `into`; calls `replaced` before. Returns
    /// whether it changes.
    pub fn change_leaf(
        &mut self,
        page: Page<'_>,
        work: Work<'_>,
        into: &mut Packer,
        replaced: impl FnOnce(&mut Self),
    ) -> Result<bool, TreeError> {
        let merge = Merge::new(page, work);
        let Survey { changed, appending } = merge.survey()?;
        if changed {
            replaced(self);
            into.replace(appending);
        }
        for step in merge {
            let (key, value) = match step? {
                Step::Keep(key, old) => (key, old),
                Step::Insert(key, new) => {
                    self.inserted += 1;
                    (key, new)
                }
                Step::Replace(key, old, new) => {
                    (self.dropped)(key, old, Some(new));
                    (key, new)
                }
                Step::Remove(key, old) => {
                    self.removed += 1;
                    (self.dropped)(key, old, None);
                    continue;
                }
            };
            if changed {
                into.push(self, key, value)?;
            }
        }
        Ok(changed)
    }

    fn change_inner(
        &mut self,
        own: &Child,
        page: Page<'_>,
        mut work: Work<'_>,
        into: &mut Packer,
    ) -> Result<bool, TreeError> {
        let mut below = Packer::new(own.level.saturating_sub(1));
        for i in 0..page.count() {
            let child = page.child(i, own)?;
            let part = work.cut(child.first, child.upper);
            if part.is_empty() {
                below.keep(self, &child, page.key(i))?;
            } else {
                self.change(&child, part, &mut below)?;
            }
        }
        let below = below.finish(self)?;
        if below.changed {
            self.drop_page(own);
            into.replace(below.appending);
            for (key, ptr) in &below.pages {
                into.push(self, *key, &ptr.encode())?;
            }
        }
        Ok(below.changed)
    }
}
