//! Crashes inside the recovery of an image that a crash left.

use crate::arena::Arena;
use crate::images::Outcome;
use crate::memo::Memo;
use crate::model::{Changed, InFlight, LineId, Model};
use crate::mutant::Mutant;
use crate::points::recovery_points;
use crate::report::{Crash, Report};
use crate::requests::Asked;
use crate::rng::Rng;
use crate::select::{Budget, Choice, all, count, random, telling};
use crate::verify::{Recovered, verify_again};
use pmem::Domain;
use std::collections::{BTreeSet, HashSet};

/// What is kept from one image to the next.
#[derive(Debug, Default)]
pub struct Inside {
    model: Option<Model>,
    memo: Memo,
    /// What the images in the memo were compared with.
    promise: Option<Recovered>,
    /// Lines that may differ between them.
    uncertain: BTreeSet<LineId>,
    /// The faults that recovery could have.
    mutants: BTreeSet<Mutant>,
}

/// How, and where it is counted.
#[derive(Debug)]
pub struct Within<'w> {
    /// Images of each crash point.
    pub budget: Budget,
    /// For choices.
    pub rng: &'w mut Rng,
    /// Where it is counted.
    pub report: &'w mut Report,
}

/// What was wrong with an image.
#[derive(Debug)]
pub struct Wrong {
    /// After a second crash, inside its recovery.
    pub inner: Option<Crash>,
    /// What was in flight at that.
    pub units: Vec<InFlight>,
    /// In words.
    pub what: String,
}

impl Wrong {
    /// Without a second crash.
    pub fn at_once(what: String) -> Wrong {
        Wrong { inner: None, units: Vec::new(), what }
    }
}

impl Inside {
    /// Explores crashes at every fence of the recovery of `outer`'s images with some lines changed.
    /// Gives the lines that were read of what those leave, or the crash and what was wrong.
    pub fn explore(
        &mut self,
        (outer, changed): (&Model, &[Changed]),
        recovered: Recovered,
        asked: &Asked,
        within: &mut Within<'_>,
    ) -> Result<BTreeSet<LineId>, Wrong> {
        let mut model = self.model_of(outer, changed).map_err(Wrong::at_once)?;
        self.expect(outer, recovered);
        let Some(recovered) = self.promise.take() else { return Ok(BTreeSet::new()) };
        let (mut seen, mut read) = (HashSet::new(), BTreeSet::new());
        let mut result = Ok(());
        recovery_points(&mut model, &recovered.events, &mut |model, point| {
            for kept in choices(model, within) {
                let changed = model.changed(&kept);
                if !seen.insert(model.hash(&changed)) {
                    continue;
                }
                within.report.inner_states += 1;
                let content = |line| model.content(&changed, line);
                if let Some(path) = self.memo.find(&content) {
                    read.extend(path);
                    continue;
                }
                within.report.inner_opened += 1;
                model.arena().watch(&self.uncertain);
                let verify = |arena: &Arena| verify_again(arena, &recovered, asked);
                if let Err(what) = model.with(&changed, verify) {
                    let (inner, units) = (Some(Crash { point, kept }), model.in_flight());
                    result = Err(Wrong { inner, units, what });
                    return false;
                }
                let lines = model.arena().take_read();
                read.extend(lines.iter().copied());
                self.memo.add(&content, lines);
            }
            true
        });
        self.promise = Some(recovered);
        self.model = Some(model);
        result.map(|()| read)
    }

    fn model_of(&mut self, outer: &Model, changed: &[Changed]) -> Outcome<Model> {
        let images = outer.images_with(changed);
        match self.model.take() {
            Some(mut model) => {
                model.renew(&images);
                Ok(model)
            }
            None => Ok(Model::new(outer.domain(), images)?.with_files(outer.files())),
        }
    }

    /// Forgets earlier images where those to come differ from them in other lines, or are compared
    /// with something else.
    fn expect(&mut self, outer: &Model, recovered: Recovered) {
        let mut uncertain = outer.uncertain();
        uncertain.extend(recovered.events.iter().flat_map(|event| event.kind.lines()));
        let same = self.promise.as_ref().is_some_and(|before| before.same(&recovered));
        if !same || !uncertain.is_subset(&self.uncertain) {
            self.memo.clear();
        }
        self.uncertain.extend(uncertain);
        self.mutants.extend(Mutant::of_events(&recovered.events));
        self.promise = Some(recovered);
    }

    /// The faults that the recoveries could have that were explored.
    pub fn mutants(&self) -> &BTreeSet<Mutant> {
        &self.mutants
    }

    /// Another crash point: what is certain there is not what was.
    pub fn forget(&mut self) {
        self.memo.clear();
        self.uncertain.clear();
    }
}

fn choices(model: &Model, within: &mut Within<'_>) -> Vec<Choice> {
    let (units, budget) = (model.in_flight(), within.budget);
    if count(&units) <= budget.exhaustive {
        return all(&units).collect();
    }
    let mut chosen = telling(&units, budget.samples.div_ceil(2), within.rng);
    let (read, pages) = (model.uncertain(), model.domain() == Domain::Sync);
    let rest = budget.samples - chosen.len();
    chosen.extend((0..rest).map(|_| random(&units, &read, pages, within.rng)));
    chosen
}
