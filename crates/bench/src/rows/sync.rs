//! Durable writes in the `sync` domain, on a disk: 4 KiB and fsync, beside O_DSYNC on the disk's
//! own file system.

use crate::clock::Turn;
use crate::dice::{Dice, Sources};
use crate::duel::Duel;
use crate::error::{Error, Result, io};
use crate::lab::{Lab, Shape, medium};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::{median, spread};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

const UNIT: u64 = 4096;
const FILE_BYTES: u64 = 64 << 20;
/// Writes of one turn of one caller.
const COUNT: u64 = 512;
/// Callers at once.
const CALLERS: u64 = 16;

fn shape() -> Shape {
    Shape {
        bytes: 256 << 20,
        log_bytes: None,
        process: false,
        background: true,
        memory_bytes: None,
        single_pages: false,
    }
}

/// A file on the disk's own file system, every block written, open with O_DSYNC.
fn peer(dir: &Path) -> Result<std::fs::File> {
    let path = dir.join("peer");
    std::fs::write(&path, vec![0x5A; FILE_BYTES as usize]).map_err(io(&path))?;
    let file = std::fs::File::options().write(true).custom_flags(libc::O_DSYNC).open(&path);
    let file = file.map_err(io(&path))?;
    file.sync_all().map_err(io(&path))?;
    Ok(file)
}

fn filled(options: &Options) -> Result<(Lab, std::sync::Arc<fs::Handle>)> {
    let lab = Lab::new(&options.disk(), shape())?;
    let file = lab.create("file")?;
    lab.fs.write(&file, 0, &vec![0x5A; FILE_BYTES as usize])?;
    lab.fs.checkpoint()?;
    lab.fs.sync()?;
    Ok((lab, file))
}

/// One caller.
pub fn sync_4k(options: &Options) -> Result<Row> {
    let (lab, file) = filled(options)?;
    let peer = peer(lab.dir())?;
    let peer_path = lab.dir().join("peer");
    let units = FILE_BYTES / UNIT;
    let mut dice = [Dice::new(8), Dice::new(8)];
    let mut sources = [Sources::new(UNIT as usize), Sources::new(UNIT as usize)];
    let [our_dice, their_dice] = &mut dice;
    let [our_sources, their_sources] = &mut sources;
    let ours = || {
        Turn::time(COUNT, || {
            for _ in 0..COUNT {
                lab.fs.write(&file, our_dice.below(units) * UNIT, our_sources.turn())?;
                lab.fs.fsync(&file)?;
            }
            Ok(())
        })
    };
    let theirs = || {
        Turn::time(COUNT, || {
            for _ in 0..COUNT {
                let place = their_dice.below(units) * UNIT;
                peer.write_all_at(their_sources.turn(), place).map_err(io(&peer_path))?;
            }
            Ok(())
        })
    };
    let duel = Duel::run(options.short_rounds(), ours, theirs)?;
    let spread = duel.ratios(Turn::caller_ns);
    let us = |ns: f64| ns / 1000.0;
    let against = Against::Peer(us(duel.theirs(Turn::caller_ns)));
    let row = Row::new("sync_4k", "us", us(duel.ours(Turn::caller_ns)), against);
    let peer_is = format!("peer: O_DSYNC on {}", medium(lab.dir()));
    Ok(row.ratio(spread.median, spread).on(lab.domain(), &lab.medium()).note(peer_is))
}

/// Sixteen callers, beside one.
pub fn sync_4k_16(options: &Options) -> Result<Row> {
    let (lab, file) = filled(options)?;
    let units = FILE_BYTES / UNIT;
    let caller = |seed: u64| {
        let (mut dice, mut sources) = (Dice::new(9 + seed), Sources::new(UNIT as usize));
        for _ in 0..COUNT {
            lab.fs.write(&file, dice.below(units) * UNIT, sources.turn())?;
            lab.fs.fsync(&file)?;
        }
        Ok::<(), Error>(())
    };
    let (mut one, mut many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds() {
        let alone = per_second(COUNT, || caller(0))?;
        let together = per_second(COUNT * CALLERS, || {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..CALLERS).map(|seed| scope.spawn(move || caller(seed))).collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| thread.join().map_err(|_| Error::Panicked)?)
            })
        })?;
        one.push(alone);
        many.push(together);
        ratios.push(together / alone);
    }
    let rounds = spread(&ratios);
    let row = Row::new("sync_4k_16", "writes/s", median(&many), Against::Peer(median(&one)));
    Ok(row
        .ratio(rounds.median, rounds)
        .target(3.0)
        .on(lab.domain(), &lab.medium())
        .note("peer: ours, one caller".to_owned()))
}

fn per_second(count: u64, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
