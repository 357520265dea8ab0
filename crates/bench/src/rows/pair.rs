//! Two threads against one: how ours scales, beside how the floor scales on the same CPUs.
//!
//! A ratio of scalings: (two threads' throughput by one's) of ours by that of the floor.

use crate::clock;
use crate::dice::{Dice, Sources};
use crate::error::Result;
use crate::lab::{Lab, Shape, both};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::{median, spread};
use fs::RangeLock;
use std::hint::black_box;
use std::time::Instant;

const UNIT: u64 = 4096;
/// Writes of each thread in one turn; reads of one hot block are cheaper and more.
const WRITES: u64 = 200_000;
const READS: u64 = 400_000;

/// What a side does: thread, operations.
type Work<'w> = &'w (dyn Fn(usize, u64) -> Result<()> + Sync);

/// Time of one operation of each thread, ns: of the wall, and of its CPU.
#[derive(Clone, Copy)]
struct Cost {
    wall_ns: f64,
    cpu_ns: f64,
}

fn timed(work: Work<'_>, thread: usize, count: u64) -> Result<Cost> {
    let (start, cpu) = (Instant::now(), clock::thread_ns());
    work(thread, count)?;
    let wall_ns = start.elapsed().as_nanos() as f64 / count as f64;
    Ok(Cost { wall_ns, cpu_ns: (clock::thread_ns() - cpu) as f64 / count as f64 })
}

fn alone(work: Work<'_>, count: u64) -> Result<Cost> {
    let cost = timed(work, 0, count)?;
    clock::rest();
    Ok(cost)
}

fn together(work: Work<'_>, count: u64) -> Result<Cost> {
    let costs = both(|thread| timed(work, thread, count))?;
    clock::rest();
    let worst = |of: fn(&Cost) -> f64| costs.iter().map(of).fold(0.0, f64::max);
    Ok(Cost { wall_ns: worst(|cost| cost.wall_ns), cpu_ns: worst(|cost| cost.cpu_ns) })
}

/// Speed-up from one thread to two, by what `of` takes from a cost.
fn scaling(alone: Cost, together: Cost, of: fn(&Cost) -> f64) -> f64 {
    2.0 * of(&alone) / of(&together)
}

fn measure(
    options: &Options,
    name: &'static str,
    count: u64,
    ours: Work<'_>,
    floor: Work<'_>,
) -> Result<Row> {
    let (mut wall, mut cpu) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.rounds() {
        let singles = [alone(ours, count)?, alone(floor, count)?];
        let pairs = [together(ours, count)?, together(floor, count)?];
        for side in 0..2 {
            wall[side].push(scaling(singles[side], pairs[side], |cost| cost.wall_ns));
            cpu[side].push(scaling(singles[side], pairs[side], |cost| cost.cpu_ns));
            times[side].push(singles[side].wall_ns);
        }
    }
    let ratios: Vec<f64> = wall[0].iter().zip(&wall[1]).map(|(ours, floor)| ours / floor).collect();
    let by_cpu: Vec<f64> = cpu[0].iter().zip(&cpu[1]).map(|(ours, floor)| ours / floor).collect();
    let row = Row::new(name, "x (1 to 2)", median(&wall[0]), Against::Floor(median(&wall[1])));
    Ok(row.ratio(median(&ratios), spread(&ratios)).target(0.9).note(format!(
        "one thread: {:.0} ns, floor {:.0} ns; by CPU time per call (no time lost to other \
         programs or to the checkpoint's thread): {:.2} to {:.2}, ratio {:.2}; work without \
         memory gains x{:.2} on these two CPUs",
        median(&times[0]),
        median(&times[1]),
        median(&cpu[0]),
        median(&cpu[1]),
        median(&by_cpu),
        compute_scaling(options, count)?,
    )))
}

/// Work without memory: six chains of additions and shifts, none of which waits for another. What
/// two threads gain here is what the two CPUs have of their own: twice as much on two cores, hardly
/// more than one's on two threads of a core, where a floor that waits for memory still doubles.
fn compute(_: usize, count: u64) -> Result<()> {
    let mut chains = [1u64, 2, 3, 4, 5, 6];
    for step in 0..count * 64 {
        for chain in &mut chains {
            *chain = (*chain ^ (*chain << 7)).wrapping_add(step);
        }
    }
    black_box(chains);
    Ok(())
}

/// What two threads gain over one in work that needs the CPU alone.
fn compute_scaling(options: &Options, count: u64) -> Result<f64> {
    let gains = (0..options.rounds()).map(|_| {
        let (one, two) = (alone(&compute, count)?, together(&compute, count)?);
        Ok(scaling(one, two, |cost| cost.wall_ns))
    });
    Ok(median(&gains.collect::<Result<Vec<f64>>>()?))
}

/// Two threads overwrite 4 KiB blocks of disjoint files.
pub fn two_writers(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let floor = lab.floor()?;
    let files = [lab.fill("first", 25)?, lab.fill("second", 50)?];
    let units = files.iter().map(|(_, bytes)| bytes / UNIT).min().unwrap_or(0);
    let ours = |thread: usize, count: u64| {
        let (mut dice, mut sources) = (Dice::new(thread as u64 + 3), Sources::new(UNIT as usize));
        for _ in 0..count {
            lab.fs.write(&files[thread].0, dice.below(units) * UNIT, sources.turn())?;
        }
        Ok(())
    };
    let theirs = |thread: usize, count: u64| {
        let (mut dice, mut sources) = (Dice::new(thread as u64 + 3), Sources::new(UNIT as usize));
        for _ in 0..count {
            let place = (thread as u64 * units + dice.below(units)) * UNIT;
            let _ = pmem::fence(floor.write(place, sources.turn()));
        }
        Ok(())
    };
    let row = measure(options, "two_writers", WRITES, &ours, &theirs)?;
    Ok(row.on(lab.domain(), &lab.medium()))
}

/// Two threads read the same block.
pub fn two_readers(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let floor = lab.floor()?;
    let (file, _) = lab.fill("file", 50)?;
    let ours = |_: usize, count: u64| {
        let mut buffer = vec![0; UNIT as usize];
        for _ in 0..count {
            black_box(lab.fs.read(&file, 0, &mut buffer)?);
        }
        Ok(())
    };
    let theirs = |_: usize, count: u64| {
        let mut buffer = vec![0; UNIT as usize];
        for _ in 0..count {
            floor.read(0, &mut buffer)?;
            black_box(&buffer);
        }
        Ok(())
    };
    let row = measure(options, "two_readers", READS, &ours, &theirs)?;
    Ok(row.on(lab.domain(), &lab.medium()))
}

/// A range that nobody else wants, locked and unlocked.
pub fn range_lock(options: &Options) -> Result<Row> {
    const COUNT: u64 = 1 << 22;
    let lock = RangeLock::default();
    let mut turns = Vec::new();
    for _ in 0..options.rounds() {
        let began = Instant::now();
        for block in 0..COUNT {
            drop(black_box(lock.lock(block, black_box(block + 3))));
        }
        turns.push(began.elapsed().as_nanos() as f64 / COUNT as f64);
    }
    let bytes = size_of::<RangeLock>();
    let note = format!("{bytes} bytes in the inode; nothing more but for ranges in use");
    Ok(Row::new("range_lock", "ns", median(&turns), Against::Limit(40.0)).note(note))
}
