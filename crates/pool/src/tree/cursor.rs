//! Entries of the tree in order.

use super::{Child, Key, PageCopy, PageRead, Root, TreeError, error::damaged, page::Page};
use std::sync::Arc;

/// Calls `each` with the entries from `from` up to but without `to`, in order, until it says false.
pub fn scan<R: PageRead>(
    pages: &R,
    root: &Root,
    from: Key,
    to: Key,
    mut each: impl FnMut(Key, &[u8]) -> Result<bool, TreeError>,
) -> Result<(), TreeError> {
    let mut cursor = Cursor::new(pages, root, from, to)?;
    while let Some((key, value)) = cursor.next_entry()? {
        if !each(key, value)? {
            break;
        }
    }
    Ok(())
}

/// A place in one version of the tree. Holds a copy of one page a level, and no block of the pool.
pub struct Cursor<'a, R> {
    pages: &'a R,
    /// From the topmost page to a leaf; none if the tree is empty or the end is reached.
    levels: Vec<Level>,
    from: Key,
    to: Key,
    /// The key returned last. All later ones are above it, which is what ends a walk through pages
    /// that are hostile.
    last: Option<Key>,
}

struct Level {
    copy: Arc<PageCopy>,
    child: Child,
    /// The entry that comes next.
    next: usize,
}

impl Level {
    fn page(&self) -> Result<Page<'_>, TreeError> {
        Page::open(&self.copy.bytes, &self.child)
    }
}

impl<'a, R: PageRead> Cursor<'a, R> {
    /// Before the first entry from `from` on; it ends before `to`.
    pub fn new(pages: &'a R, root: &Root, from: Key, to: Key) -> Result<Cursor<'a, R>, TreeError> {
        let mut cursor = Cursor { pages, levels: Vec::new(), from, to, last: None };
        if from < to
            && let Some(top) = Child::top(root)?
        {
            cursor.seek(top)?;
        }
        Ok(cursor)
    }

    /// The next entry; None at the end.
    pub fn next_entry(&mut self) -> Result<Option<(Key, &[u8])>, TreeError> {
        if !self.reach_entry()? {
            self.levels.clear();
            return Ok(None);
        }
        let Some(leaf) = self.levels.last_mut() else { return Ok(None) };
        let i = leaf.next;
        leaf.next += 1;
        let page = leaf.page()?;
        let key = page.key(i);
        self.last = Some(key);
        Ok(Some((key, page.value(i)?)))
    }

    /// Goes down from `top` to where `from` is or would be.
    fn seek(&mut self, top: Child) -> Result<(), TreeError> {
        let mut child = top;
        loop {
            let copy = self.pages.page(&child.ptr)?;
            let page = Page::open(&copy.bytes, &child)?;
            if child.level == 0 {
                let next = page.find(&self.from).unwrap_or_else(|after| after);
                self.levels.push(Level { copy, child, next });
                return Ok(());
            }
            let i = page.find_child(&self.from).unwrap_or(0);
            let below = page.child(i, &child)?;
            self.levels.push(Level { copy, child, next: i + 1 });
            child = below;
        }
    }

    /// Goes to the leaf that has the next entry; false if there is none before `to`.
    fn reach_entry(&mut self) -> Result<bool, TreeError> {
        let Some(leaf) = self.levels.last() else { return Ok(false) };
        let page = leaf.page()?;
        if leaf.next < page.count() {
            return self.admit(page.key(leaf.next), leaf);
        }
        // A leaf has an entry at least, and it is the one that `next_leaf` has admitted.
        self.next_leaf()
    }

    fn next_leaf(&mut self) -> Result<bool, TreeError> {
        let leaf = self.levels.len() - 1;
        let mut depth = leaf;
        loop {
            let Some(above) = depth.checked_sub(1) else { return Ok(false) };
            depth = above;
            if self.levels[depth].next < self.levels[depth].page()?.count() {
                break;
            }
        }
        while depth < leaf {
            let level = &mut self.levels[depth];
            let i = level.next;
            level.next += 1;
            let level = &self.levels[depth];
            let page = level.page()?;
            if !self.admit(page.key(i), level)? {
                return Ok(false);
            }
            let child = page.child(i, &level.child)?;
            depth += 1;
            let below = &mut self.levels[depth];
            below.copy = self.pages.page(&child.ptr)?;
            (below.child, below.next) = (child, 0);
            below.page()?;
        }
        Ok(true)
    }

    /// Whether `key`, the next one in `level`, is before the end; an error if it is not after the
    /// last.
    fn admit(&self, key: Key, level: &Level) -> Result<bool, TreeError> {
        if key < self.from || self.last.is_some_and(|last| key <= last) {
            return damaged(level.child.ptr.addr, "keys are not in order");
        }
        if level.child.upper.is_some_and(|upper| key >= upper) {
            return damaged(level.child.ptr.addr, "a key belongs to the next page");
        }
        Ok(key < self.to)
    }
}
