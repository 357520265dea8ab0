//! All that can be read of a tree, in the order of keys; what cannot is named and left out.

use super::{Child, Key, PAGE_BYTES, PagePtr, PageRead, Root, TreeError, page::Page};

/// What such a walk meets.
#[derive(Debug)]
pub enum Met<'p> {
    /// A page, before what is in it; its level.
    Page(&'p PagePtr, u8),
    /// An entry.
    Entry(Key, &'p [u8]),
    /// A page that cannot be read, with all that is below it.
    Lost(Lost<'p>),
}

/// What a page that cannot be read takes with it.
#[derive(Debug)]
pub struct Lost<'p> {
    /// The page.
    pub ptr: &'p PagePtr,
    /// The first key that can have been there; none: nobody says.
    pub from: Option<Key>,
    /// All were below this; none: nobody says.
    pub upper: Option<Key>,
    /// Why it cannot be read.
    pub why: TreeError,
}

/// Calls `meet` with all that can be read from `from` on, in order, until it says false; false if
/// it did. Pages above an entry are met again by each walk.
pub fn walk_readable<R: PageRead>(
    pages: &R,
    root: &Root,
    from: Key,
    meet: &mut dyn FnMut(Met<'_>) -> bool,
) -> bool {
    match Child::top(root) {
        Ok(None) => true,
        Ok(Some(top)) => readable_from(pages, &top, &from, meet),
        Err(why) => meet(Met::Lost(Lost { ptr: &root.page, from: None, upper: None, why })),
    }
}

/// Goes one level deeper with each call, [`super::HEIGHT_MAX`] at most.
fn readable_from<R: PageRead>(
    pages: &R,
    own: &Child,
    from: &Key,
    meet: &mut dyn FnMut(Met<'_>) -> bool,
) -> bool {
    let mut bytes = [0; PAGE_BYTES];
    let read = pages.read_page(&own.ptr, &mut bytes).and_then(|()| Page::open(&bytes, own));
    let page = match read.and_then(|page| page.check(own).map(|()| page)) {
        Ok(page) => page,
        Err(why) => {
            let (from, upper) = (own.first, own.upper);
            return meet(Met::Lost(Lost { ptr: &own.ptr, from, upper, why }));
        }
    };
    if !meet(Met::Page(&own.ptr, own.level)) {
        return false;
    }
    for i in 0..page.count() {
        let goes_on = if own.level > 0 {
            // it was checked
            let Ok(child) = page.child(i, own) else { continue };
            let before = child.upper.is_some_and(|upper| upper <= *from);
            before || readable_from(pages, &child, from, meet)
        } else {
            let (key, value) = (page.key(i), page.value(i).unwrap_or_default());
            key < *from || meet(Met::Entry(key, value))
        };
        if !goes_on {
            return false;
        }
    }
    true
}
