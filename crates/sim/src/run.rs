//! A run, event by event.

use placement::{Access, BLOCK_BYTES, Kind, Policy, Way};

use crate::events::{Event, Events};
use crate::latency::Latency;
use crate::memory::{Load, Memory, index};
use crate::outcome::{NodeOutcome, Outcome};
use crate::random::Random;
use crate::setting::{Refused, Setting};
use crate::system::{Layout, System};
use crate::workers::{Piece, Workers};

/// Who is at a memory.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Thread(u32),
    Worker(u32),
}

struct Node {
    memory: Memory<Owner>,
    workers: Workers,
    copied: NodeOutcome,
}

/// Some bytes of a call, on a node.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    bytes: u64,
}

struct Thread {
    node: u32,
    /// Where in its file the next call is.
    offset: u64,
    began: f64,
    /// What it copies itself, the next one last.
    own: Vec<Part>,
    /// Pieces for workers that are not asked so far.
    theirs: Vec<Part>,
    /// Pieces that workers have.
    left: u32,
    /// Turns that it has: the node, and how many.
    turns: Vec<(u32, u32)>,
    /// Its call's record is written, or on its way.
    has_record: bool,
}

struct Run<'s> {
    setting: &'s Setting,
    policy: Policy,
    now: f64,
    events: Events,
    nodes: Vec<Node>,
    threads: Vec<Thread>,
    /// When nobody is in what only one may be in.
    free_at: f64,
    latency: Latency,
    bytes: u64,
    parts: Vec<Part>,
    random: Random,
}

/// Runs it.
///
/// # Errors
/// It is none.
pub fn run(setting: &Setting) -> Result<Outcome, Refused> {
    setting.check()?;
    let mut run = Run::new(setting);
    run.begin();
    let [before, counted] = setting.time;
    run.go_on(before);
    run.latency = Latency::default();
    run.bytes = 0;
    run.nodes.iter_mut().for_each(|node| node.copied = NodeOutcome::default());
    run.go_on(before + counted);
    let Run { latency, bytes, nodes, .. } = run;
    let nodes = nodes.into_iter().map(|node| node.copied).collect();
    Ok(Outcome { time: counted, latency, bytes, nodes })
}

impl<'s> Run<'s> {
    fn new(setting: &'s Setting) -> Run<'s> {
        let Setting { machine, system, workload, .. } = setting;
        let policy = system.policy(machine);
        let workers = system.workers_on(machine);
        let node = |_| Node {
            memory: Memory::new(machine),
            workers: match system.own_rings {
                true => Workers::with_rings(workers, policy),
                false => Workers::new(workers, policy),
            },
            copied: NodeOutcome::default(),
        };
        let mut random = Random::new(setting.seed);
        let calls = workload.file_bytes / workload.bytes;
        let thread = |thread| Thread {
            node: workload.node(thread, machine.nodes, machine.cpus),
            offset: random.draw() % calls * workload.bytes,
            began: 0.0,
            own: Vec::new(),
            theirs: Vec::new(),
            left: 0,
            turns: Vec::new(),
            has_record: false,
        };
        Run {
            setting,
            policy,
            now: 0.0,
            events: Events::default(),
            nodes: (0..machine.nodes).map(node).collect(),
            threads: (0..workload.threads).map(thread).collect(),
            free_at: 0.0,
            latency: Latency::default(),
            bytes: 0,
            parts: Vec::new(),
            random: Random::new(setting.seed ^ 0x5eed),
        }
    }

    /// All threads begin, not at one time.
    fn begin(&mut self) {
        let mut random = Random::new(!self.setting.seed);
        for thread in 0..self.setting.workload.threads {
            let began = random.part() * 1e4;
            self.threads[thread as usize].began = began;
            self.events.at(began, Event::Call(thread));
        }
    }

    fn go_on(&mut self, until: f64) {
        loop {
            let mut first = (until, None);
            for (index, node) in self.nodes.iter().enumerate() {
                if let Some(time) = node.memory.next()
                    && time < first.0
                {
                    first = (time, Some(index));
                }
            }
            match self.events.next() {
                // of what is at one time, who is through comes later
                Some(time) if time <= first.0 => {
                    let Some(event) = self.events.take() else { break };
                    self.now = time;
                    self.happens(event);
                }
                _ => {
                    let (time, Some(node)) = first else { break };
                    self.now = time;
                    match self.nodes[node].memory.leave() {
                        Some(Owner::Thread(thread)) => self.own_done(thread),
                        Some(Owner::Worker(seat)) => self.worker_done(node as u32, seat),
                        None => {}
                    }
                }
            }
        }
        self.now = until;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Call(thread) => self.decide(thread),
            Event::Asked(thread) => self.ask(thread),
            Event::Own(thread) => {
                let it = &self.threads[thread as usize];
                if let Some(part) = it.own.last().copied() {
                    let load = self.load(part, part.node != it.node);
                    let memory = &mut self.nodes[part.node as usize].memory;
                    memory.enter(self.now, load, Owner::Thread(thread));
                }
            }
            Event::Worker(node, seat) => {
                if let Some(piece) = self.nodes[node as usize].workers.at(seat) {
                    let load = self.load(Part { node, bytes: piece.bytes }, false);
                    let memory = &mut self.nodes[node as usize].memory;
                    memory.enter(self.now, load, Owner::Worker(seat));
                }
            }
        }
    }

    fn kind(&self) -> Kind {
        self.setting.workload.kind
    }

    /// The memory moves whole granules.
    fn load(&self, part: Part, is_remote: bool) -> Load {
        let granule = self.setting.machine.granule_bytes.max(1);
        let bytes = part.bytes.next_multiple_of(granule);
        Load { kind: self.kind(), bytes, class: part.bytes, is_remote }
    }

    fn latency(&self, is_remote: bool) -> f64 {
        self.setting.machine.access(self.kind()).latency_ns[usize::from(is_remote)]
    }

    /// A thread begins a call.
    fn call(&mut self, thread: u32) {
        let index = index(self.kind());
        let System { call_ns, serial_ns, .. } = &self.setting.system;
        let mut ready = self.now + call_ns[index];
        if serial_ns[index] > 0.0 {
            ready = ready.max(self.free_at) + serial_ns[index];
            self.free_at = ready;
        }
        let it = &mut self.threads[thread as usize];
        (it.began, it.has_record) = (self.now, false);
        self.events.at(ready, Event::Call(thread));
    }

    /// The bytes of a call on each node, in the order in which they come.
    fn split(&mut self, thread: u32) {
        let Setting { system, workload, machine, .. } = self.setting;
        let it = &mut self.threads[thread as usize];
        self.parts.clear();
        let mut add = |node: u32, bytes: u64| {
            let known = self.parts.iter_mut().find(|part| part.node == node);
            match known {
                Some(part) => part.bytes += bytes,
                None => self.parts.push(Part { node, bytes }),
            }
        };
        match system.layout {
            Layout::One => add(0, workload.bytes),
            Layout::Near => add(it.node, workload.bytes),
            Layout::Stripe(stripe) => {
                let (mut at, end) = (it.offset, it.offset + workload.bytes);
                while at < end {
                    let next = ((at / stripe + 1) * stripe).min(end);
                    add(((at / stripe) % u64::from(machine.nodes)) as u32, next - at);
                    at = next;
                }
            }
        }
        it.offset += workload.bytes;
        if it.offset + workload.bytes > workload.file_bytes {
            it.offset = 0;
        }
    }

    /// Who copies what of a call.
    fn decide(&mut self, thread: u32) {
        self.split(thread);
        let (kind, workload) = (self.kind(), &self.setting.workload);
        let parts = std::mem::take(&mut self.parts);
        for part in &parts {
            let it = &mut self.threads[thread as usize];
            let workers = &mut self.nodes[part.node as usize].workers;
            let goes =
                workload.bytes <= BLOCK_BYTES && self.policy.block_goes(workers.waiting(kind));
            let access = Access {
                kind,
                bytes: part.bytes,
                is_local: part.node == it.node,
                active: workers.active(kind),
                waiting: workers.waiting(kind),
                served: workers.serve(),
            };
            let mut way = match self.policy.minds(kind, workload.bytes) && !goes {
                true => self.policy.decide(&access).way,
                false => Way::Direct,
            };
            if way == Way::Direct && self.policy.limits(kind) {
                match workers.try_enter(kind, part.bytes) {
                    Some(turns) => it.turns.push((part.node, turns)),
                    None if access.served => way = Way::Delegate,
                    None => it.turns.push((part.node, workers.enter(kind, part.bytes))),
                }
            }
            match way {
                Way::Direct => it.own.push(*part),
                Way::Delegate => {
                    let most = self.setting.system.piece_bytes.max(1);
                    for done in (0..part.bytes).step_by(most as usize) {
                        let bytes = most.min(part.bytes - done);
                        it.theirs.push(Part { bytes, ..*part });
                    }
                }
            }
        }
        self.parts = parts;
        let it = &mut self.threads[thread as usize];
        it.own.reverse();
        it.left = it.theirs.len() as u32;
        let has_own = !it.own.is_empty();
        if it.left > 0 {
            // who has a share of its own is at it meanwhile
            let wait = if has_own { 0.0 } else { self.setting.machine.hand_off_ns };
            self.events.at(self.now + wait, Event::Asked(thread));
        }
        if has_own {
            self.begin_own(thread);
        }
    }

    fn ask(&mut self, thread: u32) {
        let (kind, theirs) =
            (self.kind(), std::mem::take(&mut self.threads[thread as usize].theirs));
        for part in &theirs {
            let piece = Piece { thread, kind, bytes: part.bytes };
            let chance = self.random.draw();
            self.nodes[part.node as usize].workers.ask(piece, chance);
            self.serve(part.node);
        }
        let theirs_again = &mut self.threads[thread as usize].theirs;
        *theirs_again = theirs;
        theirs_again.clear();
    }

    /// Workers take what waits.
    fn serve(&mut self, node: u32) {
        while let Some((seat, _)) = self.nodes[node as usize].workers.take() {
            self.events.at(self.now + self.latency(false), Event::Worker(node, seat));
        }
    }

    fn begin_own(&mut self, thread: u32) {
        let it = &self.threads[thread as usize];
        if let Some(part) = it.own.last() {
            let wait = self.latency(part.node != it.node);
            self.events.at(self.now + wait, Event::Own(thread));
        }
    }

    /// A thread has copied a part itself.
    fn own_done(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        let Some(part) = it.own.pop() else { return };
        let copied = &mut self.nodes[part.node as usize].copied;
        match part.node == it.node {
            true => copied.local += part.bytes,
            false => copied.remote += part.bytes,
        }
        if !it.own.is_empty() {
            return self.begin_own(thread);
        }
        // before anybody is waited for
        let kind = self.kind();
        while let Some((node, turns)) = self.threads[thread as usize].turns.pop() {
            self.nodes[node as usize].workers.leave(kind, turns);
            self.serve(node);
        }
        self.end_if_done(thread);
    }

    fn worker_done(&mut self, node: u32, seat: u32) {
        let it = &mut self.nodes[node as usize];
        let Some(piece) = it.workers.done(seat) else { return };
        it.copied.workers += piece.bytes;
        self.threads[piece.thread as usize].left -= 1;
        self.serve(node);
        self.end_if_done(piece.thread);
    }

    /// What says that the bytes are there comes after them, and then the next call.
    fn end_if_done(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        if it.left > 0 || !it.own.is_empty() {
            return;
        }
        let Setting { system, workload, .. } = self.setting;
        let wants_record = workload.kind == Kind::Write && system.record_bytes > 0;
        if wants_record && !std::mem::replace(&mut it.has_record, true) {
            it.own.push(Part { node: it.node, bytes: system.record_bytes });
            return self.begin_own(thread);
        }
        self.latency.add(self.now - it.began);
        self.bytes += workload.bytes;
        self.call(thread);
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
