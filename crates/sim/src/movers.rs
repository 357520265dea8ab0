//! Who moves data: one for each node, to which it comes.

use std::collections::{HashSet, VecDeque};

/// Most bytes that are copied at once.
const PIECE: u64 = 256 << 10;
/// Most units that wait: what is so far behind finds another time.
const QUEUE: usize = 4096;

/// Moves data to a node.
#[derive(Clone, Debug, Default)]
pub struct Mover {
    /// Units, and what accesses to each are long.
    waiting: VecDeque<(usize, u64)>,
    /// What waits or is copied.
    known: HashSet<usize>,
    at: Option<At>,
}

/// What it is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// The unit,
    pub unit: usize,
    /// where it is,
    pub from: u32,
    /// how often it had been written to when this began,
    pub writes: u32,
    /// and bytes of it that are still to copy, the piece under way included.
    pub left: u64,
    /// The piece was read, and is to be written.
    pub is_read: bool,
}

impl At {
    /// Bytes of the piece under way.
    pub fn piece(&self) -> u64 {
        self.left.min(PIECE)
    }
}

impl Mover {
    /// A unit is to come here, for accesses of so many bytes: whether it does, and was not to.
    pub fn ask(&mut self, unit: usize, bytes: u64) -> bool {
        let comes = self.waiting.len() < QUEUE && self.known.insert(unit);
        if comes {
            self.waiting.push_back((unit, bytes));
        }
        comes
    }

    /// What it is at.
    pub fn at(&self) -> Option<At> {
        self.at
    }

    /// The next one that waits, where it is at none.
    pub fn next(&mut self) -> Option<(usize, u64)> {
        if self.at.is_some() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// It begins with it,
    pub fn begin(&mut self, at: At) {
        self.at = Some(at);
    }

    /// or lets it be.
    pub fn forget(&mut self, unit: usize) {
        self.known.remove(&unit);
    }

    /// A piece was read, or written: what it is at then; none: that was all.
    pub fn step(&mut self) -> Option<At> {
        let mut at = self.at?;
        if at.is_read {
            at.left -= at.piece();
        }
        at.is_read = !at.is_read;
        self.at = (at.left > 0).then_some(at);
        self.at
    }

    /// It is at none any more.
    pub fn end(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_read_and_written_piece_by_piece() {
        let mut mover = Mover::default();
        assert!(mover.ask(7, 1) && !mover.ask(7, 2) && mover.ask(8, 3));
        assert_eq!(mover.next(), Some((7, 1)));
        mover.begin(At { unit: 7, from: 1, writes: 0, left: PIECE + 10, is_read: false });
        assert_eq!(mover.next(), None);
        let steps: Vec<_> =
            (0..3).filter_map(|_| mover.step()).map(|at| (at.is_read, at.piece())).collect();
        assert_eq!(steps, [(true, PIECE), (false, 10), (true, 10)]);
        assert_eq!(mover.step(), None);
        mover.forget(7);
        assert!(mover.next() == Some((8, 3)) && mover.ask(7, 1));
    }
}
