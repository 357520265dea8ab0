//! Which request a change is made for, so that it is made once.
//!
//! A request that was read and not answered when its server died is served again by the next one.
//! So the record of its change carries its id, and recovery says which of the ids that it is asked
//! for it met; `tickets` keeps them when a checkpoint folds the record first.
//!
//! What it keeps true: where a record with the id is durable, all of the request is. Most calls
//! are one record. Of those that need more only the last carries the id, and what came before it is
//! made again without harm:
//! - a write of more than `ATOMIC_WRITE_BYTES_MAX`: the same bytes go to the same place;
//! - zeroing, punching or reserving in several steps: what is zero, or reserved, stays so; and a
//!   write that a full pool takes in small pieces only: the same bytes. The last step may have
//!   nothing to do and log nothing; then all of it is repeated;
//! - an append of more than `ATOMIC_WRITE_BYTES_MAX` cannot be repeated, for its first record moves
//!   the end of the file: within a request it is refused;
//! - the end of an orphan at a close, which may come at the end of any request, carries no id: it
//!   is dropped once in any case;
//! - a copy carries no id: made again, it takes again what its source has;
//! - a door that makes several calls for one request says of all but the last that they are
//!   [`repeatable`].
//!
//! What fails, or has nothing to do, logs nothing: made again, it is made the first time.
//!
//! Where the answer is a number that nothing else tells later (where an append went, which inode a
//! creation made), the record has it too ([`answer_with`]).

use crate::item;
use crate::types::{FILE_BYTES_MAX, Ino};
use pool::RecordBuffer;
use std::cell::Cell;

/// A request that may be sent again: who sent it, and its number among theirs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId {
    /// Who sent it: a number drawn at random, one for each mount, attached process or connection.
    pub client: u128,
    /// Its number: no two requests of a client have the same.
    pub sequence: u64,
}

/// Marks numbers of requests that an attached process sends: the rest of them is a count, and the
/// slot of its calls.
const ATTACHED: u64 = 1 << 62;
/// Bits of a slot.
const SLOT_BITS: u32 = 8;

impl RequestId {
    /// Requests of a slot are counted up to here.
    pub const COUNT_MAX: u64 = (ATTACHED >> SLOT_BITS) - 1;

    /// The request of an attached process that has this count among those of its slot. A slot has
    /// one request at a time, so a later one says that the one before is answered.
    ///
    /// # Panics
    /// If the count is more than [`COUNT_MAX`](Self::COUNT_MAX).
    pub fn of_slot(client: u128, slot: u8, count: u64) -> RequestId {
        assert!(count <= RequestId::COUNT_MAX, "it is counted");
        RequestId { client, sequence: ATTACHED | count << SLOT_BITS | u64::from(slot) }
    }

    /// Slot and count, if it is such a one.
    pub fn slot(&self) -> Option<(u8, u64)> {
        let count = (self.sequence & !ATTACHED) >> SLOT_BITS;
        let is_one = self.sequence & ATTACHED != 0 && count <= RequestId::COUNT_MAX;
        is_one.then_some((self.sequence as u8, count))
    }
}

/// What a request is answered with that only its change tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The offset where an append went.
    At(u64),
    /// The inode that was made.
    Made(Ino),
    /// The inode whose size was set.
    Cut(Ino),
}

/// Where an answer's bits say what it is. Files end below that, and inodes' numbers do.
const ANSWER_SHIFT: u32 = 62;

const _: () = assert!(FILE_BYTES_MAX < 1 << ANSWER_SHIFT);
const _: () = assert!(pool::INODE_COUNTER_MAX <= 1 << (ANSWER_SHIFT - 8));

impl Answer {
    pub(crate) fn bits(self) -> u64 {
        match self {
            Answer::At(offset) => offset,
            Answer::Made(ino) => 1 << ANSWER_SHIFT | ino.0,
            Answer::Cut(ino) => 2 << ANSWER_SHIFT | ino.0,
        }
    }

    /// None where the bits are nobody's.
    pub(crate) fn of_bits(bits: u64) -> Option<Answer> {
        let value = bits & ((1 << ANSWER_SHIFT) - 1);
        match bits >> ANSWER_SHIFT {
            0 => Some(Answer::At(value)),
            1 => Some(Answer::Made(Ino(value))),
            2 => Some(Answer::Cut(Ino(value))),
            _ => None,
        }
    }
}

thread_local! {
    static CURRENT: Cell<Option<RequestId>> = const { Cell::new(None) };
    static ANSWER: Cell<Option<Answer>> = const { Cell::new(None) };
}

/// Sets the thread's request as long as it lives, then what it was before.
struct Scope(Option<RequestId>, Option<Answer>);

impl Scope {
    fn enter(request: Option<RequestId>) -> Scope {
        Scope(CURRENT.replace(request), ANSWER.replace(None))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.0);
        ANSWER.set(self.1);
    }
}

/// Runs `serve`, whose records carry the id.
pub fn within<T>(id: RequestId, serve: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(Some(id));
    serve()
}

/// Runs a part of a request that may be made again: its records carry no id.
pub fn repeatable<T>(part: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(None);
    part()
}

/// The request that this thread serves.
pub fn current() -> Option<RequestId> {
    CURRENT.get()
}

/// Whether this thread serves a request that has an id. On the way of every change.
#[inline(always)]
pub fn is_current() -> bool {
    CURRENT.get().is_some()
}

/// What the thread's request is answered with, once the change is made that comes next.
pub fn answer_with(answer: Answer) {
    ANSWER.set(Some(answer));
}

/// See [`answer_with`].
pub fn answer() -> Option<Answer> {
    ANSWER.get()
}

/// Adds the id of the thread's request to the record, if it has one.
#[inline(always)]
pub fn mark(record: &mut RecordBuffer) {
    if is_current() {
        push_current(record);
    }
}

#[cold]
fn push_current(record: &mut RecordBuffer) {
    if let Some(id) = current() {
        item::push_request(record, id, answer().map(Answer::bits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_requests_alone_and_comes_back_after_its_parts() {
        let (one, two) =
            (RequestId { client: 1, sequence: 1 }, RequestId { client: 1, sequence: 2 });
        assert_eq!(current(), None);
        within(one, || {
            assert_eq!(current(), Some(one));
            repeatable(|| assert_eq!(current(), None));
            within(two, || assert_eq!(current(), Some(two)));
            assert_eq!(current(), Some(one));
            let other = std::thread::spawn(current).join();
            assert_eq!(other.ok(), Some(None), "another thread serves another request");
        });
        let panicked = std::panic::catch_unwind(|| within(one, || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(current(), None);
    }

    #[test]
    fn an_answer_is_one_requests() {
        let id = RequestId { client: 1, sequence: 1 };
        within(id, || {
            assert_eq!(answer(), None);
            answer_with(Answer::At(7));
            repeatable(|| assert_eq!(answer(), None));
            assert_eq!(answer(), Some(Answer::At(7)));
        });
        within(id, || assert_eq!(answer(), None));
    }

    #[test]
    fn answers_of_one_kind_are_none_of_another() {
        for value in [0, 1, FILE_BYTES_MAX] {
            for answer in [Answer::At(value), Answer::Made(Ino(value)), Answer::Cut(Ino(value))] {
                assert_eq!(Answer::of_bits(answer.bits()), Some(answer));
            }
        }
        assert_eq!(Answer::of_bits(u64::MAX), None);
    }

    #[test]
    fn requests_of_slots_are_known_from_all_others() {
        for (slot, count) in [(0, 0), (31, 1), (255, RequestId::COUNT_MAX)] {
            assert_eq!(RequestId::of_slot(7, slot, count).slot(), Some((slot, count)));
        }
        // those of a kernel are even and small, and marked in the highest bit when they come again
        for sequence in [0, 2, 1 << 40, 1 << 63, u64::MAX] {
            assert_eq!(RequestId { client: 7, sequence }.slot(), None);
        }
    }
}
