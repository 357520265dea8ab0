//! Copies of files' bytes that the service keeps for this process, from service to service.
//!
//! A copy is loaded from without a word to anybody. What is shown of it is taken away, therefore,
//! as soon as its service is known to have died, and before the process is attached to the next:
//! there somebody else may change the file. Then the next one makes it anew, under its number.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use wire::{Reply, Request};

use crate::connection::Connection;
use crate::session::{ANSWER_MAX, Session};
use crate::{Error, Result};

/// Shows a copy to those who load from it.
pub trait Shows: Debug + Send + Sync {
    /// From now on they load from this memory; `None`: from none, and wait.
    fn show(&self, memory: Option<OwnedFd>);
}

/// Which bytes of which file a copy has.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The file's number.
    pub file: u64,
    /// Where in it the copy begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Mapping {
    fn request(self, copy: u64) -> Request<'static> {
        let Mapping { file, offset, bytes } = self;
        Request::Map { copy, file, offset, bytes }
    }
}

#[derive(Debug)]
struct One {
    mapping: Mapping,
    shows: Box<dyn Shows>,
    is_shown: bool,
}

/// The copies of a process.
#[derive(Debug, Default)]
pub struct Copies {
    all: Mutex<BTreeMap<u64, One>>,
}

impl Copies {
    /// Nothing is shown of them from now on.
    pub fn hide(&self) {
        for one in self.all.lock().values_mut().filter(|one| one.is_shown) {
            one.shows.show(None);
            one.is_shown = false;
        }
    }

    /// Has another service make them.
    pub fn restore(&self, connection: &Connection) -> Result<()> {
        for (copy, one) in &mut *self.all.lock() {
            match connection.ask_alone(&one.mapping.request(*copy))? {
                Reply::Done => {
                    one.shows.show(Some(memory_of(connection, *copy)?));
                    one.is_shown = true;
                }
                // who loads from it will be told
                reply => tracing::warn!("not mapped any more: {reply:?}"),
            }
        }
        Ok(())
    }
}

/// The memory of a copy that the service says to have made.
fn memory_of(connection: &Connection, copy: u64) -> Result<OwnedFd> {
    connection.copies.take(&copy, ANSWER_MAX).ok_or(Error::Lost)
}

impl Session {
    /// Has a copy made, and gives its number and its memory to `make`, which gives who shows other
    /// memory when there is another service, or an error of its own: then there is no copy.
    ///
    /// `make` must not wait for who loads from the copy.
    pub fn map<E>(
        &self,
        mapping: Mapping,
        make: impl FnOnce(u64, OwnedFd) -> std::result::Result<Box<dyn Shows>, E>,
    ) -> Result<std::result::Result<(), Refused<E>>> {
        self.check_process()?;
        let copy = self.number();
        let mut make = Some(make);
        let (slot, request) = (self.shared.slots.take(), mapping.request(copy));
        let made =
            self.shared.call_then(slot, (&request, &[]), &mut [], |connection, reply, _| {
                let Reply::Done = reply else { return Ok(Some(Err(Refused::Service(reply)))) };
                // it is lost with the service
                let Ok(memory) = memory_of(connection, copy) else { return Ok(None) };
                let Some(make) = make.take() else { return Ok(None) };
                let shows = match make(copy, memory) {
                    Ok(shows) => shows,
                    Err(error) => return Ok(Some(Err(Refused::Make(error)))),
                };
                // the service is this one still, for all that is known: the state is held
                let one = One { mapping, shows, is_shown: true };
                self.shared.copies.all.lock().insert(copy, one);
                Ok(Some(Ok(())))
            })?;
        if let Err(Refused::Make(_)) = made {
            self.unmap(copy);
        }
        Ok(made)
    }

    /// Ends a copy.
    pub fn unmap(&self, copy: u64) {
        drop(self.shared.copies.all.lock().remove(&copy));
        // where the service is gone, so is the copy
        let _ = self.ask(&Request::Unmap(copy), &[], &mut []);
    }

    /// Has pages of a copy brought, so many at most.
    pub fn fill(&self, copy: u64, page: u64, pages: u32) -> Result<Reply> {
        self.check_process()?;
        let (slot, request) = (self.shared.slots.take_kept(), Request::Fill { copy, page, pages });
        Ok(self.shared.call_in(slot, &request, &[], &mut [])?.0)
    }
}

/// Why there is no copy.
#[derive(Debug)]
pub enum Refused<E> {
    /// The service did not make it, and answered this.
    Service(Reply),
    /// It could not be used here.
    Make(E),
}
