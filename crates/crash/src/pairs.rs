//! Two operations at once, on two threads that take turns.

use crate::catalog::Op;
use crate::events::Kind;
use crate::images::Outcome;
use crate::recording::{Recorder, Recording, Workload, begin_at};
use crate::snapshot::Snapshot;
use crate::turns::{Schedule, Turns};
use crate::world::{World, clock};
use std::sync::Arc;

/// Two operations and how they take turns.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The two, and the state in which they begin.
    pub workload: Workload,
    /// Who goes on when.
    pub schedule: Schedule,
}

impl Pair {
    /// As arguments of `nearside-crash repeat`.
    pub fn arguments(&self) -> String {
        let Schedule { first, before, between } = self.schedule;
        format!("{} --turns {first},{before},{between}", self.workload.arguments())
    }

    /// Runs it and records it.
    pub fn record(&self) -> Outcome<Recording> {
        let [first, second] = self.workload.ops.as_slice() else {
            return Err("a pair is of two operations".to_owned());
        };
        let mut recorder = begin_at(&self.workload)?;
        let states = states(&recorder, first, second)?;
        recorder.begin()?;
        let turns = Arc::new(Turns::new(self.schedule));
        recorder.trace().take_turns(Some(turns.clone()));
        let World { home, other, .. } = recorder.world;
        let act = |actor: usize, op: &Op, (home, other): (u32, u32)| {
            let mut world = World::of(recorder.world.fs.clone(), home, other);
            turns.run(actor, || {
                clock(actor as u64 + 1);
                pmem::recorder::set_call(op.name);
                recorder.trace().mark(Kind::Begin(actor));
                // its result does not matter
                let _ = world.at_home(op.run);
                recorder.trace().mark(Kind::End(actor));
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| act(0, first, (home, other)));
            scope.spawn(|| act(1, second, (other, home)));
            turns.watch();
        });
        recorder.trace().take_turns(None);
        Ok(recorder.finish_pair(self.arguments(), states))
    }
}

/// What can be seen before, after each alone, and after both in either order.
fn states(recorder: &Recorder, a: &Op, b: &Op) -> Outcome<Vec<Snapshot>> {
    let copies = recorder.copies()?;
    let run = |ops: &[&Op]| {
        copies.after(|world| {
            ops.iter().for_each(|op| drop((op.run)(world)));
            world.handles.clear();
        })
    };
    [&[][..], &[a], &[b], &[a, b], &[b, a]].into_iter().map(run).collect()
}
