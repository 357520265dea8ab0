//! The shortest workload, and the fewest lines lost, that still go wrong.

use crate::explore::{Settings, explore, repeat};
use crate::recording::{Recording, Workload, record};
use crate::report::{Crash, Violation};
use crate::select::Choice;
use std::time::{Duration, Instant};

/// How long it may take.
const TIME: Duration = Duration::from_secs(60);

/// Makes a violation of `workload` smaller; which one it is may change on the way.
pub fn shrink(workload: &Workload, violation: Violation, settings: &Settings) -> Violation {
    let deadline = Instant::now() + TIME;
    let settings = Settings { deadline: Some(deadline), ..settings.clone() };
    let (mut workload, mut violation) = (workload.clone(), violation);
    while let Some((shorter, found)) = shorter(&workload, &settings) {
        (workload, violation) = (shorter, found);
    }
    match record(&workload) {
        Ok(recording) => fewer_lines(&recording, violation, &settings),
        Err(_) => violation,
    }
}

/// The workload without one of its operations, if that goes wrong, too.
fn shorter(workload: &Workload, settings: &Settings) -> Option<(Workload, Violation)> {
    let without = |index: usize| {
        let mut shorter = workload.clone();
        shorter.ops.remove(index);
        let recording = record(&shorter).ok().filter(|_| !shorter.ops.is_empty())?;
        let found = explore(&recording, settings).violations.into_iter().next()?;
        Some((shorter, found))
    };
    (0..workload.ops.len()).find_map(without)
}

/// The same crash with as little lost as goes wrong.
fn fewer_lines(recording: &Recording, mut violation: Violation, settings: &Settings) -> Violation {
    let wrong = |crash: &Crash, inner: Option<&Crash>| {
        let report = repeat(recording, settings, crash, inner);
        report.violations.into_iter().next()
    };
    let full = violation.units.iter().map(|unit| unit.steps as u16).collect();
    if let Some(inner) = violation.inner.clone() {
        let outer = violation.crash.clone();
        let with = |kept: &Choice| wrong(&outer, Some(&Crash { kept: kept.clone(), ..inner }));
        kept_more(&inner.kept, &full, &with, &mut violation, settings);
    } else {
        let point = violation.crash.point;
        let kept = violation.crash.kept.clone();
        let with = |kept: &Choice| wrong(&Crash { point, kept: kept.clone() }, None);
        kept_more(&kept, &full, &with, &mut violation, settings);
    }
    violation
}

/// Keeps more and more of what was lost, in ever smaller pieces, as long as it goes wrong.
fn kept_more(
    kept: &Choice,
    full: &Choice,
    wrong: &dyn Fn(&Choice) -> Option<Violation>,
    violation: &mut Violation,
    settings: &Settings,
) {
    let mut kept = kept.clone();
    let mut piece = kept.len();
    while piece > 0 {
        for from in (0..kept.len()).step_by(piece) {
            let to = (from + piece).min(kept.len());
            if kept[from..to] == full[from..to] || settings.late() {
                continue;
            }
            let mut more = kept.clone();
            more[from..to].copy_from_slice(&full[from..to]);
            if let Some(found) = wrong(&more) {
                (kept, *violation) = (more, found);
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
}
