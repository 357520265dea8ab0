//! What the next server of a connection has to know, in memory that outlives this one: which files
//! the kernel may have pages of, and the bases of given blocks that others changed.
//!
//! ```text
//!      0   inodes, 8 bytes each; 0: none
//! 64 KiB   bases: the inode (0: none; stored last), the block, from where on there may be
//!          zeros, whether something may have been written (8 bytes each); what was given,
//!          what was written
//! ```
//!
//! There is none for the kernel of another machine: then nothing is noted.

use std::collections::{BTreeMap, HashMap};

use nearside::files::Ino;
use shm::Area;

use super::base::{BLOCK, Base};

const INODES_BYTES: usize = 64 << 10;
const WORD: usize = size_of::<u64>();
/// Where in a base its parts are.
const BLOCK_AT: usize = WORD;
const ZEROS_AT: usize = 2 * WORD;
const IS_WRITTEN_AT: usize = 3 * WORD;
const GIVEN_AT: usize = 4 * WORD;
const WRITTEN_AT: usize = GIVEN_AT + BLOCK;
const BASE_BYTES: usize = WRITTEN_AT + BLOCK;

/// Where bases are noted.
#[derive(Debug, Default)]
pub(crate) struct BaseMemory {
    area: Option<Area>,
    watched: HashMap<Ino, usize>,
    /// Places of inodes, and of bases, that are free.
    free_inodes: Vec<usize>,
    free_bases: Vec<usize>,
}

/// The bases of a file that were noted: of which blocks, and where.
pub(super) type Noted = Vec<(u64, Base, usize)>;

impl BaseMemory {
    /// Goes on with what a server before left there; gives the files that it had noted.
    pub(super) fn take_over(area: Area) -> (BaseMemory, BTreeMap<Ino, Noted>) {
        let bases = area.len().saturating_sub(INODES_BYTES) / BASE_BYTES;
        let mut memory = BaseMemory { area: Some(area), ..BaseMemory::default() };
        let mut found: BTreeMap<Ino, Noted> = BTreeMap::new();
        for place in (0..INODES_BYTES / WORD).rev() {
            match memory.word(place * WORD) {
                0 => memory.free_inodes.push(place),
                ino => {
                    memory.watched.insert(Ino(ino), place);
                    found.entry(Ino(ino)).or_default();
                }
            }
        }
        for place in (0..bases).rev() {
            match memory.read(place) {
                Some((ino, block, base)) => {
                    found.entry(ino).or_default().push((block, base, place));
                }
                None => memory.free_bases.push(place),
            }
        }
        (memory, found)
    }

    /// The memory is the next server's from now on.
    pub(super) fn let_go(&mut self) {
        *self = BaseMemory::default();
    }

    fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.area.as_ref()?.get(at..at + len)
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.bytes(at, WORD).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(area) = &mut self.area {
            area[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn put_word(&mut self, at: usize, word: u64) {
        self.put(at, &word.to_ne_bytes());
    }

    fn read(&self, place: usize) -> Option<(Ino, u64, Base)> {
        let at = INODES_BYTES + place * BASE_BYTES;
        let ino = Some(self.word(at)).filter(|ino| *ino != 0)?;
        let mut base = Base::of(self.bytes(at + GIVEN_AT, BLOCK)?);
        base.zeros_from = self.word(at + ZEROS_AT) as usize;
        if self.word(at + IS_WRITTEN_AT) != 0 {
            base.written = Some(Box::from(self.bytes(at + WRITTEN_AT, BLOCK)?));
        }
        Some((Ino(ino), self.word(at + BLOCK_AT), base))
    }

    /// The kernel may have pages of this file.
    pub(super) fn watch(&mut self, ino: Ino) {
        if self.area.is_none() || self.watched.contains_key(&ino) {
            return;
        }
        let Some(place) = self.free_inodes.pop() else {
            return tracing::debug!("pages of more files are kept than can be noted");
        };
        self.put_word(place * WORD, ino.0);
        self.watched.insert(ino, place);
    }

    /// It has none any more.
    pub(super) fn unwatch(&mut self, ino: Ino) {
        if let Some(place) = self.watched.remove(&ino) {
            self.put_word(place * WORD, 0);
            self.free_inodes.push(place);
        }
    }

    /// Nothing of a file that was noted before is wanted any more.
    pub(super) fn forget(&mut self, ino: Ino, bases: &Noted) {
        bases.iter().for_each(|(_, _, place)| self.drop_base(*place));
        self.unwatch(ino);
    }

    /// Notes a base, and says where; `None`: there is no room.
    pub(super) fn note(&mut self, ino: Ino, block: u64, base: &Base) -> Option<usize> {
        let place = self.free_bases.pop()?;
        let at = INODES_BYTES + place * BASE_BYTES;
        self.put_word(at + BLOCK_AT, block);
        self.note_again(place, base);
        self.put_word(at, ino.0);
        Some(place)
    }

    /// A base that was noted has changed.
    pub(super) fn note_again(&mut self, place: usize, base: &Base) {
        let at = INODES_BYTES + place * BASE_BYTES;
        // what is written comes before what is given: between them the pages may have either
        if let Some(written) = &base.written {
            self.put(at + WRITTEN_AT, written);
        }
        self.put_word(at + IS_WRITTEN_AT, base.written.is_some().into());
        self.put_word(at + ZEROS_AT, base.zeros_from as u64);
        self.put(at + GIVEN_AT, &base.given);
    }

    /// A base is not wanted any more.
    pub(super) fn drop_base(&mut self, place: usize) {
        self.put_word(INODES_BYTES + place * BASE_BYTES, 0);
        self.free_bases.push(place);
    }
}
