//! That a call which is sent again is made once.
//!
//! A process numbers the calls of each slot, and has one at a time in each. When its service has
//! died it sends those again that were not answered, with their numbers. A change carries the
//! number in its record, so that what recovery finds is answered from there; what it does not find
//! was not made, and is made now. The next call of the slot says that the answer has come.

use fs::{Answer as Known, Error as FsError};
use nearside::Error;
use wire::{Flags, Reply, Request};

use crate::open::open_flags;
use crate::serve::{Answer, Call};
use crate::session::Turn;

impl Call<'_> {
    /// Makes the call of this slot that has this count, or answers it from what is known.
    pub fn make_once(self, (slot, count): (usize, u64), request: &Request<'_>) -> Answer {
        let session = self.session;
        let fs = session.pool.fs();
        if count == 0 && !request.changes() {
            return self.make(request);
        }
        let id = match session.turn(slot, count) {
            Turn::Next(id) => id,
            Turn::Again(id) => match fs.answer_to(id) {
                Some(known) if request.changes() => return self.answer_again(request, known),
                _ => id,
            },
            Turn::Past => {
                return Err(Error::Files(FsError::Invalid("a later call was made in its slot")));
            }
        };
        if !request.changes() {
            return self.make(request);
        }
        let made = fs.with_request(id, || self.make(request));
        if session.has_ended() {
            // it was forgotten before this was made, perhaps
            fs.acknowledge(id);
        }
        made
    }

    /// The answer to a call that was made before. Whatever is asked, it gives no right that the
    /// process has not, but to what it made itself.
    fn answer_again(self, request: &Request<'_>, known: Option<Known>) -> Answer {
        match (request, known) {
            (Request::Write { .. }, _) => Ok(Reply::Number(self.data.bytes() as u64)),
            (Request::Append(_), Some(Known::At(offset))) => Ok(Reply::Number(offset)),
            (Request::Open(_, flags), Some(Known::Made(ino))) => {
                let handle = self.session.pool.fs().open(ino)?;
                self.add_file(handle, flags)
            }
            (Request::Open(_, flags), Some(Known::Cut(ino))) => {
                let access = open_flags(flags).access();
                let pool = &self.session.pool;
                let handle = pool.fs().for_caller(pool.caller()).open(ino, access)?;
                self.add_file(handle, flags)
            }
            (Request::Open(..) | Request::Append(_), _) => {
                Err(Error::Files(FsError::Invalid("another call was made with this number")))
            }
            // of a commit it is part of the answer that it is durable
            (Request::Commit { .. }, _) => {
                self.session.pool.fs().sync()?;
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        }
    }

    fn add_file(&self, handle: std::sync::Arc<fs::Handle>, flags: &Flags) -> Answer {
        self.add_opened(self.session.pool.open_handle(handle, &open_flags(flags))?, flags)
    }
}
