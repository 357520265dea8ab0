//! What the server says of its pool.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::FileSystem;
use nearside::files::Ino;

use super::{Ask, Progress, Say, line};
use crate::facts::Facts;
use crate::metrics;
use crate::sample::Sample;
use crate::verdict::Verdict;

/// How often a check says how far it is.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);
/// Longest time that a check waits for who asked to take its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// What questions are about.
#[derive(Clone, Debug)]
pub struct Subject {
    fs: Arc<FileSystem>,
    pool: PathBuf,
    dir: PathBuf,
    began: Instant,
    /// A check is under way.
    checking: Arc<AtomicBool>,
}

impl Subject {
    /// The pool in `pool`, which is mounted on `dir`.
    pub fn new(fs: Arc<FileSystem>, pool: PathBuf, dir: PathBuf) -> Subject {
        Subject { fs, pool, dir, began: Instant::now(), checking: Arc::default() }
    }

    /// The line that answers a short question.
    pub(super) fn answer(&self, ask: &Ask) -> Vec<u8> {
        match ask {
            Ask::Facts => line(Say::Done(Facts::of(&self.fs))),
            Ask::Stats => line(Say::Done(self.sample())),
            Ask::Created { inode } => {
                let attr = self.fs.getattr(Ino(*inode));
                line(Say::Done(attr.ok().map(|attr| attr.created.0)))
            }
            Ask::Check => line(Say::<()>::Failed("a check answers by itself".to_owned())),
        }
    }

    /// All numbers, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        metrics::text(&self.sample())
    }

    fn sample(&self) -> Sample {
        Sample::new(&self.fs.stats(), &self.pool, &self.dir, self.began.elapsed())
    }

    /// Verifies all that is stored, in a thread of its own, and answers to `asking`.
    pub fn check(&self, asking: UnixStream) {
        if self.checking.swap(true, Ordering::AcqRel) {
            let failed = Say::<()>::Failed("another check is under way; wait for it".to_owned());
            // Who asked may have gone already.
            let _ = say(&asking, failed);
            return;
        }
        let subject = self.clone();
        let work = move || {
            subject.run_check(&asking);
            subject.checking.store(false, Ordering::Release);
        };
        if let Err(error) = std::thread::Builder::new().name("check".to_owned()).spawn(work) {
            tracing::error!("cannot start a check: {error}");
            self.checking.store(false, Ordering::Release);
        }
    }

    fn run_check(&self, asking: &UnixStream) {
        let mut said = Instant::now();
        let mut each = |done, of| {
            if said.elapsed() < PROGRESS_PAUSE {
                return true;
            }
            said = Instant::now();
            // Nobody there any more: nobody wants to know.
            say(asking, Say::<()>::Progress(Progress { done, of })).is_ok()
        };
        let checked = self.fs.check(&mut each);
        let told = match checked {
            Ok(Some(report)) => say(asking, Say::Done(Verdict::from(report))),
            Ok(None) => Ok(()),
            Err(error) => say(asking, Say::<()>::Failed(error.to_string())),
        };
        if let Err(error) = told {
            tracing::info!(%error, "nobody waited for the check's answer");
        }
    }
}

fn say<T: serde::Serialize>(mut asking: &UnixStream, say: Say<T>) -> std::io::Result<()> {
    asking.set_nonblocking(false)?;
    asking.set_write_timeout(Some(ANSWER_PATIENCE))?;
    asking.write_all(&line(say))
}
