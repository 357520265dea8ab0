//! What the server says of its pool.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearside::FileSystem;
use nearside::files::Ino;

use super::{Ask, Progress, Say, line};
use crate::facts::Facts;
use crate::sample::Sample;
use crate::scrub::{self, Scrubbed};
use crate::tier::{Evicted, Flushed};
use crate::trace::{Recorded, RecordedFile, Recording};
use crate::verdict::Verdict;

/// How often a check says how far it is.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);
/// Checks at once: one is made, the others wait for their turn.
const CHECKS_MAX: usize = 16;
/// Longest time that a check waits for who asked to take its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// What questions are about.
#[derive(Clone, Debug)]
pub struct Subject {
    fs: Arc<FileSystem>,
    pool: PathBuf,
    dir: PathBuf,
    began: Instant,
    checks: Arc<Turns>,
    scrubs: Arc<Turns>,
    tiers: Arc<Turns>,
}

/// The checks, the scrubs, or what the tier is to do: what was asked for and has no answer yet. One
/// at a time: what a check looks at is not used again before its end.
#[derive(Debug, Default)]
struct Turns {
    count: AtomicUsize,
    is_one_made: Mutex<bool>,
    /// One has ended.
    ended: Condvar,
}

/// The turn of a check.
struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for a turn, as long as `goes_on`, which is asked again and again.
    fn turn(&self, goes_on: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut is_made = self.lock();
        while *is_made {
            drop(is_made);
            if !goes_on() {
                return None;
            }
            is_made = self.lock();
            if *is_made {
                let waited = self.ended.wait_timeout(is_made, PROGRESS_PAUSE);
                is_made = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        *is_made = true;
        Some(Turn(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_one_made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.ended.notify_one();
    }
}

impl Subject {
    /// The pool in `pool`, which is mounted on `dir`.
    pub fn new(fs: Arc<FileSystem>, pool: PathBuf, dir: PathBuf) -> Subject {
        let (checks, scrubs, tiers) = (Arc::default(), Arc::default(), Arc::default());
        Subject { fs, pool, dir, began: Instant::now(), checks, scrubs, tiers }
    }

    /// The line that answers a short question.
    pub(super) fn answer(&self, ask: &Ask) -> Vec<u8> {
        match ask {
            Ask::Facts => {
                let open_seconds = self.began.elapsed().as_secs_f64();
                line(Say::Done(Facts { open_seconds, ..Facts::of(&self.fs) }))
            }
            Ask::Stats => line(Say::Done(self.sample())),
            Ask::Created { inode } => {
                let attr = self.fs.getattr(Ino(*inode));
                line(Say::Done(attr.ok().map(|attr| attr.created.0)))
            }
            Ask::TraceBegin => line(Say::Done(Recording::begin(&self.fs))),
            Ask::Trace { recording } => {
                line(Say::Done(self.fs.trace(*recording).map(Recorded::of)))
            }
            Ask::TracedFiles { inodes } => {
                let lies = |inode: &u64| self.fs.traced_file(Ino(*inode)).map(RecordedFile::of);
                line(Say::Done(inodes.iter().map(lies).collect::<Vec<_>>()))
            }
            Ask::TraceEnd { recording } => {
                line(Say::Done(self.fs.end_trace(*recording).map(Recorded::of)))
            }
            Ask::Check | Ask::Scrub { .. } | Ask::TierFlush | Ask::TierEvict => {
                line(Say::<()>::Failed("a check answers by itself".to_owned()))
            }
        }
    }

    /// What the server has done and holds.
    pub(super) fn sample(&self) -> Sample {
        Sample::new(&self.fs.stats(), &self.pool, &self.dir, self.began.elapsed())
    }

    /// Verifies all that is stored, in a thread of its own, and answers to `asking`. Waits for a
    /// check that is under way: what was made after that began is to be looked at, too.
    pub fn check(&self, asking: UnixStream) {
        in_turn(&self.checks, "check", asking, {
            let fs = self.fs.clone();
            move |each| Ok(fs.check(each)?.map(Verdict::from))
        });
    }

    /// The same for a scrub.
    pub fn scrub(&self, asking: UnixStream, bytes_per_s: u64) {
        in_turn(&self.scrubs, "scrub", asking, {
            let fs = self.fs.clone();
            move |each| Ok(fs.scrub(scrub::rate(bytes_per_s), each)?.map(Scrubbed::from))
        });
    }

    /// The same: writes back to the capacity tier.
    pub fn flush(&self, asking: UnixStream) {
        let fs = self.fs.clone();
        in_turn(&self.tiers, "write-back", asking, move |each| Flushed::of(&fs, each));
    }

    /// The same: lets go of what is cached of it.
    pub fn evict(&self, asking: UnixStream) {
        let fs = self.fs.clone();
        in_turn(&self.tiers, "eviction", asking, move |_| Ok(Some(Evicted::of(&fs))));
    }
}

/// Is told how far the work is, and says whether it is to go on.
type Each<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Does long work in a thread of its own when its turn comes, and answers to `asking` what came of
/// it: nothing if nobody waits any more.
fn in_turn<T: serde::Serialize>(
    turns: &Arc<Turns>,
    name: &'static str,
    asking: UnixStream,
    work: impl FnOnce(Each<'_>) -> Result<Option<T>, nearside::files::Error> + Send + 'static,
) {
    if turns.count.fetch_add(1, Ordering::AcqRel) >= CHECKS_MAX {
        turns.count.fetch_sub(1, Ordering::AcqRel);
        let why = format!("{CHECKS_MAX} {name}s are under way; wait for them");
        // Who asked may have gone already.
        let _ = say(&asking, Say::<()>::Failed(why));
        return;
    }
    let own = turns.clone();
    let work = move || {
        let waits = || say(&asking, Say::<()>::Progress(Progress { done: 0, of: 0 })).is_ok();
        if let Some(_turn) = own.turn(waits) {
            answer_with(&asking, name, work);
        }
        own.count.fetch_sub(1, Ordering::AcqRel);
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::error!("cannot start a {name}: {error}");
        turns.count.fetch_sub(1, Ordering::AcqRel);
    }
}

fn answer_with<T: serde::Serialize>(
    asking: &UnixStream,
    name: &str,
    work: impl FnOnce(Each<'_>) -> Result<Option<T>, nearside::files::Error>,
) {
    let mut said = Instant::now();
    let mut each = |done, of| {
        if said.elapsed() < PROGRESS_PAUSE {
            return true;
        }
        said = Instant::now();
        // Nobody there any more: nobody wants to know.
        say(asking, Say::<()>::Progress(Progress { done, of })).is_ok()
    };
    let told = match work(&mut each) {
        Ok(Some(report)) => say(asking, Say::Done(report)),
        Ok(None) => Ok(()),
        Err(error) => say(asking, Say::<()>::Failed(error.to_string())),
    };
    if let Err(error) = told {
        tracing::info!(%error, "nobody waited for the {name}'s answer");
    }
}

fn say<T: serde::Serialize>(mut asking: &UnixStream, say: Say<T>) -> std::io::Result<()> {
    asking.set_nonblocking(false)?;
    asking.set_write_timeout(Some(ANSWER_PATIENCE))?;
    asking.write_all(&line(say))
}
