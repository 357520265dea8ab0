//! A workload, run once and recorded.

use crate::arena::Arena;
use crate::catalog::{Op, plant};
use crate::events::{Event, Kind, Trace, apply_all};
use crate::images::{self, Images, Outcome, Shape, failed};
use crate::requests;
use crate::snapshot::Snapshot;
use crate::world::{World, cpu};
use std::sync::Arc;

/// In which state the tree is when the workload begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Changed since the last checkpoint: much of it is in the log.
    Logged,
    /// All in the trees, and in DRAM.
    Folded,
    /// Opened again after a crash that lost nothing.
    Recovered,
    /// The same, in a pool whose log has long lines.
    LongLines,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 4] = [Start::Logged, Start::Folded, Start::Recovered, Start::LongLines];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Start::Logged => "logged",
            Start::Folded => "folded",
            Start::Recovered => "recovered",
            Start::LongLines => "long-lines",
        }
    }

    /// The start of this name.
    pub fn find(name: &str) -> Option<Start> {
        Start::ALL.into_iter().find(|start| start.name() == name)
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The state in which it begins.
    pub start: Start,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Which of the allowed CPUs it runs on.
    pub cpu: usize,
}

impl Workload {
    /// One operation.
    pub fn single(start: Start, op: Op) -> Workload {
        Workload { start, ops: vec![op], cpu: 0 }
    }

    /// As arguments of `nearside-crash repeat`.
    pub fn arguments(&self) -> String {
        let ops: Vec<&str> = self.ops.iter().map(|op| op.name).collect();
        format!("--start {} --ops {} --cpu {}", self.start.name(), ops.join(","), self.cpu)
    }
}

/// What happened, and what could be seen between the operations.
#[derive(Clone, Debug)]
pub struct Recording {
    /// How it is called in reports: the arguments that repeat it.
    pub name: String,
    /// The memory before the first event.
    pub base: Images,
    /// Everything that happened.
    pub events: Vec<Event>,
    /// The workload begins with this event.
    pub first: usize,
    /// What could be seen before each operation, and after the last.
    pub states: Vec<Snapshot>,
    /// Where the operations are requests: whether each changed anything.
    pub requests: Vec<bool>,
    /// Free blocks of an empty pool of this shape.
    pub blocks_free: u64,
}

/// Runs a recording by hand: set up, then `operation` by `operation`.
#[derive(Debug)]
pub struct Recorder {
    /// The file system that is recorded.
    pub world: World,
    trace: Arc<Trace>,
    base: Images,
    first: usize,
    states: Vec<Snapshot>,
    requests: Option<Vec<bool>>,
    blocks_free: u64,
}

impl Recorder {
    /// An empty pool; `home` counts the allowed CPUs.
    pub fn new(shape: &Shape, home: usize) -> Outcome<Recorder> {
        let base = images::format(shape)?;
        let blocks_free = Arena::new(&base)?.open(None)?.statfs().blocks_free;
        Recorder::on(base, blocks_free, home)
    }

    /// The pool in these images.
    pub fn on(base: Images, blocks_free: u64, home: usize) -> Outcome<Recorder> {
        let trace = Arc::new(Trace::default());
        let world = World::new(Arena::new(&base)?.open(Some(&trace))?, cpu(home), cpu(home + 1));
        let (states, requests) = (Vec::new(), None);
        Ok(Recorder { world, trace, base, first: 0, states, requests, blocks_free })
    }

    /// Drops the file system without closing it, and opens what its memory holds.
    pub fn reopen(&mut self) -> Outcome<()> {
        apply_all(&self.trace.take(), &mut self.base);
        let trace = Arc::new(Trace::default());
        // what closing them stores comes after the crash
        self.world.handles.clear();
        self.world.fs = Arc::new(Arena::new(&self.base)?.open(Some(&trace))?);
        self.trace = trace;
        Ok(())
    }

    /// Everything that happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.trace.events()
    }

    /// From here on crashes are explored.
    pub fn begin(&mut self) -> Outcome<()> {
        self.states = vec![Snapshot::of(&self.world.fs)?];
        self.first = self.trace.len();
        Ok(())
    }

    /// From here on each operation is a request that nobody answers.
    pub fn ask(&mut self) {
        self.requests = Some(Vec::new());
    }

    /// Runs one operation; its result does not matter, but all or nothing of it may happen.
    pub fn operation(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut World) -> fs::Result<()>,
    ) -> Outcome<fs::Result<()>> {
        let number = self.states.len() - 1;
        pmem::recorder::set_call(name);
        self.trace.mark(Kind::Begin(number));
        let asking = self.requests.is_some();
        let result = self.world.at_home(|world| match asking {
            true => requests::within(world, number, run),
            false => run(world),
        });
        self.trace.mark(Kind::End(number));
        if let Some(requests) = &mut self.requests {
            requests.push(self.world.fs.was_done(requests::id(number)));
        }
        pmem::recorder::set_call("");
        self.states.push(Snapshot::of(&self.world.fs)?);
        Ok(result)
    }

    /// What was recorded.
    pub fn finish(self, name: String) -> Recording {
        let Recorder { trace, base, first, states, requests, blocks_free, world } = self;
        let requests = requests.unwrap_or_default();
        let events = trace.take();
        drop(world);
        Recording { name, base, events, first, states, requests, blocks_free }
    }
}

/// Runs the workload and records it.
pub fn record(workload: &Workload) -> Outcome<Recording> {
    let long_lines = workload.start == Start::LongLines;
    let shape = if long_lines { Shape::LONG_LINES } else { Shape::SMALL };
    let mut recorder = Recorder::new(&shape, workload.cpu)?;
    recorder.world.at_home(plant).map_err(|error| failed("planting the tree")(&error))?;
    match workload.start {
        Start::Logged => {}
        Start::Folded => recorder.world.fs.checkpoint().map_err(|e| failed("checkpoint")(&e))?,
        Start::Recovered | Start::LongLines => recorder.reopen()?,
    }
    for op in &workload.ops {
        // in a sequence, what one operation needs another may have taken away
        let prepared = recorder.world.at_home(op.prepare);
        if let (Err(error), 1) = (prepared, workload.ops.len()) {
            return Err(format!("preparing {}: {error}", op.name));
        }
    }
    recorder.begin()?;
    for op in &workload.ops {
        let result = recorder.operation(op.name, op.run)?;
        if let (Err(error), 1) = (result, workload.ops.len()) {
            return Err(format!("{} failed: {error}", op.name));
        }
    }
    Ok(recorder.finish(workload.arguments()))
}
