//! The program that makes calls on a file or in a directory, in a process of its own.
//!
//! It reads orders from stdin, a line each, and answers each with what its calls took. Beside the
//! rows, `scripts/compare` has it call other file systems.

use crate::clock::thread_ns;
use crate::dice::Dice;
use crate::error::{Result, io};
use crate::piped::Piped;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a call at most.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// What direct I/O wants a buffer to be aligned to, so that 1 MiB is 256 pages and not 257.
const PAGE_BYTES: usize = 4096;
/// Names the file or directory to a process that is started as a caller.
const CALLER: &str = "NEARSIDE_BENCH_CALLER";

/// What a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads at random places of a file.
    Read,
    /// Overwrites there.
    Write,
    /// Makes and closes files in a directory.
    Create,
    /// Asks for their attributes, past the kernel's cache.
    Stat,
    /// Renames each.
    Rename,
    /// Removes each.
    Unlink,
}

const VERBS: [(Verb, &str); 6] = [
    (Verb::Read, "read"),
    (Verb::Write, "write"),
    (Verb::Create, "create"),
    (Verb::Stat, "stat"),
    (Verb::Rename, "rename"),
    (Verb::Unlink, "unlink"),
];

/// What a caller is to do.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// What.
    pub verb: Verb,
    /// How often.
    pub count: u64,
    /// At places below so many calls' bytes.
    pub units: u64,
    /// Bytes of a call.
    pub bytes: usize,
}

/// What its calls took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// Time, ns.
    pub wall_ns: u64,
    /// Its CPU time, ns.
    pub cpu_ns: u64,
    /// What half of the calls took at most, ns.
    pub p50_ns: u64,
    /// What all but one in a hundred took at most, ns.
    pub p99_ns: u64,
}

/// The other end of a process that runs [`be_caller_if_asked`].
pub struct Caller {
    process: Piped,
    path: PathBuf,
}

impl Caller {
    /// Starts one for a file or directory.
    pub fn start(path: PathBuf) -> Result<Caller> {
        Ok(Caller { process: Piped::again(CALLER, &path)?, path })
    }

    /// Has it make calls.
    pub fn ask(&mut self, order: Order) -> Result<Took> {
        let Order { verb, count, units, bytes } = order;
        let verb = VERBS.iter().find(|known| known.0 == verb).map_or("", |known| known.1);
        self.process.tell(&format!("{verb} {count} {units} {bytes}"))?;
        match numbers(&self.process.hear()?)[..] {
            [wall_ns, cpu_ns, p50_ns, p99_ns] => Ok(Took { wall_ns, cpu_ns, p50_ns, p99_ns }),
            _ => Err(io(&self.path)(std::io::Error::other("the caller has ended"))),
        }
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// If this process was started as a caller: makes the calls that stdin orders, and ends.
pub fn be_caller_if_asked() {
    let Some(path) = std::env::var_os(CALLER) else { return };
    let done = Calls::new(PathBuf::from(&path)).serve();
    if let Err(error) = &done {
        eprintln!("{}: {error}", path.display());
    }
    std::process::exit(i32::from(done.is_err()));
}

struct Calls {
    path: PathBuf,
    /// Opened by the first call on its bytes.
    file: Option<File>,
    dice: Dice,
    buffer: Aligned,
    /// What each call of an order took.
    each_ns: Vec<u64>,
}

impl Calls {
    fn new(path: PathBuf) -> Calls {
        let (dice, buffer) = (Dice::new(10), Aligned::new());
        Calls { path, file: None, dice, buffer, each_ns: Vec::new() }
    }

    fn serve(&mut self) -> std::io::Result<()> {
        for line in std::io::stdin().lines() {
            let line = line?;
            let known = VERBS.iter().find(|known| line.starts_with(known.1));
            let Some((verb, _)) = known else { break };
            let [count, units, bytes] = numbers(&line)[..] else { break };
            let bytes = (bytes as usize).min(CALL_BYTES_MAX);
            self.each_ns.clear();
            let (start, cpu) = (Instant::now(), thread_ns());
            let mut last = start;
            for number in 0..count {
                self.call(*verb, number, (count, units), bytes)?;
                let now = Instant::now();
                self.each_ns.push((now - last).as_nanos() as u64);
                last = now;
            }
            let (wall_ns, cpu_ns) = (start.elapsed().as_nanos(), thread_ns() - cpu);
            self.each_ns.sort_unstable();
            let at = |part: f64| {
                let index = (self.each_ns.len() as f64 * part) as usize;
                self.each_ns.get(index).copied().unwrap_or(0)
            };
            let mut answers = std::io::stdout().lock();
            writeln!(answers, "{wall_ns} {cpu_ns} {} {}", at(0.5), at(0.99))?;
            answers.flush()?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        verb: Verb,
        number: u64,
        (count, units): (u64, u64),
        bytes: usize,
    ) -> std::io::Result<()> {
        let named = |prefix: &str, number: u64| self.path.join(format!("{prefix}{number}"));
        match verb {
            Verb::Read | Verb::Write => {
                let place = self.dice.below(units) * bytes as u64;
                let file = match &self.file {
                    Some(file) => file,
                    None => self.file.insert(open(&self.path)?),
                };
                let buffer = &mut self.buffer.bytes()[..bytes];
                if verb == Verb::Read {
                    return file.read_exact_at(buffer, place);
                }
                buffer[..8].copy_from_slice(&number.to_le_bytes());
                file.write_all_at(buffer, place)
            }
            Verb::Create => File::create_new(named("made-", number)).map(drop),
            Verb::Stat => {
                let path = named("made-", self.dice.below(count));
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
                rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS)?;
                Ok(())
            }
            Verb::Rename => std::fs::rename(named("made-", number), named("moved-", number)),
            Verb::Unlink => std::fs::remove_file(named("moved-", number)),
        }
    }
}

/// With O_DIRECT: else the page cache would answer reads.
fn open(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// A buffer of one call, at the start of a page.
pub struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Of [`CALL_BYTES_MAX`] bytes.
    pub fn new() -> Aligned {
        let room: Vec<u8> =
            (0..CALL_BYTES_MAX + PAGE_BYTES).map(|at| (at as u8).wrapping_mul(31)).collect();
        let start = room.as_ptr().align_offset(PAGE_BYTES);
        Aligned { room, start }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + CALL_BYTES_MAX]
    }
}
