//! What it costs to let workers copy.

use crate::clock::{self, Turn};
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::OWNER;
use crate::options::Options;
use crate::row::{Against, Row, Spread};
use crate::scratch::Scratch;
use crate::stats::{median, spread};
use fs::{FileSystem, Handle, Ino, Layout, NewNode, Policy, Side};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLICE_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 64 << 20;
/// Bytes that a turn moves.
const TURN_BYTES: u64 = 512 << 20;
/// Most bytes of a call.
const LONGEST: u64 = 16 << 20;
/// Workers of a slice.
const WORKERS: u16 = 1;

/// A pool, and a file in it that is wholly in DRAM.
struct Lab {
    fs: FileSystem,
    file: Arc<Handle>,
    data: Vec<u8>,
    next: u64,
    scratch: Scratch,
}

impl Lab {
    /// Of so many slices, on a virtual node each; the file's layout.
    fn new(options: &Options, slices: usize, layout: Layout, open: OpenOptions) -> Result<Lab> {
        let scratch = Scratch::new(options.dir())?;
        let dir = scratch.path().join("pool");
        let format = FormatOptions {
            slices: vec![SliceSpec::default(); slices],
            slice_bytes: SLICE_BYTES,
            virtual_nodes: Some(slices as u32),
            process: true,
            ..FormatOptions::default()
        };
        fs::format(&dir, &format)?;
        let fs = FileSystem::open_pool(&dir, &open)?;
        let ino = fs.create(Ino::ROOT, b"file", NewNode::File, OWNER)?.ino;
        fs.set_layout(ino, layout)?;
        let file = fs.open(ino)?;
        // as long as the file: no CPU has it in its own caches
        let data = (0..FILE_BYTES + LONGEST).map(|at| (at >> 3) as u8 ^ at as u8).collect();
        let mut lab = Lab { fs, file, data, next: 0, scratch };
        lab.touch()?;
        Ok(lab)
    }

    /// Once over all free blocks: no page fault is left for the measurement.
    fn touch(&mut self) -> Result<()> {
        for _ in 0..6 * SLICE_BYTES / FILE_BYTES {
            self.write(1 << 20, FILE_BYTES)?;
        }
        clock::rest();
        Ok(())
    }

    /// The same pool, opened otherwise.
    fn open_again(self, open: &OpenOptions) -> Result<Lab> {
        let Lab { fs, file, data, next, scratch } = self;
        let ino = file.ino();
        fs.close()?;
        drop((file, fs));
        let fs = FileSystem::open_pool(&scratch.path().join("pool"), open)?;
        let file = fs.open(ino)?;
        let mut lab = Lab { fs, file, data, next, scratch };
        lab.touch()?;
        Ok(lab)
    }

    /// Overwrites `all` bytes, `unit` at a time, one behind the other.
    fn write(&mut self, unit: u64, all: u64) -> Result<Turn> {
        let count = (all / unit).max(1);
        Turn::time(count, || {
            for _ in 0..count {
                let from = self.next as usize;
                self.fs.write(&self.file, self.next, &self.data[from..from + unit as usize])?;
                self.next = (self.next + unit) % FILE_BYTES;
            }
            Ok(())
        })
    }

    /// Bytes that workers moved.
    fn by_workers(&self) -> u64 {
        let slices = self.fs.stats().slices;
        slices.iter().map(|slice| slice.workers.read_bytes + slice.workers.written_bytes).sum()
    }

    fn read(&mut self, unit: u64, all: u64) -> Result<Turn> {
        let count = (all / unit).max(1);
        Turn::time(count, || {
            for _ in 0..count {
                let from = self.next as usize;
                let into = &mut self.data[from..from + unit as usize];
                self.fs.read(&self.file, self.next, into)?;
                self.next = (self.next + unit) % FILE_BYTES;
            }
            Ok(())
        })
    }
}

/// Everything that is not on the caller's node is delegated.
fn all_delegated() -> OpenOptions {
    let side = Side { limit: placement::NO_LIMIT, delegate_remote: 0, ..Side::default() };
    let policy = Some(Policy { read: side, write: side });
    OpenOptions { policy, workers: Some(WORKERS), ..OpenOptions::default() }
}

fn nobody() -> OpenOptions {
    OpenOptions { workers: Some(0), ..OpenOptions::default() }
}

/// Two CPUs, so that two nodes have one each.
fn two_cpus() -> Result<Option<Vec<u32>>> {
    let cpus = topology::allowed_cpus()?;
    Ok((cpus.len() > 1).then_some(cpus))
}

type Do = fn(&mut Lab, u64, u64) -> Result<Turn>;

/// The caller is on one node, all of the file on another one, with one worker.
fn delegated(
    name: &'static str,
    (unit, target): (u64, f64),
    run: Do,
    options: &Options,
) -> Result<Row> {
    let Some(cpus) = two_cpus()? else {
        return Ok(Row::skipped(name, "takes two CPUs"));
    };
    let pinned = |cpus: &[u32]| topology::pin_current_thread(cpus);
    // the pools are to know of all CPUs
    let layout = Layout::Node(1);
    let mut ours = Lab::new(options, 2, layout, all_delegated())?;
    let mut theirs = Lab::new(options, 2, layout, nobody())?;
    let before = pinned(&cpus[..1])?;
    topology::refresh_cpu();
    let bytes = if options.quick { TURN_BYTES / 16 } else { TURN_BYTES };
    let by_workers = ours.by_workers();
    let duel = {
        let (ours, theirs) = (|| run(&mut ours, unit, bytes), || run(&mut theirs, unit, bytes));
        Duel::run(options.rounds(), ours, theirs)?
    };
    let mib = (ours.by_workers() - by_workers) >> 20;
    pinned(&before)?;
    let of: fn(&Turn) -> f64 = Turn::caller_ns;
    let rounds = duel.ratios(of);
    Ok(Row::new(name, "ns", duel.ours(of), Against::Floor(duel.theirs(of)))
        .ratio(rounds.median, rounds)
        .target(target)
        .note(format!("a worker on another CPU copied {mib} MiB; the floor: the caller copies")))
}

/// 2 MiB overwritten by a worker, and by the caller.
pub fn delegated_write_2m(options: &Options) -> Result<Row> {
    delegated("delegated_write_2m", (2 << 20, 1.0 / 1.10), Lab::write, options)
}

/// The same with 64 KiB.
pub fn delegated_write_64k(options: &Options) -> Result<Row> {
    delegated("delegated_write_64k", (64 << 10, 1.0 / 1.30), Lab::write, options)
}

/// 2 MiB read by a worker, and by the caller.
pub fn delegated_read_2m(options: &Options) -> Result<Row> {
    delegated("delegated_read_2m", (2 << 20, 1.0 / 1.10), Lab::read, options)
}

/// What is measured on one node: bytes of a call, and which.
fn calls() -> Vec<(u64, &'static str, Do)> {
    let both = |unit| [(unit, "write", Lab::write as Do), (unit, "read", Lab::read as Do)];
    [6, 8, 10, 12, 14, 16, 18, 20, 22, 24].map(|shift| both(1 << shift)).concat()
}

/// Limits, and workers that may be asked, on one node whose limits are not reached: no size may
/// lose. Both sides have the same files, one after the other: in memory of their own they differ by
/// a tenth.
pub fn workers_on_one_node(options: &Options) -> Result<Row> {
    let side = Side { limit: 4, delegate_remote: 64 << 10, ..Side::default() };
    let policy = Some(Policy { read: side, write: side });
    let limits = OpenOptions { policy, workers: Some(WORKERS), ..OpenOptions::default() };
    let without = nobody();
    let mut lab = Lab::new(options, 1, Layout::Auto, nobody())?;
    let mut ratios = vec![Vec::new(); calls().len()];
    let bytes = if options.quick { 16 << 20 } else { TURN_BYTES / 4 };
    for round in 0..options.rounds() {
        let mut turns = [Vec::new(), Vec::new()];
        for side in [round % 2, 1 - round % 2] {
            lab = lab.open_again(if side == 0 { &limits } else { &without })?;
            for (unit, _, run) in calls() {
                turns[side].push(run(&mut lab, unit, bytes.min(unit << 13))?.caller_ns());
            }
        }
        let [ours, theirs] = turns;
        for (ratios, (ours, theirs)) in ratios.iter_mut().zip(ours.iter().zip(theirs)) {
            ratios.push(theirs / ours);
        }
    }
    let rounds: Vec<Spread> = ratios.iter().map(|ratios| spread(ratios)).collect();
    let worst = rounds.iter().copied().min_by(|one, other| one.median.total_cmp(&other.median));
    let worst = worst.unwrap_or_default();
    let name = "workers_on_one_node";
    let mut row = Row::new(name, "ratio", 1.0 / worst.median, Against::Floor(1.0));
    row = row.ratio(worst.median, worst).target(0.97);
    for ((unit, what, _), Spread { min, median, max }) in calls().into_iter().zip(rounds) {
        row = row.note(format!("{what} {unit} B: {median:.2} ({min:.2} to {max:.2})"));
    }
    Ok(row)
}

/// CPU time of workers that nobody asks, of a CPU.
pub fn idle_workers(options: &Options) -> Result<Row> {
    let Some(_) = two_cpus()? else {
        return Ok(Row::skipped("idle_workers", "takes two CPUs"));
    };
    let mut lab = Lab::new(options, 2, Layout::Stripe, all_delegated())?;
    let mut shares = Vec::new();
    for _ in 0..options.rounds().min(3) {
        lab.write(2 << 20, 8 << 20)?;
        clock::rest();
        std::thread::sleep(Duration::from_millis(200));
        let (before, began) = (clock::others_ns(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let share =
            clock::others_ns().saturating_sub(before) as f64 / began.elapsed().as_nanos() as f64;
        shares.push(share * 100.0);
    }
    let workers: u32 = lab.fs.stats().slices.iter().map(|slice| slice.workers.workers).sum();
    let note = format!("{workers} workers, and all other threads of an open pool");
    let share = median(&shares).max(1e-6);
    Ok(Row::new("idle_workers", "% CPU", share, Against::Limit(0.1)).note(note))
}
