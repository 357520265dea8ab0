//! All pages of the tree, looked at in full.

use super::{Child, PAGE_BYTES, PagePtr, PageRead, Root, TreeError, error::damaged, page::Page};

type Visit<'a> = &'a mut dyn FnMut(&PagePtr, u8) -> Result<(), TreeError>;

/// Calls `visit` with each page and its level, parents before children, after checking all of the
/// page; stops at the first error.
pub fn walk<R: PageRead>(pages: &R, root: &Root, visit: Visit<'_>) -> Result<(), TreeError> {
    let Some(top) = Child::top(root)? else { return Ok(()) };
    let mut entries = 0;
    walk_from(pages, &top, visit, &mut entries)?;
    if entries != root.entries {
        return damaged(root.page.addr, "the root's count of entries is wrong");
    }
    Ok(())
}

/// Calls `visit` with each page and its level, parents before children; reads inner pages only.
///
/// This costs a hundredth of [`walk`], and tells less: a leaf is named, not looked at. In a damaged
/// tree two entries may name one leaf.
pub fn walk_pointers<R: PageRead>(
    pages: &R,
    root: &Root,
    visit: Visit<'_>,
) -> Result<(), TreeError> {
    let Some(top) = Child::top(root)? else { return Ok(()) };
    pointers_from(pages, &top, visit)
}

/// Goes one level deeper with each call, [`super::HEIGHT_MAX`] at most.
fn walk_from<R: PageRead>(
    pages: &R,
    own: &Child,
    visit: Visit<'_>,
    entries: &mut u64,
) -> Result<(), TreeError> {
    let mut bytes = [0; PAGE_BYTES];
    let page = read_whole(pages, own, &mut bytes)?;
    visit(&own.ptr, own.level)?;
    if own.level == 0 {
        *entries += page.count() as u64;
        return Ok(());
    }
    for i in 0..page.count() {
        walk_from(pages, &page.child(i, own)?, visit, entries)?;
    }
    Ok(())
}

/// Goes one level deeper with each call, [`super::HEIGHT_MAX`] at most.
fn pointers_from<R: PageRead>(pages: &R, own: &Child, visit: Visit<'_>) -> Result<(), TreeError> {
    visit(&own.ptr, own.level)?;
    if own.level == 0 {
        return Ok(());
    }
    let mut bytes = [0; PAGE_BYTES];
    let page = read_whole(pages, own, &mut bytes)?;
    for i in 0..page.count() {
        pointers_from(pages, &page.child(i, own)?, visit)?;
    }
    Ok(())
}

/// Reads a page and checks all of it.
fn read_whole<'p, R: PageRead>(
    pages: &R,
    own: &Child,
    bytes: &'p mut [u8; PAGE_BYTES],
) -> Result<Page<'p>, TreeError> {
    pages.read_page(&own.ptr, bytes)?;
    let page = Page::open(bytes, own)?;
    page.check(own)?;
    Ok(page)
}
