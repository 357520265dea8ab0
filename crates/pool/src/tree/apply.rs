//! From one version of the tree to the next.

use super::{
    Child, HEIGHT_MAX, Key, PAGE_BYTES, PagePtr, PageStore, Root, TreeError, VALUE_BYTES_MAX,
    batch::{Batch, Dropped},
    error::damaged,
    merge::Work,
    packer::Packer,
    page::Page,
};

/// What becomes of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It gets this value, whether it had one or not.
    Put(Vec<u8>),
    /// It goes, if it is there.
    Delete,
}

/// Makes the next version of the tree at `root` and returns its root.
///
/// `ranges` are deletions of all keys from the first, up to but without the second; ascending and
/// disjoint. `changes` come after them; strictly ascending. Both may name keys that are not there.
///
/// `dropped` is called, in the order of keys, with each entry that was there and is removed or put
/// again: its key, its old value, and its new one if it has one. An entry that a range deletes
/// and a change puts again is one call. If `apply` fails, the calls so far say nothing.
///
/// Old pages are freed last, and only if all went well; if not, the new ones are, and `root` is as
/// it was. Besides the batch itself, memory in use is some 80 bytes for each page written or freed.
pub fn apply<S: PageStore>(
    pages: &mut S,
    root: &Root,
    changes: &[(Key, Change)],
    ranges: &[(Key, Key)],
    dropped: Dropped<'_>,
) -> Result<Root, TreeError> {
    apply_touching(pages, root, Work { changes, ranges, touched: &[] }, dropped)
}

/// The same, and writes the pages that have the `touched` keys, or would have them, anew, with all
/// above them; ascending.
pub fn apply_touching<S: PageStore>(
    pages: &mut S,
    root: &Root,
    work: Work<'_>,
    dropped: Dropped<'_>,
) -> Result<Root, TreeError> {
    check_batch(&work)?;
    let top = Child::top(root)?;
    if work.is_empty() {
        return Ok(*root);
    }
    let mut batch = Batch::new(pages, dropped);
    let result = change_tree(&mut batch, root, top, work);
    batch.end(result.is_ok());
    result
}

fn check_batch(work: &Work<'_>) -> Result<(), TreeError> {
    let Work { changes, ranges, touched } = work;
    if !touched.is_sorted() {
        return Err(TreeError::Unsorted("touched keys do not ascend"));
    }
    if !changes.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(TreeError::Unsorted("changes do not ascend strictly"));
    }
    if ranges.iter().any(|(from, to)| from > to) || !ranges.is_sorted_by(|a, b| a.1 <= b.0) {
        return Err(TreeError::Unsorted("ranges do not ascend or overlap"));
    }
    let bytes_max = VALUE_BYTES_MAX;
    let lengths = changes.iter().filter_map(|(_, change)| match change {
        Change::Put(value) => Some(value.len()),
        Change::Delete => None,
    });
    match lengths.max() {
        Some(bytes) if bytes > bytes_max => Err(TreeError::ValueTooLong { bytes, bytes_max }),
        _ => Ok(()),
    }
}

fn change_tree<S: PageStore>(
    batch: &mut Batch<'_, S>,
    root: &Root,
    top: Option<Child>,
    work: Work<'_>,
) -> Result<Root, TreeError> {
    let top = match top {
        Some(top) => Some(lower(batch, top)?),
        None => None,
    };
    let level = top.map_or(0, |top| top.level);
    let mut packer = Packer::new(level);
    if let Some(top) = top {
        batch.change(&top, work, &mut packer)?;
    } else {
        let empty = [0; PAGE_BYTES];
        batch.change_leaf(Page::empty(&empty), work, &mut packer, |_| ())?;
    }
    let packed = packer.finish(batch)?;
    let (page, height) = raise(batch, packed.pages, level)?;
    match batch.entries_after(root.entries) {
        Some(entries) if (entries == 0) == (height == 0) => Ok(Root { page, height, entries }),
        _ => damaged(root.page.addr, "the root's count of entries is wrong"),
    }
}

/// Takes topmost pages away that have a single child. They are left by the batch before this one,
/// which would have had to write them and free them again to do without.
fn lower<S: PageStore>(batch: &mut Batch<'_, S>, mut top: Child) -> Result<Child, TreeError> {
    let mut bytes = [0; PAGE_BYTES];
    while top.level > 0 {
        let page = batch.read(&top, &mut bytes)?;
        if page.count() > 1 {
            break;
        }
        let child = page.child(0, &top)?;
        batch.drop_page(&top);
        top = child;
    }
    Ok(top)
}

/// Puts levels above the pages of `level` until there is one page, or none; returns it and the
/// height.
fn raise<S: PageStore>(
    batch: &mut Batch<'_, S>,
    mut pages: Vec<(Key, PagePtr)>,
    mut level: u8,
) -> Result<(PagePtr, u8), TreeError> {
    while pages.len() > 1 {
        level += 1;
        if level >= HEIGHT_MAX {
            return Err(TreeError::TooHigh(HEIGHT_MAX));
        }
        let mut packer = Packer::new(level);
        packer.replace(true);
        for (key, ptr) in &pages {
            packer.push(batch, *key, &ptr.encode())?;
        }
        pages = packer.finish(batch)?.pages;
    }
    Ok(pages.first().map_or((PagePtr::NONE, 0), |(_, ptr)| (*ptr, level + 1)))
}
