//! Calls that fail: each allocation of space and each sync of an operation, one at a time.
//!
//! The operation fails as a whole, or comes to the same end by another way. What is there then is
//! what was there before, or what the operation does; so it is after a crash; and everything can be
//! deleted. A sync that failed leaves a pool that takes no more changes until it is opened again.

use crate::arena::Arena;
use crate::catalog::Op;
use crate::images::{Images, Outcome, failed};
use crate::recording::{Recorder, Start, Workload, begin_at};
use crate::snapshot::Snapshot;
use crate::verify::{all_free, compare, guarded, use_it};
use pmem::{Domain, Fault};

/// What failing once did to one operation.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    /// Calls that failed, one at a time.
    pub faults: u32,
    /// Of these, how many the operation did not mind.
    pub minded: u32,
}

/// More failures than any operation has calls.
const FAULTS_MAX: u32 = 64;

/// Makes each call of one kind fail, in an operation from one start.
pub fn in_turn(start: Start, domain: Domain, op: Op, fault: Fault) -> Outcome<Failed> {
    let workload = Workload { start, domain, ops: vec![op], cpu: 0 };
    let name = format!("{}, {fault:?}", workload.arguments());
    let mut found = Failed::default();
    for after in 0..FAULTS_MAX {
        let one = || one(&workload, &op, fault, after);
        match guarded(one).map_err(|what| format!("{name} number {after}: {what}"))? {
            None => return Ok(found),
            Some(minded) => {
                found.faults += 1;
                found.minded += u32::from(minded);
            }
        }
    }
    Err(format!("{name}: more than {FAULTS_MAX} calls"))
}

/// One failure: whether the operation failed by it; None if it has no such call any more.
fn one(workload: &Workload, op: &Op, fault: Fault, after: u32) -> Outcome<Option<bool>> {
    let mut recorder = begin_at(workload)?;
    recorder.begin()?;
    let legal = legal(&recorder, op)?;
    pmem::fail(Some((fault, after)));
    let result = recorder.world.at_home(op.run);
    if pmem::fail(None) == 0 {
        return Ok(None);
    }
    let full = |error: &fs::Error| matches!(error, fs::Error::NoSpace);
    match &result {
        Err(error) if full(error) != matches!(fault, Fault::Space | Fault::Full) => {
            return Err(format!("failed with {error}"));
        }
        _ => {}
    }
    let state = Snapshot::of(&recorder.world.fs)?;
    is_legal(&state, &legal[..], "after the failure")?;
    // an operation that says that it was done was done; one in parts says how much of it
    if result.is_ok() && fault != Fault::Sync && op.part.is_none() {
        is_legal(&state, &legal[1..2], "after success")?;
    }
    after_a_kill(workload.domain, &recorder.images(), &legal)?;
    let fs = &recorder.world.fs;
    if fault == Fault::Sync && result.is_err() {
        return match fs.checkpoint() {
            Ok(()) => Err("a sync failed, and the pool takes changes".to_owned()),
            Err(_) => Ok(Some(true)),
        };
    }
    let (fs, blocks_free) = (fs.clone(), recorder.blocks_free());
    recorder.world.handles.clear();
    use_it(&fs).map_err(|error| failed("using it")(&error))?;
    all_free(&fs, blocks_free).map_err(|error| failed("after deleting everything")(&error))?;
    Ok(Some(result.is_err()))
}

/// What may be seen: before, after, and what an operation in parts may leave.
fn legal(recorder: &Recorder, op: &Op) -> Outcome<Vec<Snapshot>> {
    let before = Snapshot::of(&recorder.world.fs)?;
    let after = recorder.copies()?.after(|world| drop((op.run)(world)))?;
    let parts = op.part.map_or(Ok(Vec::new()), |part| recorder.parts_of(part))?;
    Ok([vec![before, after], parts].concat())
}

fn after_a_kill(domain: Domain, images: &Images, legal: &[Snapshot]) -> Outcome<()> {
    let arena = Arena::new(domain, images)?;
    arena.check()?;
    is_legal(&Snapshot::of(&arena.open(None)?)?, legal, "opened again")
}

fn is_legal(state: &Snapshot, legal: &[Snapshot], when: &str) -> Outcome<()> {
    let legal: Vec<&Snapshot> = legal.iter().collect();
    compare(state, &legal).map_err(|error| failed(when)(&error))
}
