//! The workers of a node: what waits for them, and turns.

use std::collections::VecDeque;

use placement::{Kind, PIECE_BYTES, Policy, SHORT_BYTES, Taken};

use crate::memory::index;

/// What a worker is asked to copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Whose it is.
    pub thread: u32,
    /// Which way.
    pub kind: Kind,
    /// How much.
    pub bytes: u64,
}

/// What waits, of one kind: short pieces, and long ones.
#[derive(Clone, Debug, Default)]
struct Line {
    pieces: [VecDeque<Piece>; 2],
    /// Bytes of short ones that were served beyond those of long ones, while both waited.
    ahead: i64,
}

impl Line {
    fn push(&mut self, piece: Piece) {
        self.pieces[usize::from(piece.bytes > SHORT_BYTES)].push_back(piece);
    }

    /// Pieces that wait before one of so many bytes.
    fn before(&self, bytes: u64) -> usize {
        let [short, long] = self.pieces.each_ref().map(VecDeque::len);
        if bytes > SHORT_BYTES { short + long } else { short }
    }

    fn is_long(&self) -> bool {
        match self.pieces.each_ref().map(VecDeque::is_empty) {
            [false, false] => self.ahead > 0,
            [has_no_short, _] => has_no_short,
        }
    }

    fn front(&self, is_long: bool) -> Option<Piece> {
        self.pieces[usize::from(is_long)].front().copied()
    }

    fn pop(&mut self, is_long: bool) -> Option<Piece> {
        let piece = self.pieces[usize::from(is_long)].pop_front()?;
        let most = PIECE_BYTES as i64;
        self.ahead = match self.pieces[usize::from(!is_long)].is_empty() {
            true => 0,
            false if is_long => (self.ahead - piece.bytes as i64).max(-most),
            false => (self.ahead + piece.bytes as i64).min(most),
        };
        Some(piece)
    }
}

/// The workers of a node.
#[derive(Clone, Debug)]
pub struct Workers {
    policy: Policy,
    waiting: [Line; 2],
    /// Turns that are taken.
    taken: [Taken; 2],
    /// What each worker is at.
    seats: Vec<Option<Piece>>,
    idle: Vec<u32>,
    /// Reads and writes take turns.
    first: Kind,
    /// What waits for each worker alone, where each has a ring of its own.
    rings: Option<Vec<VecDeque<Piece>>>,
}

impl Workers {
    /// So many, and what the node's memory likes.
    pub fn new(workers: u32, policy: Policy) -> Workers {
        Workers {
            policy,
            waiting: Default::default(),
            taken: Default::default(),
            seats: vec![None; workers as usize],
            idle: (0..workers).rev().collect(),
            first: Kind::Write,
            rings: None,
        }
    }

    /// The same, each with a ring of its own.
    pub fn with_rings(workers: u32, policy: Policy) -> Workers {
        let rings = Some(vec![VecDeque::new(); workers as usize]);
        Workers { rings, ..Workers::new(workers, policy) }
    }

    /// Whether there are any.
    pub fn serve(&self) -> bool {
        !self.seats.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Turns that are taken, as far as they count for an access of so many bytes.
    pub fn active(&self, kind: Kind, bytes: u64) -> u32 {
        self.taken[index(kind)].before(bytes)
    }

    /// Pieces that wait before one of so many bytes.
    pub fn waiting(&self, kind: Kind, bytes: u64) -> u64 {
        self.waiting[index(kind)].before(bytes) as u64
    }

    /// Takes the turns of an access of so many bytes, if they are there.
    pub fn try_enter(&mut self, kind: Kind, bytes: u64) -> Option<u32> {
        let side = self.policy.side(kind);
        let turns = side.turns(bytes).min(side.limit);
        let taken = &mut self.taken[index(kind)];
        *taken = taken.with(turns, bytes, side.limit)?;
        Some(turns)
    }

    /// Takes them whether they are there or not.
    pub fn enter(&mut self, kind: Kind, bytes: u64) -> u32 {
        let side = self.policy.side(kind);
        let turns = side.turns(bytes).min(side.limit);
        let taken = &mut self.taken[index(kind)];
        *taken = taken.and(turns, bytes);
        turns
    }

    /// Gives turns back.
    pub fn leave(&mut self, kind: Kind, turns: u32, bytes: u64) {
        let taken = &mut self.taken[index(kind)];
        *taken = taken.without(turns, bytes);
    }

    /// A piece waits from now on; of the workers, where each has a ring, for one that chance says.
    pub fn ask(&mut self, piece: Piece, chance: u64) {
        match &mut self.rings {
            Some(rings) => {
                let ring = (chance % rings.len() as u64) as usize;
                rings[ring].push_back(piece);
            }
            None => self.waiting[index(piece.kind)].push(piece),
        }
    }

    /// A worker that is idle takes a piece that waits, if it may: the worker, and the piece.
    pub fn take(&mut self) -> Option<(u32, Piece)> {
        if let Some(rings) = &mut self.rings {
            let has_some = |seat: &u32| !rings[*seat as usize].is_empty();
            let at = self.idle.iter().position(has_some)?;
            let seat = self.idle.swap_remove(at);
            let piece = rings[seat as usize].pop_front()?;
            self.seats[seat as usize] = Some(piece);
            return Some((seat, piece));
        }
        let seat = *self.idle.last()?;
        self.first = other(self.first);
        let piece = [self.first, other(self.first)].into_iter().find_map(|kind| {
            let is_long = self.waiting[index(kind)].is_long();
            // where there are no turns for the one, there may be for the other
            [is_long, !is_long].into_iter().find_map(|is_long| {
                let piece = self.waiting[index(kind)].front(is_long)?;
                self.try_enter(kind, piece.bytes)?;
                self.waiting[index(kind)].pop(is_long)
            })
        })?;
        self.idle.pop();
        self.seats[seat as usize] = Some(piece);
        Some((seat, piece))
    }

    /// What a worker is at.
    pub fn at(&self, seat: u32) -> Option<Piece> {
        self.seats[seat as usize]
    }

    /// A worker has copied its piece.
    pub fn done(&mut self, seat: u32) -> Option<Piece> {
        let piece = self.seats[seat as usize].take()?;
        if self.rings.is_none() {
            let side = self.policy.side(piece.kind);
            self.leave(piece.kind, side.turns(piece.bytes).min(side.limit), piece.bytes);
        }
        self.idle.push(seat);
        Some(piece)
    }
}

fn other(kind: Kind) -> Kind {
    match kind {
        Kind::Read => Kind::Write,
        Kind::Write => Kind::Read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::{NO_LIMIT, Side};

    fn piece(kind: Kind, bytes: u64) -> Piece {
        Piece { thread: 0, kind, bytes }
    }

    #[test]
    fn pieces_are_taken_in_order_by_as_many_as_may() {
        let write = Side { limit: 2, ..Side::default() };
        let mut workers = Workers::new(3, Policy { write, ..Policy::default() });
        for bytes in [1, 2, 3] {
            workers.ask(piece(Kind::Write, bytes), 0);
        }
        let (first, taken) = workers.take().unwrap();
        assert_eq!((taken.bytes, workers.take().unwrap().1.bytes), (1, 2));
        assert_eq!(workers.take(), None, "there are two turns");
        assert_eq!((workers.active(Kind::Write, 1), workers.waiting(Kind::Write, 1)), (2, 1));
        assert_eq!(workers.try_enter(Kind::Write, 1), None);
        // of the other kind there are any number
        workers.ask(piece(Kind::Read, 9), 0);
        assert_eq!(workers.take().unwrap().1.bytes, 9);
        assert_eq!(workers.done(first).map(|piece| piece.bytes), Some(1));
        assert_eq!(workers.take().unwrap().1.bytes, 3);
        assert_eq!(workers.done(first).map(|piece| piece.bytes), Some(3));
        assert_eq!((workers.take(), workers.active(Kind::Write, 1)), (None, 1));
    }

    #[test]
    fn large_pieces_take_more_turns() {
        let read = Side { limit: 5, large_turns: 2, ..Side::default() };
        let mut workers = Workers::new(8, Policy { read, ..Policy::default() });
        (0..4).for_each(|_| workers.ask(piece(Kind::Read, 1 << 20), 0));
        let taken: Vec<_> = std::iter::from_fn(|| workers.take()).collect();
        assert_eq!((taken.len(), workers.active(Kind::Read, 1 << 20)), (2, 4));
        assert_eq!(workers.try_enter(Kind::Read, 1), Some(1));
        assert_eq!(Policy::default().read.limit, NO_LIMIT);
    }

    #[test]
    fn short_pieces_do_not_wait_for_long_ones() {
        let mut workers = Workers::new(13, Policy::default());
        let asked = [[256 << 10; 3].to_vec(), [32 << 10; 10].to_vec()].concat();
        asked.into_iter().for_each(|bytes| workers.ask(piece(Kind::Write, bytes), 0));
        let taken: Vec<_> =
            std::iter::from_fn(|| workers.take()).map(|it| it.1.bytes >> 10).collect();
        // as many bytes of these as of those
        assert_eq!(taken, [32, 256, 32, 32, 32, 32, 32, 32, 32, 32, 256, 32, 256]);
    }

    #[test]
    fn reads_and_writes_take_turns() {
        let mut workers = Workers::new(4, Policy::default());
        for kind in [Kind::Read, Kind::Write, Kind::Write, Kind::Read] {
            workers.ask(piece(kind, 1), 0);
        }
        let kinds: Vec<_> = std::iter::from_fn(|| workers.take()).map(|(_, it)| it.kind).collect();
        assert_eq!(kinds, [Kind::Read, Kind::Write, Kind::Read, Kind::Write]);
    }

    #[test]
    fn who_has_a_ring_serves_that_and_nothing_else() {
        let mut workers = Workers::with_rings(3, Policy::default());
        for (bytes, chance) in [(1, 4), (2, 1), (3, 5)] {
            workers.ask(piece(Kind::Write, bytes), chance);
        }
        let taken: Vec<_> = std::iter::from_fn(|| workers.take()).collect();
        let taken: Vec<_> = taken.into_iter().map(|(seat, it)| (seat, it.bytes)).collect();
        assert!(taken.contains(&(1, 1)) && taken.contains(&(2, 3)) && taken.len() == 2);
        assert_eq!(workers.done(2).map(|piece| piece.bytes), Some(3));
        assert_eq!(workers.take(), None, "the second piece waits for the one before it");
        workers.done(1);
        assert_eq!(workers.take().map(|(seat, it)| (seat, it.bytes)), Some((1, 2)));
    }
}
