//! The CPUs of a node: who is there and has none waits for one.

use std::collections::VecDeque;

/// So long a thread runs while others wait, ns.
const SLICE: f64 = 1e6;

/// The CPUs of a node.
#[derive(Clone, Debug)]
pub struct Cpus {
    cpus: u32,
    running: u32,
    waiting: VecDeque<u32>,
}

impl Cpus {
    /// So many.
    pub fn new(cpus: u32) -> Cpus {
        Cpus { cpus, running: 0, waiting: VecDeque::new() }
    }

    /// Threads that run here or want to.
    pub fn threads(&self) -> u32 {
        self.running + self.waiting.len() as u32
    }

    /// A thread wants one: whether it has one now; otherwise it waits.
    pub fn come(&mut self, thread: u32) -> bool {
        let is_free = self.running < self.cpus;
        match is_free {
            true => self.running += 1,
            false => self.waiting.push_back(thread),
        }
        is_free
    }

    /// Whether a thread that has run so long is to let another one go on.
    pub fn is_over(&self, ran: f64) -> bool {
        !self.waiting.is_empty() && ran >= SLICE
    }

    /// A thread leaves its CPU: who has it now.
    pub fn go(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        self.running -= u32::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_none_waits_for_the_next_one() {
        let mut cpus = Cpus::new(2);
        assert!(cpus.come(1) && cpus.come(2));
        assert!(!cpus.is_over(SLICE));
        assert!(!cpus.come(3) && !cpus.come(4));
        assert!(cpus.is_over(SLICE) && !cpus.is_over(SLICE / 2.0));
        assert_eq!(
            (cpus.threads(), cpus.go(), cpus.go(), cpus.threads()),
            (4, Some(3), Some(4), 2)
        );
        assert_eq!((cpus.go(), cpus.threads()), (None, 1));
        assert!(cpus.come(5));
    }
}
