//! Runs cases in worker processes for a time, and watches them: a worker that ends, or that is
//! silent for [`CASE_TIME_MAX`], has met a bug, and a new one goes on behind that case.

use crate::exercise::Stage;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A case that takes longer hangs: it takes some 20 ms, on a busy machine a second.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(180);
/// With more failures than that, a further one teaches nothing.
const FAILURES_MAX: usize = 50;

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that has the worker's verb.
    pub program: PathBuf,
    /// Number of the first case.
    pub seed: u64,
    /// For how long.
    pub time: Duration,
    /// A case that takes longer hangs.
    pub case_time: Duration,
    /// How many processes at a time.
    pub workers: u64,
}

impl Settings {
    /// By `NEARSIDE_FUZZ_SEED` and `NEARSIDE_FUZZ_SECONDS`, or these.
    pub fn from_environment(program: &str, seed: u64, seconds: u64) -> Result<Settings, String> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        Ok(Settings {
            program: program.into(),
            seed: setting("NEARSIDE_FUZZ_SEED", seed)?,
            time: Duration::from_secs(setting("NEARSIDE_FUZZ_SECONDS", seconds)?),
            case_time: CASE_TIME_MAX,
            workers: workers as u64,
        })
    }
}

fn setting(name: &str, or: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text} is no number")),
        Err(_) => Ok(or),
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Cases by how far they came.
    pub stages: BTreeMap<String, u64>,
    /// Case, what was done to which image, and what happened.
    pub failures: Vec<(u64, String)>,
}

impl Report {
    /// Cases that ended, well or not.
    pub fn cases(&self) -> u64 {
        self.stages.values().sum::<u64>() + self.failures.len() as u64
    }

    /// Cases that came to this stage and no further.
    pub fn at(&self, stage: Stage) -> u64 {
        self.stages.get(&format!("{stage:?}")).copied().unwrap_or(0)
    }

    fn add(&mut self, other: Report) {
        for (stage, count) in other.stages {
            *self.stages.entry(stage).or_default() += count;
        }
        self.failures.extend(other.failures);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "cases={} refused_at_open={} at_reading={} at_changing={} noticed_by_check={} \
             whole={} failures={}",
            self.cases(),
            self.at(Stage::Open),
            self.at(Stage::Read),
            self.at(Stage::Change),
            self.at(Stage::Check),
            self.at(Stage::Whole),
            self.failures.len()
        )?;
        for (number, what) in &self.failures {
            writeln!(f, "\ncase {number}: {what}")?;
            writeln!(f, "repeat: cargo run --locked -p nearside-fuzz -- repeat {number}")?;
        }
        Ok(())
    }
}

/// Runs cases until the time is up.
pub fn run(settings: &Settings) -> std::io::Result<Report> {
    let scratch = scratch()?;
    let end = Instant::now() + settings.time;
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..settings.workers)
            .map(|worker| {
                let dir = scratch.path().join(worker.to_string());
                scope.spawn(move || run_worker(settings, worker, &dir, end))
            })
            .collect();
        for run in runs {
            match run.join() {
                Ok(done) => report.add(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(report)
    })
}

/// A directory for images; in memory where the machine has such a place.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

fn run_worker(
    settings: &Settings,
    worker: u64,
    dir: &Path,
    end: Instant,
) -> std::io::Result<Report> {
    let mut report = Report::default();
    let mut next = settings.seed.wrapping_add(worker);
    while Instant::now() < end && report.failures.len() < FAILURES_MAX {
        std::fs::create_dir_all(dir)?;
        let mut child = Command::new(&settings.program)
            .arg("worker")
            .arg(dir)
            .args([next.to_string(), settings.workers.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = lines(&mut child);
        let mut watched = Watched { report: &mut report, next, story: String::new() };
        let failed = watched.follow(&lines, end, settings.case_time);
        next = watched.next;
        let in_a_case = !watched.story.is_empty();
        let _ = child.kill();
        let status = child.wait()?;
        if let Some(what) = failed {
            let what = what.replace("STATUS", &status.to_string());
            report.failures.push((next, what));
            next += settings.workers;
            if !in_a_case {
                // the corpus, or the machine: no case will do better
                break;
            }
        }
    }
    Ok(report)
}

/// What the child says, by line; closed when it ends.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

struct Watched<'r> {
    report: &'r mut Report,
    /// The case that runs.
    next: u64,
    story: String,
}

impl Watched<'_> {
    /// Follows one child until the time is up, or to a failure, which it describes.
    fn follow(
        &mut self,
        lines: &Receiver<String>,
        end: Instant,
        case_time: Duration,
    ) -> Option<String> {
        let mut since = Instant::now();
        loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    since = Instant::now();
                    if let Some(message) = self.line(&line) {
                        return Some(format!("{}: {message}", self.story));
                    }
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() > case_time => {
                    return Some(format!("{}: no end after {case_time:?}", self.story));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(format!("{}: the process died, STATUS", self.story));
                }
            }
            // a case that runs when the time is up is waited for
            if Instant::now() > end && self.story.is_empty() {
                return None;
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<String> {
        let mut words = line.splitn(3, ' ');
        let verb = words.next().unwrap_or_default();
        let number = words.next().and_then(|word| word.parse().ok());
        let rest = words.next().unwrap_or_default();
        self.next = number.unwrap_or(self.next);
        match verb {
            "begin" => rest.clone_into(&mut self.story),
            "end" => {
                *self.report.stages.entry(rest.to_owned()).or_default() += 1;
                self.story.clear();
            }
            _ => return Some(line.to_owned()),
        }
        None
    }
}
