//! The keeper in the background.
//!
//! `nearside mount` starts itself again with `--as-keeper`: a fresh process has no threads that a
//! fork would lose. Its stdout is a pipe to the one who waits, over which it says `ready`, or why
//! not; its stderr is the pool's log file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::served::Served;
use crate::{keeper, output, own_file};

/// Said when the mount answers.
const READY: &str = "ready";
/// The log's name in the pool's directory.
pub const LOG_NAME: &str = "nearside.log";
/// Bytes of a log from which on a start begins a new one, and what the one before is called then.
const LOG_BYTES_MAX: u64 = 1 << 20;
const OLD_LOG_NAME: &str = "nearside.log.1";

/// Starts a keeper and waits until its mount answers.
pub fn start(args: &Served) -> Result<()> {
    let log = args.pool.join(LOG_NAME);
    if own_file::slices_open_to_others(&args.pool) > 0 {
        let pool = args.pool.display();
        output::complain(&format!(
            "{pool}: other users can read its slices, and so every file in them, whatever its \
             mode; chmod 700 {pool}"
        ));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("nearside").args(keeper::arguments(args)).arg("--as-keeper");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_target(&log));
    // A background process holds no directory of its caller's.
    command.current_dir("/");
    let child = command.spawn().map_err(error::io(Path::new("/proc/self/exe")))?;
    wait_ready(child, &log)
}

fn log_target(log: &Path) -> Stdio {
    // a server that ends at this moment may add its last words to the one before
    if std::fs::symlink_metadata(log).is_ok_and(|it| it.is_file() && it.len() > LOG_BYTES_MAX)
        && let Err(error) = std::fs::rename(log, log.with_file_name(OLD_LOG_NAME))
    {
        output::complain(&format!("{}: {error}; the log goes on", log.display()));
    }
    match own_file::open(log, OpenOptions::new().create(true).append(true)) {
        Ok(file) => file.into(),
        Err(error) => {
            output::complain(&format!("{}: {error}; going without a log", log.display()));
            Stdio::null()
        }
    }
}

fn wait_ready(mut child: Child, log: &Path) -> Result<()> {
    // Recovery reads the log; a pool that was closed opens at once.
    let bar = Bar::new("opening the pool");
    let mut said = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut said).map_err(|error| Error::Server(error.to_string()))?;
    }
    drop(bar);
    match said.trim() {
        READY => Ok(()),
        "" => {
            let status = child.wait().map_or_else(|error| error.to_string(), |it| it.to_string());
            let log = log.display();
            Err(Error::Server(format!(
                "the server ended before it was ready ({status}); see {log}"
            )))
        }
        reason => Err(Error::Server(reason.to_owned())),
    }
}

/// Is the keeper in the background: keeps until the end, reporting the start on stdout.
pub fn keep(args: &Served) -> Result<()> {
    close_inherited();
    // Started through /proc/self/exe, it would be called "exe" in ps and in messages.
    if let Err(errno) = nix::sys::prctl::set_name(c"nearside-keeper") {
        output::complain(&format!("prctl: {errno}"));
    }
    // A session of its own: the terminal and its signals stay behind.
    if let Err(errno) = nix::unistd::setsid() {
        output::complain(&format!("setsid: {errno}"));
    }
    let mut reported = false;
    let outcome = keeper::run(args, || {
        reported = true;
        report(READY)
    });
    match &outcome {
        Err(error) if !reported => report(&error.to_string())?,
        _ => {}
    }
    outcome
}

/// Lets go of what the starter had open besides the three: nobody asked for it to be kept, and
/// whoever waits for the end of a pipe would wait for the end of the mount. This process has opened
/// nothing yet.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
    for number in all {
        // that of the list itself is closed by now
        let _ = nix::unistd::close(number);
    }
}

/// Says `text` to the one who waits, and lets go of the pipe.
fn report(text: &str) -> Result<()> {
    let mut pipe = std::io::stdout();
    // Nobody waits any more? Then the mount is there all the same.
    let _ = writeln!(pipe, "{text}").and_then(|()| pipe.flush());
    let path = Path::new("/dev/null");
    let null = File::create(path).map_err(error::io(path))?;
    nix::unistd::dup2_stdout(&null).map_err(|errno| error::io(path)(errno.into()))
}
