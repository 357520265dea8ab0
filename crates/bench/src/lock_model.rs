//! Many threads and the locks that they take: what one thread did, lock by lock, is played by as
//! many as asked for, each on a CPU of its own. Who finds a lock taken waits in its line.
//!
//! What it is not: a model of caches. A line that many CPUs write to costs each of them more than
//! it cost the one that was watched, and waking up takes no time here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A step of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// For so long, ns.
    Work(f64),
    /// Takes a lock.
    Take(Lock),
    /// Gives one back.
    Give(Lock),
}

/// A lock that a call takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Which one.
    pub id: usize,
    /// Each thread has its own.
    pub own: bool,
    /// Nobody else may have it.
    pub exclusive: bool,
    /// Where it is asked for.
    pub site: usize,
}

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Calls a second.
    pub rate: f64,
    /// Time that threads waited, by site, as a part of all their time.
    pub waits: HashMap<usize, f64>,
}

type Key = (usize, usize);

#[derive(Default)]
struct State {
    readers: u32,
    writer: bool,
    line: VecDeque<(usize, bool, f64)>,
}

impl State {
    fn admits(&self, exclusive: bool) -> bool {
        !self.writer && (!exclusive || self.readers == 0)
    }

    fn enter(&mut self, exclusive: bool) {
        if exclusive { self.writer = true } else { self.readers += 1 }
    }

    fn leave(&mut self, exclusive: bool) {
        if exclusive { self.writer = false } else { self.readers -= 1 }
    }
}

struct Thread {
    script: usize,
    step: usize,
    calls: usize,
}

struct Model<'s> {
    scripts: &'s [Vec<Step>],
    threads: Vec<Thread>,
    locks: HashMap<Key, State>,
    waits: HashMap<usize, f64>,
    /// When which thread goes on; the time in whole picoseconds, so that it has an order.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

const PICOS: f64 = 1e3;

/// So many threads make so many calls each, of these, one after the other.
pub fn play(scripts: &[Vec<Step>], threads: usize, calls: usize) -> Outcome {
    let thread = |index: usize| Thread { script: index * 7919 % scripts.len(), step: 0, calls };
    let mut model = Model {
        scripts,
        threads: (0..threads).map(thread).collect(),
        locks: HashMap::new(),
        waits: HashMap::new(),
        next: (0..threads).map(|index| Reverse((0, index))).collect(),
    };
    let (mut end, mut busy) = (0.0, 0.0);
    while let Some(Reverse((now, index))) = model.next.pop() {
        let now = now as f64 / PICOS;
        if model.go(index, now) {
            end = f64::max(end, now);
            busy += now;
        }
    }
    let waits = model.waits.into_iter().map(|(site, waited)| (site, waited / busy)).collect();
    Outcome { rate: (threads * calls) as f64 / end * 1e9, waits }
}

impl Model<'_> {
    /// The thread goes on until it works or waits; true: it has ended.
    fn go(&mut self, index: usize, now: f64) -> bool {
        loop {
            let thread = &mut self.threads[index];
            if thread.calls == 0 {
                return true;
            }
            let script = &self.scripts[thread.script];
            let Some(step) = script.get(thread.step).copied() else {
                thread.calls -= 1;
                thread.step = 0;
                thread.script = (thread.script + 1) % self.scripts.len();
                continue;
            };
            thread.step += 1;
            match step {
                Step::Work(nanos) => {
                    self.next.push(Reverse((((now + nanos) * PICOS) as u64, index)));
                    return false;
                }
                Step::Take(lock) => {
                    let state = self.locks.entry(key(lock, index)).or_default();
                    if !state.line.is_empty() || !state.admits(lock.exclusive) {
                        state.line.push_back((index, lock.exclusive, now));
                        // in vain, if it asked for another one meanwhile: it does not
                        *self.waits.entry(lock.site).or_default() -= now;
                        return false;
                    }
                    state.enter(lock.exclusive);
                }
                Step::Give(lock) => self.give(lock, index, now),
            }
        }
    }

    fn give(&mut self, lock: Lock, index: usize, now: f64) {
        let state = self.locks.entry(key(lock, index)).or_default();
        state.leave(lock.exclusive);
        while let Some((first, exclusive, _)) = state.line.front().copied()
            && state.admits(exclusive)
        {
            state.line.pop_front();
            state.enter(exclusive);
            let thread = &self.threads[first];
            if let Step::Take(taken) = self.scripts[thread.script][thread.step - 1] {
                *self.waits.entry(taken.site).or_default() += now;
            }
            self.next.push(Reverse(((now * PICOS) as u64, first)));
        }
    }
}

fn key(lock: Lock, thread: usize) -> Key {
    (lock.id, if lock.own { thread + 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(id: usize, own: bool, exclusive: bool) -> Lock {
        Lock { id, own, exclusive, site: id }
    }

    /// 1 us of work, then 1 us with a lock.
    fn script(lock: Lock) -> Vec<Vec<Step>> {
        vec![vec![Step::Work(1000.0), Step::Take(lock), Step::Work(1000.0), Step::Give(lock)]]
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.02, "{found} is not {wanted}");
    }

    #[test]
    fn a_lock_of_all_bounds_them_and_its_waits_are_its_own() {
        let one = script(lock(3, false, true));
        near(play(&one, 1, 100).rate, 0.5e6);
        // two fill it between them, more only wait
        near(play(&one, 2, 1000).rate, 1e6);
        let many = play(&one, 10, 1000);
        near(many.rate, 1e6);
        // of 10 us a call 2 are work
        near(many.waits[&3], 0.8);
    }

    #[test]
    fn locks_of_each_and_locks_with_others_bound_nobody() {
        for free in [lock(1, true, true), lock(1, false, false)] {
            let outcome = play(&script(free), 50, 100);
            near(outcome.rate, 25e6);
            assert!(outcome.waits.is_empty());
        }
    }

    #[test]
    fn who_wants_it_alone_waits_for_those_who_share_it_and_is_not_overtaken() {
        let (read, write) = (lock(1, false, false), lock(1, false, true));
        let mut scripts = script(read);
        scripts.extend(script(write));
        // threads alternate: each writer keeps all others out for half of its call
        let outcome = play(&scripts, 8, 1000);
        assert!(outcome.rate < 2e6 * 1.02 && outcome.rate > 1e6, "{}", outcome.rate);
        assert!(outcome.waits[&1] > 0.3);
    }
}
