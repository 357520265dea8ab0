//! A node's memory for one kind of access: those who are at it share what it moves.
//!
//! What it moves depends on how many they are and on how large their accesses are, as the machine's
//! curve says, and each gets an equal share of what that is for accesses of its size; on other
//! nodes less. Time is the caller's to say, in seconds of the machine: nothing here waits.

use placement::MachineAccess;
use std::collections::HashMap;

const MIB: f64 = 1048576.0;
/// Less than this is nothing left of an access, bytes.
const CRUMB: f64 = 1e-3;

/// An access on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

#[derive(Clone, Debug)]
struct Passing {
    ticket: Ticket,
    /// Bytes that are left.
    left: f64,
    /// Bytes of the access, as the curve has them.
    class: u64,
    /// What is left of a share, from where the thread is.
    factor: f64,
}

/// Accesses of one kind to the memory of a node.
#[derive(Debug)]
pub struct Line {
    access: MachineAccess,
    now: f64,
    tickets: u64,
    passing: Vec<Passing>,
    /// By threads and class, bytes a second for each.
    shares: HashMap<(usize, u64), f64>,
}

impl Line {
    /// That of this memory, with nobody there.
    pub fn new(access: MachineAccess) -> Line {
        Line { access, now: 0.0, tickets: 0, passing: Vec::new(), shares: HashMap::new() }
    }

    /// An access begins: so many bytes to move, as a part of one that `class` bytes long.
    pub fn enter(&mut self, now: f64, bytes: u64, class: u64, is_remote: bool) -> Ticket {
        self.advance(now);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let factor = if is_remote { self.access.remote_factor } else { 1.0 };
        // runs grow, and what the curve does not tell apart is one class
        let class = class.min(self.access.local.largest());
        self.passing.push(Passing { ticket, left: bytes as f64, class, factor });
        ticket
    }

    /// Until when an access would last if nobody came, as it seems now; none: it is through.
    pub fn leaves(&mut self, now: f64, ticket: Ticket) -> Option<f64> {
        self.advance(now);
        if !self.is_passing(ticket) {
            return None;
        }
        // those before it are through earlier, and leave it more
        let (here, present) = (self.now, self.passing.clone());
        while self.is_passing(ticket) {
            self.step(f64::INFINITY);
        }
        self.passing = present;
        Some(std::mem::replace(&mut self.now, here))
    }

    /// An access goes no further.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.passing.retain(|it| it.ticket != ticket);
    }

    /// Threads that are at it.
    pub fn threads(&self) -> usize {
        self.passing.len()
    }

    fn is_passing(&self, ticket: Ticket) -> bool {
        self.passing.iter().any(|it| it.ticket == ticket)
    }

    fn advance(&mut self, now: f64) {
        while self.now < now && !self.passing.is_empty() {
            self.step(now);
        }
        self.now = self.now.max(now);
    }

    /// Until the next one is through, or until then.
    fn step(&mut self, until: f64) {
        let threads = self.passing.len();
        let rates: Vec<f64> =
            (0..threads).map(|index| self.share(threads, &self.passing[index].clone())).collect();
        let ends = self.passing.iter().zip(&rates).map(|(it, rate)| it.left / rate);
        let passed = ends.fold(until - self.now, f64::min).max(0.0);
        for (it, rate) in self.passing.iter_mut().zip(&rates) {
            it.left -= rate * passed;
        }
        self.now += passed;
        self.passing.retain(|it| it.left > CRUMB);
    }

    /// Bytes a second that one of so many gets.
    fn share(&mut self, threads: usize, it: &Passing) -> f64 {
        let local = &self.access.local;
        let whole = self.shares.entry((threads, it.class));
        let all = |threads: usize| local.rate(threads as u32, it.class) * MIB;
        *whole.or_insert_with(|| all(threads) / threads as f64) * it.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::{Class, Curve};

    /// 100 MiB/s for one, 200 for two, 80 for four; half of that from elsewhere.
    fn line() -> Line {
        let points = vec![(1, 100.0), (2, 200.0), (4, 80.0)];
        let local = Curve::new(vec![Class { bytes: 4096, points }]).unwrap();
        Line::new(MachineAccess { local, remote_factor: 0.5, latency_ns: [0.0, 0.0] })
    }

    const M: u64 = 1 << 20;

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn one_alone_gets_what_one_gets() {
        let mut line = line();
        let ticket = line.enter(1.0, M, M, false);
        near(line.leaves(1.0, ticket).unwrap(), 1.01);
        near(line.leaves(1.005, ticket).unwrap(), 1.01);
        assert_eq!(line.leaves(1.01, ticket), None);
        let remote = line.enter(2.0, M, M, true);
        near(line.leaves(2.0, remote).unwrap(), 2.02);
    }

    #[test]
    fn those_who_are_there_share_and_leave_more_to_who_stays() {
        let mut line = line();
        let all: Vec<Ticket> = (1..=4).map(|n| line.enter(0.0, n * M, 4096, false)).collect();
        assert_eq!(line.threads(), 4);
        // four get 20 each; three share what lies between 80 and 200
        near(line.leaves(0.0, all[0]).unwrap(), 0.05);
        let three = 140.0;
        let second = 0.05 + 1.0 / (three / 3.0);
        near(line.leaves(0.0, all[1]).unwrap(), second);
        // and two as much as two alone would
        near(line.leaves(0.0, all[2]).unwrap(), second + 0.01);
        near(line.leaves(0.0, all[3]).unwrap(), second + 0.01 + 0.01);
        // looking ahead changes nothing, and time has passed for all
        assert_eq!(line.leaves(0.06, all[0]), None);
        near(line.leaves(0.06, all[1]).unwrap(), second);
        assert_eq!(line.threads(), 3);
        assert_eq!(line.leaves(second + 0.03, all[3]), None);
        assert_eq!(line.threads(), 0);
    }

    #[test]
    fn who_comes_later_slows_who_is_there() {
        let mut line = line();
        let first = line.enter(0.0, M, 4096, false);
        let second = line.enter(0.005, M, 4096, true);
        // 100 to each: two move 200, and the one from elsewhere half of its share
        near(line.leaves(0.005, first).unwrap(), 0.01);
        let left = 1.0 - 0.005 * 50.0;
        near(line.leaves(0.005, second).unwrap(), 0.01 + left / 50.0);
    }
}
