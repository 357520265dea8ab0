//! What is to happen, in its order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// What happens at some time.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A thread is on its node, and wants a CPU.
    Begin(u32),
    /// It was at other things before its next call, on its CPU,
    Thought(u32),
    /// or will be, without one.
    Rests(u32),
    /// A thread has done what comes before it moves bytes.
    Call(u32),
    /// Its pieces are with the workers.
    Asked(u32),
    /// It is at the memory for the next of its own parts.
    Own(u32),
    /// A worker is.
    Worker(u32, u32),
}

#[derive(Clone, Copy, Debug)]
struct At {
    time: f64,
    /// Of two at one time the first is first.
    number: u64,
    event: Event,
}

impl PartialEq for At {
    fn eq(&self, other: &At) -> bool {
        self.number == other.number
    }
}

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &At) -> Ordering {
        self.time.total_cmp(&other.time).then(self.number.cmp(&other.number))
    }
}

/// What is to happen.
#[derive(Clone, Debug, Default)]
pub struct Events {
    coming: BinaryHeap<Reverse<At>>,
    number: u64,
}

impl Events {
    /// Something happens then.
    pub fn at(&mut self, time: f64, event: Event) {
        self.number += 1;
        self.coming.push(Reverse(At { time, number: self.number, event }));
    }

    /// When the next one does.
    pub fn next(&self) -> Option<f64> {
        self.coming.peek().map(|Reverse(at)| at.time)
    }

    /// Takes the next one.
    pub fn take(&mut self) -> Option<Event> {
        self.coming.pop().map(|Reverse(at)| at.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_their_times_and_then_as_they_were_said() {
        let mut events = Events::default();
        for (time, thread) in [(2.0, 1), (1.0, 2), (2.0, 3), (1.0, 4)] {
            events.at(time, Event::Call(thread));
        }
        let mut order = Vec::new();
        while let Some(time) = events.next() {
            if let Some(Event::Call(thread)) = events.take() {
                order.push((time, thread));
            }
        }
        assert_eq!(order, [(1.0, 2), (1.0, 4), (2.0, 1), (2.0, 3)]);
    }
}
