//! Random calls on one file beside a model of bytes in memory: the mix of the program fsx (reads,
//! writes, truncations, holes, reservations, copies, syncs, closing and opening again), without a
//! kernel's page cache in between, and with checkpoints and openings of the pool; once in slices
//! alone, once with all that can lie there on a capacity tier again and again.
//!
//! `NEARSIDE_FSX_CALLS` says how many calls (200 000), `NEARSIDE_FSX_SEED` the first seed (1),
//! `NEARSIDE_FSX_SEEDS` how many seeds in a row (1). The same seed makes the same calls.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use nearside::files::{Fallocate, Handle, Ino, SetAttr};
use nearside::{FormatOptions, OpenOptions, Pool, SliceSpec};

const FILE_BYTES_MAX: u64 = 256 << 10;
const CALL_BYTES_MAX: u64 = 64 << 10;
const BLOCK_BYTES: u64 = 4096;
/// Calls before a failing one that are shown.
const SHOWN: usize = 20;

/// A small generator of numbers (splitmix), the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Write,
    Append,
    Truncate,
    Punch,
    Zero,
    Allocate,
    Copy,
    Holes,
    Sync,
    OpenAgain,
    Checkpoint,
    WriteBack,
    OpenPoolAgain,
}

/// Each call, and its share.
const SHARES: [(Call, u64); 13] = [
    (Call::Read, 300),
    (Call::Write, 250),
    (Call::Append, 60),
    (Call::Truncate, 100),
    (Call::Punch, 60),
    (Call::Zero, 60),
    (Call::Allocate, 60),
    (Call::Copy, 60),
    (Call::Holes, 28),
    (Call::Sync, 10),
    (Call::OpenAgain, 10),
    (Call::Checkpoint, 2),
    (Call::OpenPoolAgain, 1),
];
/// What comes to them with a tier.
const TIER_SHARES: [(Call, u64); 1] = [(Call::WriteBack, 10)];

impl Call {
    fn pick(random: &mut Random, with_tier: bool) -> Call {
        let more = if with_tier { &TIER_SHARES[..] } else { &[] };
        let shares = || SHARES.iter().chain(more);
        let mut left = random.below(shares().map(|(_, share)| share).sum());
        for (call, share) in shares() {
            if left < *share {
                return *call;
            }
            left -= share;
        }
        unreachable!("the shares are all of them")
    }
}

/// A part of a file, bytes.
#[derive(Clone, Copy, Debug)]
struct Range {
    offset: u64,
    bytes: u64,
}

impl Range {
    /// Small, a block, or large; where it begins and how long it is may fit the blocks or not.
    fn pick(random: &mut Random) -> Range {
        let bytes = match random.below(4) {
            0 => 1 + random.below(200),
            1 => BLOCK_BYTES * (1 + random.below(4)),
            2 => 1 + random.below(3 * BLOCK_BYTES),
            _ => 1 + random.below(CALL_BYTES_MAX),
        };
        let offset = random.below(FILE_BYTES_MAX - bytes);
        let offset = if random.below(3) == 0 { offset & !(BLOCK_BYTES - 1) } else { offset };
        Range { offset, bytes }
    }

    fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// A file in a pool, and what should be in it.
struct Exercise {
    dir: tempfile::TempDir,
    /// Always there but while the pool is opened again.
    open: Option<(Pool, Arc<Handle>)>,
    model: Vec<u8>,
    random: Random,
    seed: u64,
    number: u64,
    recent: VecDeque<String>,
    has_tier: bool,
}

impl Exercise {
    fn new(seed: u64, devices: usize) -> Exercise {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: 16 << 20,
            virtual_nodes: Some(2),
            process: true,
            capacity: vec![SliceSpec { path: None, bytes: Some(16 << 20) }; devices],
            ..FormatOptions::default()
        };
        Pool::format(dir.path(), &options).unwrap();
        Exercise::open_pool(dir.path()).create_file("/f").unwrap();
        let open = Some(Exercise::open(dir.path()));
        Exercise {
            dir,
            open,
            model: Vec::new(),
            random: Random(seed),
            seed,
            number: 0,
            recent: VecDeque::new(),
            has_tier: devices > 0,
        }
    }

    /// With a cache for the tier that is smaller than the file.
    fn open_pool(dir: &Path) -> Pool {
        let options = OpenOptions { tier_cache_bytes: Some(64 << 10), ..OpenOptions::default() };
        Pool::open_with(dir, &options).unwrap()
    }

    fn open(dir: &Path) -> (Pool, Arc<Handle>) {
        let pool = Exercise::open_pool(dir);
        let handle = Exercise::open_file(&pool);
        (pool, handle)
    }

    fn open_file(pool: &Pool) -> Arc<Handle> {
        let found = pool.fs().lookup(Ino::ROOT, b"f").unwrap();
        pool.fs().open(found.ino).unwrap()
    }

    fn pool(&self) -> &Pool {
        &self.open.as_ref().unwrap().0
    }

    fn handle(&self) -> &Arc<Handle> {
        &self.open.as_ref().unwrap().1
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    /// Bytes that no other call of this run writes there.
    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let mut data = Vec::with_capacity(bytes as usize + 8);
        while data.len() < bytes as usize {
            data.extend_from_slice(&self.random.next().to_le_bytes());
        }
        data.truncate(bytes as usize);
        data
    }

    /// The model takes `data` over at `offset`; what lies before it and was not there is zeros.
    fn put(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(data);
    }

    fn fail(&self, what: &str) -> ! {
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        let (seed, number) = (self.seed, self.number);
        panic!("seed {seed}, call {number}: {what}; the last calls:\n{}", recent.join("\n"))
    }

    fn compare(&self, offset: u64, found: &[u8]) {
        let end = (offset as usize + found.len()).min(self.model.len());
        let wanted = &self.model[(offset as usize).min(end)..end];
        if found.len() != wanted.len() {
            self.fail(&format!("{} bytes from {offset}, not {}", found.len(), wanted.len()));
        }
        let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
        if let Some(at) = differs {
            let (found, wanted) = (found[at], wanted[at]);
            self.fail(&format!("byte {} is {found}, not {wanted}", offset as usize + at));
        }
    }

    fn read(&self, Range { offset, bytes }: Range) -> Vec<u8> {
        let mut buffer = vec![0xEE; bytes as usize];
        let read = self.pool().fs().read(self.handle(), offset, &mut buffer).unwrap();
        let wanted = bytes.min(self.size().saturating_sub(offset));
        if read as u64 != wanted {
            self.fail(&format!("read {read} bytes of {wanted} at {offset}"));
        }
        buffer.truncate(read);
        self.compare(offset, &buffer);
        buffer
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let written = self.pool().fs().write(self.handle(), offset, data).unwrap();
        assert_eq!(written, data.len());
        self.put(offset, data);
    }

    fn append(&mut self, bytes: u64) {
        let bytes = bytes.min(FILE_BYTES_MAX - self.size());
        if bytes == 0 {
            return;
        }
        let data = self.data(bytes);
        let at = self.pool().fs().append(self.handle(), &data).unwrap();
        assert_eq!(at, self.size());
        self.put(at, &data);
    }

    fn truncate(&mut self, bytes: u64) {
        let change = SetAttr { size: Some(bytes), ..SetAttr::default() };
        self.pool().fs().setattr(self.handle().ino(), &change).unwrap();
        self.model.resize(bytes as usize, 0);
    }

    fn fallocate(&mut self, mode: Fallocate, range: Range) {
        self.pool().fs().fallocate(self.handle(), mode, range.offset, range.bytes).unwrap();
        let grows = matches!(
            mode,
            Fallocate::Allocate { keep_size: false } | Fallocate::Zero { keep_size: false }
        );
        if grows && self.size() < range.end() {
            self.model.resize(range.end() as usize, 0);
        }
        if !matches!(mode, Fallocate::Allocate { .. }) {
            let end = range.end().min(self.size()) as usize;
            self.model[(range.offset as usize).min(end)..end].fill(0);
        }
    }

    fn copy(&mut self, from: Range, to: u64) {
        let data = self.read(from);
        let to = to.min(FILE_BYTES_MAX - data.len() as u64);
        if !data.is_empty() {
            self.write(to, &data);
        }
    }

    /// What lies between data is zeros, and the file's end is a hole.
    fn holes(&mut self) {
        let seek = |from: u64, data: bool| self.pool().fs().seek(self.handle(), from, data);
        let mut at = 0;
        while at < self.size() {
            let data = seek(at, true).unwrap_or(self.size());
            if self.model[at as usize..data as usize].iter().any(|byte| *byte != 0) {
                self.fail(&format!("bytes from {at} to {data} are said to be a hole"));
            }
            if data == self.size() {
                return;
            }
            at = seek(data, false).unwrap();
            assert!(data < at && at <= self.size(), "data from {data} to {at}");
        }
    }

    fn open_file_again(&mut self) {
        let handle = Exercise::open_file(self.pool());
        self.open.as_mut().unwrap().1 = handle;
    }

    fn open_pool_again(&mut self) {
        self.pool().close().unwrap();
        // The old one must be gone before the new one comes.
        self.open = None;
        self.open = Some(Exercise::open(self.dir.path()));
    }

    /// Moves all that can lie on the tier there, and perhaps out of the caches.
    fn write_back(&self, evict: bool) {
        self.pool().fs().write_back_all().unwrap();
        if evict {
            self.pool().fs().evict_caches().unwrap();
        }
    }

    fn step(&mut self) {
        let (call, range) =
            (Call::pick(&mut self.random, self.has_tier), Range::pick(&mut self.random));
        let (other, keep_size) = (self.random.below(FILE_BYTES_MAX), self.random.below(2) == 0);
        self.number += 1;
        self.recent.push_back(format!("{} {call:?} {range:?} {other} {keep_size}", self.number));
        if self.recent.len() > SHOWN {
            self.recent.pop_front();
        }
        match call {
            Call::Read => drop(self.read(range)),
            Call::Write => {
                let data = self.data(range.bytes);
                self.write(range.offset, &data);
            }
            Call::Append => self.append(range.bytes),
            Call::Truncate => self.truncate(other),
            Call::Punch => self.fallocate(Fallocate::PunchHole, range),
            Call::Zero => self.fallocate(Fallocate::Zero { keep_size }, range),
            Call::Allocate => self.fallocate(Fallocate::Allocate { keep_size }, range),
            Call::Copy => self.copy(range, other),
            Call::Holes => self.holes(),
            Call::Sync => self.pool().fs().fsync(self.handle()).unwrap(),
            Call::OpenAgain => self.open_file_again(),
            Call::Checkpoint => self.pool().checkpoint().unwrap(),
            Call::WriteBack => self.write_back(keep_size),
            Call::OpenPoolAgain => self.open_pool_again(),
        }
        let size = self.pool().fs().getattr(self.handle().ino()).unwrap().size;
        if size != self.size() {
            self.fail(&format!("the size is {size}, not {}", self.size()));
        }
        if self.number.is_multiple_of(100) {
            self.read(Range { offset: 0, bytes: FILE_BYTES_MAX });
        }
    }

    /// The whole file once more, and the pool as it lies there.
    fn finish(mut self) {
        self.open_pool_again();
        self.read(Range { offset: 0, bytes: FILE_BYTES_MAX });
        self.pool().close().unwrap();
        self.open = None;
        let report = nearside::check(self.dir.path()).unwrap();
        assert!(report.findings.is_empty(), "seed {}: {:?}", self.seed, report.findings);
    }
}

fn told(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn run(devices: usize) {
    let calls = told("NEARSIDE_FSX_CALLS", 200_000);
    let first = told("NEARSIDE_FSX_SEED", 1);
    for seed in first..first + told("NEARSIDE_FSX_SEEDS", 1) {
        let mut exercise = Exercise::new(seed, devices);
        for _ in 0..calls {
            exercise.step();
        }
        exercise.finish();
        println!("seed {seed}: {calls} calls");
    }
}

#[test]
fn a_file_is_what_its_model_is_after_any_calls() {
    run(0);
}

#[test]
fn so_it_is_with_a_capacity_tier() {
    run(2);
}
