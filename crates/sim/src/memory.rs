//! A node's memory: those who are at it share what it moves.
//!
//! What it moves of one kind depends on how many threads are at it and on how large their accesses
//! are, as the machine's curve says; each gets an equal share, and from another node a part of one.
//! Reads and writes take turns at the memory: where both together would keep it busy for more time
//! than there is, each gets less in that measure. Threads beyond those that move the most keep it
//! busy all the time, though they get less out of it. All who are on other nodes share its link;
//! where the memory itself keeps who has what of it in a cache, what they read makes it write.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use placement::{Kind, Machine, MachineAccess};

/// Bytes a nanosecond that are a MiB a second.
const MIB_A_SECOND: f64 = 1048576.0 / 1e9;
/// Of late is so long, ns: what was before counts less and less.
const LATELY: f64 = 1e7;

/// An access, as the memory sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Which way.
    pub kind: Kind,
    /// Bytes to move,
    pub bytes: u64,
    /// as a part of an access that is so long.
    pub class: u64,
    /// From another node.
    pub is_remote: bool,
}

/// The memory of a node; who is at it is an `O`.
#[derive(Clone, Debug)]
pub struct Memory<O> {
    access: [MachineAccess; 2],
    /// What all on other nodes get together at most, bytes a ns.
    link: f64,
    /// Bytes that it writes for each that they read.
    directory: f64,
    /// The part of the time for which it is busy; over 1 where more want it than it has time for.
    busy_now: f64,
    /// That as it was of late.
    busy: f64,
    now: f64,
    /// Threads at it, of each kind.
    threads: [usize; 2],
    groups: Vec<Group<O>>,
    /// Numbers of those who came, so that of two who are through at once the first is first.
    comers: u64,
}

/// Those who get the same.
#[derive(Clone, Debug)]
struct Group<O> {
    kind: usize,
    class: u64,
    is_remote: bool,
    /// The most that the memory moves of such accesses, by so many threads, and that in bytes a ns;
    peak: (u32, f64),
    /// and what one of so many threads gets, as far as it was asked for.
    shares: Vec<f64>,
    /// Bytes that one who was always there would have moved by now.
    clock: f64,
    /// How fast that goes.
    rate: f64,
    passing: BinaryHeap<Passing<O>>,
}

#[derive(Clone, Debug)]
struct Passing<O> {
    /// Where the clock stands when it is through.
    until: f64,
    number: u64,
    owner: O,
}

impl<O> Passing<O> {
    fn rank(&self) -> (f64, u64) {
        (self.until, self.number)
    }
}

impl<O> PartialEq for Passing<O> {
    fn eq(&self, other: &Passing<O>) -> bool {
        self.number == other.number
    }
}

impl<O> Eq for Passing<O> {}

impl<O> PartialOrd for Passing<O> {
    fn partial_cmp(&self, other: &Passing<O>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<O> Ord for Passing<O> {
    /// The first one is the greatest.
    fn cmp(&self, other: &Passing<O>) -> Ordering {
        let ((until, number), theirs) = (self.rank(), other.rank());
        theirs.0.total_cmp(&until).then(theirs.1.cmp(&number))
    }
}

/// The places of kinds among both.
const READ: usize = 0;
const WRITE: usize = 1;

/// The place of a kind among both.
pub fn index(kind: Kind) -> usize {
    match kind {
        Kind::Read => READ,
        Kind::Write => WRITE,
    }
}

impl<O> Memory<O> {
    /// That of this machine's nodes, with nobody there.
    pub fn new(machine: &Machine) -> Memory<O> {
        Memory {
            access: [machine.read.clone(), machine.write.clone()],
            link: machine.link * MIB_A_SECOND,
            directory: machine.directory,
            busy_now: 0.0,
            busy: 0.0,
            now: 0.0,
            threads: [0; 2],
            groups: Vec::new(),
            comers: 0,
        }
    }

    /// An access begins.
    pub fn enter(&mut self, now: f64, load: Load, owner: O) {
        self.advance(now);
        let group = self.group(&load);
        let Group { clock, passing, .. } = &mut self.groups[group];
        let until = *clock + load.bytes as f64;
        passing.push(Passing { until, number: self.comers, owner });
        self.comers += 1;
        self.threads[index(load.kind)] += 1;
        self.share_out();
    }

    /// When the next one is through, if nobody comes.
    pub fn next(&self) -> Option<f64> {
        self.next_of().map(|(at, _)| at)
    }

    fn next_of(&self) -> Option<(f64, usize)> {
        let mut first: Option<(f64, u64, usize)> = None;
        for (index, group) in self.groups.iter().enumerate() {
            let Some(passing) = group.passing.peek() else { continue };
            let at = self.now + (passing.until - group.clock).max(0.0) / group.rate;
            let is_first = first
                .is_none_or(|(best, number, _)| at < best || at == best && passing.number < number);
            if is_first {
                first = Some((at, passing.number, index));
            }
        }
        first.map(|(at, _, index)| (at, index))
    }

    /// Takes the one who is through next, at the time that [`next`](Memory::next) says.
    pub fn leave(&mut self) -> Option<O> {
        let (at, index) = self.next_of()?;
        self.advance(at);
        let group = &mut self.groups[index];
        let passing = group.passing.pop()?;
        // what the sums have lost is no bytes
        group.clock = group.clock.max(passing.until);
        if group.passing.is_empty() {
            group.clock = 0.0;
        }
        self.threads[group.kind] -= 1;
        self.share_out();
        Some(passing.owner)
    }

    fn advance(&mut self, now: f64) {
        let passed = now - self.now;
        if passed > 0.0 {
            let busy = self.groups.iter_mut().filter(|group| !group.passing.is_empty());
            busy.for_each(|group| group.clock += group.rate * passed);
            self.busy += (self.busy_now.min(1.0) - self.busy) * passed / (LATELY + passed);
            self.now = now;
        }
    }

    fn group(&mut self, load: &Load) -> usize {
        let kind = index(load.kind);
        let access = &self.access[kind];
        // what the curve does not tell apart is one class
        let class = load.class.min(access.local.largest());
        let is_it = |group: &Group<O>| {
            (group.kind, group.class, group.is_remote) == (kind, class, load.is_remote)
        };
        self.groups.iter().position(is_it).unwrap_or_else(|| {
            let (threads, rate) = access.local.peak(class);
            let peak = (threads, rate * MIB_A_SECOND);
            self.groups.push(Group {
                kind,
                class,
                is_remote: load.is_remote,
                peak,
                shares: Vec::new(),
                clock: 0.0,
                rate: 0.0,
                passing: BinaryHeap::new(),
            });
            self.groups.len() - 1
        })
    }

    /// What each one gets from now on.
    fn share_out(&mut self) {
        let (mut busy, mut over_link) = (0.0, 0.0);
        let mut writes_for_reads = false;
        for group in &mut self.groups {
            let members = group.passing.len();
            if members > 0 {
                let threads = self.threads[group.kind];
                let access = &self.access[group.kind];
                let share = group.share(access, threads);
                busy += members as f64 * group.keeps_busy(share, threads);
                group.rate = if group.is_remote { share * access.remote_factor } else { share };
                if group.is_remote {
                    let rate = members as f64 * group.rate;
                    over_link += rate;
                    if group.kind == READ && self.directory > 0.0 {
                        writes_for_reads = true;
                        let writers = self.threads[WRITE] + members;
                        busy += rate * self.directory / written(&self.access, writers, group.class);
                    }
                }
            }
        }
        self.busy_now = busy;
        // one kind alone is never busier than it can be
        let is_mixed = self.threads[READ] > 0 && self.threads[WRITE] > 0 || writes_for_reads;
        let slower = if is_mixed { busy.max(1.0) } else { 1.0 };
        let slower_far = slower.max(over_link / self.link);
        if slower_far > 1.0 {
            for group in &mut self.groups {
                group.rate /= if group.is_remote { slower_far } else { slower };
            }
        }
    }

    /// The part of the time for which it was busy of late.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// What an access would take that came now, if all stayed as it is, ns.
    pub fn would_take(&mut self, load: Load) -> f64 {
        let kind = index(load.kind);
        let found = self.group(&load);
        let threads = self.threads[kind] + 1;
        let access = &self.access[kind];
        let share = self.groups[found].share(access, threads);
        let mut busy = self.busy_now + self.groups[found].keeps_busy(share, threads);
        let mut is_mixed = self.threads[1 - kind] > 0;
        if kind == READ && load.is_remote && self.directory > 0.0 {
            is_mixed = true;
            let class = self.groups[found].class;
            busy += share * self.directory / written(&self.access, self.threads[WRITE] + 1, class);
        }
        let share = if is_mixed && busy > 1.0 { share / busy } else { share };
        let rate = match load.is_remote {
            true => {
                let far = |group: &&Group<O>| group.is_remote;
                let others = self.groups.iter().filter(far).map(|group| group.passing.len());
                let sharers = others.sum::<usize>() as f64 + 1.0;
                (share * access.remote_factor).min(self.link / sharers)
            }
            false => share,
        };
        access.latency_ns[usize::from(load.is_remote)] + load.bytes as f64 / rate
    }
}

/// What so many threads write, bytes a ns.
fn written(access: &[MachineAccess; 2], threads: usize, class: u64) -> f64 {
    access[WRITE].local.rate(threads as u32, class) * MIB_A_SECOND
}

impl<O> Group<O> {
    /// What one of so many threads gets of the memory of its own node.
    fn share(&mut self, access: &MachineAccess, threads: usize) -> f64 {
        let class = self.class;
        let known = self.shares.len();
        if known <= threads {
            let share = |threads: usize| {
                let threads = threads.max(1);
                access.local.rate(threads as u32, class) * MIB_A_SECOND / threads as f64
            };
            self.shares.extend((known..=threads).map(share));
        }
        self.shares[threads]
    }

    /// The part of the time for which one of so many threads keeps the memory busy.
    fn keeps_busy(&self, share: f64, threads: usize) -> f64 {
        match threads >= self.peak.0 as usize {
            true => 1.0 / threads as f64,
            false => share / self.peak.1,
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
