//! Moving parts of files from slice to slice: how fast, and what it takes from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs::{FileSystem, Handle, Ino, Layout, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec};

use crate::dice::Dice;
use crate::error::Result;
use crate::lab::{OWNER, opened_slice, touched_file};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::scratch::Scratch;
use crate::stats::{median, spread};

const BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 32 << 20;
const PIECE_BYTES: usize = 2 << 20;
/// Bytes that move at one time, and how much longer who moves them rests than he works: the
/// engine's own.
const LEAF_BYTES: u64 = 512 << 10;
const RESTS: u32 = 19;
/// How long a turn of readers takes.
const TURN: Duration = Duration::from_millis(400);

/// A pool of two slices, all pages touched, with a file on the first.
struct Pool {
    fs: Arc<FileSystem>,
    file: Arc<Handle>,
    bytes: u64,
    scratch: Scratch,
}

impl Pool {
    fn new(options: &Options) -> Result<Pool> {
        let bytes = if options.quick { QUICK_BYTES } else { BYTES };
        let scratch = Scratch::new(options.dir())?;
        let dir = scratch.path().join("pool");
        let format = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: 3 * bytes,
            virtual_nodes: Some(1),
            process: true,
            ..FormatOptions::default()
        };
        fs::format(&dir, &format)?;
        let slices = ["slice.0", "slice.1"].map(|name| opened_slice(&dir.join(name), true));
        let slices = slices.into_iter().collect::<Result<Vec<_>>>()?;
        let fs = Arc::new(FileSystem::open_candidates(slices, &OpenOptions::default(), true)?);
        let file = Pool::file(&fs, "file", bytes)?;
        Ok(Pool { fs, file, bytes, scratch })
    }

    fn file(fs: &FileSystem, name: &str, bytes: u64) -> Result<Arc<Handle>> {
        let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, OWNER)?;
        let file = fs.open(attr.ino)?;
        fs.set_layout(file.ino(), Layout::Near)?;
        let piece = vec![0x5A; PIECE_BYTES];
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            fs.write(&file, offset, &piece)?;
        }
        Ok(file)
    }

    fn moves(&self, part: std::ops::Range<u64>, to: u8) -> Result<f64> {
        let began = Instant::now();
        let done = self.fs.migrate(self.file.ino(), part, to)?;
        std::hint::black_box(done);
        Ok(began.elapsed().as_secs_f64())
    }
}

/// A file that goes to the other slice and back, beside a bare copy of as many bytes between two
/// files that are mapped as slices are, and memcpy in memory of the heap.
pub fn migrate_extents(options: &Options) -> Result<Row> {
    let pool = Pool::new(options)?;
    let bytes = pool.bytes as usize;
    let (from, mut to) = (vec![0x5A_u8; bytes], vec![0x11_u8; bytes]);
    let bare = ["from", "to"].map(|name| touched_file(&pool.scratch.path().join(name), pool.bytes));
    let [bare_from, bare_to] = bare;
    let (bare_from, bare_to) = (bare_from?, bare_to?);
    let (mut ours, mut theirs, mut heap) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |seconds: f64| bytes as f64 / 1_048_576.0 / seconds;
    // wherever it is at first, the first turn does not count
    pool.moves(0..u64::MAX, 1)?;
    for round in 0..options.rounds() {
        ours.push(rate(pool.moves(0..u64::MAX, (round % 2) as u8)?));
        let began = Instant::now();
        let _ = pmem::fence(bare_to.copy_blocks(0, &bare_from, 0, bytes / 4096)?);
        theirs.push(rate(began.elapsed().as_secs_f64()));
        let began = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        heap.push(rate(began.elapsed().as_secs_f64()));
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let rounds = spread(&ratios);
    Ok(Row::new("migrate_extents", "MiB/s", median(&ours), Against::Floor(median(&theirs)))
        .ratio(rounds.median, rounds)
        .target(0.8)
        .note(format!(
            "{} MiB, a leaf of 512 KiB at a time; the floor is a bare copy between mapped files; \
             memcpy in memory of the heap, whose pages are larger: {:.0} MiB/s",
            bytes >> 20,
            median(&heap)
        )))
}

/// Reads of 4 KiB while the file moves to and fro as the engine moves it, resting between, and
/// while it does not.
pub fn migrate_beside(options: &Options) -> Result<Row> {
    let pool = Pool::new(options)?;
    let other = Pool::file(&pool.fs, "other", pool.bytes / 2)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut dice = Dice::new(1);
    for round in 0..options.rounds() {
        for moves in [round % 2 == 0, round % 2 != 0] {
            let rate = beside(&pool, moves, || {
                let (mut count, began, mut block) = (0u64, Instant::now(), [0; 4096]);
                while began.elapsed() < TURN {
                    for _ in 0..64 {
                        let at = dice.below(pool.bytes / 2 / 4096) * 4096;
                        pool.fs.read(&other, at, &mut block)?;
                    }
                    count += 64;
                }
                Ok(count as f64 / began.elapsed().as_secs_f64() / 1e3)
            })?;
            if moves { ours.push(rate) } else { theirs.push(rate) }
        }
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let rounds = spread(&ratios);
    let name = "migrate_beside";
    Ok(Row::new(name, "thousand reads/s", median(&ours), Against::Floor(median(&theirs)))
        .ratio(rounds.median, rounds)
        .target(0.95)
        .note("random reads of 4 KiB of one file; the floor is without moves".to_owned()))
}

/// Runs `act`, and the moves beside it if they are to be.
fn beside<T>(pool: &Pool, moves: bool, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let ends = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mover = moves.then(|| {
            threads.spawn(|| -> Result<()> {
                let mut at = 0;
                while !ends.load(Ordering::Relaxed) {
                    let (offset, to) = (at % pool.bytes, (at / pool.bytes + 1) % 2);
                    let took = pool.moves(offset..offset + LEAF_BYTES, to as u8)?;
                    std::thread::sleep(Duration::from_secs_f64(took) * RESTS);
                    at += LEAF_BYTES;
                }
                Ok(())
            })
        });
        let done = act();
        ends.store(true, Ordering::Relaxed);
        let moved = mover.map(|mover| mover.join());
        match moved {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => done,
        }
    })
}
