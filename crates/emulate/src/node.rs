//! Threads that wait for memory which is not here.

use crate::line::Line;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use placement::{Kind, Machine, MachineAccess, Policy};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use topology::Topology;

const KINDS: [Kind; 2] = [Kind::Read, Kind::Write];

/// A machine that is played.
#[derive(Debug)]
pub struct Emulation {
    play: Arc<Play>,
    nodes: Vec<Arc<Node>>,
    topology: Topology,
}

/// What its nodes share.
#[derive(Debug)]
struct Play {
    machine: Machine,
    /// Seconds at hand for a second of the machine.
    stretch: f64,
    began: Instant,
    /// Accesses wait; else they pass at once.
    goes: AtomicBool,
}

/// The memory of a node.
#[derive(Debug)]
struct Node {
    play: Arc<Play>,
    node: u32,
    lines: [CachePadded<Mutex<Line>>; 2],
}

/// What a thread accessed last, of one kind.
#[derive(Clone, Copy, Default)]
struct Run {
    node: u32,
    /// Where it ended.
    end: u64,
    /// Bytes that it moved one behind the other: one access for the memory, in however many steps.
    bytes: u64,
}

thread_local! {
    static RUNS: [Cell<Run>; 2] = const { [const { Cell::new(NOWHERE) }; 2] };
    /// About how long a sleep lasts beyond its time.
    static LATE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static IS_PUNCTUAL: Cell<bool> = const { Cell::new(false) };
}

/// More is an accident.
const LATEST: Duration = Duration::from_micros(200);
const NOWHERE: Run = Run { node: u32::MAX, end: 0, bytes: 0 };

impl Emulation {
    /// Of this machine; a second of its is `stretch` seconds at hand. Its memory answers at once
    /// until [`start`](Emulation::start).
    pub fn new(machine: Machine, stretch: f64) -> topology::Result<Arc<Emulation>> {
        let topology = Topology::described(machine.nodes, machine.cpus)?;
        let goes = AtomicBool::new(false);
        let play = Arc::new(Play { machine, stretch, began: Instant::now(), goes });
        let line = |kind| Mutex::new(Line::new(play.machine.access(kind).clone())).into();
        let node = |node| Arc::new(Node { play: play.clone(), node, lines: KINDS.map(line) });
        let nodes = (0..play.machine.nodes).map(node).collect();
        Ok(Arc::new(Emulation { nodes, topology, play }))
    }

    /// From now on accesses wait.
    pub fn start(&self) {
        self.play.goes.store(true, Ordering::SeqCst);
    }

    /// From now on they do not.
    pub fn stop(&self) {
        self.play.goes.store(false, Ordering::SeqCst);
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.play.machine
    }

    /// The policy that suits it.
    pub fn policy(&self) -> Policy {
        self.play.machine.policy()
    }

    /// So much time of the machine, for so much time at hand.
    pub fn machine_time(&self, at_hand: Duration) -> Duration {
        at_hand.div_f64(self.play.stretch)
    }
}

impl pool::Emulated for Emulation {
    fn topology(&self) -> Topology {
        self.topology.clone()
    }

    fn memory(&self, node: u32) -> Arc<dyn pmem::Charge> {
        self.nodes[node as usize % self.nodes.len()].clone()
    }

    fn stretch(&self) -> f64 {
        self.play.stretch
    }

    fn hand_over(&self) {
        self.play.wait(self.play.machine.hand_off_ns / 1e9);
    }
}

impl Play {
    /// Seconds of the machine since it began.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64() / self.stretch
    }

    /// So many seconds of the machine pass.
    fn wait(&self, seconds: f64) {
        if seconds > 0.0 && self.goes.load(Ordering::Relaxed) {
            sleep(Duration::from_secs_f64(seconds * self.stretch));
        }
    }
}

/// Sleeps, and is in time on average: it sleeps for as much less as it came late before, and waits
/// for what is left.
fn sleep(time: Duration) {
    be_punctual();
    let began = Instant::now();
    let late = LATE.get();
    if time > late {
        std::thread::sleep(time - late);
        let woke = began.elapsed();
        let now = (woke + late).saturating_sub(time).min(LATEST);
        LATE.set((late * 7 + now) / 8);
    }
    // not yielding: who gets the CPU then may keep it for milliseconds
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sleeps of this thread end when they should: the kernel adds 50 us otherwise.
fn be_punctual() {
    if !IS_PUNCTUAL.replace(true) {
        // who is not stays less so
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}

impl Node {
    fn pass(&self, kind: Kind, offset: u64, bytes: u64) {
        if bytes == 0 || !self.play.goes.load(Ordering::Relaxed) {
            return;
        }
        let index = usize::from(kind == Kind::Write);
        let machine = &self.play.machine;
        let access = machine.access(kind);
        let is_remote = self.is_remote();
        let run = RUNS.with(|runs| {
            let run = runs[index].get();
            let goes_on = run.node == self.node && run.end == offset;
            let before = if goes_on { run.bytes } else { 0 };
            let run = Run { node: self.node, end: offset + bytes, bytes: before + bytes };
            runs[index].set(run);
            run
        });
        let entered = self.play.now();
        let moved = bytes.next_multiple_of(machine.granule_bytes.max(1));
        let line = &self.lines[index];
        let ticket = line.lock().enter(entered, moved, run.bytes, is_remote);
        loop {
            let now = self.play.now();
            let leaves = line.lock().leaves(now, ticket);
            let Some(leaves) = leaves else { break };
            if !self.play.goes.load(Ordering::Relaxed) {
                line.lock().abandon(ticket);
                break;
            }
            self.play.wait(leaves - now);
        }
        self.play.wait(latency(access, &run, bytes, is_remote) - (self.play.now() - entered));
    }

    /// Whether the calling thread is on another node.
    fn is_remote(&self) -> bool {
        topology::recent_cpu() / self.play.machine.cpus.max(1) != self.node
    }
}

/// Least time of an access; a run has it once.
fn latency(access: &MachineAccess, run: &Run, bytes: u64, is_remote: bool) -> f64 {
    match run.bytes == bytes {
        true => access.latency_ns[usize::from(is_remote)] / 1e9,
        false => 0.0,
    }
}

impl pmem::Charge for Node {
    fn read(&self, offset: u64, bytes: usize) {
        self.pass(Kind::Read, offset, bytes as u64);
    }

    fn write(&self, offset: u64, bytes: usize) {
        self.pass(Kind::Write, offset, bytes as u64);
    }
}
