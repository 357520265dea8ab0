//! A run, event by event.

use placement::{Kind, Policy};

use crate::cpus::Cpus;
use crate::events::{Event, Events};
use crate::files::{Files, Part};
use crate::latency::Latency;
use crate::memory::{Load, Memory, index};
use crate::movers::Mover;
use crate::outcome::{NodeOutcome, Outcome};
use crate::random::Random;
use crate::setting::{Refused, Setting};
use crate::system::System;
use crate::threads::Thread;
use crate::workers::Workers;
use crate::workload::Workload;

#[path = "copies.rs"]
mod copies;
#[path = "moves.rs"]
mod moves;

/// Who is at a memory.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Thread(u32),
    Worker(u32),
    /// The one who moves data to this node.
    Mover(u32),
}

struct Node {
    memory: Memory<Owner>,
    workers: Workers,
    cpus: Cpus,
    mover: Mover,
    copied: NodeOutcome,
}

struct Run<'s> {
    setting: &'s Setting,
    /// Those that count, and the others.
    workloads: Vec<&'s Workload>,
    policy: Policy,
    now: f64,
    events: Events,
    nodes: Vec<Node>,
    threads: Vec<Thread>,
    files: Files,
    /// When nobody is in what only one may be in.
    free_at: f64,
    latency: Latency,
    bytes: u64,
    thread_moves: u64,
    moved_bytes: u64,
    /// Of the call under consideration: by units, and by nodes.
    units: Vec<Part>,
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
    (run.bytes, run.thread_moves, run.moved_bytes) = (0, 0, 0);
    run.nodes.iter_mut().for_each(|node| node.copied = NodeOutcome::default());
    run.go_on(before + counted);
    let Run { latency, bytes, nodes, thread_moves, moved_bytes, .. } = run;
    let nodes = nodes.into_iter().map(|node| node.copied).collect();
    Ok(Outcome { time: counted, latency, bytes, nodes, thread_moves, moved_bytes })
}

impl<'s> Run<'s> {
    fn new(setting: &'s Setting) -> Run<'s> {
        let Setting { machine, system, workload, others, .. } = setting;
        let policy = system.policy(machine);
        let workers = system.workers_on(machine);
        let node = |_| Node {
            memory: Memory::new(machine),
            workers: match system.own_rings {
                true => Workers::with_rings(workers, policy),
                false => Workers::new(workers, policy),
            },
            cpus: Cpus::new(machine.cpus),
            mover: Mover::default(),
            copied: NodeOutcome::default(),
        };
        let workloads: Vec<&Workload> = std::iter::once(workload).chain(others).collect();
        let mut random = Random::new(setting.seed);
        let mut threads = Vec::new();
        for (set, workload) in workloads.iter().enumerate() {
            for thread in 0..workload.threads {
                let node = workload.node(thread, machine.nodes, machine.cpus);
                threads.push(Thread::new((set, workload), thread, node, &mut random));
            }
        }
        let laid = (system.layout, system.extent_bytes, system.data_rule());
        let on = (machine.nodes, machine.cpus);
        Run {
            setting,
            policy,
            now: 0.0,
            events: Events::default(),
            nodes: (0..machine.nodes).map(node).collect(),
            threads,
            files: Files::new(laid, on, &workloads, &mut random),
            workloads,
            free_at: 0.0,
            latency: Latency::default(),
            bytes: 0,
            thread_moves: 0,
            moved_bytes: 0,
            units: Vec::new(),
            parts: Vec::new(),
            random: Random::new(setting.seed ^ 0x5eed),
        }
    }

    /// All threads begin, not at one time.
    fn begin(&mut self) {
        let mut random = Random::new(!self.setting.seed);
        for (number, thread) in self.threads.iter().enumerate() {
            let from = self.workloads[thread.set].from_ns;
            self.events.at(from + random.part() * 1e4, Event::Begin(number as u32));
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
                        Some(Owner::Mover(to)) => self.mover_done(to),
                        None => {}
                    }
                }
            }
        }
        self.now = until;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Begin(thread) => self.come(thread),
            Event::Thought(thread) => self.begin_call(thread),
            Event::Rests(thread) => {
                let until = self.now + self.threads[thread as usize].thinks_ns;
                self.events.at(until, Event::Begin(thread));
                self.go(thread);
            }
            Event::Call(thread) => self.decide(thread),
            Event::Asked(thread) => self.ask(thread),
            Event::Own(thread) => {
                let it = &self.threads[thread as usize];
                if let Some(part) = it.own.last().copied() {
                    let load = self.load(it.call.kind, part.bytes, part.node != it.node);
                    let memory = &mut self.nodes[part.node as usize].memory;
                    memory.enter(self.now, load, Owner::Thread(thread));
                }
            }
            Event::Worker(node, seat) => {
                if let Some(piece) = self.nodes[node as usize].workers.at(seat) {
                    let load = self.load(piece.kind, piece.bytes, false);
                    let memory = &mut self.nodes[node as usize].memory;
                    memory.enter(self.now, load, Owner::Worker(seat));
                }
            }
        }
    }

    /// The memory moves whole granules.
    fn load(&self, kind: Kind, bytes: u64, is_remote: bool) -> Load {
        let granule = self.setting.machine.granule_bytes.max(1);
        Load { kind, bytes: bytes.next_multiple_of(granule), class: bytes, is_remote }
    }

    fn latency(&self, kind: Kind, is_remote: bool) -> f64 {
        self.setting.machine.access(kind).latency_ns[usize::from(is_remote)]
    }

    /// A thread is where it is to run, and wants a CPU.
    fn come(&mut self, thread: u32) {
        let node = self.threads[thread as usize].node;
        if self.nodes[node as usize].cpus.come(thread) {
            self.has_cpu(thread);
        }
    }

    fn has_cpu(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        it.runs = Some(self.now);
        match (it.is_at_call, it.is_due) {
            (true, _) => self.decide(thread),
            (false, true) => self.begin_call(thread),
            (false, false) => self.call(thread),
        }
    }

    /// A thread leaves the CPU that it has.
    fn go(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        it.runs = None;
        if let Some(next) = self.nodes[it.node as usize].cpus.go() {
            self.has_cpu(next);
        }
    }

    /// A thread has nothing to do but its next call, when it has thought.
    fn call(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        it.next(self.workloads[it.set], &mut self.random);
        it.is_due = true;
        let until = self.now + it.thinks_ns;
        match self.workloads[it.set].trace {
            _ if it.thinks_ns <= 0.0 => self.begin_call(thread),
            // what was recorded may have waited for anything
            Some(_) => self.events.at(self.now, Event::Rests(thread)),
            None => self.events.at(until, Event::Thought(thread)),
        }
    }

    /// A thread begins a call.
    fn begin_call(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        let workload = self.workloads[it.set];
        let index = index(it.call.kind);
        let System { call_ns, serial_ns, .. } = &self.setting.system;
        let mut ready = self.now + call_ns[index];
        if it.call.opens {
            ready += workload.file_ns;
        }
        if serial_ns[index] > 0.0 {
            ready = ready.max(self.free_at) + serial_ns[index];
            self.free_at = ready;
        }
        (it.began, it.has_record, it.is_at_call) = (self.now, false, true);
        it.is_due = false;
        self.events.at(ready, Event::Call(thread));
    }

    /// The bytes of a call by units, and on each node, in the order in which they come.
    fn split(&mut self, thread: u32) {
        let it = &self.threads[thread as usize];
        let (call, set) = (it.call, it.set);
        self.units.clear();
        self.parts.clear();
        match call.file {
            Some((file, at)) => {
                if call.makes {
                    let node = self.place(thread);
                    self.files.make(set, file, node);
                }
                self.files.split(set, file, (at, call.bytes), &mut self.units);
            }
            None => {
                let logged = self.threads[thread as usize].logged;
                let node = self.files.log(set, self.place(thread), logged);
                self.parts.push(Part { node, bytes: call.bytes, unit: usize::MAX });
            }
        }
        for unit in &self.units {
            match self.parts.iter_mut().find(|part| part.node == unit.node) {
                Some(part) => part.bytes += unit.bytes,
                None => self.parts.push(*unit),
            }
        }
    }

    /// What says that the bytes are there comes after them, and then the next call.
    fn end_if_done(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        if it.left > 0 || !it.own.is_empty() {
            return;
        }
        let bytes = self.setting.system.record_bytes;
        let wants_record = it.call.kind == Kind::Write && bytes > 0;
        if wants_record && !std::mem::replace(&mut it.has_record, true) {
            it.own.push(Part { node: it.node, bytes, unit: usize::MAX });
            return self.begin_own(thread);
        }
        it.is_at_call = false;
        if it.set == 0 {
            self.latency.add(self.now - it.began);
            self.bytes += it.call.bytes;
        }
        let ran = it.runs.map_or(0.0, |since| self.now - since);
        if self.nodes[it.node as usize].cpus.is_over(ran) {
            self.go(thread);
            return self.come(thread);
        }
        self.call(thread);
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
