//! Many histories, and what became of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::checker::{Verdicts, check};
use crate::plan::{HostKind, Kind, Mutant};
use crate::rng::Rng;
use crate::{Result, said};

/// Histories that share a pool.
const BATCH: u32 = 24;
/// Histories in which a mutant must be noticed, at most.
const MUTANT_HISTORIES: u32 = 48;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Gives all histories.
    pub seed: u64,
    /// The first one.
    pub from: u32,
    /// How long new ones are begun.
    pub time: Duration,
    /// Calls of a history.
    pub calls: u32,
    /// One kind only.
    pub kind: Option<Kind>,
    /// One host only.
    pub host: Option<HostKind>,
    /// The checker's program.
    pub checker: PathBuf,
    /// The command `nearside`.
    pub nearside: PathBuf,
    /// Whether this machine lets us mount.
    pub mounts: bool,
    /// Where histories are kept that are not explained.
    pub keep: PathBuf,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of the checker.
    pub verdicts: Verdicts,
    /// Kills and stops.
    pub events: BTreeMap<&'static str, u64>,
    /// The history to go on with.
    pub next: u32,
}

impl Settings {
    fn kind(&self, number: u32) -> Kind {
        let mut rng = Rng::new(&[self.seed, number.into(), 1]);
        self.kind.unwrap_or(match rng.below(20) {
            0..=8 => Kind::Data,
            9..=13 => Kind::Transactions,
            14..=16 => Kind::Links,
            _ => Kind::Renames,
        })
    }

    fn host(&self, batch: u32) -> HostKind {
        let kinds = [HostKind::Owner, HostKind::Serve];
        self.host.unwrap_or(kinds[(batch % 2) as usize])
    }
}

/// Makes batches until the time is up; `each` is told of the totals.
pub fn run(settings: &Settings, mut each: impl FnMut(&Totals)) -> Result<Totals> {
    std::fs::create_dir_all(&settings.keep).map_err(said("where histories are kept"))?;
    let until = Instant::now() + settings.time;
    let mut totals = Totals { next: settings.from / BATCH * BATCH, ..Totals::default() };
    while Instant::now() < until {
        let first = totals.next;
        let batch = first / BATCH;
        let file = settings.keep.join(format!("{}-{first}.jsonl", settings.seed));
        let host = settings.host(batch);
        let ends_by_kill = batch % 3 != 2;
        let whole = |error| format!("histories {first} and on, {host:?}: {error}");
        let mut made = Batch::begin(settings, host).map_err(whole)?;
        for number in first..first + BATCH {
            let kill = ends_by_kill && number == first + BATCH - 1;
            let told = made.history(number, settings.kind(number), None, kill);
            told.map_err(|error| whole(made.with_log(error)))?;
        }
        for (event, count) in made.end(&file).map_err(whole)? {
            *totals.events.entry(event).or_default() += count;
        }
        let verdicts = check(&settings.checker, &file, Some(&settings.keep))?;
        if verdicts.illegal.is_empty() && verdicts.unknown.is_empty() {
            std::fs::remove_file(&file).map_err(said("histories"))?;
        }
        totals.verdicts.add(verdicts);
        totals.next = first + BATCH;
        each(&totals);
    }
    Ok(totals)
}

/// Whether the checker notices what a caller does wrong: how many histories that took.
pub fn canary(settings: &Settings, (mutant, kind): (Mutant, Kind)) -> Result<Option<u32>> {
    std::fs::create_dir_all(&settings.keep).map_err(said("where histories are kept"))?;
    let file = settings.keep.join("canary.jsonl");
    for number in 0..MUTANT_HISTORIES {
        let mut batch = Batch::begin(settings, HostKind::Owner)?;
        batch.history(number, kind, Some(mutant), false)?;
        batch.end(&file)?;
        let verdicts = check(&settings.checker, &file, None)?;
        std::fs::remove_file(&file).map_err(said("histories"))?;
        if !verdicts.illegal.is_empty() {
            return Ok(Some(number + 1));
        }
    }
    Ok(None)
}
