//! `nearside-icount OPERATION CALLS`: a fixed number of calls of one operation, for a tool that
//! counts instructions.
//!
//! `scripts/icount.sh` runs this under callgrind, which counts what happens inside `icount_calls`
//! only: neither the set-up nor a checkpoint is in it. It is a program of its own, with nothing but
//! the engine in it, for a release build takes long to link.

use fs::{Call, Creation, FileSystem, Handle, Ino, NewNode, RenameMode};
use pmem::{MapOptions, Mapping};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use region::{Faults, Region, Regions, Settings};
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The owner of the files.
const OWNER: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
const POOL_BYTES: u64 = 128 << 20;
const LOG_BYTES: u64 = 16 << 20;
const FILE_BYTES: u64 = 8 << 20;
const BLOCK: u64 = 4096;

/// An operation whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
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

/// What the calls work on.
struct Bench {
    /// The file as memory, where the operation takes that.
    region: Option<(Region, Regions)>,
    fs: Arc<FileSystem>,
    file: Arc<Handle>,
    names: Vec<[Vec<u8>; 2]>,
}

/// What the calls are given.
struct Input {
    /// Where each call reads or writes: made before, so that it is not counted.
    places: Vec<u64>,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, calls] = &arguments[..] else {
        eprintln!("usage: nearside-icount OPERATION CALLS");
        return ExitCode::from(2);
    };
    let operation = OPERATIONS.iter().find(|(name, _)| name == operation);
    let (Some((_, operation)), Ok(calls)) = (operation, calls.parse()) else {
        let names: Vec<&str> = OPERATIONS.iter().map(|(name, _)| *name).collect();
        eprintln!("nearside-icount: a number of calls of one of: {}", names.join(", "));
        return ExitCode::from(2);
    };
    let scratch = Scratch(std::env::temp_dir().join(format!("icount-{}", std::process::id())));
    match run(&scratch.0, *operation, calls) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nearside-icount: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The pool's directory, which goes with this.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small pool, the same in every run, with all pages of its mapping touched.
fn open(dir: &Path) -> Result<Arc<FileSystem>> {
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: POOL_BYTES,
        process: true,
        log_bytes: Some(LOG_BYTES),
        identity: Some(0),
        ..FormatOptions::default()
    };
    fs::format(dir, &options)?;
    let slice = dir.join("slice.0");
    let mapping = Mapping::open(&slice, &MapOptions { process: true, ..MapOptions::default() })?;
    let mut page = vec![0; BLOCK as usize];
    for offset in (0..mapping.len()).step_by(page.len()) {
        mapping.read(offset, &mut page)?;
        let _ = pmem::fence(mapping.write(offset, &page));
    }
    let candidate = Candidate::from_mapping(&slice, mapping, false)?;
    let options = OpenOptions::default();
    Ok(Arc::new(FileSystem::open_candidates(vec![candidate], &options, false)?))
}

/// Makes `count` calls of `operation` on a small pool, after as many that warm it up.
fn run(dir: &Path, operation: Operation, count: u64) -> Result<()> {
    let fs = open(dir)?;
    let attr = fs.create(Ino::ROOT, b"file", NewNode::File, OWNER)?;
    let file = fs.open(attr.ino)?;
    fs.write(&file, 0, &vec![1; FILE_BYTES as usize])?;
    let names = (0..2 * count)
        .map(|n| [format!("name-{n:06}").into_bytes(), format!("other-{n:06}").into_bytes()])
        .collect();
    let region = match operation {
        Operation::Commit64b => Some(resident(&fs, &file)?),
        _ => None,
    };
    let bench = Bench { region, fs, file, names };
    prepare(&bench, operation, 2 * count)?;
    // Knuth's multiplier scatters the blocks
    let place = |call: u64| call.wrapping_mul(2_654_435_761) % (FILE_BYTES / BLOCK) * BLOCK;
    let mut input = Input {
        places: (0..2 * count).map(place).collect(),
        data: (0..BLOCK).map(|at| (at ^ (at >> 8)) as u8).collect(),
        buffer: vec![0; BLOCK as usize],
    };
    calls(&bench, operation, 0..count, &mut input)?;
    bench.fs.checkpoint()?;
    icount_calls(&bench, operation, count..2 * count, &mut input)
}

/// The file as memory, all of which is there.
fn resident(fs: &Arc<FileSystem>, file: &Arc<Handle>) -> Result<(Region, Regions)> {
    // valgrind runs one thread at a time, and knows only of those that wait in a system call
    let settings = Settings { faults: Some(Faults::Signals), ..Settings::default() };
    let regions = Regions::new(fs, &settings)?;
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
        bench.fs.create(Ino::ROOT, name, node, OWNER)?;
    }
    bench.fs.checkpoint()?;
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
    let Bench { region, fs, file, names } = bench;
    let [name, other] = &names[number];
    let Input { places, data, buffer } = input;
    let place = places[number];
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
            fs.meter().call(Call::named("read"), || black_box(Ok::<_, fs::Error>(())))?
        }
        Operation::Nothing => ignore(black_box((place, data))),
    }
    Ok(())
}
