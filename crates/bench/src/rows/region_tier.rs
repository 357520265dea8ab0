//! What the tier is written for a region's commits: pages that are rewritten again and again are to
//! reach it once or twice.

use super::regions::{PAGE, write};
use crate::dice::{Dice, Sources};
use crate::error::Result;
use crate::lab::medium;
use crate::options::Options;
use crate::row::{Against, Row};
use crate::tiered::{PoolShape, Tiered};
use region::{Region, Regions, Settings};

/// Commits to each page.
const REWRITES: u64 = 16;
/// Page writes that these may cost the tier.
const WRITES_MAX: f64 = 2.0;
/// Bytes of the slice.
const SLICE_BYTES: u64 = 256 << 20;

/// How the commits follow each other.
#[derive(Clone, Copy)]
enum Order {
    /// All of a page, then those of the next one; pages in an order that nobody can guess.
    InARow,
    /// One of each page, and again.
    ByPasses,
}

/// 16 commits to each page of a region.
pub fn region_rewrites_16(options: &Options) -> Result<Row> {
    const CASES: [(Order, u64, &str); 5] = [
        (Order::InARow, 60, "in a row, data 0.6 of the slice"),
        (Order::InARow, 120, "in a row, data 1.2 of it"),
        (Order::ByPasses, 20, "pass by pass, 0.2"),
        (Order::ByPasses, 60, "pass by pass, 0.6"),
        (Order::ByPasses, 120, "pass by pass, 1.2"),
    ];
    let mut costs = Vec::new();
    for (order, percent, text) in CASES {
        let (cost, at_end) = cost(options, order, percent)?;
        costs.push((cost, format!("{text}: {cost:.2}, of these {at_end:.2} at the end")));
    }
    // what all 16 can be held for in the slice
    let in_a_row = costs[0].0.max(costs[1].0);
    let row = Row::new("region_rewrites_16", "writes/page", in_a_row, Against::Limit(WRITES_MAX));
    let row = row.on("process", &format!("device on {}", medium(&options.disk())));
    Ok(costs.into_iter().fold(row, |row, (_, note)| row.note(note)))
}

/// Blocks that the tier was written for each page, and how many of these after the last commit,
/// when all that is left is written back.
fn cost(options: &Options, order: Order, percent: u64) -> Result<(f64, f64)> {
    let slice_bytes = if options.quick { SLICE_BYTES / 4 } else { SLICE_BYTES };
    let bytes = slice_bytes * percent / 100 / (2 << 20) * (2 << 20);
    let shape = PoolShape {
        slice_bytes,
        log_bytes: None,
        device_bytes: 3 * slice_bytes,
        memory_bytes: slice_bytes / 4,
        tier_cache_bytes: None,
    };
    let pool = Tiered::new(options.dir(), &options.disk(), &shape)?;
    let file = pool.fill("file", bytes)?;
    pool.move_down()?;
    let regions =
        Regions::new(&pool.fs, &Settings { memory_bytes: slice_bytes / 4, faults: None })?;
    let region = Region::map(&regions, &file, 0, bytes)?;
    let written = || pool.tier().written_blocks;
    let (before, pages) = (written(), bytes / PAGE);
    let (mut dice, mut sources) = (Dice::new(31), Sources::new(PAGE as usize));
    let mut commit = |page: u64| write(&regions, &region, page * PAGE, sources.turn());
    match order {
        Order::InARow => {
            // an odd step and a power of two have no divisor in common: each page once
            let (first, step) = (dice.below(pages), 2 * dice.below(pages) + 1);
            let all = pages.next_power_of_two();
            let places = (0..all).map(|at| (first + at * step) % all);
            for page in places.filter(|page| *page < pages) {
                (0..REWRITES).try_for_each(|_| commit(page))?;
            }
        }
        Order::ByPasses => {
            (0..REWRITES).try_for_each(|_| (0..pages).try_for_each(&mut commit))?;
        }
    }
    let meanwhile = written() - before;
    pool.move_down()?;
    let all = written() - before;
    Ok((all as f64 / pages as f64, (all - meanwhile) as f64 / pages as f64))
}
