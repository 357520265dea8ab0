//! Mounts of a measurement, and the program that reads and writes through them.
//!
//! A measurement with mounts runs in a mount namespace of its own. It ends with the measurement's
//! processes, however they end, and the mounts with it.
//!
//! The caller is a process of its own, as every program before a mount is. A server that called
//! itself could not be killed: its dying threads would wait for answers that nobody gives any
//! more, and keep open the device whose closing would end their wait.

use crate::clock::thread_ns;
use crate::dice::Dice;
use crate::error::{Error, Result, io};
use nearside_fuse::{Mount, MountOptions};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Bytes of one call, and of the request that the kernel makes of it.
pub const CALL_BYTES: usize = 1 << 20;
/// What direct I/O wants a buffer to be aligned to, so that it is 256 pages and not 257.
const PAGE_BYTES: usize = 4096;
/// Names the file to a process that is started as a caller.
const CALLER: &str = "NEARSIDE_BENCH_CALLER";

/// Why nothing can be mounted here; `None` if it can.
pub fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a mount in a namespace of its own takes root");
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("/dev/fuse cannot be opened")
}

/// Runs `measure` in a thread whose mounts nobody else sees.
pub fn apart<T: Send>(measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let root = Path::new("/");
            let failed = |errno: nix::Error| io(root)(errno.into());
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, root, None::<&str>, private, None::<&str>)
                .map_err(failed)?;
            measure()
        });
        thread.join().map_err(|_| Error::Panicked)?
    })
}

/// How both sides are mounted: as `nearside mount` does.
pub fn options() -> MountOptions {
    MountOptions { sole_door: true, ..MountOptions::default() }
}

/// What a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Reads.
    Read,
    /// Overwrites.
    Write,
}

/// What its calls took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Time, ns.
    pub wall_ns: u64,
    /// Its CPU time, ns.
    pub cpu_ns: u64,
}

/// A file in a mount, and the process that has it open.
pub struct Door {
    // before the mount: its file keeps it in use
    caller: Caller,
    mount: Mount,
}

impl Door {
    /// Starts a caller of the file `name` in `mount`.
    pub fn open(mount: Mount, name: &str) -> Result<Door> {
        Ok(Door { caller: Caller::start(mount.dir().join(name))?, mount })
    }

    /// Has the caller make `count` calls at places below `units` calls.
    pub fn call(&mut self, calls: Calls, count: u64, units: u64) -> Result<Took> {
        let path = self.caller.path.clone();
        self.caller.ask(calls, count, units).map_err(io(&path))
    }

    /// Ends the caller and takes the mount away; its threads have ended after that.
    pub fn close(self) -> Result<()> {
        drop(self.caller);
        self.mount.unmount()?;
        Ok(self.mount.wait()?)
    }
}

/// The other end of a process that runs [`be_caller_if_asked`].
struct Caller {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    path: PathBuf,
}

impl Caller {
    fn start(path: PathBuf) -> Result<Caller> {
        let program = std::env::current_exe().map_err(io(&path))?;
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).env(CALLER, &path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(io(&program))?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or(std::io::ErrorKind::BrokenPipe.into()).map_err(io(&path))?;
        Ok(Caller { child, orders, answers: BufReader::new(answers), path })
    }

    fn ask(&mut self, calls: Calls, count: u64, units: u64) -> std::io::Result<Took> {
        let ended = || std::io::Error::other("the caller has ended");
        let write = u8::from(calls == Calls::Write);
        writeln!(self.orders.as_mut().ok_or_else(ended)?, "{write} {count} {units}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match numbers(&line)[..] {
            [wall_ns, cpu_ns] => Ok(Took { wall_ns, cpu_ns }),
            _ => Err(ended()),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // it ends at the end of its orders
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// If this process was started as a caller: makes the calls that stdin orders, and ends.
pub fn be_caller_if_asked() {
    let Some(path) = std::env::var_os(CALLER) else { return };
    let done = make_calls(Path::new(&path));
    if let Err(error) = &done {
        eprintln!("{}: {error}", path.display());
    }
    std::process::exit(i32::from(done.is_err()));
}

/// With O_DIRECT: else the page cache would answer reads.
fn make_calls(path: &Path) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let (mut dice, mut buffer) = (Dice::new(10), Aligned::new());
    for line in std::io::stdin().lines() {
        let [write, count, units] = numbers(&line?)[..] else { break };
        let (start, cpu) = (Instant::now(), thread_ns());
        for number in 0..count {
            let place = dice.below(units) * CALL_BYTES as u64;
            if write == 1 {
                buffer.bytes()[..8].copy_from_slice(&number.to_le_bytes());
                file.write_all_at(buffer.bytes(), place)?;
            } else {
                file.read_exact_at(buffer.bytes(), place)?;
            }
        }
        let wall_ns = start.elapsed().as_nanos();
        let mut answers = std::io::stdout().lock();
        writeln!(answers, "{wall_ns} {}", thread_ns() - cpu)?;
        answers.flush()?;
    }
    Ok(())
}

/// A buffer of one call, at the start of a page.
struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new() -> Aligned {
        let room: Vec<u8> =
            (0..CALL_BYTES + PAGE_BYTES).map(|at| (at as u8).wrapping_mul(31)).collect();
        let start = room.as_ptr().align_offset(PAGE_BYTES);
        Aligned { room, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + CALL_BYTES]
    }
}
