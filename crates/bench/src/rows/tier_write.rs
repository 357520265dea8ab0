//! Writing more than the slices hold: what is written goes on to the tier, and who writes is slowed
//! down to what the device takes, a little at each call.

use crate::caller::Aligned;
use crate::clock::Turn;
use crate::duel::Duel;
use crate::error::{Result, io};
use crate::lab::medium;
use crate::options::Options;
use crate::row::{Against, Row};
use crate::scratch::Scratch;
use crate::stats::quantile;
use crate::tiered::{PoolShape, Tiered};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Bytes of the slice.
const SLICE_BYTES: u64 = 256 << 20;
/// The file is so many times as large.
const TIMES: u64 = 4;
/// Of the slice so much may be in use when a turn ends: what is not written back.
const REST_PERCENT: u64 = 31;
/// Bytes of a call.
const CALL_BYTES: usize = 1 << 20;

/// A file of four times the slice, written from its front to its end again and again, beside direct
/// writes of as many bytes to a file on the device's file system.
pub fn tier_write_1m(options: &Options) -> Result<Row> {
    let slice_bytes = if options.quick { SLICE_BYTES / 4 } else { SLICE_BYTES };
    let bytes = TIMES * slice_bytes;
    let shape = PoolShape {
        slice_bytes,
        log_bytes: None,
        device_bytes: 2 * bytes,
        memory_bytes: slice_bytes / 4,
        tier_cache_bytes: None,
    };
    let pool = Tiered::new(options.dir(), &options.disk(), &shape)?;
    let file = pool.fill("file", bytes)?;
    // what is left of a turn is not to disturb the next one, nor to be a present to it
    let rests = || {
        while pool.tier().slice_blocks_used * 100 > pool.tier().slice_blocks * REST_PERCENT {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    rests();
    let (scratch, bare) = bare(options)?;
    let (mut data, source) = (Aligned::new(), vec![0x5A; CALL_BYTES]);
    let (mut ours, mut theirs, mut before) = (Calls::default(), Calls::default(), pool.tier());
    let duel = Duel::run(
        options.rounds().min(5),
        || {
            if ours.turns == 1 {
                before = pool.tier();
            }
            let write = |at| Ok(pool.fs.write(&file, at, &source).map(|_| ())?);
            ours.turn(bytes, write, rests)
        },
        || {
            let mut write = |at| bare.write_all_at(&data.bytes()[..CALL_BYTES], at);
            theirs.turn(bytes, |at| write(at).map_err(io(scratch.path())), || ())
        },
    )?;
    let ratios = duel.ratios(Turn::caller_ns);
    let mib_per_s = |ns: f64| 1e9 / ns * CALL_BYTES as f64 / 1_048_576.0;
    let (own, peer) = (duel.ours(Turn::caller_ns), duel.theirs(Turn::caller_ns));
    let tier = pool.tier();
    let row = Row::new("tier_write_1m", "MiB/s", mib_per_s(own), Against::Peer(mib_per_s(peer)));
    Ok(row
        .ratio(ratios.median, ratios)
        .on(pool.fs.info().domain, &format!("device on {}", medium(&options.disk())))
        .note("peer: direct writes of 1 MiB to a file beside the device's".to_owned())
        .note("a turn of ours ends when no more is to be written back".to_owned())
        .note(format!("calls: ours {ours}; peer {theirs}"))
        .note(format!(
            "a call is delayed by {:.0} us in the mean, {} found no room at all",
            (tier.delayed_ns - before.delayed_ns) as f64 / 1e3 / ours.us.len() as f64,
            tier.waits - before.waits
        )))
}

/// A file on the device's file system, past the page cache where that has such files.
fn bare(options: &Options) -> Result<(Scratch, File)> {
    let scratch = Scratch::new(&options.disk())?;
    let path = scratch.path().join("bare");
    let mut open = File::options();
    open.read(true).write(true).create(true).truncate(false);
    let made = open.open(&path).map_err(io(&path))?;
    let direct = open.custom_flags(libc::O_DIRECT).open(&path);
    Ok((scratch, direct.unwrap_or(made)))
}

/// What the calls of one side took, but for those of its first turn.
#[derive(Default)]
struct Calls {
    turns: u32,
    us: Vec<f64>,
}

impl Calls {
    /// Writes so many bytes, from the first on, and then does what belongs to the turn.
    fn turn(
        &mut self,
        bytes: u64,
        mut write: impl FnMut(u64) -> Result<()>,
        end: impl FnOnce(),
    ) -> Result<Turn> {
        self.turns += 1;
        if self.turns == 2 {
            self.us.clear();
        }
        Turn::time(bytes / CALL_BYTES as u64, || {
            for at in (0..bytes).step_by(CALL_BYTES) {
                let begun = Instant::now();
                write(at)?;
                self.us.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            end();
            Ok(())
        })
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, few, all] = [0.5, 0.99, 1.0].map(|at| quantile(&self.us, at));
        write!(f, "{half:.0} us in the median, {few:.0} of 99 in a hundred, {all:.0} the longest")
    }
}
