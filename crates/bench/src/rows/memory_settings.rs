//! DRAM beside what it is set to: of a region's pages, and of the cache of the tier's blocks. Much
//! more than that is touched, all of it on the tier.

use super::memory::grown_bytes;
use super::regions::PAGE;
use crate::dice::Dice;
use crate::error::{Result, io};
use crate::lab::medium;
use crate::options::Options;
use crate::row::{Against, Row};
use crate::tiered::{PoolShape, Tiered};
use region::{Region, Regions, Settings};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The setting.
const SETTING_BYTES: u64 = 64 << 20;
/// What is touched, by the setting.
const TOUCHED: u64 = 6;
/// What the engine's other caches may take.
const MEMORY_BYTES: u64 = 4 << 20;
/// Touches between two looks at the memory.
const LOOK_EVERY: u64 = 256;
/// A setting may be exceeded by 5 %.
const EXCESS: f64 = 1.05;

fn shape(bytes: u64, tier_cache_bytes: u64) -> PoolShape {
    PoolShape {
        slice_bytes: bytes + bytes / 2,
        log_bytes: None,
        device_bytes: 2 * bytes,
        memory_bytes: MEMORY_BYTES,
        tier_cache_bytes: Some(tier_cache_bytes),
    }
}

fn row(options: &Options, name: &'static str, bytes: u64, setting: u64) -> Row {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Row::new(name, "MiB", mib(bytes), Against::Limit(mib(setting)))
        .target(1.0 / EXCESS)
        .on("process", &format!("device on {}", medium(&options.disk())))
}

/// Pages of a region that is six times as large as its setting: walked, and here and there.
pub fn region_memory(options: &Options) -> Result<Row> {
    let setting = if options.quick { SETTING_BYTES / 4 } else { SETTING_BYTES };
    let bytes = TOUCHED * setting;
    let pool = Tiered::new(options.dir(), &options.disk(), &shape(bytes, 8 << 20))?;
    let file = pool.fill("file", bytes)?;
    pool.move_down()?;
    let regions = Regions::new(&pool.fs, &Settings { memory_bytes: setting, faults: None })?;
    let region = Region::map(&regions, &file, 0, bytes)?;
    let (mut highest, mut dice, pages) = ([0; 2], Dice::new(41), bytes / PAGE);
    for (pass, highest) in highest.iter_mut().enumerate() {
        // half as many here and there: each brings its neighbours, too
        for number in 0..pages / (pass as u64 + 1) {
            let page = if pass == 0 { number } else { dice.below(pages) };
            let _: u64 = region.get((page * PAGE) as usize)?;
            if number % LOOK_EVERY == 0 {
                *highest = (*highest).max(objects_bytes()?);
            }
        }
    }
    let [walked, strewn] = highest;
    Ok(row(options, "region_memory", walked.max(strewn), setting).note(format!(
        "the kernel's object behind the region, at its highest: {:.1} MiB where {} MiB are walked, \
         {:.1} where half as many touches lie all over them",
        walked as f64 / f64::from(1 << 20),
        bytes >> 20,
        strewn as f64 / f64::from(1 << 20),
    )))
}

/// Memory of all regions of this process, bytes.
fn objects_bytes() -> Result<u64> {
    let dir = Path::new("/proc/self/fd");
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(io(dir))?.flatten() {
        // the descriptor of this list is gone when it is looked at
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if target.to_string_lossy().contains("nearside-region") {
            let path = entry.path();
            bytes += std::fs::metadata(&path).map_err(io(&path))?.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// Blocks of the tier in DRAM, of a file that is six times as large as their setting.
pub fn tier_cache_memory(options: &Options) -> Result<Row> {
    let setting = if options.quick { SETTING_BYTES / 4 } else { SETTING_BYTES };
    let bytes = TOUCHED * setting;
    let pool = Tiered::new(options.dir(), &options.disk(), &shape(bytes, setting))?;
    let file = pool.fill("file", bytes)?;
    pool.move_down()?;
    let mut buffer = vec![0; PAGE as usize];
    let (filled, mut highest) = (grown_bytes()?, 0);
    let (mut dice, pages) = (Dice::new(42), bytes / PAGE);
    for number in 0..2 * pages {
        let page = if number < pages { number } else { dice.below(pages) };
        pool.fs.read(&file, page * PAGE, &mut buffer)?;
        if number % LOOK_EVERY == 0 {
            highest = highest.max(grown_bytes()?);
        }
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(row(options, "tier_cache_memory", highest, setting + MEMORY_BYTES).note(format!(
        "anonymous memory since the start, at its highest, while {} MiB are read twice; {:.1} MiB \
         before that; the limit is {} MiB for blocks of the tier and {} for all other caches; the \
         cache counts {:.1} MiB at the end",
        bytes >> 20,
        mib(filled),
        setting >> 20,
        MEMORY_BYTES >> 20,
        mib(pool.tier().cached_bytes),
    )))
}
