//! Two operations at once, on two threads that take turns. In the `sync` domain, where nothing of
//! that has to be durable, a sync follows both.

use crate::catalog::{Op, SYNC};
use crate::events::Kind;
use crate::images::{Outcome, failed};
use crate::recording::{Recorder, Recording, Workload, begin_at};
use crate::snapshot::Snapshot;
use crate::turns::{Schedule, Turns};
use crate::world::{World, clock};
use pmem::Domain;
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
                // its result does not matter, unless it is a promise
                let is_done = world.at_home(op.run).is_ok();
                recorder.trace().mark(Kind::End(actor));
                is_done && op.name == SYNC
            })
        };
        let synced = std::thread::scope(|scope| {
            let one = scope.spawn(|| act(0, first, (home, other)));
            let two = scope.spawn(|| act(1, second, (other, home)));
            turns.watch();
            [one, two].map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        recorder.trace().take_turns(None);
        let is_sync = self.workload.domain == Domain::Sync;
        if is_sync {
            sync(&recorder)?;
        }
        let settled = synced.map(|synced| synced || !is_sync);
        let settled = [&settled[..], &[true]].concat();
        Ok(recorder.finish_pair(self.arguments(), states, settled))
    }
}

/// Makes both durable.
fn sync(recorder: &Recorder) -> Outcome<()> {
    let _pinned = recorder.pinned();
    pmem::recorder::set_call(SYNC);
    recorder.trace().mark(Kind::Begin(2));
    let done = recorder.world.fs.sync();
    recorder.trace().mark(Kind::End(2));
    pmem::recorder::set_call("");
    done.map_err(|error| failed("sync")(&error))
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
