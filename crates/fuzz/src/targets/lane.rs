//! A lane, as a process may leave it that keeps no rule, and its service, which folds it.
//!
//! The bytes are pieces, each of them a byte whose lower three bits say what it is:
//!
//! ```text
//! 0, 1, 2  a record: number i8, from the last one's on; count u8; of each piece: slot u8,
//!          generation i8, from its slot's on, place u16 in units of 16 bytes, length u16, byte u8,
//!          u64 where the place is, if all bits of the unit are set; 1: how many bytes of it u8 are
//!          changed, each place u8 and byte u8, and its checksums made to fit; 2: and not
//! 3        the lane is folded
//! 4        a lease: slot u8, file u8, first block u8, blocks u8
//! 5        a lease ends: slot u8
//! 6        bytes that are no record, where the next one belongs: length u8
//! 7        the last record, once more: as far away i8, in units of 64 bytes
//! ```
//!
//! What the files hold then is compared with a model, which judges each record as docs/SHARING.md
//! says.

use super::input::Input;
use fs::{Blocks, Creation, FileSystem, Handle, Ino, NewNode, SetAttr};
use lanes::{
    BLOCK_BYTES, BYTES_MAX, Connection, Files, LANE_BYTES, Ledger, PIECES_MAX, Piece, Target, forge,
};
use pmem::{Domain, Memory};
use pool::{Candidate, FormatOptions, OpenOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
const CONNECTION: Connection = 0xfeed << 64 | 7;
/// Slots that have leases, and blocks of a file that are leased at most.
const SLOTS: u8 = 4;
const BLOCKS: u8 = 24;
/// No more is stored than fits into one lap.
const LANE_MAX: u64 = LANE_BYTES - (64 << 10);
const UNIT: u64 = 64;
const PLACE_UNIT: u64 = 16;
/// The longest record: a head, and pieces that each end in a line of their own.
const RECORD_MAX: usize = (24 + PIECES_MAX * 32).next_multiple_of(64) + BYTES_MAX + PIECES_MAX * 64;

thread_local! {
    static OPEN: Open = Open::new();
}

/// A pool that stays open, with files to be leased.
struct Open {
    fs: FileSystem,
    files: [Arc<Handle>; 2],
    dir: tempfile::TempDir,
    _memory: Memory,
}

impl Open {
    fn new() -> Open {
        let made = || -> fs::Result<Open> {
            let memory = Memory::new(POOL_BYTES).map_err(pool::Error::from)?;
            let mapping = || memory.mapping(Domain::Process).map_err(pool::Error::from);
            let options = FormatOptions { identity: Some(7), ..FormatOptions::default() };
            fs::format_mappings(vec![mapping()?], &options)?;
            let candidate = Candidate::from_mapping(Path::new("memory"), mapping()?, false)?;
            let options = OpenOptions { memory_bytes: Some(8 << 20), ..OpenOptions::default() };
            let fs = FileSystem::open_candidates(vec![candidate], &options, false)?;
            let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
            let new = |name: &[u8]| fs.open(fs.create(Ino::ROOT, name, NewNode::File, by)?.ino);
            let files = [new(b"one")?, new(b"other")?];
            let shared = Path::new("/dev/shm");
            let dir = tempfile::tempdir_in(if shared.is_dir() { shared } else { Path::new(".") });
            let dir = dir.unwrap_or_else(|error| panic!("no directory for lanes: {error}"));
            Ok(Open { fs, files, dir, _memory: memory })
        };
        made().unwrap_or_else(|error| panic!("no pool for lanes: {error}"))
    }
}

/// A lease, as the model knows it.
struct Lease {
    generation: u64,
    file: usize,
    blocks: RangeInclusive<u64>,
}

/// The process and its service.
struct Both<'o> {
    open: &'o Open,
    pool: String,
    lane: File,
    ledger: Ledger,
    /// Where the next record belongs.
    position: u64,
    last: Vec<u8>,
    // what follows is the model
    leases: BTreeMap<u8, Lease>,
    generations: [u64; SLOTS as usize],
    folded: u64,
    number: u64,
    contents: [Vec<u8>; 2],
    happened: u64,
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    OPEN.with(|open| {
        let pool = open.fs.info().uuid;
        let made = Files::make(open.dir.path(), Domain::Process, CONNECTION);
        let (files, given) = made.unwrap_or_else(|error| panic!("no lane: {error}"));
        let ledger = Ledger::new(&open.fs, files, &pool, CONNECTION);
        let mut both = Both {
            open,
            pool,
            lane: given.lane,
            ledger: ledger.unwrap_or_else(|error| panic!("no ledger: {error}")),
            position: 0,
            last: Vec::new(),
            leases: BTreeMap::new(),
            generations: [0; SLOTS as usize],
            folded: 0,
            number: 0,
            contents: Default::default(),
            happened: 0,
        };
        let mut input = Input(bytes);
        while !input.is_empty() && both.position < LANE_MAX {
            both.piece(&mut input);
        }
        both.fold();
        let is_sound = both.happened > 0;
        both.ledger.remove();
        for file in &open.files {
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            open.fs.setattr(file.ino(), &empty).unwrap_or_else(|error| panic!("{error}"));
        }
        is_sound
    })
}

impl Both<'_> {
    fn piece(&mut self, input: &mut Input<'_>) {
        match input.byte() & 7 {
            how @ 0..3 => self.record(how, input),
            3 => self.fold(),
            4 => self.lend(input),
            5 => {
                let slot = input.byte();
                let ended = self.ledger.end_lease(&self.open.fs, slot);
                assert!(ended.is_ok(), "{ended:?}");
                // the lane is folded only where there is one
                if self.leases.contains_key(&slot) {
                    self.judge();
                    self.leases.remove(&slot);
                }
                self.compare();
            }
            6 => {
                let len = input.byte();
                self.store(self.position, input.take(usize::from(len)));
            }
            _ => {
                let by = i64::from(input.byte() as i8) * UNIT as i64;
                let at = self.position.saturating_add_signed(by);
                self.store(at, &self.last);
            }
        }
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        let stored = self.lane.write_all_at(bytes, at);
        assert!(stored.is_ok(), "{stored:?}");
    }

    fn lend(&mut self, input: &mut Input<'_>) {
        let (slot, file) = (input.byte() % SLOTS, usize::from(input.byte() & 1));
        let first = u64::from(input.byte() % BLOCKS);
        let blocks = first..=(first + u64::from(input.byte() % 8)).min(u64::from(BLOCKS));
        // no two leases overlap: the service sees to that
        let meets = |lease: &Lease| {
            lease.file == file
                && lease.blocks.start() <= blocks.end()
                && blocks.start() <= lease.blocks.end()
        };
        if self.leases.values().any(meets) {
            return;
        }
        let handle = self.open.files[file].clone();
        let of = Blocks { ino: handle.ino(), blocks: blocks.clone() };
        let given = self.ledger.lend(slot, of, Target { handle, caller: None });
        assert_eq!(given.is_some(), !self.leases.contains_key(&slot), "slot {slot}");
        if let Some(generation) = given {
            self.generations[usize::from(slot)] = generation;
            self.leases.insert(slot, Lease { generation, file, blocks });
        }
    }

    fn record(&mut self, how: u8, input: &mut Input<'_>) {
        let number = self.number.wrapping_add_signed(i64::from(input.byte() as i8));
        let count = usize::from(input.byte() % 10);
        let mut data = Vec::new();
        let mut pieces = Vec::new();
        for _ in 0..count {
            let slot = input.byte();
            let generation = self.generations.get(usize::from(slot)).copied().unwrap_or(1);
            let generation = generation.wrapping_add_signed(i64::from(input.byte() as i8));
            let unit = input.number(2);
            let len = input.number(2) as usize % (BYTES_MAX + 2);
            data.push(vec![input.byte(); len]);
            let offset = if unit == 0xFFFF { input.number(8) } else { unit * PLACE_UNIT };
            pieces.push(Piece { slot, generation, offset, data: &[] });
        }
        for (piece, data) in pieces.iter_mut().zip(&data) {
            piece.data = data;
        }
        let of = (&*self.pool, CONNECTION);
        let Some(mut bytes) = forge::record(of, self.position, number, &pieces) else { return };
        if how > 0 {
            for _ in 0..input.byte() % 16 {
                let at = usize::from(input.byte()) % bytes.len();
                bytes[at] = input.byte();
            }
        }
        if how == 1 {
            forge::fit(of, self.position, &mut bytes);
        }
        self.store(self.position, &bytes);
        if how == 0 {
            self.position += bytes.len() as u64;
        }
        self.last = bytes;
    }

    fn fold(&mut self) {
        let folded = self.ledger.fold(&self.open.fs);
        assert!(folded.is_ok(), "{folded:?}");
        self.judge();
        self.compare();
    }

    /// What the model thinks of what the lane has, from where it was folded on.
    fn judge(&mut self) {
        let mut lane = vec![0; LANE_BYTES as usize];
        let read = self.lane.read_exact_at(&mut lane, 0);
        assert!(read.is_ok(), "{read:?}");
        while let Some(record) = self.whole(&lane) {
            self.folded += record.len() as u64;
            let number = crate::image::number(&record[8..16]);
            let pieces = self.covered(&record);
            let Some(pieces) = pieces.filter(|_| number > self.number) else { continue };
            self.number = number;
            self.happened += 1;
            for (file, offset, data) in pieces {
                let content = &mut self.contents[file];
                let end = offset + data.len();
                content.resize(content.len().max(end), 0);
                content[offset..end].copy_from_slice(&data);
            }
        }
        // where the next one belongs
        self.position = self.position.max(self.folded);
    }

    /// The record that is there, if its checksums are right: making them fit changes nothing.
    fn whole(&self, lane: &[u8]) -> Option<Vec<u8>> {
        let at = self.folded as usize;
        let len = crate::image::number(lane.get(at..at + 4)?) as usize;
        let record = lane
            .get(at..at + len)
            .filter(|_| (64..=RECORD_MAX).contains(&len) && len.is_multiple_of(64))?;
        let count = crate::image::number(&record[16..24]) as usize;
        let mut rest = len.checked_sub((24 + count.min(9) * 32).next_multiple_of(64))?;
        for piece in record[24..].chunks_exact(32).take(count) {
            let (bytes, slot) = (&piece[16..20], &piece[20..24]);
            let bytes = (crate::image::number(bytes) as usize).next_multiple_of(64);
            rest = rest.checked_sub(bytes)?;
            // what is there in place of zeros is nobody's
            if crate::image::number(slot) >= lanes::SLOTS as u64 {
                return None;
            }
        }
        let mut fitting = record.to_vec();
        forge::fit((&self.pool, CONNECTION), self.folded, &mut fitting);
        (count <= PIECES_MAX && fitting == record).then_some(fitting)
    }

    /// Where its pieces go, if leases cover all of them.
    fn covered(&self, record: &[u8]) -> Option<Vec<(usize, usize, Vec<u8>)>> {
        let number = |at: usize, len: usize| crate::image::number(&record[at..at + len]);
        let count = number(16, 8) as usize;
        let mut from = (24 + count * 32).next_multiple_of(64);
        let mut pieces = Vec::new();
        for at in (24..).step_by(32).take(count) {
            let (offset, len) = (number(at, 8), number(at + 16, 4));
            let lease = self.leases.get(&u8::try_from(number(at + 20, 4)).ok()?)?;
            let blocks =
                offset / BLOCK_BYTES..=offset.checked_add(len.checked_sub(1)?)? / BLOCK_BYTES;
            let covers =
                lease.blocks.contains(blocks.start()) && lease.blocks.contains(blocks.end());
            if lease.generation != number(at + 8, 8) || !covers {
                return None;
            }
            let data = record[from..from + len as usize].to_vec();
            from += data.len().next_multiple_of(64);
            pieces.push((lease.file, offset as usize, data));
        }
        Some(pieces)
    }

    /// What the files hold is what the model has.
    fn compare(&self) {
        for (file, content) in self.open.files.iter().zip(&self.contents) {
            let mut seen = vec![1; content.len() + 1];
            let read = self.open.fs.read(file, 0, &mut seen);
            let read = read.unwrap_or_else(|error| panic!("a file cannot be read: {error}"));
            assert_eq!(read, content.len(), "a file's length");
            assert!(seen[..read] == content[..], "a file is not as its records say");
        }
    }
}

/// Lanes that an honest process leaves, and others.
pub fn seeds() -> Vec<Vec<u8>> {
    let lend = |slot: u8, file: u8, first: u8| [4, slot, file, first, 3].to_vec();
    let piece = |slot: u8, generation: u8, unit: u16, len: u16| {
        let [[a, b], [c, d]] = [unit.to_le_bytes(), len.to_le_bytes()];
        [slot, generation, a, b, c, d, 0x55].to_vec()
    };
    let record = |how: u8, pieces: &[Vec<u8>]| {
        [[how, 1, pieces.len() as u8].to_vec(), pieces.concat()].concat()
    };
    let one = record(0, &[piece(0, 0, 256, 100)]);
    let leased = lend(0, 0, 1);
    let two = record(0, &[piece(0, 0, 300, 5000), piece(1, 0, 0, 64)]);
    let stale = record(0, &[piece(0, 255, 256, 100)]);
    let outside = record(0, &[piece(0, 0, 0, 100)]);
    let across = record(0, &[piece(0, 0, 256, 9), piece(0, 0, 5 * 256 - 1, 100)]);
    let (fold, end) = (vec![3], vec![5, 0]);
    let changed = |how: u8| [record(how, &[piece(0, 0, 256, 100)]), vec![1, 24, 64]].concat();
    [
        [&leased[..], &one].concat(),
        [&leased[..], &one, &fold, &one, &end].concat(),
        [&leased[..], &lend(1, 1, 0), &two, &fold].concat(),
        [&leased[..], &one, &end, &leased, &stale, &one].concat(),
        [&leased[..], &changed(1), &fold].concat(),
        [&leased[..], &changed(2), &fold].concat(),
        [&leased[..], &stale, &fold].concat(),
        [&leased[..], &outside, &fold].concat(),
        [&leased[..], &across, &fold].concat(),
        [&leased[..], &[6, 5, 1, 2, 3, 4, 5], &fold[..]].concat(),
        [&one[..], &fold, &[7, 255]].concat(),
        [&leased[..], &two, &fold].concat(),
    ]
    .to_vec()
}
