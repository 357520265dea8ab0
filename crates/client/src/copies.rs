//! Copies of files' bytes that the service keeps for this process, from service to service.
//!
//! Its memory is the service's; over a network it is this process's (`kept.rs`), which makes no
//! difference here. A copy is loaded from without a word to anybody. What is shown of it is taken
//! away, therefore, as soon as its service is known to have died, and before the process is
//! attached to the next: there somebody else may change the file. Then the next one makes it anew,
//! under its number.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use wire::{Reply, Request};

use crate::connection::Connection;
use crate::leases::FileLeases;
use crate::session::{Session, State};
use crate::{Error, Result};

/// Shows a copy to those who load from it.
pub trait Shows: Debug + Send + Sync {
    /// From now on they load from this memory; `None`: from none, and wait.
    fn show(&self, memory: Option<OwnedFd>);

    /// Whether this process can store into it.
    fn can_store(&self) -> bool;

    /// Stores bytes of the file that were committed, where pages are that have them: what is not
    /// there, or goes meanwhile, will be brought with them. One stores at a time, and nothing is
    /// brought meanwhile.
    fn store(&self, offset: u64, data: &[u8]);

    /// These pages are going to be there.
    fn expect(&self, page: u64, pages: u64);
}

/// Which bytes of which file a copy has.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The file's number.
    pub file: u64,
    /// That of its inode.
    pub ino: u64,
    /// Where in it the copy begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Mapping {
    fn request(self, copy: u64) -> Request<'static> {
        let Mapping { file, offset, bytes, .. } = self;
        Request::Map { copy, file, offset, bytes }
    }
}

#[derive(Debug)]
struct One {
    mapping: Mapping,
    shows: Arc<dyn Shows>,
    is_shown: bool,
}

/// What who has pages of a copy brought needs of it.
#[derive(Clone, Debug)]
struct Filled {
    shows: Arc<dyn Shows>,
    leases: Arc<FileLeases>,
}

/// The copies of a process.
#[derive(Debug, Default)]
pub struct Copies {
    /// Held while they are made anew.
    all: Mutex<BTreeMap<u64, One>>,
    filled: Mutex<HashMap<u64, Filled>>,
    memory_bytes: AtomicU64,
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
                    one.shows.show(Some(self.memory_of(connection, (*copy, one.mapping))?));
                    one.is_shown = true;
                }
                // who loads from it will be told
                reply => tracing::warn!("not mapped any more: {reply:?}"),
            }
        }
        Ok(())
    }

    /// Most bytes of the copies whose memory is this process's, from the next one on.
    pub fn set_memory_bytes(&self, bytes: u64) {
        // ordering: a number by itself
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The memory of a copy that the service says to have made.
    fn memory_of(
        &self,
        connection: &Connection,
        (copy, mapping): (u64, Mapping),
    ) -> Result<OwnedFd> {
        // ordering: a number by itself
        let memory_bytes = self.memory_bytes.load(Ordering::Relaxed);
        connection.memory_of(copy, mapping.bytes, memory_bytes)
    }
}

impl Session {
    /// Has a copy made, and gives its number and its memory to `make`, which gives who shows other
    /// memory when there is another service, or an error of its own: then there is no copy.
    ///
    /// `make` must not wait for who loads from the copy.
    pub fn map<E>(
        &self,
        mapping: Mapping,
        make: impl FnOnce(u64, OwnedFd) -> std::result::Result<Arc<dyn Shows>, E>,
    ) -> Result<std::result::Result<(), Refused<E>>> {
        self.check_process()?;
        let (copy, leases) = (self.number(), self.leases_of(mapping.ino));
        // before the service ends them, and not while the service is held: who asks for a lease
        // has what this takes
        leases.expect_copy();
        let made = self.make_copy((copy, mapping), make);
        let shows = made.as_ref().ok().and_then(|made| made.as_ref().ok().cloned());
        leases.add_copy(shows.clone().map(|shows| (copy, shows)));
        if let Some(shows) = shows {
            self.shared.copies.filled.lock().insert(copy, Filled { shows, leases });
        } else if !matches!(made, Ok(Err(Refused::Service(_)))) {
            self.unmap(copy);
        }
        Ok(made?.map(drop))
    }

    fn make_copy<E>(
        &self,
        (copy, mapping): (u64, Mapping),
        make: impl FnOnce(u64, OwnedFd) -> std::result::Result<Arc<dyn Shows>, E>,
    ) -> Result<std::result::Result<Arc<dyn Shows>, Refused<E>>> {
        let mut make = Some(make);
        let (slot, request) = (self.shared.slots.take(), mapping.request(copy));
        self.shared.call_then(slot, (&request, &[]), &mut [], |connection, reply, _| {
            let Reply::Done = reply else { return Ok(Some(Err(Refused::Service(reply)))) };
            let memory = match self.shared.copies.memory_of(connection, (copy, mapping)) {
                // it is lost with the service
                Err(Error::Lost) => return Ok(None),
                memory => memory?,
            };
            let Some(make) = make.take() else { return Ok(None) };
            let shows = match make(copy, memory) {
                Ok(shows) => shows,
                Err(error) => return Ok(Some(Err(Refused::Make(error)))),
            };
            // the service is this one still, for all that is known: the state is held
            let one = One { mapping, shows: shows.clone(), is_shown: true };
            self.shared.copies.all.lock().insert(copy, one);
            Ok(Some(Ok(shows)))
        })
    }

    /// Ends a copy.
    pub fn unmap(&self, copy: u64) {
        let filled = self.shared.copies.filled.lock().remove(&copy);
        if let Some(filled) = filled {
            filled.leases.remove_copy(copy);
        }
        drop(self.shared.copies.all.lock().remove(&copy));
        if let State::Attached(attachment) = &*self.shared.state.read() {
            attachment.connection.forget_copy(copy);
        }
        // where the service is gone, so is the copy
        let _ = self.ask(&Request::Unmap(copy), &[], &mut []);
    }

    /// Has pages of a copy brought, so many at most.
    pub fn fill(&self, copy: u64, page: u64, pages: u32) -> Result<Reply> {
        self.check_process()?;
        let ask = || {
            let (slot, request) =
                (self.shared.slots.take_kept(), Request::Fill { copy, page, pages });
            Ok(self.shared.call_in(slot, &request, &[], &mut [])?.0)
        };
        let filled = self.shared.copies.filled.lock().get(&copy).cloned();
        let Some(Filled { shows, leases }) = filled else { return ask() };
        leases.while_filling(|| {
            shows.expect(page, u64::from(pages));
            ask()
        })
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
