//! What three papers show, as the simulator has it.
//!
//! Every number that goes in is one of a machine, a system or a program, and they are the same in
//! all figures; what a paper does not say is said to be assumed where it stands. Nothing here was
//! changed after a figure had been seen.

mod dragonfly;
mod jericho;
mod levers;
mod odinfs;

use crate::description::{KNOWN, parse};
use crate::outcome::Outcome;
use crate::runs::run_all;
use crate::setting::{Refused, Setting};
use crate::system::System;
use placement::Machine;

/// A picture: lines over numbers, or over names.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// A name for files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Below it,
    pub x: &'static str,
    /// and beside it.
    pub y: &'static str,
    /// What places 0, 1 and so on are; none: they are numbers.
    pub places: Vec<String>,
    /// Its lines.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// What a paper says in one number, and a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Headline {
    /// What it is.
    pub what: String,
    /// What the paper says; none: it says nothing of it.
    pub published: Option<f64>,
    /// What the runs say.
    pub simulated: f64,
}

/// A paper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paper {
    /// Its pictures.
    pub figures: Vec<Figure>,
    /// What it says in numbers.
    pub headlines: Vec<Headline>,
}

/// The papers that are known.
pub const PAPERS: [&str; 4] = ["odinfs", "jericho", "dragonfly", "nearside"];

/// What one of them shows; none: it is not known. It takes up to some minutes, on all CPUs.
///
/// # Errors
/// A setting is none.
pub fn paper(name: &str) -> Option<Result<Paper, Refused>> {
    match name {
        "odinfs" => Some(odinfs::paper()),
        "jericho" => Some(jericho::paper()),
        "dragonfly" => Some(dragonfly::paper()),
        "nearside" => Some(levers::paper()),
        _ => None,
    }
}

/// Lines of a figure: each a name, and a setting for each place.
struct Plan<'p> {
    name: &'p str,
    title: String,
    x: &'static str,
    y: &'static str,
    places: Vec<String>,
    lines: Vec<(String, Vec<(f64, Setting)>)>,
}

impl Plan<'_> {
    /// Runs them all: the figure, of what `of` says of each, and what came of each line's runs.
    fn draw(self, of: impl Fn(&Setting, &Outcome) -> f64) -> Result<(Figure, Outcomes), Refused> {
        let settings: Vec<Setting> = self
            .lines
            .iter()
            .flat_map(|(_, points)| points.iter().map(|it| it.1.clone()))
            .collect();
        let mut outcomes = run_all(&settings)?.into_iter();
        let mut lines = Vec::new();
        let mut all = Vec::new();
        for (name, points) in self.lines {
            let its: Vec<Outcome> = outcomes.by_ref().take(points.len()).collect();
            let drawn = points.iter().zip(&its).map(|((x, setting), it)| (*x, of(setting, it)));
            lines.push((name.clone(), drawn.collect()));
            all.push((name, its));
        }
        let Plan { name, title, x, y, places, .. } = self;
        let name = name.to_owned();
        Ok((Figure { name, title, x, y, places, lines }, Outcomes(all)))
    }
}

/// What came of the runs of each line.
struct Outcomes(Vec<(String, Vec<Outcome>)>);

impl Outcomes {
    /// Those of a line.
    fn of(&self, name: &str) -> &[Outcome] {
        self.0.iter().find(|line| line.0 == name).map_or(&[], |line| &line.1)
    }

    /// MiB/s of a line's run.
    fn rate(&self, name: &str, place: usize) -> f64 {
        self.of(name).get(place).map_or(f64::NAN, Outcome::rate)
    }
}

/// A machine that comes along.
fn machine(name: &str) -> Result<Machine, Refused> {
    let text = KNOWN.iter().find(|known| known.0 == name).map(|known| known.1);
    text.and_then(|text| parse(text).ok()).ok_or(Refused("a machine that comes along is none"))
}

/// A system that is known.
fn system(name: &str) -> System {
    System::known(name).unwrap_or_default()
}

/// MiB/s as GiB/s.
fn gib(_: &Setting, outcome: &Outcome) -> f64 {
    outcome.rate() / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run;
    use crate::workload::Workload;
    use placement::Kind;

    #[test]
    fn lines_have_what_came_of_their_own_runs() {
        let machine = machine("optane-2-sockets").unwrap();
        let point = |kind, threads: u32| {
            let setting = Setting {
                machine: machine.clone(),
                system: System::default(),
                workload: Workload::fio(kind, 64 << 10, threads),
                others: Vec::new(),
                seed: 1,
                time: [0.0, 1e6],
            };
            (f64::from(threads), setting)
        };
        let lines = [("reads", Kind::Read), ("writes", Kind::Write)]
            .map(|(name, kind)| (name.to_owned(), [1, 2, 8].map(|it| point(kind, it)).into()));
        let plan = Plan {
            name: "a",
            title: String::new(),
            x: "threads",
            y: "GiB/s",
            places: Vec::new(),
            lines: lines.into(),
        };
        let (figure, outcomes) = plan.draw(gib).unwrap();
        for (name, kind) in [("reads", Kind::Read), ("writes", Kind::Write)] {
            let line = figure.lines.iter().find(|line| line.0 == name).unwrap();
            for (place, threads) in [1, 2, 8].into_iter().enumerate() {
                let alone = run(&point(kind, threads).1).unwrap();
                assert_eq!(line.1[place], (f64::from(threads), alone.rate() / 1024.0));
                assert_eq!(outcomes.rate(name, place), alone.rate());
            }
        }
        assert!(outcomes.rate("none", 0).is_nan() && paper("none").is_none());
        let mut wrong = point(Kind::Read, 1).1;
        wrong.workload.threads = 0;
        assert!(run_all(&[point(Kind::Read, 1).1, wrong]).is_err());
    }

    #[test]
    fn programs_and_machines_of_papers_are_fine() {
        for name in ["optane-2-sockets", "optane-8-sockets", "opteron-4-sockets"] {
            assert!(machine(name).is_ok(), "{name}");
        }
        let known = ["ext4-dax", "ext4-raid0", "nova", "nthread", "jericho", "dragonfly", "odinfs"];
        assert!(known.into_iter().chain(["nearside"]).all(|name| System::known(name).is_some()));
    }
}
