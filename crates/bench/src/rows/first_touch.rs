//! Pages of a region that are not in memory yet: a touch waits for the thread that brings them.
//!
//! Each turn maps the file anew, so that no page of it is there.

use super::regions::{PAGE, REGION_BYTES, regions};
use crate::clock::Turn;
use crate::dice::Dice;
use crate::duel::Duel;
use crate::error::{Result, io};
use crate::lab::{Lab, Shape, medium};
use crate::options::Options;
use crate::peer::{Peer, Program};
use crate::row::{Against, Row};
use crate::scratch::Scratch;
use crate::stats::{median, spread};
use crate::tiered::{PoolShape, Tiered};
use fs::Handle;
use region::{Region, Regions, Settings};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

/// A touched page has so many pages behind it that are not touched: none comes along with another.
const STRIDE: u64 = 16;
/// Bytes of the file that is read from the tier.
const TIER_BYTES: u64 = 256 << 20;
/// Bytes of a read of the device.
const DEVICE_READ_BYTES: usize = 4 << 20;

const USERFAULT: Program = Program {
    name: "userfaultfd",
    source: include_str!("../../c/userfault.c"),
    library: "pthread",
    package: "linux-libc-dev",
    arguments: &[],
};

/// Pages here and there, each touched before any near it, beside a bare handler: at most 1.3 times.
pub fn region_first_touch_4k(options: &Options) -> Result<Row> {
    const NAME: &str = "region_first_touch_4k";
    let programs = Scratch::new(&options.disk())?;
    let bytes = REGION_BYTES.to_string();
    let none = programs.path().join("none");
    let mut peer = match Peer::start(&USERFAULT, programs.path(), &none, &[&bytes])? {
        Ok(peer) => peer,
        Err(why) => return Ok(Row::skipped(NAME, &why)),
    };
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let file = verified(&lab)?;
    let regions = regions(&lab)?;
    let mut dice = Dice::new(21);
    let mut bare = |is_shared: bool| {
        let took = peer.ask(&format!("{} {STRIDE}", u8::from(is_shared)))?;
        Ok(Turn { count: took[1], wall_ns: took[0], ..Turn::default() })
    };
    let mut shared = Vec::new();
    let mut resident = 0;
    let duel = Duel::run(
        options.rounds(),
        || {
            let region = Region::map(&regions, &file, 0, REGION_BYTES)?;
            let order = shuffled(REGION_BYTES / PAGE / STRIDE, &mut dice);
            let turn = touch(&region, order.len() as u64, |at| order[at as usize] * STRIDE)?;
            resident = region.resident_pages();
            Ok(turn)
        },
        || {
            shared.push(bare(true)?.caller_ns());
            bare(false)
        },
    )?;
    let ratios = duel.ratios(Turn::caller_ns);
    let ours = duel.ours(Turn::caller_ns);
    let against = Against::Peer(duel.theirs(Turn::caller_ns));
    let pages = resident as f64 / (REGION_BYTES / PAGE / STRIDE) as f64;
    let shared = median(&shared);
    Ok(Row::new(NAME, "ns", ours, against)
        .ratio(ratios.median, ratios)
        .target(1.0 / 1.3)
        .on(lab.domain(), &lab.medium())
        .note(format!(
            "peer: a thread that copies one page of memory, into memory of its own; into memory \
             that is shared, as a region's is: {shared:.0} ns, {:.2} of ours",
            shared / ours
        ))
        .note(format!(
            "ours brings {pages:.1} pages a touch ({:.0} ns each); CPU time of all threads {:.0} ns",
            ours / pages,
            duel.ours(Turn::cpu_ns)
        )))
}

/// One page after the other: under 2 us each.
pub fn region_prefetched(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let file = verified(&lab)?;
    let regions = regions(&lab)?;
    let turn = || {
        let region = Region::map(&regions, &file, 0, REGION_BYTES)?;
        touch(&region, REGION_BYTES / PAGE, |at| at)
    };
    turn()?;
    let turns = (0..options.rounds()).map(|_| turn()).collect::<Result<Vec<_>>>()?;
    let limit_ns = 2000.0;
    let times: Vec<f64> = turns.iter().map(Turn::caller_ns).collect();
    let ratios = spread(&times.iter().map(|time| limit_ns / time).collect::<Vec<_>>());
    let cpu = median(&turns.iter().map(Turn::cpu_ns).collect::<Vec<_>>());
    Ok(Row::new("region_prefetched", "ns", median(&times), Against::Limit(limit_ns))
        .ratio(ratios.median, ratios)
        .on(lab.domain(), &lab.medium())
        .note(format!("a page of a region that is walked; CPU time of all threads {cpu:.0} ns")))
}

/// The same where everything is on the tier, beside reading the device: half of its bandwidth.
pub fn region_from_tier(options: &Options) -> Result<Row> {
    let bytes = if options.quick { TIER_BYTES / 8 } else { TIER_BYTES };
    let shape = PoolShape {
        slice_bytes: 2 * bytes,
        log_bytes: None,
        device_bytes: 2 * bytes,
        memory_bytes: bytes / 4,
        tier_cache_bytes: None,
    };
    let pool = Tiered::new(options.dir(), &options.disk(), &shape)?;
    let file = pool.fill("file", bytes)?;
    pool.move_down()?;
    let path = pool.device();
    let mut device = File::options();
    // a file system without such files: then the page cache answers both
    let device = match device.read(true).custom_flags(libc::O_DIRECT).open(&path) {
        Ok(device) => device,
        Err(_) => File::open(&path).map_err(io(&path))?,
    };
    let settings = Settings { memory_bytes: 2 * bytes, faults: None };
    let regions = Regions::new(&pool.fs, &settings)?;
    let mut aligned = Room::new(DEVICE_READ_BYTES);
    let (mut read_blocks, mut beside) = (0, Vec::new());
    let duel = Duel::run(
        options.rounds(),
        || {
            pool.forget();
            let before = pool.tier().read_blocks;
            let region = Region::map(&regions, &file, 0, bytes)?;
            let turn = touch(&region, bytes / PAGE, |at| at)?;
            read_blocks = pool.tier().read_blocks - before;
            drop(region);
            pool.forget();
            let mut buffer = vec![0; DEVICE_READ_BYTES];
            let read = Turn::time(bytes / PAGE, || {
                by_pieces(bytes, |at| pool.fs.read(&file, at, &mut buffer).map(drop))
            })?;
            beside.push(read.caller_ns());
            Ok(turn)
        },
        || {
            Turn::time(bytes / PAGE, || {
                by_pieces(bytes, |at| device.read_exact_at(aligned.bytes(), at))
            })
            .map_err(io(&path))
        },
    )?;
    let ratios = duel.ratios(Turn::caller_ns);
    let mib_per_s = |ns: f64| PAGE as f64 / 1_048_576.0 / (ns / 1e9);
    let (ours, theirs) = (duel.ours(Turn::caller_ns), duel.theirs(Turn::caller_ns));
    let row = Row::new("region_from_tier", "MiB/s", mib_per_s(ours), {
        Against::Peer(mib_per_s(theirs))
    });
    Ok(row
        .ratio(ratios.median, ratios)
        .target(0.5)
        .on(pool.fs.info().domain, &format!("device on {}", medium(&options.disk())))
        .note(format!(
            "peer: reads of 4 MiB of the device's file; {:.2} blocks read of it a page of the \
             region; read through the file in calls of 4 MiB: {:.0} MiB/s",
            read_blocks as f64 / (bytes / PAGE) as f64,
            mib_per_s(median(&beside))
        )))
}

fn by_pieces<E>(
    bytes: u64,
    mut read: impl FnMut(u64) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    (0..bytes).step_by(DEVICE_READ_BYTES).try_for_each(&mut read)
}

/// A file of the region's size that was read once: its blocks are verified.
fn verified(lab: &Lab) -> Result<Arc<Handle>> {
    let (file, bytes) = lab.fill("file", 60)?;
    assert!(bytes >= REGION_BYTES, "the file fills the region");
    let mut buffer = vec![0; DEVICE_READ_BYTES];
    by_pieces(REGION_BYTES, |at| lab.fs.read(&file, at, &mut buffer).map(drop))?;
    Ok(file)
}

fn shuffled(count: u64, dice: &mut Dice) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    order
}

/// Loads a word of each of these pages.
fn touch(region: &Region, count: u64, page: impl Fn(u64) -> u64) -> Result<Turn> {
    Turn::time(count, || {
        (0..count).map(page).try_for_each(|page| {
            let word: u64 = region.get((page * PAGE) as usize)?;
            std::hint::black_box(word);
            Ok(())
        })
    })
}

/// A buffer at the start of a page.
struct Room {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Room {
    fn new(len: usize) -> Room {
        let room = vec![1; len + PAGE as usize];
        let start = room.as_ptr().align_offset(PAGE as usize);
        Room { room, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.len]
    }
}
