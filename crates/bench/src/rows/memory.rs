//! DRAM: of one cached file, and of a huge sparse one.
//!
//! Counted is anonymous memory (RssAnon): the pool's own mapping is the medium, not DRAM. It is
//! counted from the process's start, because the allocator keeps what earlier rows let go; for
//! the same reason these rows come first.

use crate::dice::{Dice, Sources};
use crate::error::{Result, io};
use crate::lab::{Lab, OWNER, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use fs::{Ino, NewNode, SetAttr};
use std::path::Path;
use std::sync::OnceLock;

const FILES: u64 = 100_000;
const FILES_PER_DIR: u64 = 1000;
/// Most bytes that one cached file may take, beside its extents.
const FILE_BYTES_MAX: f64 = 1024.0;
/// The memory setting while the files are made: next to none of them stays cached.
const BUILD_MEMORY_BYTES: u64 = 1 << 20;
/// The memory setting of the sparse file's pool.
const MEMORY_BYTES: u64 = 64 << 20;
const UNIT: u64 = 4096;
const SPARSE_BYTES: u64 = 1 << 40;
/// Writes into it, each to a leaf of its own as good as always.
const SPARSE_WRITES: u64 = 200_000;

/// Anonymous memory of this process since the first call, bytes.
pub fn grown_bytes() -> Result<u64> {
    static START: OnceLock<u64> = OnceLock::new();
    let now = anonymous_bytes()?;
    Ok(now.saturating_sub(*START.get_or_init(|| now)))
}

fn anonymous_bytes() -> Result<u64> {
    status_bytes(Path::new("/proc/self"), &["RssAnon:"])
}

/// The sum of these lines of the status of the process that is this directory of proc(5), bytes.
pub fn status_bytes(process: &Path, names: &[&str]) -> Result<u64> {
    let path = process.join("status");
    let status = std::fs::read_to_string(&path).map_err(io(&path))?;
    let kib = |name: &&str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(*name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok(names.iter().filter_map(kib).sum::<u64>() << 10)
}

/// Files looked up after an open, with one block each.
pub fn dram_per_file(options: &Options) -> Result<Row> {
    let files = if options.quick { FILES / 10 } else { FILES };
    let shape = Shape { bytes: 1 << 30, ..Shape::usual(options) };
    let small = Shape { memory_bytes: Some(BUILD_MEMORY_BYTES), ..shape };
    let lab = Lab::new(options.dir(), small)?;
    let mut dirs = Vec::new();
    for number in 0..files / FILES_PER_DIR {
        let name = format!("dir-{number}");
        let dir = lab.fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, OWNER)?.ino;
        for file in 0..FILES_PER_DIR {
            let name = format!("file-{file}");
            let ino = lab.fs.create(dir, name.as_bytes(), NewNode::File, OWNER)?.ino;
            lab.fs.write(&*lab.fs.open(ino)?, 0, &[7; UNIT as usize])?;
        }
        dirs.push(dir);
    }
    lab.fs.close()?;
    let lab = lab.reopened(shape)?;
    let mut inodes = Vec::with_capacity(files as usize);
    for dir in dirs {
        for file in 0..FILES_PER_DIR {
            inodes.push(lab.fs.lookup(dir, format!("file-{file}").as_bytes())?.ino);
        }
    }
    let looked_up = grown_bytes()?.saturating_sub(8 * files) as f64 / files as f64;
    let mut buffer = [0; UNIT as usize];
    for ino in inodes {
        lab.fs.read(&*lab.fs.open(ino)?, 0, &mut buffer)?;
    }
    let read = grown_bytes()?.saturating_sub(8 * files) as f64 / files as f64;
    let row = Row::new("dram_per_file", "B", looked_up, Against::Limit(FILE_BYTES_MAX));
    Ok(row.on(lab.domain(), &lab.medium()).note(format!(
        "{files} files looked up (inode and name); {read:.0} B once their one block was read too"
    )))
}

/// A file of 1 TiB, overwritten here and there.
pub fn sparse_1t(options: &Options) -> Result<Row> {
    let writes = if options.quick { SPARSE_WRITES / 10 } else { SPARSE_WRITES };
    let shape = Shape { bytes: 3 << 29, memory_bytes: Some(MEMORY_BYTES), ..Shape::usual(options) };
    let lab = Lab::new(options.dir(), shape)?;
    let file = lab.create("sparse")?;
    lab.fs.setattr(file.ino(), &SetAttr { size: Some(SPARSE_BYTES), ..SetAttr::default() })?;
    let mut highest = 0;
    let (mut dice, mut sources) = (Dice::new(11), Sources::new(UNIT as usize));
    for write in 0..writes {
        lab.fs.write(&file, dice.below(SPARSE_BYTES / UNIT) * UNIT, sources.turn())?;
        if write % 512 == 0 {
            highest = highest.max(grown_bytes()?);
        }
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let limit = Against::Limit(mib(MEMORY_BYTES));
    let row = Row::new("sparse_1t", "MiB", mib(highest), limit);
    let now = mib(grown_bytes()?);
    Ok(row.on(lab.domain(), &lab.medium()).note(format!(
        "{writes} writes of 4 KiB all over 1 TiB; most anonymous memory, {now:.1} MiB at the end; \
         the limit is the memory setting"
    )))
}
