//! What is locked through this door, in memory that outlives the server.
//!
//! ```text
//!      0   one word: which half counts (bit 31), and how many records it has
//!   4 KiB  two halves of `RECORDS` records
//! ```
//!
//! A change of the table is here before anybody is told of it: the engine shows it to the journal
//! before it lets go of the file's locks. It counts when the word does. When a half fills, what is
//! held is written to the other one, and one store of the word makes that the journal.
//!
//! Beside the locks there is which open file took record locks as which owner. The kernel says
//! when a process closes a file, and which flock(2) lock a last close ends, but not that the locks
//! of an open file description (F_OFD_SETLK) end with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearside::LockKind;
use nearside::files::{Ino, LockChange, LockClass, LockOwner};
use parking_lot::Mutex;
use shm::Area;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Result;
use crate::state::FOREIGN;

const HALVES_AT: usize = 4096;
/// Records in a half.
const RECORDS: u32 = 1 << 15;
/// Bytes of a record, which begins with its file's inode.
pub(crate) const RECORD_BYTES: usize = size_of::<Record>();
const HALF_BYTES: usize = RECORDS as usize * RECORD_BYTES;
/// Most records that a half may hold when a request is taken up: what one request can bring about
/// goes into the rest, which is a grant for each that waits.
const HELD_MAX: u32 = RECORDS / 2;
/// Records between two attempts to have fewer.
const FOLD_AGAIN: u32 = RECORDS / 16;
const SECOND_HALF: u32 = 1 << 31;
/// Bytes of a journal.
pub(super) const JOURNAL_BYTES: usize = HALVES_AT + 2 * HALF_BYTES;

/// One change.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    ino: u64,
    key: u64,
    /// First byte, or the open file's number.
    start: u64,
    end: u64,
    pid: u32,
    what: u32,
}

/// What a record may say: one of these, or a class and a kind.
const TOOK: u32 = 1;
const GONE: u32 = 2;
const CLASSES: [(u32, LockClass); 2] = [(0x100, LockClass::Posix), (0x200, LockClass::Flock)];
const KINDS: [(u32, LockKind); 3] =
    [(1, LockKind::Read), (2, LockKind::Write), (3, LockKind::Unlock)];

impl Record {
    fn of_lock(ino: Ino, change: &LockChange) -> Record {
        let class = CLASSES.iter().find(|(_, class)| *class == change.class);
        let kind = KINDS.iter().find(|(_, kind)| *kind == change.kind);
        let what = class.map_or(0, |class| class.0) | kind.map_or(0, |kind| kind.0);
        let LockChange { start, end, pid, .. } = *change;
        Record { ino: ino.0, key: change.owner.key, start, end, pid, what }
    }

    fn of_file(what: u32, handle: u64, (ino, key): (Ino, u64)) -> Record {
        Record { ino: ino.0, key, start: handle, end: 0, pid: 0, what }
    }

    fn lock(&self, door: u64) -> Result<(Ino, LockChange)> {
        let class = CLASSES.iter().find(|(bits, _)| *bits == self.what & !0xff);
        let kind = KINDS.iter().find(|(bits, _)| *bits == self.what & 0xff);
        let (Some((_, class)), Some((_, kind))) = (class, kind) else { return Err(FOREIGN) };
        let owner = LockOwner { door, key: self.key };
        let (start, end, pid) = (self.start, self.end, self.pid);
        Ok((Ino(self.ino), LockChange { class: *class, owner, kind: *kind, start, end, pid }))
    }
}

/// The journal of a door.
#[derive(Debug)]
pub(super) struct Journal {
    /// Open files that took locks.
    files: AtomicUsize,
    inner: Mutex<Inner>,
}

/// What a journal is followed by that lies elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mirrored<'r> {
    /// These records come at its end.
    More(&'r [u8]),
    /// These are all that it has.
    All(&'r [u8]),
}

/// Is told what becomes of a journal, in order.
pub(crate) struct Mirror(pub(crate) Box<dyn Fn(Mirrored<'_>) + Send + Sync>);

impl std::fmt::Debug for Mirror {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Mirror")
    }
}

#[derive(Debug)]
struct Inner {
    memory: Area,
    mirror: Option<Mirror>,
    second: bool,
    count: u32,
    /// How many there were when the half began.
    folded: u32,
    took: HashMap<u64, Vec<(Ino, u64)>>,
}

impl Inner {
    fn append(&mut self, record: &Record) {
        if self.count == RECORDS {
            // Cannot be: see `HELD_MAX`.
            tracing::error!("no room to note a lock: it will not outlive this server");
            return;
        }
        self.put(self.second, self.count, record);
        self.count += 1;
        self.publish();
        if let Some(mirror) = &self.mirror {
            mirror.0(Mirrored::More(record.as_bytes()));
        }
    }

    fn put(&mut self, second: bool, at: u32, record: &Record) {
        let at = place(second, at);
        self.memory[at..at + RECORD_BYTES].copy_from_slice(record.as_bytes());
    }

    fn publish(&mut self) {
        let half = if self.second { SECOND_HALF } else { 0 };
        self.memory.store(0, self.count | half);
    }
}

/// The records of a journal.
pub(crate) fn records(memory: &Area) -> Result<&[u8]> {
    let (second, count) = word(memory)?;
    let at = place(second, 0);
    memory.get(at..at + count as usize * RECORD_BYTES).ok_or(FOREIGN)
}

/// Puts records behind those of a journal, or in their place.
pub(crate) fn put(memory: &mut Area, put: Mirrored<'_>) -> Result<()> {
    let (half, held) = word(memory)?;
    let (second, first, bytes) = match put {
        Mirrored::More(bytes) => (half, held, bytes),
        Mirrored::All(bytes) => (!half, 0, bytes),
    };
    let count = (bytes.len() / RECORD_BYTES) as u64;
    let is_whole = bytes.len().is_multiple_of(RECORD_BYTES);
    let all = u32::try_from(u64::from(first) + count).ok().filter(|all| *all <= RECORDS);
    let all = all.filter(|_| is_whole).ok_or(FOREIGN)?;
    let at = place(second, first);
    memory[at..at + bytes.len()].copy_from_slice(bytes);
    memory.store(0, all | if second { SECOND_HALF } else { 0 });
    Ok(())
}

/// Which half of a journal counts, and how many records it has.
fn word(memory: &Area) -> Result<(bool, u32)> {
    let word = memory.get(..4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes);
    let word = word.filter(|_| memory.len() >= JOURNAL_BYTES).ok_or(FOREIGN)?;
    let (second, count) = (word & SECOND_HALF != 0, word & !SECOND_HALF);
    if count > RECORDS { Err(FOREIGN) } else { Ok((second, count)) }
}

fn place(second: bool, at: u32) -> usize {
    HALVES_AT + usize::from(second) * HALF_BYTES + at as usize * RECORD_BYTES
}

impl Journal {
    /// Goes on with what a server before left in `memory`, and tells `restore` of every lock
    /// change in it, in order, as of `door`.
    pub(super) fn take_over(
        memory: Area,
        (door, mirror): (u64, Option<Mirror>),
        mut restore: impl FnMut(Ino, &LockChange) -> Result<()>,
    ) -> Result<Journal> {
        let (second, count) = word(&memory)?;
        let mut took = HashMap::<u64, Vec<(Ino, u64)>>::new();
        for at in 0..count {
            let record = &memory[place(second, at)..];
            let (record, _) = Record::read_from_prefix(record).map_err(|_| FOREIGN)?;
            match record.what {
                TOOK => took.entry(record.start).or_default().push((Ino(record.ino), record.key)),
                GONE => drop(took.remove(&record.start)),
                _ => {
                    let (ino, change) = record.lock(door)?;
                    restore(ino, &change)?;
                }
            }
        }
        let files = AtomicUsize::new(took.len());
        let inner = Inner { memory, mirror, second, count, folded: 0, took };
        Ok(Journal { files, inner: Mutex::new(inner) })
    }

    /// Notes a change of the table.
    pub(super) fn note(&self, ino: Ino, change: &LockChange) {
        self.inner.lock().append(&Record::of_lock(ino, change));
    }

    /// Notes that open file `handle` takes locks as `owner`.
    pub(super) fn took(&self, handle: u64, owner: (Ino, u64)) {
        let mut inner = self.inner.lock();
        let owners = inner.took.entry(handle).or_default();
        if owners.contains(&owner) {
            return;
        }
        owners.push(owner);
        inner.append(&Record::of_file(TOOK, handle, owner));
        // Relaxed: whoever closes the file has the answer to the request that this is about.
        self.files.store(inner.took.len(), Ordering::Relaxed);
    }

    /// As whom open file `handle`, which is closed, took locks.
    pub(super) fn closed(&self, handle: u64) -> Vec<(Ino, u64)> {
        if self.files.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let Some(owners) = inner.took.remove(&handle) else { return Vec::new() };
        inner.append(&Record::of_file(GONE, handle, (Ino(0), 0)));
        self.files.store(inner.took.len(), Ordering::Relaxed);
        owners
    }

    /// Whether it should be folded before the next request.
    pub(super) fn is_long(&self) -> bool {
        let inner = self.inner.lock();
        inner.count > HELD_MAX && inner.count - inner.folded > FOLD_AGAIN
    }

    /// Whether more is held than it can bear.
    pub(super) fn is_full(&self) -> bool {
        self.inner.lock().count > HELD_MAX
    }

    /// Begins the other half with what is held.
    pub(super) fn fold(&self, held: &mut dyn Iterator<Item = (Ino, LockChange)>) {
        let mut inner = self.inner.lock();
        let second = !inner.second;
        let files: Vec<_> = inner.took.iter().map(|(handle, all)| (*handle, all.clone())).collect();
        let files = files.iter().flat_map(|(handle, all)| {
            all.iter().map(|owner| Record::of_file(TOOK, *handle, *owner))
        });
        let locks = held.map(|(ino, lock)| Record::of_lock(ino, &lock));
        let mut count = 0;
        for record in files.chain(locks) {
            if count == RECORDS {
                tracing::error!("no room to note the locks: not all will outlive this server");
                break;
            }
            inner.put(second, count, &record);
            count += 1;
        }
        (inner.second, inner.count, inner.folded) = (second, count, count);
        inner.publish();
        if let (Some(mirror), Ok(all)) = (&inner.mirror, records(&inner.memory)) {
            mirror.0(Mirrored::All(all));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u32 {
        self.inner.lock().count
    }
}

const _: () = assert!(JOURNAL_BYTES <= crate::state::JOURNAL_BYTES);
