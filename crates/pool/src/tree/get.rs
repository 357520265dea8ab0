//! One entry of the tree.

use super::{Child, Key, PageRead, Root, TreeError, page::Page};

/// The value of `key`; None if there is none.
pub fn get<R: PageRead>(pages: &R, root: &Root, key: &Key) -> Result<Option<Vec<u8>>, TreeError> {
    get_with(pages, root, key, <[u8]>::to_vec)
}

/// What `read` makes of the value of `key`; None if there is none. Reads one page a level.
pub fn get_with<R: PageRead, T>(
    pages: &R,
    root: &Root,
    key: &Key,
    read: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, TreeError> {
    let Some(mut child) = Child::top(root)? else { return Ok(None) };
    loop {
        let copy = pages.page(&child.ptr)?;
        let page = Page::open(&copy.bytes, &child)?;
        if child.level == 0 {
            return match page.find(key) {
                Ok(i) => Ok(Some(read(page.value(i)?))),
                Err(_) => Ok(None),
            };
        }
        let Some(i) = page.find_child(key) else { return Ok(None) };
        child = page.child(i, &child)?;
    }
}
