//! Transactions on a region that is in memory, beside a non-temporal store of the same bytes and a
//! fence: one write to each page, one transaction each, as vNVML's authors measure.

use crate::clock::Turn;
use crate::dice::Sources;
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use region::{Region, Regions, Settings};
use std::cell::RefCell;

const PAGE: u64 = 4096;
/// Bytes of the region.
const REGION_BYTES: u64 = 128 << 20;

/// A commit of 64 bytes: at most 1.5 times the bare store and fence.
pub fn region_commit_64b(options: &Options) -> Result<Row> {
    commit(options, "region_commit_64b", 64, 1.0 / 1.5)
}

/// A commit of a whole page.
pub fn region_commit_4k(options: &Options) -> Result<Row> {
    commit(options, "region_commit_4k", 4096, 0.5)
}

/// The same bytes written through the file, which nobody has mapped.
pub fn region_or_file_64b(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill("file", 50)?;
    let regions = regions(&lab)?;
    let (mapped, len) = lab.fill("mapped", 75)?;
    let len = len.min(REGION_BYTES);
    let region = resident(&regions, &mapped, len)?;
    let (one, two) = (RefCell::new(Sources::new(64)), RefCell::new(Sources::new(64)));
    let count = len / PAGE;
    let ours = || by_page(count, |at| write(&regions, &region, at, one.borrow_mut().turn()));
    let theirs = || {
        by_page(count, |at| {
            Ok(lab.fs.write(&file, at % bytes, two.borrow_mut().turn()).map(drop)?)
        })
    };
    let duel = Duel::run(options.rounds(), ours, theirs)?;
    row("region_or_file_64b", &duel, 1.0, "the floor is a write to a file")
}

fn row(name: &'static str, duel: &Duel, target: f64, note: &str) -> Result<Row> {
    let ratios = duel.ratios(Turn::caller_ns);
    let against = Against::Floor(duel.theirs(Turn::caller_ns));
    Ok(Row::new(name, "ns", duel.ours(Turn::caller_ns), against)
        .ratio(ratios.median, ratios)
        .target(target)
        .note(note.to_owned()))
}

fn regions(lab: &Lab) -> Result<Regions> {
    let settings = Settings { memory_bytes: 4 * REGION_BYTES, faults: None };
    Ok(Regions::new(&lab.fs, &settings)?)
}

/// A region all of whose pages were loaded from.
fn resident(regions: &Regions, file: &std::sync::Arc<fs::Handle>, bytes: u64) -> Result<Region> {
    let region = Region::map(regions, file, 0, bytes)?;
    for at in (0..bytes).step_by(PAGE as usize) {
        let _: u64 = region.get(at as usize)?;
    }
    Ok(region)
}

fn write(regions: &Regions, region: &Region, at: u64, data: &[u8]) -> Result<()> {
    let mut tx = regions.begin()?;
    tx.write(region, at as usize, data)?;
    Ok(tx.commit()?)
}

/// Once over all pages.
fn by_page(count: u64, mut act: impl FnMut(u64) -> Result<()>) -> Result<Turn> {
    Turn::time(count, || (0..count).try_for_each(|page| act(page * PAGE)))
}

fn commit(options: &Options, name: &'static str, unit: u64, target: f64) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let floor = lab.floor()?;
    let (file, bytes) = lab.fill("file", 50)?;
    let len = bytes.min(REGION_BYTES);
    let regions = regions(&lab)?;
    let region = resident(&regions, &file, len)?;
    let sources = [Sources::new(unit as usize), Sources::new(unit as usize)].map(RefCell::new);
    let count = len / PAGE;
    let ours = || by_page(count, |at| write(&regions, &region, at, sources[0].borrow_mut().turn()));
    let theirs = || {
        by_page(count, |at| {
            let _ = pmem::fence(floor.write(at, sources[1].borrow_mut().turn()));
            Ok(())
        })
    };
    let duel = Duel::run(options.rounds(), ours, theirs)?;
    row(name, &duel, target, "one write to each page in its order, one transaction each")
}
