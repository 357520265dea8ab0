//! Chains: work, crash, recover, work on, crash again; what one crash leaves behind in the log, in
//! free blocks and in the trees is there when the next one comes.

use crate::arena::Arena;
use crate::catalog::catalog;
use crate::explore::{Settings, explore};
use crate::images::Shape;
use crate::moves::moves;
use crate::points::pick;
use crate::recording::Recorder;
use crate::report::{Report, Violation};
use crate::requests::Asked;
use crate::rng::Rng;
use crate::select::Budget;
use crate::verify::{Depth, verify};

/// A chain of crashes.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The pool.
    pub shape: Shape,
    /// Crashes, one after the other.
    pub crashes: usize,
    /// Operations before each.
    pub ops: usize,
    /// Seed of everything.
    pub seed: u64,
}

impl Chain {
    /// As arguments that repeat it.
    pub fn name(&self) -> String {
        let Chain { shape, crashes, ops, seed } = self;
        let Shape { slices, devices, .. } = shape;
        let devices = if *devices > 0 { format!(" --devices {devices}") } else { String::new() };
        format!("chain --slices {slices}{devices} --crashes {crashes} --ops {ops} --seed {seed}")
    }

    /// Few crash points, few images of each: a chain is long.
    pub fn settings(&self) -> Settings {
        Settings {
            budget: Budget::SPARSE,
            point_every: 6,
            inner_every: 50,
            ..Settings::quick(self.seed)
        }
    }

    /// Runs it, and explores from each place where it crashed a few other crashes.
    pub fn run(&self, settings: &Settings) -> Report {
        let mut report = Report::default();
        if let Err(what) = self.links(settings, &mut report) {
            report.add(Report::broken(&self.name(), what));
        }
        report
    }

    fn links(&self, settings: &Settings, report: &mut Report) -> Result<(), String> {
        let moves = if self.shape.devices > 0 { moves() } else { Vec::new() };
        let ops = [catalog(), moves].concat();
        let mut rng = Rng::new(self.seed);
        let mut recorder = Recorder::new(&self.shape, 0)?;
        recorder.plant()?;
        for link in 0..self.crashes {
            let chosen: Vec<_> = (0..self.ops).map(|_| ops[rng.below(ops.len())]).collect();
            // What prepares an operation may be several changes, each of which may be the last.
            for op in &chosen {
                let _ = recorder.world.at_home(op.prepare);
            }
            recorder.begin()?;
            for op in &chosen {
                let _ = recorder.op(op)?;
            }
            let recording = recorder.finish(format!("{} (link {link})", self.name()));
            let seed = rng.bits();
            report.add(explore(&recording, &Settings { seed, ..settings.clone() }));
            let (crash, images, under) = pick(&recording, &mut rng)?;
            report.states += 1;
            let states = under.legal(&recording);
            let asked = Asked::at(&recording, under);
            let depth = Depth { again: true, used: false, inside: false };
            let arena = Arena::new(self.shape.domain, &images)?;
            if let Err(what) = verify(&arena, &states, &asked, recording.blocks_free, depth) {
                let violation = Violation {
                    workload: recording.name.clone(),
                    crash,
                    inner: None,
                    call: "",
                    units: Vec::new(),
                    what,
                };
                report.violations.push(violation);
            }
            if !report.violations.is_empty() {
                return Ok(());
            }
            recorder = Recorder::on(self.shape.domain, images, recording.blocks_free, link)?;
        }
        Ok(())
    }
}
