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

use crate::item;
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

thread_local! {
    static CURRENT: Cell<Option<RequestId>> = const { Cell::new(None) };
}

/// Sets the thread's request as long as it lives, then what it was before.
struct Scope(Option<RequestId>);

impl Scope {
    fn enter(request: Option<RequestId>) -> Scope {
        Scope(CURRENT.replace(request))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.0);
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
        item::push_request(record, id);
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
}
