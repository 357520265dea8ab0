//! A fixed number of calls of one operation, for a tool that counts instructions.
//!
//! `scripts/icount.sh` runs this under callgrind, which counts what happens inside
//! `icount_calls` only: neither the set-up nor a checkpoint is in it.

use crate::dice::{Dice, Sources};
use crate::error::{Error, Result};
use crate::lab::{Lab, OWNER, Shape};
use crate::options::Options;
use fs::{Call, Handle, Ino, NewNode, RenameMode};
use region::{Faults, Region, Regions, Settings};
use std::hint::black_box;
use std::sync::Arc;

const FILE_BYTES: u64 = 8 << 20;
const BLOCK: u64 = 4096;

/// An operation whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Write 4 KiB at the end.
    Append4k,
    /// Write 4 KiB over a block.
    Overwrite4k,
    /// Write 64 bytes inside a block.
    Overwrite64b,
    /// Write 64 bytes at the end.
    Append64b,
    /// Read a block.
    Read4k,
    /// Read 64 bytes.
    Read64b,
    /// Write 64 bytes and fsync.
    Write64bFsync,
    /// Create a file, open and close it.
    Create,
    /// Look up and attributes.
    Stat,
    /// Look up, open and close.
    Open,
    /// Rename a file.
    Rename,
    /// Remove a file.
    Unlink,
    /// Make a directory.
    Mkdir,
    /// Remove a directory.
    Rmdir,
    /// Commit 64 bytes to a page of a region.
    Commit64b,
    /// Count a call that does nothing, as the mount counts every one.
    Meter,
    /// The loop around the calls, and nothing in it.
    Nothing,
}

/// All operations, with the names of `op-cost.md`'s rows.
const OPERATIONS: &[(&str, Operation)] = &[
    ("append_4k", Operation::Append4k),
    ("overwrite_4k", Operation::Overwrite4k),
    ("overwrite_64b", Operation::Overwrite64b),
    ("append_64b", Operation::Append64b),
    ("read_4k", Operation::Read4k),
    ("read_64b", Operation::Read64b),
    ("write_64b_fsync", Operation::Write64bFsync),
    ("create", Operation::Create),
    ("stat", Operation::Stat),
    ("open", Operation::Open),
    ("rename", Operation::Rename),
    ("unlink", Operation::Unlink),
    ("mkdir", Operation::Mkdir),
    ("rmdir", Operation::Rmdir),
    ("commit_64b", Operation::Commit64b),
    ("meter", Operation::Meter),
    ("nothing", Operation::Nothing),
];

impl std::str::FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Operation> {
        let found = OPERATIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, operation)| *operation).ok_or_else(|| {
            let known: Vec<&str> = OPERATIONS.iter().map(|(name, _)| *name).collect();
            Error::UnknownRow { name: name.to_owned(), known: known.join(", ") }
        })
    }
}

/// What the calls work on.
struct Bench {
    /// The file as memory, of who asks for that.
    region: Option<(Region, Regions)>,
    lab: Lab,
    file: Arc<Handle>,
    names: Vec<[Vec<u8>; 2]>,
}

/// What the calls are given.
struct Input {
    /// Where each call reads or writes: thrown before, so that the dice are not counted.
    places: Vec<u64>,
    sources: Sources,
    buffer: Vec<u8>,
}

/// Makes `count` calls of `operation` on a small pool, after as many that warm it up.
///
/// # Errors
/// What the engine said.
pub fn icount(options: &Options, operation: Operation, count: u64) -> Result<()> {
    let shape = Shape {
        bytes: 128 << 20,
        log_bytes: Some(16 << 20),
        background: false,
        identity: Some(0),
        ..Shape::usual(options)
    };
    let lab = Lab::new(options.dir(), shape)?;
    let file = lab.create("file")?;
    lab.fs.write(&file, 0, &vec![1; FILE_BYTES as usize])?;
    let names = (0..2 * count)
        .map(|n| [format!("name-{n:06}").into_bytes(), format!("other-{n:06}").into_bytes()])
        .collect();
    let region = match operation {
        Operation::Commit64b => Some(resident(&lab, &file)?),
        _ => None,
    };
    let bench = Bench { region, lab, file, names };
    prepare(&bench, operation, 2 * count)?;
    let mut dice = Dice::new(12);
    let mut input = Input {
        places: (0..2 * count).map(|_| dice.below(FILE_BYTES / BLOCK) * BLOCK).collect(),
        sources: Sources::new(BLOCK as usize),
        buffer: vec![0; BLOCK as usize],
    };
    calls(&bench, operation, 0..count, &mut input)?;
    bench.lab.fs.checkpoint()?;
    icount_calls(&bench, operation, count..2 * count, &mut input)?;
    Ok(())
}

/// The file as memory, all of which is there.
fn resident(lab: &Lab, file: &Arc<Handle>) -> Result<(Region, Regions)> {
    // valgrind runs one thread at a time, and knows only of those that wait in a system call
    let settings = Settings { faults: Some(Faults::Signals), ..Settings::default() };
    let regions = Regions::new(&lab.fs, &settings)?;
    let region = Region::map(&regions, file, 0, FILE_BYTES)?;
    region.load(0, &mut vec![0; FILE_BYTES as usize])?;
    Ok((region, regions))
}

/// What must be there before an operation can be done.
fn prepare(bench: &Bench, operation: Operation, count: u64) -> Result<()> {
    let node = match operation {
        Operation::Rmdir => NewNode::Directory,
        Operation::Open | Operation::Rename | Operation::Unlink | Operation::Stat => NewNode::File,
        _ => return Ok(()),
    };
    for [name, _] in bench.names.iter().take(count as usize) {
        bench.lab.fs.create(Ino::ROOT, name, node, OWNER)?;
    }
    bench.lab.fs.checkpoint()?;
    Ok(())
}

/// The calls that are counted: under a name of its own, for callgrind.
#[inline(never)]
fn icount_calls(
    bench: &Bench,
    operation: Operation,
    range: std::ops::Range<u64>,
    input: &mut Input,
) -> Result<()> {
    calls(bench, operation, range, input)
}

#[inline(never)]
fn calls(
    bench: &Bench,
    operation: Operation,
    range: std::ops::Range<u64>,
    input: &mut Input,
) -> Result<()> {
    for number in range {
        one_call(bench, operation, number as usize, input)?;
    }
    Ok(())
}

/// The result was all that was wanted.
fn ignore<T>(_: T) {}

fn one_call(bench: &Bench, operation: Operation, number: usize, input: &mut Input) -> Result<()> {
    let Bench { region, lab: Lab { fs, .. }, file, names } = bench;
    let [name, other] = &names[number];
    let Input { places, sources, buffer } = input;
    let place = places[number];
    let data = sources.turn();
    match operation {
        Operation::Append4k => ignore(black_box(fs.append(file, data)?)),
        Operation::Append64b => ignore(black_box(fs.append(file, &data[..64])?)),
        Operation::Overwrite4k => ignore(black_box(fs.write(file, place, data)?)),
        Operation::Overwrite64b => ignore(black_box(fs.write(file, place, &data[..64])?)),
        Operation::Read4k => ignore(black_box(fs.read(file, place, buffer)?)),
        Operation::Read64b => ignore(black_box(fs.read(file, place, &mut buffer[..64])?)),
        Operation::Write64bFsync => {
            fs.write(file, place, &data[..64])?;
            fs.fsync(file)?;
        }
        Operation::Create => {
            let attr = fs.create(Ino::ROOT, name, NewNode::File, OWNER)?;
            drop(fs.open(attr.ino)?);
        }
        Operation::Stat => ignore(black_box(fs.lookup(Ino::ROOT, name)?)),
        Operation::Open => drop(fs.open(fs.lookup(Ino::ROOT, name)?.ino)?),
        Operation::Rename => {
            fs.rename((Ino::ROOT, name), (Ino::ROOT, other), RenameMode::Replace)?;
        }
        Operation::Unlink => ignore(fs.unlink(Ino::ROOT, name)?),
        Operation::Mkdir => drop(fs.create(Ino::ROOT, name, NewNode::Directory, OWNER)?),
        Operation::Rmdir => ignore(fs.rmdir(Ino::ROOT, name)?),
        Operation::Commit64b => {
            if let Some((region, regions)) = region {
                let mut transaction = regions.begin()?;
                transaction.write(region, place as usize, &data[..64])?;
                transaction.commit()?;
            }
        }
        Operation::Meter => {
            fs.meter().call(Call::named("read"), || black_box(Ok::<_, Error>(())))?
        }
        Operation::Nothing => ignore(black_box((place, data))),
    }
    Ok(())
}
