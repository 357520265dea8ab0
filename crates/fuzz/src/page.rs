//! A page of a tree taken apart and put together again.

use crate::image::{BLOCK, Image};

/// Bytes of a key.
pub const KEY: usize = 17;

/// An entry: its key and its value.
pub type Entry = ([u8; KEY], Vec<u8>);

/// The entries of the page at `at`.
pub fn entries(image: &Image, slice: usize, at: usize) -> Vec<Entry> {
    let values = image.page_values(slice, at).into_iter().enumerate();
    let entry = |(i, (value_at, len))| {
        let key = image.get(slice, at + 32 + 19 * i, KEY)?.try_into().ok()?;
        Some((key, image.get(slice, value_at, len)?.to_vec()))
    };
    values.filter_map(entry).collect()
}

/// Puts these entries in place of those of the page at `at`; nothing changes if they do not fit.
pub fn replace(image: &mut Image, slice: usize, at: usize, entries: &[Entry]) {
    let Some(old) = image.get(slice, at, 32) else { return };
    let mut page = old.to_vec();
    let slots = 32 + 19 * entries.len();
    let mut values = Vec::new();
    for (key, value) in entries {
        values.extend_from_slice(value);
        page.extend_from_slice(key);
        page.extend_from_slice(&((slots + values.len()) as u16).to_le_bytes());
    }
    page.extend_from_slice(&values);
    if page.len() > BLOCK {
        return;
    }
    page[6..8].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    let used = page.len() as u16;
    page[8..10].copy_from_slice(&used.to_le_bytes());
    page.resize(BLOCK, 0);
    image.put(slice, at, &page);
}
