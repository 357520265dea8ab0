//! What is said to a kernel on another machine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nearside::files::RequestId;
use wire::{Notice, Outlet, SLOTS};

use super::Nodes;
use crate::wire::{Operation, Sink};

/// The way to the kernel.
#[derive(Debug)]
pub struct Way {
    outlet: Arc<dyn Outlet>,
    nodes: Nodes,
    /// What the answers in the slots begin with.
    answers: [AtomicU8; SLOTS],
}

/// In an answer there is no inode, or one that has a name here only: attributes, an open file.
const NO_NAMES: u8 = 0;
/// It begins with an entry.
const ENTRY: u8 = 1;
/// It is of entries, each with its name.
const LISTING: u8 = 2;

/// The slot of a request, if its number says one. Those of a kernel are smaller.
fn slot_of(unique: u64) -> Option<u8> {
    RequestId { client: 0, sequence: unique }.slot().map(|(slot, _)| slot)
}

/// Whether a number is that of a request in a slot.
pub fn is_of_slot(unique: u64) -> bool {
    slot_of(unique).is_some()
}

impl Way {
    /// To whom this leads, who calls inodes so.
    pub fn new(outlet: Arc<dyn Outlet>, nodes: Nodes) -> Way {
        Way { outlet, nodes, answers: std::array::from_fn(|_| AtomicU8::new(NO_NAMES)) }
    }

    /// A request is served in this slot.
    pub fn expects(&self, unique: u64, operation: &Operation<'_>) {
        let answer = match operation {
            Operation::Lookup { .. }
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::Tmpfile { .. } => ENTRY,
            Operation::Readdirplus { .. } => LISTING,
            _ => NO_NAMES,
        };
        let slot = slot_of(unique).and_then(|slot| self.answers.get(usize::from(slot)));
        // ordering: the slot has one request, which this thread or one that it begins answers
        slot.inspect(|slot| slot.store(answer, Ordering::Relaxed));
    }

    /// Says what is locked.
    pub fn say_locks(&self, notice: Notice, records: &[u8]) {
        if self.nodes.are_inodes() {
            return self.outlet.say(notice, records);
        }
        let mut records = records.to_vec();
        self.nodes.name_records(&mut records);
        self.outlet.say(notice, &records);
    }

    /// Says which pages are to be dropped: behind the inode, of which file.
    pub fn say_pages(&self, number: u64, mut notice: Vec<u8>) {
        self.nodes.name_first(&mut notice);
        self.outlet.say(Notice::Pages(number), &notice);
    }

    /// What is answered in this slot, with names in the place of inodes; `None`: it has none.
    fn named(&self, slot: u8, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let answer = self.answers.get(usize::from(slot))?.load(Ordering::Relaxed);
        if answer == NO_NAMES || self.nodes.are_inodes() {
            return None;
        }
        let mut bytes = parts.concat();
        match answer {
            ENTRY => self.nodes.name_first(&mut bytes),
            _ => self.nodes.name_listing(&mut bytes),
        }
        Some(bytes)
    }
}

impl Sink for Way {
    fn take(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        if unique == 0 {
            // all that a kernel is told begins with an inode
            let mut bytes = parts.concat();
            self.nodes.name_first(&mut bytes);
            self.outlet.say(Notice::Kernel(error), &bytes);
            return Ok(());
        }
        match slot_of(unique) {
            Some(slot) => match self.named(slot, parts).filter(|_| error == 0) {
                Some(named) => self.outlet.answer(unique, -error, &[&named]),
                None => self.outlet.answer(unique, -error, parts),
            },
            None => {
                self.outlet.say(Notice::Locked(unique, -error), &[]);
                Ok(())
            }
        }
    }
}
