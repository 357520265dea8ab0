//! Blocks that are not leased: while somebody changes them, or fills a copy of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use fs::{Blocks, Ino, Lender, Recalled};

use super::{HELD_MIN, Holder, Lease, Leases, Table, UNUSED_READS, Unused};

impl Leases {
    /// Keeps blocks from being leased, for who would lease them. `None`: a lease that is there was
    /// given just now, or somebody else wants them.
    pub(super) fn try_close(&self, blocks: &Blocks) -> Option<Closed> {
        let mut table = self.table.lock();
        let is_new = |lease: &Lease| lease.since.elapsed() < HELD_MIN;
        let is_closed = || table.closed.iter().any(|(_, closed)| closed.meet(blocks));
        if table.met(blocks).any(is_new) || is_closed() {
            return None;
        }
        Some(self.close(&mut table, blocks))
    }

    /// Keeps blocks from being leased.
    fn close(&self, table: &mut Table, blocks: &Blocks) -> Closed {
        let number = self.number_next.fetch_add(1, Ordering::Relaxed);
        table.closed.push((number, blocks.clone()));
        Closed { leases: self.own.clone(), number }
    }

    /// Keeps blocks from being leased, if nobody has a lease of them but this holder: for who
    /// caches what the holder reads. What others lease and do not write is ended after some reads.
    pub fn close_if_unleased(&self, blocks: &Blocks, own: Option<&Arc<Holder>>) -> Option<Closed> {
        let mut table = self.table.lock();
        let is_other = |lease: &&Lease| own.is_none_or(|own| !Arc::ptr_eq(own, &lease.holder));
        let others: Vec<(Arc<Holder>, u8)> =
            table.met(blocks).filter(is_other).map(|it| (it.holder.clone(), it.slot)).collect();
        if others.is_empty() {
            return Some(self.close(&mut table, blocks));
        }
        drop(table);
        let are_unused = others.iter().fold(true, |all, (holder, slot)| {
            let writes = holder.ledger.lock().writes(*slot);
            self.is_unused(blocks.ino, (holder, *slot), writes) && all
        });
        are_unused.then(|| self.close_to_others(blocks, own))
    }

    /// One more read of others met this lease, of which so many writes were folded: whether there
    /// were many since the last of them.
    fn is_unused(&self, ino: Ino, (holder, slot): (&Arc<Holder>, u8), writes: u64) -> bool {
        let mut table = self.table.lock();
        let leases = table.files.get_mut(&ino).map(|lent| lent.leases.iter_mut());
        let Some(lease) = leases.and_then(|mut all| all.find(|it| it.is_of(holder, slot))) else {
            return false;
        };
        if lease.unused.writes != writes {
            lease.unused = Unused { writes, reads: 0 };
        }
        lease.unused.reads += 1;
        lease.unused.reads > UNUSED_READS
    }

    /// Keeps blocks from being leased, and ends all leases of them but this holder's: for who fills
    /// a copy that is the holder's.
    pub fn close_to_others(&self, blocks: &Blocks, own: Option<&Arc<Holder>>) -> Closed {
        let closed = self.close(&mut self.table.lock(), blocks);
        if let Some(fs) = self.fs.upgrade() {
            self.end_leases(&fs, blocks, own);
        }
        closed
    }
}

impl Lender for Leases {
    fn settle(&self, ino: Ino) {
        let Some(fs) = self.fs.upgrade() else { return };
        let mut holders: Vec<Arc<Holder>> = Vec::new();
        for lease in self.table.lock().leases_of(ino) {
            if !holders.iter().any(|it| Arc::ptr_eq(it, &lease.holder)) {
                holders.push(lease.holder.clone());
            }
        }
        holders.iter().for_each(|holder| self.fold_lane(&fs, holder, false));
    }

    fn lends(&self, blocks: &Blocks) -> bool {
        self.table.lock().met(blocks).next().is_some()
    }

    fn recall(&self, blocks: &Blocks) -> Box<dyn Recalled> {
        let closed = self.close(&mut self.table.lock(), blocks);
        if let Some(fs) = self.fs.upgrade() {
            self.end_leases(&fs, blocks, None);
        }
        Box::new(closed)
    }
}

/// Blocks that are not leased as long as this lives.
#[derive(Debug)]
pub struct Closed {
    leases: Weak<Leases>,
    pub(super) number: u64,
}

impl Recalled for Closed {}

impl Drop for Closed {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.upgrade() {
            leases.table.lock().closed.retain(|(number, _)| *number != self.number);
        }
    }
}
