//! A workload, run once and recorded.

use crate::arena::{Arena, Files};
use crate::attached;
use crate::catalog::{BLOCK, Op, Part, SYNC, plant};
use crate::events::{Event, Kind, Trace, apply_all};
use crate::images::{self, Images, Outcome, Shape, failed};
use crate::requests;
use crate::snapshot::Snapshot;
pub use crate::start::Start;
use crate::world::{World, clock, cpu};
use pmem::Domain;
use std::sync::Arc;
use topology::Pinned;

/// What is run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The state in which it begins.
    pub start: Start,
    /// When its stores are safe.
    pub domain: Domain,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Which of the allowed CPUs it runs on.
    pub cpu: usize,
}

impl Workload {
    /// One operation.
    pub fn single(start: Start, op: Op) -> Workload {
        Workload { start, domain: Domain::CpuFlush, ops: vec![op], cpu: 0 }
    }

    /// As arguments of `nearside-crash repeat`.
    pub fn arguments(&self) -> String {
        let ops: Vec<&str> = self.ops.iter().map(|op| op.name).collect();
        let Workload { start, domain, cpu, .. } = self;
        let start = start.name();
        format!("--domain {domain} --start {start} --ops {} --cpu {cpu}", ops.join(","))
    }
}

/// What happened, and what could be seen between the operations.
#[derive(Clone, Debug)]
pub struct Recording {
    /// How it is called in reports: the arguments that repeat it.
    pub name: String,
    /// When its stores are safe.
    pub domain: Domain,
    /// The memory before the first event.
    pub base: Images,
    /// Everything that happened.
    pub events: Vec<Event>,
    /// The workload begins with this event.
    pub first: usize,
    /// What could be seen before each operation, and after the last.
    pub states: Vec<Snapshot>,
    /// What a crash may leave of each operation that may be seen in parts.
    pub parts: Vec<Vec<Snapshot>>,
    /// Two operations at once, and perhaps one that syncs after both: the states are those before,
    /// after each alone, and after both in either order.
    pub pair: bool,
    /// Of each operation, whether all is durable when it has returned.
    pub settled: Vec<bool>,
    /// Where the operations are requests: whether each changed anything.
    pub requests: Vec<bool>,
    /// Free blocks of an empty pool of this shape.
    pub blocks_free: u64,
    /// The files that a crash leaves.
    pub files: Files,
}

/// Runs a recording by hand: set up, then `operation` by `operation`.
#[derive(Debug)]
pub struct Recorder {
    /// The file system that is recorded.
    pub world: World,
    trace: Arc<Trace>,
    domain: Domain,
    base: Images,
    /// The name of the arena that it is in.
    arena: u32,
    first: usize,
    states: Vec<Snapshot>,
    parts: Vec<Vec<Snapshot>>,
    settled: Vec<bool>,
    requests: Option<Vec<bool>>,
    blocks_free: u64,
}

impl Recorder {
    /// An empty pool; `home` counts the allowed CPUs.
    pub fn new(shape: &Shape, home: usize) -> Outcome<Recorder> {
        let base = images::format(shape)?;
        let blocks_free = Arena::new(shape.domain, &base)?.open(None)?.statfs().blocks_free;
        Recorder::on(shape.domain, base, blocks_free, home)
    }

    /// The pool in these images.
    pub fn on(domain: Domain, base: Images, blocks_free: u64, home: usize) -> Outcome<Recorder> {
        clock(0);
        let trace = Arc::new(Trace::default());
        let arena = Arena::new(domain, &base)?;
        let (fs, attached) = arena.attach(&trace)?;
        let world = World { attached, ..World::new(fs, cpu(home), cpu(home + 1)) };
        Ok(Recorder {
            world,
            trace,
            domain,
            base,
            arena: arena.name(),
            first: 0,
            states: Vec::new(),
            parts: Vec::new(),
            settled: Vec::new(),
            requests: None,
            blocks_free,
        })
    }

    /// Plants the tree of the catalog.
    pub fn plant(&mut self) -> Outcome<()> {
        self.world.at_home(plant).map_err(|error| failed("planting the tree")(&error))
    }

    /// Holds the calling thread to the CPU of the workload: what is logged is on the same lane each
    /// time.
    #[must_use]
    pub fn pinned(&self) -> Pinned {
        Pinned::to(&[self.world.home])
    }

    /// Moves to the tier what can be there, which must be something.
    pub fn move_all(&self) -> Outcome<()> {
        let _pinned = self.pinned();
        match self.world.fs.write_back_all().map_err(|error| failed("moving")(&error))? {
            0 => Err("nothing moves to the tier".to_owned()),
            _ => Ok(()),
        }
    }

    /// Drops the file system without closing it, and opens what its memory holds.
    pub fn reopen(&mut self) -> Outcome<()> {
        self.reopen_in(Ok)
    }

    /// The same in an arena that is made of the usual one.
    pub fn reopen_in(&mut self, arena: impl Fn(Arena) -> Outcome<Arena>) -> Outcome<()> {
        let _pinned = self.pinned();
        self.world.fs.sync().map_err(|error| failed("sync")(&error))?;
        apply_all(&self.trace.take(), &mut self.base);
        let trace = Arc::new(Trace::default());
        // what closing them stores comes after the crash
        self.world.handles.clear();
        let arena = arena(Arena::new(self.domain, &self.base)?)?;
        self.world.fs = Arc::new(arena.open(Some(&trace))?);
        self.arena = arena.name();
        self.trace = trace;
        Ok(())
    }

    /// Everything that happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.trace.events()
    }

    /// From the beginning on, before it was opened, crashes are explored.
    pub fn begin_at_open(&mut self) -> Outcome<()> {
        self.states = vec![Snapshot::of(&self.world.fs)?];
        Ok(())
    }

    /// From here on crashes are explored.
    pub fn begin(&mut self) -> Outcome<()> {
        let _pinned = self.pinned();
        self.world.fs.sync().map_err(|error| failed("sync")(&error))?;
        self.settled.clear();
        self.parts.clear();
        self.states = vec![self.seen()?];
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
        self.parts.resize_with(number + 1, Vec::new);
        clock(number as u64 + 1);
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
        self.settled.push(self.domain != Domain::Sync || (name == SYNC && result.is_ok()));
        let seen = self.seen()?;
        self.states.push(seen);
        Ok(result)
    }

    /// What can be seen now; of what a process has in its lane, what will be seen of it.
    fn seen(&self) -> Outcome<Snapshot> {
        match self.world.attached {
            None => Snapshot::of(&self.world.fs),
            Some(_) => self.copies()?.after(|_| ()),
        }
    }

    /// Runs an operation of the catalog.
    pub fn op(&mut self, op: &Op) -> Outcome<fs::Result<()>> {
        let parts = op.part.map_or(Ok(Vec::new()), |part| self.parts_of(part))?;
        let result = match self.world.attached.is_some() && !attached::is_by_process(op) {
            true => self.operation(op.name, |world| attached::by_another(world, op))?,
            false => self.operation(op.name, op.run)?,
        };
        if let Some(last) = self.parts.last_mut() {
            *last = parts;
        }
        Ok(result)
    }

    /// What the first so many blocks of an operation leave, in copies of the memory.
    pub fn parts_of(&self, part: Part) -> Outcome<Vec<Snapshot>> {
        let copies = self.copies()?;
        // one that fails does so at its end, too
        let after = |bytes| copies.after(|world| drop(part(world, bytes)));
        let whole = after(u64::MAX)?;
        let mut parts: Vec<Snapshot> = Vec::new();
        loop {
            let state = after((parts.len() as u64 + 1) * BLOCK)?;
            // a part that changes nothing may come before one that does
            if state == whole || parts.len() > PARTS_MAX {
                return Ok(parts);
            }
            parts.push(state);
        }
    }

    /// Copies of what its memory holds now, synced or not.
    pub fn copies(&self) -> Outcome<Copies> {
        let images = self.images();
        let arena = Arena::new(self.domain, &images)?.still_in(self.arena);
        Ok(Copies { arena, images, home: self.world.home, other: self.world.other })
    }

    /// What was recorded of two operations at once. `settled`: of each, and of what follows both,
    /// whether all that returned before it began is durable when it has returned.
    pub fn finish_pair(
        mut self,
        name: String,
        states: Vec<Snapshot>,
        settled: Vec<bool>,
    ) -> Recording {
        self.settled = settled;
        Recording { states, pair: true, ..self.finish(name) }
    }

    /// Free blocks of an empty pool of this shape.
    pub fn blocks_free(&self) -> u64 {
        self.blocks_free
    }

    /// Who keeps what happens.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What its memory holds now.
    pub fn images(&self) -> Images {
        let mut images = self.base.clone();
        apply_all(&self.trace.events(), &mut images);
        images
    }

    /// Closes it: what its memory holds then.
    pub fn close(mut self) -> Outcome<Images> {
        self.world.handles.clear();
        let fs = Arc::into_inner(self.world.fs).ok_or("it is in use")?;
        fs.close().map_err(|error| failed("close")(&error))?;
        apply_all(&self.trace.take(), &mut self.base);
        Ok(self.base)
    }

    /// What was recorded.
    pub fn finish(self, name: String) -> Recording {
        let Recorder { trace, domain, base, first, states, parts, settled, .. } = self;
        let blocks_free = self.blocks_free;
        let requests = self.requests.unwrap_or_default();
        let events = trace.take();
        drop(self.world);
        Recording {
            name,
            domain,
            base,
            events,
            first,
            states,
            parts,
            pair: false,
            settled,
            requests,
            blocks_free,
            files: Files::All,
        }
    }
}

/// Copies of a pool's memory, in which operations are tried.
#[derive(Debug)]
pub struct Copies {
    arena: Arena,
    images: Images,
    home: u32,
    other: u32,
}

impl Copies {
    /// What can be seen after `act` in a copy of its own.
    pub fn after(&self, act: impl FnOnce(&mut World)) -> Outcome<Snapshot> {
        let mut world = World::new(self.arena.open(None)?, self.home, self.other);
        world.at_home(act);
        let state = Snapshot::of(&world.fs);
        drop(world);
        self.arena.restore(&self.images);
        state
    }
}

/// Blocks of the longest operation that may be seen in parts.
const PARTS_MAX: usize = 64;

/// Runs the workload and records it.
pub fn record(workload: &Workload) -> Outcome<Recording> {
    let mut recorder = begin_at(workload)?;
    recorder.begin()?;
    for op in &workload.ops {
        let result = recorder.op(op)?;
        if let (Err(error), 1) = (result, workload.ops.len()) {
            return Err(format!("{} failed: {error}", op.name));
        }
    }
    Ok(Recording { files: workload.start.files(), ..recorder.finish(workload.arguments()) })
}

/// A pool in which the workload can begin.
pub fn begin_at(workload: &Workload) -> Outcome<Recorder> {
    let shape = Shape { domain: workload.domain, ..workload.start.shape() };
    let mut recorder = Recorder::new(&shape, workload.cpu)?;
    recorder.plant()?;
    match workload.start {
        Start::Logged | Start::Attached => {}
        Start::Tiered | Start::TwoDevices => {
            recorder.move_all()?;
            recorder.reopen()?;
        }
        Start::Folded => {
            let _pinned = recorder.pinned();
            recorder.world.fs.checkpoint().map_err(|e| failed("checkpoint")(&e))?;
        }
        _ => recorder.reopen()?,
    }
    for op in &workload.ops {
        // in a sequence, what one operation needs another may have taken away
        let prepared = recorder.world.at_home(op.prepare);
        if let (Err(error), 1) = (prepared, workload.ops.len()) {
            return Err(format!("preparing {}: {error}", op.name));
        }
    }
    Ok(recorder)
}
