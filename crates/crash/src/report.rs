//! What an exploration found, and how a failure is told.

use crate::model::InFlight;
use crate::select::{Choice, encode};

/// One crash: where, and what of the lines in flight was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Before this event.
    pub point: usize,
    /// Steps of each line in flight.
    pub kept: Choice,
}

/// A crash after which something was wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The workload, as arguments that repeat it.
    pub workload: String,
    /// The crash, and the second one inside its recovery.
    pub crash: Crash,
    /// The second crash, inside recovery.
    pub inner: Option<Crash>,
    /// The call that was under way, or the last.
    pub call: &'static str,
    /// What was in flight at the last crash, and how much there was of it.
    pub units: Vec<InFlight>,
    /// What was wrong.
    pub what: String,
}

/// What was explored.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct images, by workload and legal outcome; those of a crash inside recovery apart.
    pub states: u64,
    /// Of these, images that were opened. The others agree with one of them in all that is read.
    pub opened: u64,
    /// Distinct images that a crash inside the recovery of one of these left.
    pub inner_states: u64,
    /// Of these, images that were opened.
    pub inner_opened: u64,
    /// Images that were used and emptied.
    pub used: u64,
    /// Crash points.
    pub points: u64,
    /// Of these, points of which all images were explored.
    pub whole_points: u64,
    /// Workloads.
    pub workloads: u64,
    /// Everything wrong, the first few of each workload.
    pub violations: Vec<Violation>,
}

impl Report {
    /// A workload that could not even be recorded.
    pub fn broken(workload: &str, what: String) -> Report {
        let violation = Violation {
            workload: workload.to_owned(),
            crash: Crash { point: 0, kept: Choice::new() },
            inner: None,
            call: "",
            units: Vec::new(),
            what: format!("without a crash: {what}"),
        };
        Report { workloads: 1, violations: vec![violation], ..Report::default() }
    }

    /// Both.
    pub fn add(&mut self, other: Report) {
        self.states += other.states;
        self.opened += other.opened;
        self.inner_states += other.inner_states;
        self.inner_opened += other.inner_opened;
        self.used += other.used;
        self.points += other.points;
        self.whole_points += other.whole_points;
        self.workloads += other.workloads;
        self.violations.extend(other.violations);
    }
}

impl std::fmt::Display for Report {
    /// What was explored, apart from the line that every run ends with.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { opened, inner_states, inner_opened, used, points, whole_points, .. } = self;
        write!(f, "opened={opened} used={used} points={points} whole_points={whole_points} ")?;
        write!(f, "inside_recovery={inner_states} inside_opened={inner_opened}")
    }
}

impl Violation {
    /// What was lost or torn of what was in flight at the last crash.
    pub fn lost(&self) -> String {
        let kept = &self.inner.as_ref().unwrap_or(&self.crash).kept;
        let lost = |(unit, kept): (&InFlight, &u16)| {
            let lost = usize::from(*kept) < unit.steps;
            lost.then(|| format!("{} ({kept} of {})", unit.unit, unit.steps))
        };
        let lost: Vec<String> = self.units.iter().zip(kept).filter_map(lost).collect();
        match lost.len() {
            0 => "nothing".to_owned(),
            1..=LOST_MAX => lost.join(" "),
            count => format!("{} and {} more", lost[..LOST_MAX].join(" "), count - LOST_MAX),
        }
    }
}

/// Lines that are told; `repeat` has all of them.
const LOST_MAX: usize = 12;

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "VIOLATION: {}", self.what)?;
        writeln!(f, "  workload: {}", self.workload)?;
        writeln!(f, "  crash before event {} (call {})", self.crash.point, self.call)?;
        if let Some(inner) = &self.inner {
            writeln!(f, "  second crash before event {} of recovery", inner.point)?;
        }
        writeln!(f, "  in flight, and lost or torn: {}", self.lost())?;
        if self.workload.starts_with("chain") {
            return write!(f, "  repeat: nearside-crash {}", self.workload);
        }
        let kept = encode(&self.crash.kept);
        write!(f, "  repeat: nearside-crash repeat {}", self.workload)?;
        write!(f, " --point {} --kept {kept}", self.crash.point)?;
        if let Some(inner) = &self.inner {
            write!(f, " --inner-point {} --inner-kept {}", inner.point, encode(&inner.kept))?;
        }
        Ok(())
    }
}
