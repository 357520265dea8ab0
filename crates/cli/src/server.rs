//! The server: holds a pool open and its mount alive, until it is unmounted or told to end.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nearside::{OpenOptions, Pool};
use nearside_fuse::{Mount, MountOptions, Unmounter};
use tracing_subscriber::EnvFilter;

use crate::args::MountArgs;
use crate::control;
use crate::error::{self, Error, Result};
use crate::output;
use crate::place;
use crate::server_lock::ServerLock;
use crate::signals::Signals;

/// Time that programs have to close their files once a signal asked the server to end.
const GRACE: Duration = Duration::from_secs(5);
/// Time that the kernel has to take back its requests once the connection is cut.
const CUT_GRACE: Duration = Duration::from_secs(1);
/// Where more or less is asked of the log, as in `NEARSIDE_LOG=debug`.
const LOG_VARIABLE: &str = "NEARSIDE_LOG";

/// What is logged otherwise. `fuser` calls it an error when an unmount overtakes the reply to a
/// close, which nobody waits for.
const LOG_DEFAULT: &str = "info,fuser::reply=off";

/// What is mounted where; both paths are canonical.
#[derive(Debug)]
pub struct Place {
    /// The pool.
    pub pool: PathBuf,
    /// The mount point.
    pub dir: PathBuf,
}

enum Event {
    Ended(nearside_fuse::Result<()>),
    Signal(&'static str),
}

/// Serves until the end; calls `ready` when the mount answers.
pub fn run(place: &Place, args: &MountArgs, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    let signals = Signals::block().map_err(|error| Error::Server(error.to_string()))?;
    start_log();
    let options = OpenOptions { read_only: args.read_only, memory_bytes: args.memory };
    let started = Instant::now();
    let pool = Pool::open_with(&place.pool, &options).map_err(error::pool(&place.pool))?;
    let info = pool.info();
    for note in &info.notes {
        tracing::warn!("{note}");
    }
    tracing::info!(
        pool = %place.pool.display(), uuid = info.uuid, domain = info.domain,
        generation = info.generation, open_ms = started.elapsed().as_millis() as u64, "pool open"
    );
    let lock = take_lock(place, args)?;
    let answers = Answers { place, metrics: args.metrics, may_listen: lock.is_some() };
    let served = answers.start(&pool).and_then(|_answering| {
        // Before the mount: a port that is taken leaves none behind.
        serve(&pool, place, args, signals, ready)
    });
    let outcome = served.and(pool.close().map_err(error::pool(&place.pool)));
    match &outcome {
        Ok(()) => tracing::info!("pool closed"),
        Err(error) => tracing::error!("{error}"),
    }
    if let Some(lock) = lock {
        lock.finish(&outcome);
    }
    outcome
}

/// Who answers questions about the pool while it is mounted.
struct Answers<'a> {
    place: &'a Place,
    metrics: Option<SocketAddr>,
    /// Nobody else can be the pool's server.
    may_listen: bool,
}

impl Answers<'_> {
    fn start(&self, pool: &Pool) -> Result<control::Server> {
        let Place { pool: path, dir } = self.place;
        let subject = control::Subject::new(pool.fs().clone(), path.clone(), dir.clone());
        control::Server::start(path, subject, self.metrics, self.may_listen).map_err(|error| {
            let asked = self.metrics.map_or_else(String::new, |it| format!(" (--metrics {it})"));
            Error::Server(format!("cannot answer questions about the pool{asked}: {error}"))
        })
    }
}

/// Takes the lock; a pool on read-only media goes without.
fn take_lock(place: &Place, args: &MountArgs) -> Result<Option<ServerLock>> {
    match ServerLock::take(&place.pool) {
        Ok(lock) => Ok(Some(lock)),
        Err(Error::Io { path, source }) if args.read_only => {
            tracing::warn!("{}: {source}; nearside umount will not wait", path.display());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn serve(
    pool: &Pool,
    place: &Place,
    args: &MountArgs,
    signals: Signals,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let options = MountOptions {
        read_only: args.read_only,
        threads: args.threads.map(usize::from),
        sole_door: true,
        source: place::source(&place.pool),
        ..MountOptions::default()
    };
    let mount = nearside_fuse::mount(pool.fs().clone(), &place.dir, &options)?;
    tracing::info!(dir = %place.dir.display(), "mounted");
    let (events, inbox) = channel();
    let unmounter = mount.unmounter();
    let failed = |error: std::io::Error| Error::Server(format!("cannot start a thread: {error}"));
    let for_signals = events.clone();
    signals
        .forward(move |signal| {
            // The receiver is gone only when the server is.
            let _ = for_signals.send(Event::Signal(signal.as_str()));
        })
        .map_err(failed)?;
    watch(mount, events).map_err(failed)?;
    ready()?;
    until_end(&inbox, &unmounter)
}

/// Waits for the mount's end in a thread of its own.
fn watch(mount: Mount, events: Sender<Event>) -> std::io::Result<()> {
    let wait = move || {
        let _ = events.send(Event::Ended(mount.wait()));
    };
    std::thread::Builder::new().name("mount".to_owned()).spawn(wait).map(drop)
}

/// Waits for the end: an unmount by anybody, or a signal and what follows from it.
fn until_end(inbox: &Receiver<Event>, unmounter: &Unmounter) -> Result<()> {
    let mut deadline: Option<Instant> = None;
    let mut cut = false;
    loop {
        let event = match deadline {
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Ended(outcome)) => return Ok(outcome?),
            Ok(Event::Signal(name)) => {
                tracing::info!("{name}: unmounting");
                // A second signal means: now.
                let grace = if deadline.is_some() { Duration::ZERO } else { end(unmounter) };
                deadline = Some(Instant::now() + grace);
            }
            Err(RecvTimeoutError::Timeout) if !cut => {
                tracing::warn!("files are still open; cutting the connection");
                if let Err(error) = unmounter.abort() {
                    tracing::info!(%error, "cannot cut it; the end of the process does");
                    return Ok(());
                }
                cut = true;
                deadline = Some(Instant::now() + CUT_GRACE);
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Unmounts, or hides the mount while its files are open; returns the time to wait for the end.
fn end(unmounter: &Unmounter) -> Duration {
    match unmounter.unmount() {
        Ok(()) => {}
        Err(error) => {
            tracing::warn!("{error}; waiting {} s", GRACE.as_secs());
            if let Err(error) = unmounter.detach() {
                tracing::warn!("{error}");
            }
        }
    }
    GRACE
}

/// Logs to stderr, which the background server has pointed at the pool's log file.
fn start_log() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    // Fails only when a log has been started already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && output::may_colour())
        // Else a log that cannot be written (a full disk) is told to stderr, which is that very
        // log, and the thread panics.
        .log_internal_errors(false)
        .try_init();
}
