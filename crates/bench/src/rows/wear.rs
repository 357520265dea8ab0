//! Bytes written to PM per byte of the user's.
//!
//! Counted are data blocks, log records and what checkpoints write, over more than 3 laps of the
//! log; from one checkpoint to another, so that nothing is owed.

use crate::dice::{Dice, Sources};
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use fs::Handle;

const BLOCK: u64 = 4096;
/// Times that the same 64 bytes are written.
const REPEATS: u64 = 16;
/// Most PM bytes per user byte of 4 KiB overwrites, checkpoint included.
const AMPLIFICATION_MAX: f64 = 1.1;

/// What was written, bytes.
#[derive(Clone, Copy, Debug)]
struct Written {
    log: u64,
    checkpoint: u64,
    checkpoints: u64,
}

impl Written {
    /// What `run` makes the engine write.
    fn during(lab: &Lab, run: impl FnOnce() -> Result<()>) -> Result<Written> {
        lab.fs.checkpoint()?;
        let (log, (count, bytes)) = (lab.fs.log_bytes_written(), lab.fs.checkpoint_cost());
        run()?;
        lab.fs.checkpoint()?;
        let (count_after, bytes_after) = lab.fs.checkpoint_cost();
        Ok(Written {
            log: lab.fs.log_bytes_written() - log,
            checkpoint: bytes_after - bytes,
            checkpoints: count_after - count,
        })
    }
}

/// 4 KiB random overwrites.
pub fn write_amplification_4k(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill("file", 50)?;
    let mut worst: f64 = 0.0;
    let mut notes = Vec::new();
    for percent in [50, 90] {
        if percent > 50 {
            drop(lab.fill("filler", percent)?);
        }
        // records are at least 64 bytes: more than 3 laps
        let count = 4 * lab.log_bytes() / 64;
        let (mut dice, mut sources) = (Dice::new(6), Sources::new(BLOCK as usize));
        let written = Written::during(&lab, || {
            for _ in 0..count {
                lab.fs.write(&file, dice.below(bytes / BLOCK) * BLOCK, sources.turn())?;
            }
            Ok(())
        })?;
        let user = (count * BLOCK) as f64;
        let whole = (user + written.log as f64 + written.checkpoint as f64) / user;
        worst = worst.max(whole);
        notes.push(format!(
            "{percent} % full: {whole:.3} = 1 + log {:.3} + {} checkpoints {:.3}; {:.1} laps",
            written.log as f64 / user,
            written.checkpoints,
            written.checkpoint as f64 / user,
            written.log as f64 / lab.log_bytes() as f64,
        ));
    }
    let limit = Against::Limit(AMPLIFICATION_MAX);
    let row = Row::new("write_amplification_4k", "PM B/user B", worst, limit);
    let row = row.on(lab.domain(), &lab.medium());
    Ok(notes.into_iter().fold(row, Row::note))
}

/// 64 bytes in place 16 times, beside as many written to as many blocks.
pub fn coalesce_64b(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill("file", 50)?;
    let blocks = bytes / BLOCK;
    let count = 2 * lab.log_bytes() / 64;
    let apart = Written::during(&lab, || small_writes(&lab, &file, blocks, count, 1))?;
    let in_place = Written::during(&lab, || small_writes(&lab, &file, blocks, count, REPEATS))?;
    let user = (count * 64) as f64;
    let whole = |written: Written| (written.log + written.checkpoint) as f64 / user;
    let row = Row::new("coalesce_64b", "PM B/user B", whole(in_place), Against::Peer(whole(apart)));
    let ratio = apart.checkpoint as f64 / in_place.checkpoint.max(1) as f64;
    let row = row.on(lab.domain(), &lab.medium());
    Ok(row
        .note(format!(
            "peer: ours, each write to a block of its own; in place: log {:.2} + checkpoints \
             {:.2}; apart: log {:.2} + {:.2}; checkpoints wrote {ratio:.1} times less",
            in_place.log as f64 / user,
            in_place.checkpoint as f64 / user,
            apart.log as f64 / user,
            apart.checkpoint as f64 / user,
        ))
        .note("blocks written anew when their patches overflow are not counted".to_owned()))
}

fn small_writes(lab: &Lab, file: &Handle, blocks: u64, count: u64, repeats: u64) -> Result<()> {
    let (mut dice, mut sources) = (Dice::new(7), Sources::new(64));
    for _ in 0..count / repeats {
        let place = dice.below(blocks) * BLOCK + dice.below(BLOCK / 64) * 64;
        for _ in 0..repeats {
            lab.fs.write(file, place, sources.turn())?;
        }
    }
    Ok(())
}
