//! Many histories, and what became of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::checker::{Verdicts, check};
use crate::door::DoorKind;
use crate::plan::{HostKind, Kind};
use crate::rng::Rng;
use crate::wrong_caller::Mutant;
use crate::{Result, said};

/// Histories that share a pool.
const BATCH: u32 = 24;
/// Histories in which a mutant must be noticed, at most.
const MUTANT_HISTORIES: u32 = 48;
/// Histories of a mutant that are made before the checker is asked.
const MUTANT_ROUND: u32 = 2;

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
    /// Whether a mount over a network is among the doors.
    pub away: bool,
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
            0..=7 if self.mounts => Kind::Pages,
            0..=9 => Kind::Data,
            10..=13 => Kind::Transactions,
            14..=16 => Kind::Links,
            _ => Kind::Renames,
        })
    }

    fn host(&self, batch: u32) -> HostKind {
        // with a service there are more doors
        let kinds = [HostKind::Owner, HostKind::Serve, HostKind::Serve];
        self.host.unwrap_or(kinds[(batch % 3) as usize])
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
        let ends_by_kill = batch % 4 != 2;
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

/// A caller that does wrong, and the histories after which the checker noticed it, if it did.
pub type Canary = ((Mutant, Kind, DoorKind), Option<u32>);

/// Whether the checker notices what callers do wrong, at the doors that there are here.
pub fn canaries(settings: &Settings) -> Result<Vec<Canary>> {
    std::fs::create_dir_all(&settings.keep).map_err(said("where histories are kept"))?;
    let file = settings.keep.join("canary.jsonl");
    let mut canaries: Vec<Canary> = Vec::new();
    for number in (0..MUTANT_HISTORIES).step_by(MUTANT_ROUND as usize) {
        let mut batch = Batch::begin(settings, HostKind::Owner)?;
        if number == 0 {
            let here = Mutant::ALL.into_iter().filter(|(_, _, door)| batch.has_door(*door));
            canaries.extend(here.map(|it| (it, None)));
        }
        let mut next = 0;
        let mut made = Vec::new();
        for (at, ((mutant, kind, door), noticed)) in canaries.iter().enumerate() {
            for round in 0..if noticed.is_none() { MUTANT_ROUND } else { 0 } {
                batch.history(next, *kind, Some((*mutant, *door)), false)?;
                made.push((at, number + round + 1));
                next += 1;
            }
        }
        batch.end(&file)?;
        let verdicts = check(&settings.checker, &file, None)?;
        std::fs::remove_file(&file).map_err(said("histories"))?;
        for (at, histories) in verdicts.illegal_numbers.iter().filter_map(|it| made.get(*it)) {
            canaries[*at].1.get_or_insert(*histories);
        }
        if canaries.iter().all(|(_, noticed)| noticed.is_some()) {
            break;
        }
    }
    Ok(canaries)
}
