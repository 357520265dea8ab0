//! Places of which what is read is not what was written there: nobody is to get them any more,
//! until the pool is opened anew. Nothing on the medium says so.

use crate::space::Space;
use locks::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Such blocks of one device.
#[derive(Debug, Default)]
pub struct Withdrawn {
    blocks: Mutex<BTreeSet<u64>>,
    count: AtomicU64,
}

impl Withdrawn {
    /// How many.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a block is one: it stays taken when whoever has it gives it back.
    pub fn has(&self, block: u64) -> bool {
        self.len() > 0 && self.blocks.lock().contains(&block)
    }

    fn add(&self, block: u64) -> bool {
        let mut blocks = self.blocks.lock();
        let is_new = blocks.insert(block);
        self.count.store(blocks.len() as u64, Ordering::Relaxed);
        is_new
    }
}

impl Space {
    /// Nobody is to get this block any more. False: so it was already, or it is none of ours.
    pub fn withdraw(&self, block: u64) -> bool {
        let is_new = self.contains(block) && self.withdrawn.add(block);
        if is_new {
            // where nobody has it, nobody gives it back
            self.mark_used(block);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use crate::space::{Purpose, Space};

    #[test]
    fn what_is_withdrawn_is_not_given_out_again() {
        let space = Space::new(16, 64, 0);
        let mut runs = Vec::new();
        assert_eq!(space.take(8, Purpose::Data, &mut runs), 8);
        let first = runs[0].first;
        // one that somebody has, and one that is free
        assert!(space.withdraw(first) && space.withdraw(63));
        assert!(!space.withdraw(first) && !space.withdraw(64), "known, and none of its own");
        assert_eq!((space.withdrawn.len(), space.free()), (2, 39));
        space.give(&[first, first + 1]);
        space.give_batch(vec![first + 2]);
        space.settle();
        assert_eq!(space.free(), 41);
        runs.clear();
        assert_eq!(space.take(64, Purpose::Data, &mut runs), 41);
        let given =
            |block| runs.iter().any(|run| (run.first..run.first + run.count).contains(&block));
        assert!(given(first + 1) && !given(first) && !given(63));
        assert!(!space.freed_twice());
    }
}
