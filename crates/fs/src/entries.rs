//! Entries of one directory in DRAM, beside those of the tree.
//!
//! What it keeps true:
//! - DRAM goes before the tree: an entry that was deleted, and that the tree may still have, stays
//!   as deleted until a checkpoint without it is complete;
//! - while `complete`, the tree has no entry that is not here, so that nobody has to look there:
//!   a new directory is complete from birth, one from the tree once all its entries were loaded;
//! - a slot that is not `changed` is as the last cut had it, and may be let go after that
//!   checkpoint is complete (then the directory is not complete any more).
//!
//! An entry that comes and goes between two cuts leaves nothing behind for the tree.

use crate::dir::Dirent;
use crate::types::Ino;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Cookies listed as changed before those that changed back are looked for.
const CHANGED_MIN: usize = 64;

/// What DRAM knows about one cookie.
#[derive(Debug)]
struct Slot {
    /// `None`: there is no such entry, whatever the tree says.
    entry: Option<Dirent>,
    /// The tree may have it.
    stored: bool,
    /// It changed since the last cut.
    changed: bool,
}

/// Entries of one directory in DRAM.
#[derive(Debug)]
pub struct Dir {
    slots: BTreeMap<u64, Slot>,
    complete: bool,
    /// Every cookie whose slot is `changed`, some more than once, and others that came and went.
    changed: Vec<u64>,
    /// Cookies that the last cut deleted from the tree.
    folding: Vec<u64>,
    /// Look-ups that had to read the tree; see [`Dir::missed`].
    misses: u32,
    /// Some cookie is not the first of its hash.
    collided: bool,
    /// Slots that the memory in use counts.
    pub counted: u64,
}

impl Dir {
    /// An empty directory, or one whose entries are in the tree.
    pub fn new(complete: bool) -> Dir {
        Dir {
            slots: BTreeMap::new(),
            complete,
            changed: Vec::new(),
            folding: Vec::new(),
            misses: 0,
            collided: false,
            counted: 0,
        }
    }

    /// Whether the tree has no entry that is not here.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Whether DRAM has what is so of a cookie.
    pub fn knows(&self, cookie: u64) -> bool {
        self.slots.contains_key(&cookie)
    }

    /// Slots in DRAM.
    pub fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The entry `name` among those whose cookies begin at `base`.
    #[inline]
    pub fn find(&self, base: u64, name: &[u8]) -> Option<(u64, Ino)> {
        if !self.collided {
            let entry = self.slots.get(&base)?.entry.as_ref()?;
            return (entry.name.bytes() == name).then_some((base, entry.ino));
        }
        self.find_collided(base, name)
    }

    #[cold]
    fn find_collided(&self, base: u64, name: &[u8]) -> Option<(u64, Ino)> {
        let same_hash = self.slots.range(base..).take_while(|(cookie, _)| **cookie <= base | 255);
        same_hash.into_iter().find_map(|(cookie, slot)| {
            let entry = slot.entry.as_ref().filter(|entry| entry.name.bytes() == name)?;
            Some((*cookie, entry.ino))
        })
    }

    /// The first cookie from `base` on that names nothing; the caller has loaded those up to
    /// `base | 255`.
    #[inline]
    pub fn free_cookie(&self, base: u64) -> Option<u64> {
        if !self.collided {
            let taken = self.slots.get(&base).is_some_and(|slot| slot.entry.is_some());
            return Some(base + u64::from(taken));
        }
        self.free_cookie_collided(base)
    }

    #[cold]
    fn free_cookie_collided(&self, base: u64) -> Option<u64> {
        let mut free = base;
        for (cookie, slot) in self.slots.range(base..) {
            if *cookie > free || slot.entry.is_none() {
                break;
            }
            free += 1;
        }
        (free <= base | 255).then_some(free)
    }

    /// The entry is now this. Returns by how much that changes what the next checkpoint has to
    /// fold.
    pub fn set(&mut self, cookie: u64, entry: Option<Dirent>) -> i64 {
        self.collided |= cookie & 255 != 0;
        match (self.slots.entry(cookie), entry) {
            (Entry::Vacant(place), entry) => {
                // of a name that was not looked up, as in replay, only the tree knows
                let stored = !self.complete;
                if entry.is_none() && !stored {
                    return 0;
                }
                place.insert(Slot { entry, stored, changed: true });
            }
            (Entry::Occupied(place), None) if !place.get().stored => {
                return -i64::from(place.remove().changed);
            }
            (Entry::Occupied(mut place), entry) => {
                let slot = place.get_mut();
                slot.entry = entry;
                if std::mem::replace(&mut slot.changed, true) {
                    return 0;
                }
            }
        }
        if self.changed.len() >= CHANGED_MIN + 2 * self.slots.len() {
            self.compact();
        }
        self.changed.push(cookie);
        1
    }

    /// Takes what came and went off the list, so that the slots bound it.
    fn compact(&mut self) {
        self.changed.sort_unstable();
        self.changed.dedup();
        self.changed.retain(|cookie| self.slots.get(cookie).is_some_and(|slot| slot.changed));
    }

    /// An entry that the tree has. What DRAM knows about the cookie is newer.
    pub fn load(&mut self, cookie: u64, entry: Dirent) {
        self.collided |= cookie & 255 != 0;
        let slot = Slot { entry: Some(entry), stored: true, changed: false };
        self.slots.entry(cookie).or_insert(slot);
    }

    /// All entries of the tree were loaded, or they cannot be: then that is tried again after as
    /// many look-ups more.
    pub fn loaded_all(&mut self, whole: bool) {
        self.complete = whole;
        self.misses = 0;
    }

    /// A look-up has to read the tree. Returns how often that happened before.
    pub fn missed(&mut self) -> u32 {
        let before = self.misses;
        self.misses = before.saturating_add(1);
        before
    }

    /// Gives what changed since the last cut to `each`, in the order of cookies: at the cut.
    pub fn cut(&mut self, each: &mut dyn FnMut(u64, Option<&Dirent>)) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        for cookie in changed {
            let Some(slot) = self.slots.get_mut(&cookie) else { continue };
            if !std::mem::replace(&mut slot.changed, false) {
                continue;
            }
            slot.stored = true;
            if slot.entry.is_none() {
                self.folding.push(cookie);
            }
            each(cookie, slot.entry.as_ref());
        }
    }

    /// The tree is as the last cut left the directory: that checkpoint is complete.
    pub fn folded(&mut self) {
        for cookie in std::mem::take(&mut self.folding) {
            let Entry::Occupied(mut place) = self.slots.entry(cookie) else { continue };
            place.get_mut().stored = false;
            if place.get().entry.is_none() {
                place.remove();
            }
        }
    }

    /// Lets go of what the tree has, too: right after `folded`.
    pub fn let_go(&mut self) {
        self.slots.retain(|_, slot| slot.changed);
        self.complete = false;
        self.misses = 0;
    }

    /// The directory is gone, and with it all that the tree has of it.
    pub fn clear(&mut self) {
        *self = Dir { counted: self.counted, ..Dir::new(true) };
    }

    /// What DRAM knows about the cookies after `after` up to `last`, in order; `None`: no entry.
    pub fn range(&self, after: u64, last: u64) -> impl Iterator<Item = (u64, Option<&Dirent>)> {
        let slots = self.slots.range(after + 1..=last);
        slots.map(|(cookie, slot)| (*cookie, slot.entry.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short_name::ShortName;
    use crate::types::FileKind;

    fn entry(ino: u64) -> Dirent {
        Dirent { ino: Ino(ino), kind: FileKind::File, name: ShortName::new(b"name") }
    }

    /// What a cut gives: cookies, and whether there is an entry.
    fn cut(dir: &mut Dir) -> Vec<(u64, bool)> {
        let mut all = Vec::new();
        dir.cut(&mut |cookie, entry| all.push((cookie, entry.is_some())));
        all
    }

    #[test]
    fn what_comes_and_goes_between_two_cuts_is_nothing_for_the_tree() {
        let mut dir = Dir::new(true);
        assert_eq!(dir.set(512, Some(entry(1))), 1);
        assert_eq!(dir.set(512, None), -1);
        assert_eq!(dir.slots(), 0);
        dir.set(768, Some(entry(2)));
        assert_eq!(cut(&mut dir), [(768, true)]);
        assert_eq!(cut(&mut dir), []);
    }

    #[test]
    fn a_deleted_entry_hides_the_trees_until_the_fold_is_complete() {
        let mut dir = Dir::new(true);
        dir.set(512, Some(entry(1)));
        cut(&mut dir);
        // deleted while the first fold is under way: its Put will be in the tree
        dir.set(512, None);
        dir.folded();
        assert_eq!(dir.slots(), 1);
        dir.let_go();
        dir.load(512, entry(1));
        assert_eq!(dir.find(512, b"name"), None);
        assert_eq!(cut(&mut dir), [(512, false)]);
        assert_eq!(dir.slots(), 1, "the fold that deletes it is not complete");
        dir.folded();
        assert_eq!(dir.slots(), 0);
    }

    #[test]
    fn an_entry_made_again_while_its_deletion_folds_stays() {
        let mut dir = Dir::new(true);
        dir.set(512, Some(entry(1)));
        cut(&mut dir);
        dir.folded();
        dir.set(512, None);
        assert_eq!(cut(&mut dir), [(512, false)]);
        dir.set(512, Some(entry(2)));
        dir.folded();
        assert_eq!(dir.find(512, b"name"), Some((512, Ino(2))));
        // the tree has none: nothing is left to delete
        assert_eq!(dir.set(512, None), -1);
        assert_eq!(cut(&mut dir), []);
    }

    #[test]
    fn an_entry_that_was_never_looked_up_may_be_in_the_tree() {
        let mut dir = Dir::new(false);
        dir.set(512, Some(entry(2)));
        dir.set(512, None);
        dir.load(512, entry(1));
        assert_eq!(dir.find(512, b"name"), None);
        assert_eq!(cut(&mut dir), [(512, false)]);
    }

    #[test]
    fn the_list_of_changes_is_bounded_by_the_slots() {
        let mut dir = Dir::new(true);
        dir.set(256, Some(entry(1)));
        for round in 0..100_000u64 {
            dir.set(512 + round % 7, Some(entry(2)));
            dir.set(512 + round % 7, None);
            assert!(dir.changed.len() <= CHANGED_MIN + 2 * (dir.slots.len() + 1));
        }
        assert_eq!(cut(&mut dir), [(256, true)]);
    }

    #[test]
    fn cookies_of_one_hash_are_given_out_from_the_first_free_one() {
        let mut dir = Dir::new(true);
        assert_eq!(dir.free_cookie(512), Some(512));
        for cookie in 512..768 {
            assert_eq!(dir.free_cookie(512), Some(cookie));
            dir.set(cookie, Some(entry(cookie)));
        }
        dir.set(768, Some(entry(768)));
        assert_eq!(dir.free_cookie(512), None);
        dir.set(600, None);
        assert_eq!(dir.free_cookie(512), Some(600));
        let mut dir = Dir::new(true);
        dir.set(513, Some(entry(513)));
        assert_eq!(dir.free_cookie(512), Some(512));
        assert_eq!(dir.find(512, b"name"), Some((513, Ino(513))));
    }
}
