//! The mixes of YCSB that the deck of vNVML shows: records of 64 KiB, read and written in five
//! shares, all wanted alike or a few of them most; the data smaller and larger than the cache.
//!
//! The cache is the persistent memory of a pool whose capacity tier is a file on a disk. Beside it
//! the same program runs on a pool that lies in persistent memory as a whole, which is what the
//! others are compared with, and on files of the disk's file system that are synced after each
//! write: one with the page cache and so with all of the machine's DRAM, one without. All take
//! turns in the same run; a turn is as long for each, and what counts is how many operations end
//! in it. Between turns the background comes to rest.

mod chooser;
mod mix;
mod plot;
mod stores;
mod table;

use crate::error::Result;
use crate::lab::medium;
use crate::options::Options;
use crate::row::Spread;
use crate::stats::spread;
use crate::tiered::PoolShape;
pub use chooser::Wanted;
pub use mix::Mix;
use mix::WRITE_PERCENTS;
pub use plot::plot;
use serde::Serialize;
use std::time::Duration;
pub use stores::Store;
use stores::{InFile, InRegion};
pub use table::{summary, table};

/// Bytes of a record.
const RECORD_BYTES: usize = 64 << 10;
/// Bytes of all records by those of the cache.
const SHARES: [f64; 4] = [0.15, 0.6, 1.2, 1.8];
/// Bytes of the cache, before scaling.
const CACHE_BYTES: f64 = 256.0 * 1048576.0;
/// A turn, before scaling.
const TURN: Duration = Duration::from_millis(300);
/// How often smaller the smaller log is.
const LOG_DIVISOR: u64 = 16;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct YcsbOptions {
    /// The cache and the turns are so many times as large.
    pub scale: f64,
    /// Rounds of each mix.
    pub rounds: usize,
}

/// Where the records were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// In a pool that lies in persistent memory as a whole.
    Memory,
    /// In a pool with a capacity tier.
    Tier,
    /// In one with a smaller log.
    TierSmallLog,
    /// In a file of the disk's file system.
    File,
    /// In one past the page cache.
    FileDirect,
}

/// In the order of their turns in the first round.
pub const SYSTEMS: [System; 5] =
    [System::Memory, System::Tier, System::TierSmallLog, System::File, System::FileDirect];

impl System {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            System::Memory => "all in memory",
            System::Tier => "with a tier",
            System::TierSmallLog => "with a tier, log 16 times smaller",
            System::File => "file, fdatasync",
            System::FileDirect => "file, O_DIRECT, fdatasync",
        }
    }
}

/// What one of them did of one mix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bar {
    /// Which.
    pub system: System,
    /// Bytes of all records by those of the cache.
    pub share: f64,
    /// How often records are wanted.
    pub wanted: Wanted,
    /// Of a hundred operations so many write.
    pub write_percent: u32,
    /// Operations a second.
    pub per_second: Spread,
    /// By what was done where all is in memory, round by round.
    pub of_memory: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Ycsb {
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// DRAM of the region, and of the engine's caches.
    pub memory_bytes: u64,
    /// Bytes of the log, and of the smaller one.
    pub log_bytes: [u64; 2],
    /// What the slices lay on.
    pub slices_on: String,
    /// What the device and the file lay on.
    pub disk: String,
    /// What was done.
    pub bars: Vec<Bar>,
}

/// All turns of a mix on all stores; first of each one that does not count.
fn run(
    (share, mix): (f64, Mix),
    stores: &mut [(System, Box<dyn Store>)],
    records: u32,
    turn: Duration,
    rounds: usize,
) -> Result<Vec<Bar>> {
    let mut rates = vec![Vec::new(); stores.len()];
    for (_, store) in stores.iter_mut() {
        mix.turn(store.as_mut(), (records, RECORD_BYTES), turn / 4, 0)?;
    }
    for round in 0..rounds {
        for step in 0..stores.len() {
            let index = (step + round) % stores.len();
            let (_, store) = &mut stores[index];
            let (count, took) =
                mix.turn(store.as_mut(), (records, RECORD_BYTES), turn, round as u64 + 1)?;
            rates[index].push(count as f64 / took.as_secs_f64());
        }
    }
    let bar = |(index, (system, _)): (usize, &(System, Box<dyn Store>))| {
        let pairs = rates[index].iter().zip(&rates[0]);
        Bar {
            system: *system,
            share,
            wanted: mix.wanted,
            write_percent: mix.write_percent,
            per_second: spread(&rates[index]),
            of_memory: spread(&pairs.map(|(rate, memory)| rate / memory).collect::<Vec<_>>()),
        }
    };
    Ok(stores.iter().enumerate().map(bar).collect())
}

/// The stores for so many bytes of records, as [`SYSTEMS`] lists them.
fn stores(options: &Options, ycsb: &mut Ycsb, bytes: u64) -> Result<Vec<(System, Box<dyn Store>)>> {
    let (dir, disk) = (options.dir(), options.disk());
    // room for the data twice: a write puts its record into new blocks
    let tier = PoolShape {
        slice_bytes: ycsb.cache_bytes,
        log_bytes: None,
        device_bytes: 2 * bytes + (64 << 20),
        memory_bytes: ycsb.memory_bytes,
        tier_cache_bytes: None,
    };
    let with_tier = InRegion::new(dir, &disk, &tier, bytes)?;
    let log_bytes = with_tier.log_bytes;
    let small = PoolShape { log_bytes: Some(log_bytes / LOG_DIVISOR), ..tier };
    let with_small_log = InRegion::new(dir, &disk, &small, bytes)?;
    ycsb.log_bytes = [log_bytes, with_small_log.log_bytes];
    let memory = PoolShape {
        slice_bytes: (2 * bytes).max(ycsb.cache_bytes) + (64 << 20),
        log_bytes: Some(log_bytes),
        device_bytes: 0,
        ..tier
    };
    let in_memory = InRegion::new(dir, &disk, &memory, bytes)?;
    let in_file = InFile::new(&disk, bytes, false)?;
    let mut stores: Vec<(System, Box<dyn Store>)> = vec![
        (System::Memory, Box::new(in_memory)),
        (System::Tier, Box::new(with_tier)),
        (System::TierSmallLog, Box::new(with_small_log)),
        (System::File, Box::new(in_file)),
    ];
    match InFile::new(&disk, bytes, true) {
        Ok(past_cache) => stores.push((System::FileDirect, Box::new(past_cache))),
        // a file system without such files: there are no bars of them
        Err(error) if error.errno() == libc::EINVAL => (),
        Err(error) => return Err(error),
    }
    Ok(stores)
}

/// Measures, and shows the bars of each mix as soon as they are there.
///
/// # Errors
/// What the engine or the kernel said.
pub fn ycsb(
    options: &Options,
    asked: &YcsbOptions,
    show: &mut dyn FnMut(&Ycsb, &[Bar]),
) -> Result<Ycsb> {
    let scale = asked.scale * if options.quick { 0.25 } else { 1.0 };
    let cache_bytes = ((CACHE_BYTES * scale) as u64).next_multiple_of(1 << 20);
    let mut ycsb = Ycsb {
        cache_bytes,
        memory_bytes: cache_bytes / 4,
        log_bytes: [0; 2],
        slices_on: medium(options.dir()),
        disk: medium(&options.disk()),
        bars: Vec::new(),
    };
    for share in SHARES {
        let records = (cache_bytes as f64 * share) as u64 / RECORD_BYTES as u64;
        let mut stores = stores(options, &mut ycsb, records * RECORD_BYTES as u64)?;
        for mix in Mix::all() {
            let (mix, turn) = ((share, mix), TURN.mul_f64(scale));
            let bars = run(mix, &mut stores, records as u32, turn, asked.rounds.max(1))?;
            show(&ycsb, &bars);
            ycsb.bars.extend(bars);
        }
    }
    Ok(ycsb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_a_bar_for_each_and_a_picture() {
        let options = Options {
            dir: Some(std::env::temp_dir()),
            disk: Some(std::env::temp_dir()),
            ..Options::default()
        };
        let ycsb = ycsb(&options, &YcsbOptions { scale: 0.1, rounds: 1 }, &mut |_, _| ()).unwrap();
        let mixes = SHARES.len() * 2 * WRITE_PERCENTS.len();
        // not every file system has files past the page cache
        assert!([mixes * 4, mixes * 5].contains(&ycsb.bars.len()), "{}", ycsb.bars.len());
        assert!(ycsb.bars.iter().all(|bar| bar.per_second.median > 0.0));
        let ones = ycsb.bars.iter().filter(|bar| bar.system == System::Memory);
        assert!(ones.clone().all(|bar| bar.of_memory.median == 1.0));
        assert!(ycsb.log_bytes[1] < ycsb.log_bytes[0]);
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let path = scratch.path().join("bars.svg");
        plot(&path, &ycsb).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("zipfian"), "{text:.80}");
    }
}
