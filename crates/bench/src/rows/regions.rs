//! A region that is in memory. Loads, beside those from ordinary memory. Transactions, beside a
//! non-temporal store of the same bytes and a fence: one write to each page, one transaction each,
//! as vNVML's authors measure.

use crate::clock::Turn;
use crate::dice::{Dice, Sources};
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use region::{Region, Regions, Settings};
use std::cell::RefCell;

/// Bytes of a page of a region.
pub const PAGE: u64 = 4096;
/// Bytes of the region.
pub const REGION_BYTES: u64 = 128 << 20;

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

/// Words loaded from pages that are there, each from a place that hangs on the word before, beside
/// the same loads from ordinary memory.
pub fn region_load_8b(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, _) = lab.fill("file", 60)?;
    let regions = regions(&lab)?;
    let region = resident(&regions, &file, REGION_BYTES)?;
    let plain = vec![0x5A5A_5A5A_5A5A_5A5Au64; (REGION_BYTES / 8) as usize];
    let words = REGION_BYTES / 8;
    let ours = || chain(words, |word| Ok(region.get::<u64>(word * 8)?));
    let theirs = || chain(words, |word| Ok(plain[word]));
    let random = Duel::run(options.rounds(), ours, theirs)?;
    let ours = || walk(words, |word| Ok(region.get::<u64>(word * 8)?));
    let theirs = || walk(words, |word| Ok(std::hint::black_box(plain[word])));
    let walked = Duel::run(options.rounds(), ours, theirs)?;
    let mut page = vec![0; PAGE as usize];
    let ours = || by_page(REGION_BYTES / PAGE, |at| Ok(region.load(at as usize, &mut page)?));
    let mut words = vec![0; PAGE as usize / 8];
    let theirs = || {
        by_page(REGION_BYTES / PAGE, |at| {
            let at = at as usize / 8;
            words.copy_from_slice(&plain[at..at + PAGE as usize / 8]);
            std::hint::black_box(&mut words);
            Ok(())
        })
    };
    let pages = Duel::run(options.rounds(), ours, theirs)?;
    let note = format!(
        "random words of {} MiB, each address known when the word before is there; the floor is \
         ordinary memory of the process",
        REGION_BYTES >> 20,
    );
    Ok(row("region_load_8b", &random, 0.95, &note)?
        .note(beside("word by word in order", &walked))
        .note(beside("copied page by page", &pages)))
}

fn beside(what: &str, duel: &Duel) -> String {
    let ratios = duel.ratios(Turn::caller_ns);
    format!(
        "{what}: {:.2} ns, floor {:.2}, ratio {:.2} ({:.2} to {:.2})",
        duel.ours(Turn::caller_ns),
        duel.theirs(Turn::caller_ns),
        ratios.median,
        ratios.min,
        ratios.max,
    )
}

/// Loads a sixteenth of the words, each where the dice and the word before say.
fn chain(words: u64, load: impl Fn(usize) -> Result<u64>) -> Result<Turn> {
    let (mut dice, mut last) = (Dice::new(22), 0u64);
    Turn::time(words / 16, || {
        for _ in 0..words / 16 {
            // the bit is 0, which no CPU knows before
            last = load((dice.below(words) | (last & 1)) as usize)?;
        }
        std::hint::black_box(last);
        Ok(())
    })
}

/// Loads all words in their order.
fn walk(words: u64, load: impl Fn(usize) -> Result<u64>) -> Result<Turn> {
    Turn::time(words, || {
        let mut sum = 0u64;
        for word in 0..words {
            sum = sum.wrapping_add(load(word as usize)?);
        }
        std::hint::black_box(sum);
        Ok(())
    })
}

fn row(name: &'static str, duel: &Duel, target: f64, note: &str) -> Result<Row> {
    let ratios = duel.ratios(Turn::caller_ns);
    let against = Against::Floor(duel.theirs(Turn::caller_ns));
    Ok(Row::new(name, "ns", duel.ours(Turn::caller_ns), against)
        .ratio(ratios.median, ratios)
        .target(target)
        .note(note.to_owned()))
}

/// Regions with more memory than any of them needs.
pub fn regions(lab: &Lab) -> Result<Regions> {
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

/// One transaction with one write.
pub fn write(regions: &Regions, region: &Region, at: u64, data: &[u8]) -> Result<()> {
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
