//! The exploration of one recording: all its crash points, and the images of each.

use crate::arena::Arena;
use crate::images::Images;
use crate::model::{InFlight, Model};
use crate::points::{Under, points, recovery_points};
use crate::recording::Recording;
use crate::report::{Crash, Report, Violation};
use crate::requests::Asked;
use crate::rng::Rng;
use crate::select::{Budget, choices};
use crate::snapshot::Snapshot;
use crate::verify::{Depth, Recovered, verify, verify_again};
use std::collections::HashSet;
use std::time::Instant;

/// What to explore, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Images of each crash point.
    pub budget: Budget,
    /// Images of each crash point inside recovery.
    pub inner: Budget,
    /// One of so many images is crashed again inside its recovery; 0: none.
    pub inner_every: usize,
    /// What one of so many images' recovery leaves is recovered again; 0: none.
    pub again_every: usize,
    /// One of so many images is used and emptied; 0: none.
    pub use_every: usize,
    /// One of so many crash points, by chance, is looked at.
    pub point_every: usize,
    /// Seed of the random choices.
    pub seed: u64,
    /// When to stop, finished or not.
    pub deadline: Option<Instant>,
}

impl Settings {
    /// For tests.
    pub fn quick(seed: u64) -> Settings {
        let inner = Budget { exhaustive_lines: 0, subsets: 1, tears: 0, single_lines: 1 };
        let budget = Budget::small();
        let (inner_every, again_every, use_every) = (40, 10, 6);
        Settings {
            budget,
            inner,
            inner_every,
            again_every,
            use_every,
            point_every: 1,
            seed,
            deadline: None,
        }
    }

    /// For long runs.
    pub fn thorough(seed: u64) -> Settings {
        let inner = Budget { exhaustive_lines: 3, subsets: 8, tears: 1, single_lines: 8 };
        let budget = Budget::large();
        let (inner_every, again_every, use_every) = (60, 4, 3);
        Settings {
            budget,
            inner,
            inner_every,
            again_every,
            use_every,
            point_every: 1,
            seed,
            deadline: None,
        }
    }

    fn late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Violations of one workload after which it is left.
const VIOLATIONS_MAX: usize = 3;

struct Explorer<'r> {
    recording: &'r Recording,
    settings: &'r Settings,
    rng: Rng,
    seen: HashSet<(u64, Under)>,
    /// For crashes inside recovery.
    inner: Option<Model>,
    report: Report,
}

/// Explores one recording.
pub fn explore(recording: &Recording, settings: &Settings) -> Report {
    let rng = Rng::new(settings.seed);
    let report = Report { workloads: 1, ..Report::default() };
    let (seen, inner) = (HashSet::new(), None);
    let mut explorer = Explorer { recording, settings, rng, seen, inner, report };
    let done = points(recording, &mut |model, point, under| {
        explorer.point(model, point, under);
        let stop = explorer.report.violations.len() >= VIOLATIONS_MAX || settings.late();
        !stop
    });
    if let Err(what) = done {
        explorer.report.add(Report::broken(&recording.name, what));
    }
    explorer.report
}

/// Repeats exactly one crash.
pub fn repeat(recording: &Recording, crash: &Crash, inner: Option<&Crash>) -> Report {
    let mut report = Report { workloads: 1, points: 1, states: 1, ..Report::default() };
    let done = points(recording, &mut |model, point, under| {
        if point != crash.point {
            return true;
        }
        let legal = under.legal(recording);
        let asked = Asked::at(recording, under);
        let inside = inner.is_some();
        let depth = Depth { again: !inside, used: !inside, inside };
        let verify = |arena: &Arena| verify(arena, &legal, &asked, recording.blocks_free, depth);
        let result = model.with(&crash.kept, verify).and_then(|recovered| {
            let Some(inner) = inner else { return Ok(()) };
            let mut result = Ok(());
            let mut within = Model::new(model.images_with(&crash.kept))?;
            recovery_points(&mut within, &recovered.events, &mut |model, point| {
                if point == inner.point {
                    let verify = |arena: &Arena| verify_again(arena, &recovered, &asked);
                    result = model.with(&inner.kept, verify);
                }
                point < inner.point
            });
            result
        });
        if let Err(what) = result {
            let lines = model.in_flight();
            let found = violation(recording, crash, inner, &lines, what);
            report.violations.push(found);
        }
        false
    });
    if let Err(what) = done {
        report.add(Report::broken(&recording.name, what));
    }
    report
}

fn violation(
    recording: &Recording,
    crash: &Crash,
    inner: Option<&Crash>,
    lines: &[InFlight],
    what: String,
) -> Violation {
    let before = &recording.events[..=crash.point];
    let call = before.iter().rev().map(|event| event.call).find(|call| !call.is_empty());
    let lost: Vec<String> = lines
        .iter()
        .zip(&crash.kept)
        .filter(|(line, kept)| usize::from(**kept) < line.steps)
        .map(|(line, kept)| {
            let (slice, number) = line.line;
            format!("{slice}:{:#x} ({kept} of {})", number * 64, line.steps)
        })
        .collect();
    Violation {
        workload: recording.name.clone(),
        crash: crash.clone(),
        inner: inner.cloned(),
        call: call.unwrap_or(""),
        lost: if lost.is_empty() { "none".to_owned() } else { lost.join(" ") },
        what,
    }
}

impl Explorer<'_> {
    fn point(&mut self, model: &Model, point: usize, under: Under) {
        if self.rng.below(self.settings.point_every.max(1)) != 0 {
            return;
        }
        self.report.points += 1;
        let lines = model.in_flight();
        let legal = under.legal(self.recording);
        let asked = Asked::at(self.recording, under);
        for kept in choices(&lines, &self.settings.budget, &mut self.rng) {
            let many = self.report.violations.len() >= VIOLATIONS_MAX;
            if many || self.settings.late() {
                return;
            }
            if !self.seen.insert((model.hash(&kept), under)) {
                continue;
            }
            let crash = Crash { point, kept };
            if let Err((inner, what)) = self.image(model, (&legal, &asked), &crash) {
                let found = violation(self.recording, &crash, inner.as_ref(), &lines, what);
                self.report.violations.push(found);
            }
        }
    }

    fn image(
        &mut self,
        model: &Model,
        (legal, asked): (&[&Snapshot], &Asked),
        crash: &Crash,
    ) -> Result<(), (Option<Crash>, String)> {
        self.report.states += 1;
        let turn = |every: usize| every != 0 && self.report.states.is_multiple_of(every as u64);
        let (again, used) = (turn(self.settings.again_every), turn(self.settings.use_every));
        let inside = turn(self.settings.inner_every);
        self.report.used += u64::from(used);
        let depth = Depth { again, used, inside };
        let blocks_free = self.recording.blocks_free;
        let verify = |arena: &Arena| verify(arena, legal, asked, blocks_free, depth);
        let recovered = model.with(&crash.kept, verify).map_err(|what| (None, what))?;
        if inside {
            self.inside(model.images_with(&crash.kept), &recovered, asked)?;
        }
        Ok(())
    }

    /// Crashes inside the recovery of `images`.
    fn inside(
        &mut self,
        images: Images,
        recovered: &Recovered,
        asked: &Asked,
    ) -> Result<(), (Option<Crash>, String)> {
        let mut model = match self.inner.take() {
            Some(mut model) => {
                model.renew(&images);
                model
            }
            None => Model::new(images).map_err(|what| (None, what))?,
        };
        let (mut seen, mut result) = (HashSet::new(), Ok(()));
        recovery_points(&mut model, &recovered.events, &mut |model, point| {
            for kept in choices(&model.in_flight(), &self.settings.inner, &mut self.rng) {
                if !seen.insert(model.hash(&kept)) {
                    continue;
                }
                self.report.states += 1;
                self.report.inner_states += 1;
                let verify = |arena: &Arena| verify_again(arena, recovered, asked);
                if let Err(what) = model.with(&kept, verify) {
                    result = Err((Some(Crash { point, kept }), what));
                    return false;
                }
            }
            true
        });
        self.inner = Some(model);
        result
    }
}
