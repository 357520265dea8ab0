//! The exploration of one recording: all its crash points, and the images of each.

use crate::arena::Arena;
use crate::inside::{Inside, Within, Wrong};
use crate::memo::Memo;
use crate::model::{Changed, InFlight, LINE, LineId, Model};
use crate::mutant::Mutant;
use crate::points::{Under, points, recovery_points};
use crate::recording::Recording;
use crate::report::{Crash, Report, Violation};
use crate::requests::Asked;
use crate::rng::Rng;
use crate::select::{Budget, Choice, all, count, random, telling};
use crate::snapshot::Snapshot;
use crate::verify::{Depth, verify, verify_again};
use crate::world::clock;
use pmem::Domain;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

/// What to explore, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Images of each crash point.
    pub budget: Budget,
    /// Images of each crash point inside recovery.
    pub inner: Budget,
    /// One of so many images that are opened is crashed again inside its recovery; 0: none.
    pub inner_every: usize,
    /// What one of so many images' recovery leaves is recovered again; 0: none.
    pub again_every: usize,
    /// One of so many images is used and emptied; 0: none.
    pub use_every: usize,
    /// One of so many crash points, by chance, is looked at.
    pub point_every: usize,
    /// Violations after which the rest is left.
    pub violations: usize,
    /// A fault of the engine.
    pub mutant: Option<Mutant>,
    /// Seed of the random choices.
    pub seed: u64,
    /// When to stop, finished or not.
    pub deadline: Option<Instant>,
}

impl Settings {
    /// For tests.
    pub fn quick(seed: u64) -> Settings {
        Settings {
            budget: Budget::SMALL,
            inner: Budget { exhaustive: 3, samples: 3 },
            inner_every: 40,
            again_every: 10,
            use_every: 6,
            point_every: 1,
            violations: 3,
            mutant: None,
            seed,
            deadline: None,
        }
    }

    /// For long runs: everything of each image, and of one in some a crash at every fence of its
    /// recovery.
    pub fn thorough(seed: u64) -> Settings {
        Settings {
            budget: Budget::LARGE,
            inner: Budget { exhaustive: 81, samples: 24 },
            inner_every: 16,
            again_every: 1,
            use_every: 1,
            ..Settings::quick(seed)
        }
    }

    /// Whether it is time to stop.
    pub fn late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Where a slice says whether it is open: line of block 3 (docs/FORMAT.md).
pub const STATE_LINE: u64 = 3 * 4096 / LINE as u64;

struct Explorer<'r> {
    recording: &'r Recording,
    settings: &'r Settings,
    rng: Rng,
    seen: HashSet<(u64, Under)>,
    memo: Memo,
    inside: Inside,
    report: Report,
}

/// Explores one recording.
pub fn explore(recording: &Recording, settings: &Settings) -> Report {
    with_fault(recording, settings, |recording| explored(recording, settings).report)
}

/// Calls `act` with the recording as the engine would have made it with the fault.
fn with_fault<T>(
    recording: &Recording,
    settings: &Settings,
    act: impl FnOnce(&Recording) -> T,
) -> T {
    let Some(mutant) = settings.mutant else { return act(recording) };
    let mut recording = recording.clone();
    mutant.apply(&mut recording.events);
    pmem::recorder::set_blind(mutant.blind());
    let result = act(&recording);
    pmem::recorder::set_blind(None);
    result
}

/// Explores one recording, and gives the faults that it, its recovery and its check could have, and
/// whether anything would be different with them: a checksum that fits need not be looked at.
pub fn sites(recording: &Recording, settings: &Settings) -> (Report, BTreeMap<Mutant, bool>) {
    let _ = pmem::recorder::take_compared();
    let explorer = explored(recording, settings);
    let of_events = Mutant::of_events(&recording.events)
        .into_iter()
        .chain(explorer.inside.mutants().iter().copied());
    let mut mutants: BTreeMap<Mutant, bool> = of_events.map(|mutant| (mutant, true)).collect();
    let compared = pmem::recorder::take_compared().into_iter();
    mutants.extend(compared.map(|(site, misfits)| (Mutant::Checksum(site), misfits)));
    (explorer.report, mutants)
}

fn explored<'r>(recording: &'r Recording, settings: &'r Settings) -> Explorer<'r> {
    clock(0);
    let mut explorer = Explorer {
        recording,
        settings,
        rng: Rng::new(settings.seed),
        seen: HashSet::new(),
        memo: Memo::default(),
        inside: Inside::default(),
        report: Report { workloads: 1, ..Report::default() },
    };
    let done = points(recording, &mut |model, point, under| {
        explorer.point(model, point, under);
        !explorer.enough()
    });
    if let Err(what) = done {
        explorer.report.add(Report::broken(&recording.name, what));
    }
    explorer
}

/// Repeats exactly one crash, of an engine with the fault that `settings` name.
pub fn repeat(
    recording: &Recording,
    settings: &Settings,
    crash: &Crash,
    inner: Option<&Crash>,
) -> Report {
    let mut report = Report { workloads: 1, points: 1, states: 1, ..Report::default() };
    let done = with_fault(recording, settings, |recording| {
        points(recording, &mut |model, point, under| {
            if point == crash.point {
                let found = again(recording, settings, (model, under), crash, inner);
                let told = |(units, what): (Vec<InFlight>, String)| {
                    violation(recording, crash, inner, &units, what)
                };
                report.violations.extend(found.err().map(told));
            }
            point != crash.point
        })
    });
    if let Err(what) = done {
        report.add(Report::broken(&recording.name, what));
    }
    report
}

fn again(
    recording: &Recording,
    settings: &Settings,
    (model, under): (&Model, Under),
    crash: &Crash,
    inner: Option<&Crash>,
) -> Result<(), (Vec<InFlight>, String)> {
    let (legal, asked) = (under.legal(recording), Asked::at(recording, under));
    let inside = inner.is_some();
    let depth = Depth { again: !inside, used: !inside, inside };
    let verify = |arena: &Arena| verify(arena, &legal, &asked, recording.blocks_free, depth);
    let changed = model.changed(&crash.kept);
    let recovered = model.with(&changed, verify).map_err(|what| (model.in_flight(), what))?;
    let (Some(inner), mut recovered) = (inner, recovered) else { return Ok(()) };
    if let Some(mutant) = settings.mutant {
        mutant.apply(&mut recovered.events);
    }
    let within = Model::new(recording.domain, model.images_with(&changed));
    let mut within = within.map_err(|what| (Vec::new(), what))?.with_files(recording.files);
    let mut result = Ok(());
    recovery_points(&mut within, &recovered.events, &mut |model, point| {
        if point == inner.point {
            let verify = |arena: &Arena| verify_again(arena, &recovered, &asked);
            let done = model.with(&model.changed(&inner.kept), verify);
            result = done.map_err(|what| (model.in_flight(), what));
        }
        point < inner.point
    });
    result
}

fn violation(
    recording: &Recording,
    crash: &Crash,
    inner: Option<&Crash>,
    units: &[InFlight],
    what: String,
) -> Violation {
    let before = &recording.events[..=crash.point];
    let call = before.iter().rev().map(|event| event.call).find(|call| !call.is_empty());
    Violation {
        workload: recording.name.clone(),
        crash: crash.clone(),
        inner: inner.cloned(),
        call: call.unwrap_or(""),
        units: units.to_vec(),
        what,
    }
}

/// What an image is verified against.
struct Promise<'p> {
    under: Under,
    legal: Vec<&'p Snapshot>,
    asked: Asked,
}

/// Which images of which crash.
#[derive(Clone, Copy)]
struct Place<'p> {
    model: &'p Model,
    units: &'p [InFlight],
    point: usize,
}

impl Explorer<'_> {
    /// Whether to stop.
    fn enough(&self) -> bool {
        self.report.violations.len() >= self.settings.violations || self.settings.late()
    }

    fn point(&mut self, model: &Model, point: usize, under: Under) {
        if self.rng.below(self.settings.point_every.max(1)) != 0 {
            return;
        }
        self.report.points += 1;
        let uncertain = model.uncertain();
        let says_state = |(slice, line): &&LineId| {
            *line == STATE_LINE && (*slice as usize) < model.arena().slices()
        };
        let unsaid = uncertain.iter().find(says_state);
        if let (Some((slice, _)), true) = (unsaid, under.done > 0) {
            let what =
                format!("a call has returned, and that slice {slice} is open is not durable");
            let crash = Crash { point, kept: Choice::new() };
            self.report.violations.push(violation(self.recording, &crash, None, &[], what));
            return;
        }
        self.memo.clear();
        self.inside.forget();
        let units = model.in_flight();
        let (legal, asked) = (under.legal(self.recording), Asked::at(self.recording, under));
        let (place, promise) =
            (Place { model, units: &units, point }, Promise { under, legal, asked });
        let budget = self.settings.budget;
        if count(&units) <= budget.exhaustive {
            let done = all(&units).all(|kept| self.image(place, &promise, &uncertain, kept));
            self.report.whole_points += u64::from(done);
            return;
        }
        let told = telling(&units, budget.samples / 2, &mut self.rng);
        let rest = budget.samples - told.len();
        if !told.into_iter().all(|kept| self.image(place, &promise, &uncertain, kept)) {
            return;
        }
        let read = self.memo.lines();
        let pages = self.recording.domain == Domain::Sync;
        for _ in 0..rest {
            let kept = random(&units, &read, pages, &mut self.rng);
            if !self.image(place, &promise, &uncertain, kept) {
                return;
            }
        }
    }

    /// Looks at one image; whether to go on.
    fn image(
        &mut self,
        place: Place<'_>,
        promise: &Promise<'_>,
        uncertain: &BTreeSet<LineId>,
        kept: Choice,
    ) -> bool {
        let model = place.model;
        let changed = model.changed(&kept);
        if !self.seen.insert((model.hash(&changed), promise.under)) {
            return !self.enough();
        }
        self.report.states += 1;
        let content = |line| model.content(&changed, line);
        if self.memo.find(&content).is_some() {
            return true;
        }
        model.arena().watch(uncertain);
        match self.look(model, &changed, promise) {
            Ok(inside) => {
                let mut read = model.arena().take_read();
                read.extend(inside.into_iter().filter(|line| uncertain.contains(line)));
                self.memo.add(&content, read);
            }
            Err(wrong) => {
                let crash = Crash { point: place.point, kept };
                let Wrong { inner, units, what } = wrong;
                let units = if inner.is_some() { &units } else { place.units };
                let found = violation(self.recording, &crash, inner.as_ref(), units, what);
                self.report.violations.push(found);
            }
        }
        !self.enough()
    }

    /// Opens an image; gives the lines that were read after crashes inside its recovery.
    fn look(
        &mut self,
        model: &Model,
        changed: &[Changed],
        promise: &Promise<'_>,
    ) -> Result<BTreeSet<LineId>, Wrong> {
        self.report.opened += 1;
        let turn = |every: usize| every != 0 && self.report.opened.is_multiple_of(every as u64);
        let (again, used) = (turn(self.settings.again_every), turn(self.settings.use_every));
        let inside = turn(self.settings.inner_every);
        self.report.used += u64::from(used);
        let depth = Depth { again, used, inside };
        let Promise { legal, asked, .. } = promise;
        let verify = |arena: &Arena| verify(arena, legal, asked, self.recording.blocks_free, depth);
        let mut recovered = model.with(changed, verify).map_err(Wrong::at_once)?;
        if !inside {
            return Ok(BTreeSet::new());
        }
        if let Some(mutant) = self.settings.mutant {
            mutant.apply(&mut recovered.events);
        }
        let images = (model, changed);
        let (budget, rng) = (self.settings.inner, &mut self.rng);
        let mut within = Within { budget, rng, report: &mut self.report };
        self.inside.explore(images, recovered, asked, &mut within)
    }
}
