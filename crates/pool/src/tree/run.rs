//! Entries in order that are on their way into pages.

use super::{
    Key, PAGE_BYTES,
    page::{
        ENTRY_SPACE, MAGIC, OFF_COUNT, OFF_LEVEL, OFF_MAGIC, OFF_SLOTS, OFF_USED, OFF_VERSION,
        SLOT_BYTES, VERSION,
    },
};
use super::{key::KEY_BYTES, page::OFF_ZERO};

/// A queue of entries: appended at the end, taken from the front a page at a time.
#[derive(Default)]
pub(super) struct Run {
    /// Key and length of value, from `keys_taken` on.
    keys: Vec<(Key, u16)>,
    keys_taken: usize,
    /// The values one after the other, from `values_taken` on.
    values: Vec<u8>,
    values_taken: usize,
}

impl Run {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.keys_taken == self.keys.len()
    }

    /// Bytes that the entries will take in pages.
    pub fn entry_bytes(&self) -> usize {
        (self.keys.len() - self.keys_taken) * SLOT_BYTES + self.values.len() - self.values_taken
    }

    /// Appends an entry, whose key is above those here and whose value is no longer than allowed.
    pub fn push(&mut self, key: Key, value: &[u8]) {
        debug_assert!(self.keys.last().is_none_or(|last| last.0 < key));
        self.keys.push((key, value.len() as u16));
        self.values.extend_from_slice(value);
    }

    /// Appends all of `other`, whose keys are above those here.
    pub fn append(&mut self, other: &Run) {
        self.keys.extend_from_slice(&other.keys[other.keys_taken..]);
        self.values.extend_from_slice(&other.values[other.values_taken..]);
    }

    /// Takes entries from the front into `page`, as many as come closest to `bytes_target` and fit,
    /// at least one; None if there are none. Returns the page's first key.
    pub fn take_page(
        &mut self,
        level: u8,
        bytes_target: usize,
        page: &mut [u8; PAGE_BYTES],
    ) -> Option<Key> {
        let waiting = &self.keys[self.keys_taken..];
        let (first, _) = *waiting.first()?;
        let (count, bytes) = count_for(waiting, bytes_target);
        let values_start = OFF_SLOTS + count * SLOT_BYTES;
        let used = OFF_SLOTS + bytes;
        put_header(page, level, count, used);
        let mut end = values_start;
        let (slots, _) = page[OFF_SLOTS..values_start].as_chunks_mut::<SLOT_BYTES>();
        for (slot, (key, length)) in slots.iter_mut().zip(waiting) {
            end += usize::from(*length);
            slot[..KEY_BYTES].copy_from_slice(&key.encode());
            slot[KEY_BYTES..].copy_from_slice(&(end as u16).to_le_bytes());
        }
        assert_eq!(end, used, "slots and values of a new page agree");
        let values_end = self.values_taken + used - values_start;
        page[values_start..used].copy_from_slice(&self.values[self.values_taken..values_end]);
        page[used..].fill(0);
        self.keys_taken += count;
        self.values_taken = values_end;
        Some(first)
    }

    /// Gives back the room of what was taken.
    pub fn compact(&mut self) {
        self.keys.drain(..self.keys_taken);
        self.values.drain(..self.values_taken);
        (self.keys_taken, self.values_taken) = (0, 0);
    }
}

/// How many of the first entries come closest to `bytes_target`, and how many bytes they take.
fn count_for(entries: &[(Key, u16)], bytes_target: usize) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for (_, length) in entries {
        let more = SLOT_BYTES + usize::from(*length);
        if bytes + more > ENTRY_SPACE || (count > 0 && bytes + more / 2 > bytes_target) {
            break;
        }
        count += 1;
        bytes += more;
    }
    (count, bytes)
}

fn put_header(page: &mut [u8; PAGE_BYTES], level: u8, count: usize, used: usize) {
    page[OFF_MAGIC..OFF_VERSION].copy_from_slice(&MAGIC);
    page[OFF_VERSION] = VERSION;
    page[OFF_LEVEL] = level;
    page[OFF_COUNT..OFF_USED].copy_from_slice(&(count as u16).to_le_bytes());
    page[OFF_USED..OFF_ZERO].copy_from_slice(&(used as u16).to_le_bytes());
    page[OFF_ZERO..OFF_SLOTS].fill(0);
}
