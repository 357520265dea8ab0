//! The exploration of one recording: all its crash points, and the images of each.

use crate::model::{InFlight, Model};
use crate::points::{Under, points, recovery_points};
use crate::recording::Recording;
use crate::report::{Crash, Report, Violation};
use crate::requests::Asked;
use crate::rng::Rng;
use crate::select::{Budget, choices};
use crate::snapshot::Snapshot;
use crate::verify::{Depth, verify, verify_again};
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
    report: Report,
}

/// Explores one recording.
pub fn explore(recording: &Recording, settings: &Settings) -> Report {
    let rng = Rng::new(settings.seed);
    let report = Report { workloads: 1, ..Report::default() };
    let mut explorer = Explorer { recording, settings, rng, seen: HashSet::new(), report };
    points(recording, &mut |model, point, under| {
        explorer.point(model, point, under);
        let stop = explorer.report.violations.len() >= VIOLATIONS_MAX || settings.late();
        !stop
    });
    explorer.report
}

/// Repeats exactly one crash.
pub fn repeat(recording: &Recording, crash: &Crash, inner: Option<&Crash>) -> Report {
    let mut report = Report { workloads: 1, points: 1, states: 1, ..Report::default() };
    points(recording, &mut |model, point, under| {
        if point != crash.point {
            return true;
        }
        let lines = model.in_flight();
        let images = model.with(&crash.kept, |images, _| images.to_vec());
        let legal = under.legal(recording);
        let asked = Asked::at(recording, under);
        let depth = Depth { again: inner.is_none(), used: inner.is_none() };
        let result = verify(&images, &legal, &asked, recording.blocks_free, depth);
        let result = match (result, inner) {
            (Ok(recovered), Some(inner)) => {
                let mut result = Ok(());
                recovery_points(&images, &recovered.events, &mut |model, point| {
                    if point == inner.point {
                        let images = model.with(&inner.kept, |images, _| images.to_vec());
                        result = verify_again(&images, &recovered, &asked);
                    }
                    point < inner.point
                });
                result
            }
            (result, _) => result.map(|_| ()),
        };
        if let Err(what) = result {
            let found = violation(recording, crash, inner, &lines, what);
            report.violations.push(found);
        }
        false
    });
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
    fn point(&mut self, model: &mut Model, point: usize, under: Under) {
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
            let seen = &mut self.seen;
            let images = model
                .with(&kept, |images, hash| seen.insert((hash, under)).then(|| images.to_vec()));
            let Some(images) = images else { continue };
            let crash = Crash { point, kept };
            self.image(&images, (&legal, &asked), &crash, &lines);
        }
    }

    fn image(
        &mut self,
        images: &Vec<Vec<u8>>,
        (legal, asked): (&[&Snapshot], &Asked),
        crash: &Crash,
        lines: &[InFlight],
    ) {
        self.report.states += 1;
        let turn = |every: usize| every != 0 && self.report.states.is_multiple_of(every as u64);
        let (again, used) = (turn(self.settings.again_every), turn(self.settings.use_every));
        let inside = turn(self.settings.inner_every);
        self.report.used += u64::from(used);
        let depth = Depth { again, used };
        let blocks_free = self.recording.blocks_free;
        let recovered = match verify(images, legal, asked, blocks_free, depth) {
            Ok(recovered) => recovered,
            Err(what) => {
                let found = violation(self.recording, crash, None, lines, what);
                return self.report.violations.push(found);
            }
        };
        if !inside {
            return;
        }
        let mut seen = HashSet::new();
        recovery_points(images, &recovered.events, &mut |model, point| {
            for kept in choices(&model.in_flight(), &self.settings.inner, &mut self.rng) {
                let images =
                    model.with(&kept, |images, hash| seen.insert(hash).then(|| images.to_vec()));
                let Some(images) = images else { continue };
                self.report.states += 1;
                self.report.inner_states += 1;
                if let Err(what) = verify_again(&images, &recovered, asked) {
                    let inner = Crash { point, kept };
                    let found = violation(self.recording, crash, Some(&inner), lines, what);
                    self.report.violations.push(found);
                    return false;
                }
            }
            true
        });
    }
}
