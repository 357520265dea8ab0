//! Check, third part: blocks that may have several places, against the references to them that are
//! counted.
//!
//! A block with fewer references than places would be used again while a file still has it. One
//! with more is never free.

use crate::check::{Checker, Tree, inode_place};
use crate::keys;
use crate::leaf::LEAF_BLOCKS;
use crate::patches::Patches;
use crate::references;
use crate::tickets;
use crate::types::Ino;
use pool::BLOCK_BYTES;
use pool::tree::{self, Key};
use std::collections::HashMap;
use std::sync::Arc;

impl Checker<'_> {
    /// Tells how far it is, now and then.
    pub fn tell(&mut self) {
        let done = self.report.blocks;
        if done.is_multiple_of(LEAF_BLOCKS) {
            let (all, free) = self.core.blocks();
            // a shared block is looked at in each of its places
            let of = all.saturating_sub(free).max(done);
            (self.each)(done * BLOCK_BYTES, of * BLOCK_BYTES);
        }
    }

    /// A value of the tree that remembers a request.
    pub fn ticket(&mut self, slice: u8, key: &Key, value: &[u8]) {
        self.report.requests += 1;
        let in_place = slice == keys::TICKETS_SLICE && key.index < tickets::NUMBER_MAX;
        let new =
            tickets::decode_ticket(value).is_some_and(|(id, _)| self.state.requests.insert(id));
        if !in_place || !new {
            self.report.add(format!("slice {slice}, tree"), format!("{key:?} makes no sense"));
        }
    }

    /// A value of the tree that counts references.
    pub fn counted(&mut self, slice: u8, key: &Key, value: &[u8]) {
        let counts = references::decode(key.index, value)
            .filter(|_| {
                references::home(key.index, self.core.pool.slices().len()) == usize::from(slice)
            })
            .filter(|counts| counts.iter().all(|(addr, _)| self.core.pool.contains(*addr)));
        let Some(counts) = counts else {
            let what = format!("{key:?} holds a value that makes no sense");
            return self.report.add(format!("slice {slice}, tree"), what);
        };
        for (addr, count) in counts {
            self.state.shared.entry(addr).or_default().counted = count.into();
        }
    }

    /// Compares what was counted with what was found.
    pub fn places(&mut self) {
        for (addr, places) in &self.state.shared {
            let (found, counted) = (places.found, places.counted);
            if let Some(other) = self.state.owners.get(&addr.bits()) {
                let other = if *other == Ino(0) { "the trees".into() } else { inode_place(*other) };
                let what = format!("is shared, but belongs to {other} alone");
                self.report.add(addr.place(), what);
            }
            let lost = &self.state.lost;
            if counted < found && !lost.cover_references() {
                let ino = places.ino.map_or_else(String::new, inode_place);
                let what = format!(
                    "{ino} and others have {found} places for it, but {counted} are counted: it \
                     would be used again too early"
                );
                self.report.add(addr.place(), what);
            } else if counted > found && !lost.any() {
                let what = format!(
                    "{counted} places are counted, but {found} are there: it is never free"
                );
                self.report.add(addr.place(), what);
            }
        }
    }
}

/// The patches that the tree holds over blocks of a leaf. What makes no sense is reported when its
/// key is met.
pub fn stored_patches(ino: Ino, leaf: u64, (view, root): Tree<'_>) -> HashMap<u64, Arc<Patches>> {
    let mut patches = HashMap::new();
    let first = leaf * LEAF_BLOCKS;
    let from = keys::key(ino, keys::PATCH, first);
    let to = keys::key(ino, keys::PATCH, first + LEAF_BLOCKS);
    // a page that cannot be read is met by the walk over the whole tree
    let _ = tree::scan(view, root, from, to, |key, value| {
        patches.extend(Patches::decode(value).map(|found| (key.index, Arc::new(found))));
        Ok(true)
    });
    patches
}
