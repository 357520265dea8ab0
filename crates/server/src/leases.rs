//! Which ranges of files are leased, to whom: the file system's lender.
//!
//! A lease that is in somebody's way is ended at once, without asking who has it: his record is
//! folded, or it never happens, and he is told which when he asks (docs/SHARING.md). So nobody
//! waits for a process that is stopped, and to recall a lease takes as long as to fold a lane.
//!
//! Locks, in this order: a ledger, the table. While the table is locked the file system is told
//! whether something of a file is leased, and not called otherwise; nor does it call what takes
//! more than the table from where it has the range of a file.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fs::{Blocks, FileSystem, Handle, Ino};
use lanes::{Connection, Ended, Files, Given, Happened, Ledger, Target};
use parking_lot::Mutex;
use pmem::Domain;

mod closed;

pub use closed::Closed;

/// A lease is given nobody else before it was held for so long: two who write by turns would do
/// nothing but hand it over.
const HELD_MIN: Duration = Duration::from_millis(2);
/// A file in which a lease was in somebody's way within this time is leased in small parts.
const CALM: Duration = Duration::from_millis(100);
/// Blocks of a part: 64 KiB.
const PART_BLOCKS: u64 = 16;
/// Reads of others that a lease stands in the way of, and that its holder does not write under,
/// before it is ended: what they read is cached then.
const UNUSED_READS: u32 = 16;
/// Lanes of a service, at most: each takes 1 MiB in the pool's directory.
const LANES_MAX: usize = 1024;
/// Blocks that are to be free when a lane is made, of which it has an eighth.
const ROOM_BLOCKS: u64 = 8192;
/// Connections that have ended, and are known still.
const ENDED_MAX: usize = 1024;

/// One who holds leases: a connection.
#[derive(Debug)]
pub struct Holder {
    connection: Connection,
    ledger: Mutex<Ledger>,
}

#[derive(Debug)]
struct Lease {
    blocks: Blocks,
    holder: Arc<Holder>,
    slot: u8,
    since: Instant,
    unused: Unused,
}

/// Reads of others since its holder wrote under it.
#[derive(Debug, Default)]
struct Unused {
    /// Writes of its slot that were folded.
    writes: u64,
    reads: u32,
}

impl Lease {
    /// Whether it is the one of that slot.
    fn is_of(&self, holder: &Arc<Holder>, slot: u8) -> bool {
        self.slot == slot && Arc::ptr_eq(&self.holder, holder)
    }
}

/// What is leased of a file.
#[derive(Debug)]
struct Lent {
    handle: Arc<Handle>,
    leases: Vec<Lease>,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Ino, Lent>,
    /// Ranges that are not to be leased now, each with a number.
    closed: Vec<(u64, Blocks)>,
    /// When a lease of a file was in somebody's way last.
    disputed: HashMap<Ino, Instant>,
    lanes: usize,
    /// Connections that have ended, the latest last.
    ended: VecDeque<(Connection, Ended)>,
}

impl Table {
    /// What is leased of a file.
    fn leases_of(&self, ino: Ino) -> &[Lease] {
        self.files.get(&ino).map_or(&[], |lent| &lent.leases)
    }

    /// The leases that are in the way of who wants these blocks.
    fn met(&self, blocks: &Blocks) -> impl Iterator<Item = &Lease> {
        self.leases_of(blocks.ino).iter().filter(|lease| lease.blocks.meet(blocks))
    }
}

/// The leases of a service.
#[derive(Debug)]
pub struct Leases {
    fs: Weak<FileSystem>,
    /// The pool's directory.
    dir: PathBuf,
    table: Mutex<Table>,
    number_next: AtomicU64,
    /// For who closes ranges.
    own: Weak<Leases>,
}

impl Leases {
    /// Of the pool in `dir`.
    pub fn new(fs: &Arc<FileSystem>, dir: &Path) -> Arc<Leases> {
        Arc::new_cyclic(|own| Leases {
            fs: Arc::downgrade(fs),
            dir: dir.to_owned(),
            table: Mutex::default(),
            number_next: AtomicU64::new(1),
            own: own.clone(),
        })
    }

    /// Makes the lane of a connection. `None`: here are no lanes, or too many.
    pub fn connect(&self, connection: Connection) -> Option<(Arc<Holder>, Given)> {
        let fs = self.fs.upgrade()?;
        let info = fs.info();
        let domain = Domain::named(info.domain)?;
        if domain == Domain::Sync || fs.statfs().blocks_free < ROOM_BLOCKS {
            return None;
        }
        let mut table = self.table.lock();
        if table.lanes >= LANES_MAX {
            return None;
        }
        table.lanes += 1;
        drop(table);
        let made = Files::make(&self.dir, domain, connection).and_then(|(files, given)| {
            let ledger = Ledger::new(&fs, files, &info.uuid, connection)?;
            Ok((Arc::new(Holder { connection, ledger: Mutex::new(ledger) }), given))
        });
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                tracing::info!("no lane for a process: {error}");
                self.table.lock().lanes -= 1;
                None
            }
        }
    }

    /// Gives a lease for these blocks, and more around them if nobody else wants those: its
    /// generation, and its blocks. `None`: not now; whoever asks writes through the service.
    pub fn lend(
        &self,
        holder: &Arc<Holder>,
        slot: u8,
        target: Target,
        wanted: RangeInclusive<u64>,
    ) -> Option<(u64, RangeInclusive<u64>)> {
        let fs = self.fs.upgrade()?;
        let (ino, handle) = (target.handle.ino(), target.handle.clone());
        let wanted = Blocks { ino, blocks: wanted };
        let is_inside = *wanted.blocks.end() <= fs::FILE_BYTES_MAX / lanes::BLOCK_BYTES;
        if fs.is_mapped(&handle) || wanted.blocks.is_empty() || !is_inside {
            return None;
        }
        // others' are ended first, and nobody gets one meanwhile
        let closed = self.try_close(&wanted)?;
        self.end_leases(&fs, &wanted, None);
        let mut ledger = holder.ledger.lock();
        if ledger.has_lease(slot) || !ledger.is_secure() {
            return None;
        }
        let blocks = self.enter(holder, slot, &handle, (&wanted, &closed))?;
        drop(closed);
        // ordering: that it lends is said; who maps the file says so, and then looks at that
        fs.set_leased(&handle, true);
        if fs.is_mapped(&handle) {
            self.leave(&fs, holder, slot, ino);
            return None;
        }
        // those who looked before it was said have ended when this returns
        fs.await_changes(&handle, blocks.blocks.clone());
        // what is written here must take away what the file gives whoever runs it
        if fs.gives_privileges(&handle) {
            self.leave(&fs, holder, slot, ino);
            return None;
        }
        // he has the only copies from here on
        fs.tell_lent(&handle, &blocks.blocks);
        match ledger.lend(slot, blocks.clone(), target) {
            Some(generation) => Some((generation, blocks.blocks)),
            None => {
                self.leave(&fs, holder, slot, ino);
                None
            }
        }
    }

    /// Enters a lease into the table, as large as may be; `None`: another one is in its way.
    fn enter(
        &self,
        holder: &Arc<Holder>,
        slot: u8,
        handle: &Arc<Handle>,
        (wanted, closed): (&Blocks, &Closed),
    ) -> Option<Blocks> {
        let mut table = self.table.lock();
        let is_disputed =
            table.disputed.get(&wanted.ino).is_some_and(|since| since.elapsed() < CALM);
        let (first, last) = (*wanted.blocks.start(), *wanted.blocks.end());
        let mut most = match is_disputed {
            true => (first / PART_BLOCKS * PART_BLOCKS, last | (PART_BLOCKS - 1)),
            false => (0, u64::MAX),
        };
        let others = table
            .closed
            .iter()
            .filter(|(number, it)| *number != closed.number && it.ino == wanted.ino);
        let others = others.map(|(_, it)| it);
        for other in others.chain(table.leases_of(wanted.ino).iter().map(|lease| &lease.blocks)) {
            if *other.blocks.end() < first {
                most.0 = most.0.max(other.blocks.end() + 1);
            } else if *other.blocks.start() > last {
                most.1 = most.1.min(other.blocks.start() - 1);
            } else {
                return None;
            }
        }
        let lent = table.files.entry(wanted.ino);
        let lent = lent.or_insert_with(|| Lent { handle: handle.clone(), leases: Vec::new() });
        let blocks = Blocks { ino: wanted.ino, blocks: most.0..=most.1 };
        let (holder, since) = (holder.clone(), Instant::now());
        let unused = Unused::default();
        lent.leases.push(Lease { blocks: blocks.clone(), holder, slot, since, unused });
        Some(blocks)
    }

    /// Takes a lease out of the table.
    fn leave(&self, fs: &FileSystem, holder: &Arc<Holder>, slot: u8, ino: Ino) {
        let mut table = self.table.lock();
        let Some(lent) = table.files.get_mut(&ino) else { return };
        lent.leases.retain(|it| !it.is_of(holder, slot));
        if lent.leases.is_empty() {
            fs.set_leased(&lent.handle, false);
            let gone = table.files.remove(&ino);
            drop(table);
            // may be the last who has it open
            drop(gone);
        }
    }

    /// Ends all leases of these blocks, but those of `own`.
    fn end_leases(&self, fs: &FileSystem, blocks: &Blocks, own: Option<&Arc<Holder>>) {
        let is_other = |it: &&Lease| own.is_none_or(|own| !Arc::ptr_eq(own, &it.holder));
        loop {
            let mut table = self.table.lock();
            let met = table.met(blocks).find(is_other).map(|it| (it.holder.clone(), it.slot));
            let Some((holder, slot)) = met else { return };
            table.disputed.retain(|_, since| since.elapsed() < CALM);
            table.disputed.insert(blocks.ino, Instant::now());
            drop(table);
            self.end_lease(fs, &holder, slot, blocks.ino);
        }
    }

    /// Ends one lease, of this file; the slot may have another one by now.
    fn end_lease(&self, fs: &FileSystem, holder: &Arc<Holder>, slot: u8, ino: Ino) {
        let mut ledger = holder.ledger.lock();
        let found = |table: &Table| {
            let lent = table.files.get(&ino)?;
            let lease = lent.leases.iter().find(|it| it.is_of(holder, slot))?;
            Some((lent.handle.clone(), lease.blocks.clone()))
        };
        let Some((handle, blocks)) = found(&self.table.lock()) else { return };
        // what could not be folded is said in the log
        let ended = ledger.end_lease(fs, slot);
        // a thread of his may store late what it had committed: there is no page for that any more
        fs.tell_lent(&handle, &blocks.blocks);
        self.leave(fs, holder, slot, ino);
        drop(ledger);
        // may be the last who has the file open
        drop((handle, ended));
    }

    /// The process gives a lease back.
    pub fn give_back(&self, holder: &Arc<Holder>, slot: u8) {
        let Some(fs) = self.fs.upgrade() else { return };
        let is_it = |it: &&Lease| it.is_of(holder, slot);
        let found = |table: &Table| {
            let mut leases = table.files.values().flat_map(|lent| &lent.leases);
            leases.find(is_it).map(|lease| lease.blocks.ino)
        };
        let ino = found(&self.table.lock());
        if let Some(ino) = ino {
            self.end_lease(&fs, holder, slot, ino);
        }
    }

    /// Folds a connection's lane, which is full.
    pub fn fold(&self, holder: &Arc<Holder>) {
        if let Some(fs) = self.fs.upgrade() {
            self.fold_lane(&fs, holder, true);
        }
    }

    fn fold_lane(&self, fs: &FileSystem, holder: &Arc<Holder>, is_full: bool) {
        let mut ledger = holder.ledger.lock();
        // what could not be folded is said in the log
        let is_folded = ledger.fold(fs).is_ok();
        let is_secure = if is_full { ledger.give_room() } else { ledger.is_secure() };
        drop(ledger);
        if !is_secure || !is_folded {
            // what comes next may find no room, or is to be told what is wrong
            self.end_all(holder);
        }
    }

    fn end_all(&self, holder: &Arc<Holder>) {
        (0..lanes::SLOTS as u8).for_each(|slot| self.give_back(holder, slot));
    }

    /// Whether a request of a connection happened, which may have ended.
    pub fn happened(
        &self,
        holder: Option<&Arc<Holder>>,
        connection: Connection,
        (slot, generation, number): (u8, u64, u64),
    ) -> Happened {
        let Some(fs) = self.fs.upgrade() else { return Happened::Forgotten };
        if let Some(holder) = holder.filter(|holder| holder.connection == connection) {
            let mut ledger = holder.ledger.lock();
            // what could not be folded is said in the log
            let _ = ledger.fold(&fs);
            return ledger.happened(slot, generation, number);
        }
        let table = self.table.lock();
        if let Some((_, ended)) = table.ended.iter().find(|(it, _)| *it == connection) {
            return ended.happened(slot, generation, number);
        }
        drop(table);
        lanes::happened(&self.dir, &fs.info().uuid, connection, (slot, generation, number))
    }

    /// A connection has ended: its leases end, and its lane goes.
    pub fn end(&self, holder: &Arc<Holder>) {
        self.end_all(holder);
        let ended = holder.ledger.lock().remove();
        let mut table = self.table.lock();
        table.lanes -= 1;
        if table.ended.len() >= ENDED_MAX {
            table.ended.pop_front();
        }
        table.ended.push_back((holder.connection, ended));
    }
}
