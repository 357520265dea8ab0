//! Jobs: what one call asks for, in pieces, and how far it is.
//!
//! A job has a slot of its own until all its pieces are done. Slots stay where they are for as long
//! as there are workers, so that whoever is late finds one, if another job's: a generation, counted
//! at each use, tells that. Each piece has a word: the generation, and whether somebody has it.
//! Whoever makes that change has the piece, and nobody else ever does; so a worker that is stopped
//! between taking a request and that change can be passed over.
//!
//! Checked by loom: `tests/loom_slots.rs`.

use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crossbeam_utils::CachePadded;

/// Most pieces of a job.
pub const PIECES_MAX: usize = 64;

const STATE_BITS: u32 = 2;
/// A piece that nobody has yet.
const WAITING: u32 = 0;
/// One that somebody copies.
const TAKEN: u32 = 1;
/// One that is copied.
const DONE: u32 = 2;
/// One that could not be.
const FAILED: u32 = 3;

/// In the count of pieces: the caller sleeps.
pub const SLEEPS: u32 = 1 << 31;

/// A job's place.
#[derive(Debug)]
pub struct Slot {
    used: AtomicBool,
    generation: AtomicU32,
    /// Pieces that are not done, and [`SLEEPS`].
    pub left: AtomicU32,
    pieces: [AtomicU32; PIECES_MAX],
}

/// What names a piece of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceId {
    /// The job's slot.
    pub slot: u16,
    /// Which piece.
    pub piece: u16,
    /// Of the slot when the job was begun.
    pub generation: u32,
}

/// All slots.
#[derive(Debug)]
pub struct Slots(Box<[CachePadded<Slot>]>);

/// A job that is under way.
#[derive(Debug)]
pub struct Job<'s> {
    slot: &'s Slot,
    index: u16,
    generation: u32,
}

impl Slots {
    /// So many slots, all free.
    pub fn new(count: u16) -> Slots {
        let slot = || Slot {
            used: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            left: AtomicU32::new(0),
            pieces: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        Slots((0..count).map(|_| CachePadded::new(slot())).collect())
    }

    /// A free slot for a job of so many pieces, if there is one; it is looked for from `hint` on.
    pub fn begin(&self, pieces: usize, hint: usize) -> Option<Job<'_>> {
        let count = self.0.len();
        let places = (0..count).map(|step| (hint.wrapping_add(step)) % count);
        for index in places {
            let slot = &*self.0[index];
            let (ours, theirs) = (Ordering::Acquire, Ordering::Relaxed);
            if slot.used.load(Ordering::Relaxed)
                || slot.used.compare_exchange(false, true, ours, theirs).is_err()
            {
                continue;
            }
            // ordering: whoever learns of the job learns through a ring, which orders all of this
            let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
            slot.generation.store(generation, Ordering::Relaxed);
            for piece in slot.pieces.iter().take(pieces) {
                piece.store(generation << STATE_BITS | WAITING, Ordering::Relaxed);
            }
            slot.left.store(pieces.min(PIECES_MAX) as u32, Ordering::Relaxed);
            return Some(Job { slot, index: index as u16, generation });
        }
        None
    }

    /// The job's slot, if this piece is nobody's yet: from now on the caller's, who must say
    /// [`Slot::finished`].
    pub fn claim(&self, id: PieceId) -> Option<&Slot> {
        let slot = &**self.0.get(usize::from(id.slot))?;
        slot.claim(id.piece, id.generation).then_some(slot)
    }
}

impl Slot {
    fn claim(&self, piece: u16, generation: u32) -> bool {
        let Some(word) = self.pieces.get(usize::from(piece)) else { return false };
        let waiting = generation << STATE_BITS | WAITING;
        let taken = generation << STATE_BITS | TAKEN;
        // ordering: Acquire, so that what the job's caller prepared is seen
        word.compare_exchange(waiting, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A claimed piece is copied, or could not be. True if it was the last and the caller sleeps:
    /// then wake who waits at `left`. The job may be over from here on.
    pub fn finished(&self, piece: u16, copied: bool) -> bool {
        let word = &self.pieces[usize::from(piece)];
        let state = if copied { DONE } else { FAILED };
        let generation = word.load(Ordering::Relaxed) >> STATE_BITS;
        word.store(generation << STATE_BITS | state, Ordering::Relaxed);
        // ordering: Release hands over what was copied, and the piece's word; the caller takes the
        // count with Acquire
        self.left.fetch_sub(1, Ordering::Release) == SLEEPS | 1
    }
}

impl Job<'_> {
    /// What names a piece of it.
    pub fn id(&self, piece: usize) -> PieceId {
        PieceId { slot: self.index, piece: piece as u16, generation: self.generation }
    }

    /// Its place.
    pub fn slot(&self) -> &Slot {
        self.slot
    }

    /// Takes a piece that nobody has yet.
    pub fn claim(&self, piece: usize) -> bool {
        self.slot.claim(piece as u16, self.generation)
    }

    /// Whether all pieces are copied, or have failed.
    pub fn is_over(&self) -> bool {
        self.slot.left.load(Ordering::Acquire) & !SLEEPS == 0
    }

    /// Whether a piece could not be copied, once the job is over.
    pub fn failed(&self, piece: usize) -> bool {
        self.slot.pieces[piece].load(Ordering::Relaxed) & FAILED == FAILED
    }
}

impl Drop for Job<'_> {
    /// The slot is free again; all pieces are done.
    fn drop(&mut self) {
        // ordering: Release, so that who uses it next does so after all that was done here
        self.slot.used.store(false, Ordering::Release);
    }
}
