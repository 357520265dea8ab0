//! Creating and removing files, beside tmpfs through system calls.
//!
//! One operation makes a file, opens and closes it, and removes it: creat, close and unlink there.
//! Files are made a few hundred at a time and then removed, in a directory that holds others.

use crate::clock::Turn;
use crate::duel::Duel;
use crate::error::{Result, io};
use crate::lab::{Lab, OWNER, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use fs::{Ino, NewNode};
use std::path::Path;

/// Files that are there throughout.
const RESIDENTS: u64 = 1000;
/// Files made before the first of them is removed.
const GROUP: u64 = 256;
/// Groups of one turn: some 100 ms, and more than half of the log.
const GROUPS: u64 = 256;

/// Create, close and unlink.
pub fn create_unlink(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let _file = lab.fill("file", 50)?;
    let peer = lab.dir().join("peer");
    std::fs::create_dir(&peer).map_err(io(&peer))?;
    let ours_dir = lab.fs.create(Ino::ROOT, b"peer", NewNode::Directory, OWNER)?.ino;
    for resident in 0..RESIDENTS {
        let name = format!("resident-{resident}");
        lab.fs.create(ours_dir, name.as_bytes(), NewNode::File, OWNER)?;
        std::fs::File::create(peer.join(&name)).map_err(io(&peer))?;
    }
    let names: Vec<String> = (0..GROUP).map(|n| format!("file-{n:08}")).collect();
    let paths: Vec<_> = names.iter().map(|name| peer.join(name)).collect();
    let (log, (checkpoints, bytes)) = (lab.fs.log_bytes_written(), lab.fs.checkpoint_cost());
    let ours = || Turn::time(GROUP * GROUPS, || ours(&lab, ours_dir, &names));
    let theirs = || Turn::time(GROUP * GROUPS, || theirs(&paths));
    let duel = Duel::run(options.rounds(), ours, theirs)?;
    let laps = (lab.fs.log_bytes_written() - log) as f64 / lab.log_bytes() as f64;
    let (checkpoints_after, bytes_after) = lab.fs.checkpoint_cost();
    let spread = duel.ratios(Turn::whole_ns);
    let against = Against::Peer(duel.theirs(Turn::whole_ns));
    Ok(Row::new("create_unlink", "ns/pair", duel.ours(Turn::whole_ns), against)
        .ratio(spread.median, spread)
        .target(2.0)
        .on(lab.domain(), &lab.medium())
        .note(format!(
            "peer: tmpfs, creat + close + unlink, not durable; caller {:.0} + background {:.0} ns; \
             CPU time ratio {:.2}; log wrapped {laps:.1} times, {} checkpoints of {:.0} KiB",
            duel.ours(Turn::caller_ns),
            duel.ours(Turn::background_ns),
            duel.ratios(Turn::cpu_ns).median,
            checkpoints_after - checkpoints,
            (bytes_after - bytes) as f64 / 1024.0 / (checkpoints_after - checkpoints).max(1) as f64,
        )))
}

fn ours(lab: &Lab, dir: Ino, names: &[String]) -> Result<()> {
    for _ in 0..GROUPS {
        for name in names {
            let attr = lab.fs.create(dir, name.as_bytes(), NewNode::File, OWNER)?;
            drop(lab.fs.open(attr.ino)?);
        }
        for name in names {
            lab.fs.unlink(dir, name.as_bytes())?;
        }
    }
    Ok(())
}

fn theirs(paths: &[impl AsRef<Path>]) -> Result<()> {
    for _ in 0..GROUPS {
        for path in paths {
            drop(std::fs::File::create(path).map_err(io(path.as_ref()))?);
        }
        for path in paths {
            std::fs::remove_file(path).map_err(io(path.as_ref()))?;
        }
    }
    Ok(())
}
