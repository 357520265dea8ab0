//! Taking over from a server that was killed, or that makes room for a newer one.
//!
//! A door's connection can outlive its server: requests that were read and not answered, files that
//! are open without a name. The next server opens the pool with what it found ([`TakeOver`]),
//! serves those requests for which [`FileSystem::was_done`] says no, answers the others, and then
//! goes on. What it keeps true: each request is done once, and an inode that a client still holds
//! is there until the client lets go of it.
//!
//! Nobody says which inodes clients had open, and they may use them late: so of the inodes from
//! before the open each file that loses its last name is kept as well.
//!
//! An orphan that is kept counts as open. A crash, and a file system that is dropped without
//! `close`, leave it on the trees' list of orphans, where the next open finds it.

use crate::core::{Core, damaged_value};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::keys;
use crate::request::{self, Answer, RequestId};
use crate::system::FileSystem;
use crate::tickets::{Tickets, decode_orphan};
use crate::types::{FileKind, Ino};
use ::locks::Mutex;
use pool::{Candidate, OpenOptions, Pool, Recovery};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the server before left behind in doors that outlived it.
#[derive(Clone, Debug, Default)]
pub struct TakeOver {
    /// All requests that may be served again. What the pool remembers of others is forgotten.
    pub requests: Vec<RequestId>,
    /// Inodes without a name stay, by number, until they are released.
    pub keep_orphans: bool,
    /// Processes that were attached may send requests again ([`RequestId::of_slot`]): of each slot
    /// of each of them the last request is remembered, until
    /// [`forget_clients`](FileSystem::forget_clients). What they may hold without a name stays
    /// until [`end_returning`](FileSystem::end_returning).
    pub returning: bool,
}

/// What clients of an earlier server may hold.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Inodes whose counter is below that of their slice; none where nobody took over.
    below: Vec<u64>,
    /// Nobody holds any of them any more.
    is_over: AtomicBool,
    /// Those that a door let go of while attached processes were awaited that may hold them, too.
    let_go: Mutex<Option<Vec<Ino>>>,
    /// Inodes without a name that are kept for them.
    kept: Mutex<BTreeMap<Ino, Arc<Inode>>>,
    /// Those of them that were made without a name, by the request that made them.
    made: Mutex<HashMap<RequestId, Ino>>,
}

/// An inode without a name that recovery found.
#[derive(Debug)]
pub struct Orphan {
    pub inode: Arc<Inode>,
    /// The request that made it without a name, if that had an id.
    pub made_for: Option<RequestId>,
}

impl Inherited {
    /// Whether a client may have had the file open when its server ended. (Of others than files a
    /// server is told nothing while they are open.)
    pub fn may_hold(&self, inode: &Inode) -> bool {
        let below = self.below.get(usize::from(keys::home(inode.ino)));
        // ordering: of the calls that come later
        inode.kind == FileKind::File
            && !self.is_over.load(Ordering::Acquire)
            && below.is_some_and(|below| keys::counter_of(inode.ino) < *below)
    }

    /// Keeps an orphan, if a client may hold it.
    pub fn keep(&self, inode: &Arc<Inode>) {
        if self.may_hold(inode) {
            self.keep_certainly(inode);
        }
    }

    fn keep_certainly(&self, inode: &Arc<Inode>) {
        if self.kept.lock().insert(inode.ino, inode.clone()).is_none() {
            // ordering: as at an open; whoever closes it last takes the lock of its attributes,
            // which is held here where others know the inode
            inode.opens.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl FileSystem {
    /// Opens the pool in `dir`, exclusively, recovers it, and goes on where a server was killed.
    pub fn take_over_pool(
        dir: &Path,
        options: &OpenOptions,
        take_over: &TakeOver,
    ) -> Result<FileSystem> {
        let (pool, recovery) = crate::away::open_pool(dir, options)?;
        FileSystem::recover(pool, &recovery, take_over, true)
    }

    /// The same of the pool that these slices make. `background`: see
    /// [`FileSystem::open_candidates`].
    pub fn take_over_candidates(
        candidates: Vec<Candidate>,
        options: &OpenOptions,
        take_over: &TakeOver,
        background: bool,
    ) -> Result<FileSystem> {
        let (pool, recovery) = Pool::open_candidates(candidates, options)?;
        FileSystem::recover(pool, &recovery, take_over, background)
    }

    /// Runs `serve`, whose change is made for the request `id`: it is durable together with the
    /// id, so that [`was_done`](Self::was_done) knows about it after a kill. It counts on this
    /// thread, and for one change: of several calls, all but the last are to be
    /// [`repeatable`](Self::repeatable). An append within it has at most
    /// [`ATOMIC_WRITE_BYTES_MAX`](crate::ATOMIC_WRITE_BYTES_MAX).
    pub fn with_request<T>(&self, id: RequestId, serve: impl FnOnce() -> T) -> T {
        request::within(id, serve)
    }

    /// Runs a part of a request, within [`with_request`](Self::with_request), that may be done
    /// again without harm: its changes do not mean that the request is done.
    pub fn repeatable<T>(&self, part: impl FnOnce() -> T) -> T {
        request::repeatable(part)
    }

    /// Whether the change of this request is durable. Of requests from before the open, only those
    /// that [`TakeOver`] names are known; none is after [`acknowledge`](Self::acknowledge).
    pub fn was_done(&self, id: RequestId) -> bool {
        self.core.tickets.has(id)
    }

    /// The answer to this request is out: it will not be sent again.
    pub fn acknowledge(&self, id: RequestId) {
        self.core.tickets.answered(id);
    }

    /// What a request is answered with whose change is durable, as [`was_done`](Self::was_done)
    /// says; where it is something that only the change tells.
    pub fn answer_to(&self, id: RequestId) -> Option<Option<Answer>> {
        let answer = self.core.tickets.answer(id)?;
        Some(answer.and_then(Answer::of_bits))
    }

    /// The requests of an attached process whose changes are durable, and which may be sent again.
    pub fn requests_of(&self, client: u128) -> Vec<RequestId> {
        self.core.tickets.of_client(client)
    }

    /// Attached processes whose requests are remembered.
    pub fn returning_clients(&self) -> HashSet<u128> {
        self.core.tickets.clients()
    }

    /// These clients are gone: see [`forget_client`](Self::forget_client).
    pub fn forget_clients(&self, clients: &HashSet<u128>) {
        self.core.tickets.forget_clients(clients);
    }

    /// This client is gone, and no request of it will be sent again.
    pub fn forget_client(&self, client: u128) {
        self.core.tickets.forget(client);
    }

    /// Inodes without a name that are kept.
    pub fn kept_orphans(&self) -> Vec<Ino> {
        self.core.inherited.kept.lock().keys().copied().collect()
    }

    /// The inode without a name that an earlier server made for this request, if it is kept.
    pub fn made_unnamed(&self, id: RequestId) -> Option<Ino> {
        let ino = self.core.inherited.made.lock().get(&id).copied()?;
        self.core.inherited.kept.lock().contains_key(&ino).then_some(ino)
    }

    /// Nobody holds this inode any more from before the open, but attached processes that may come
    /// back: it goes as soon as it has neither a name nor a handle, and those are not awaited any
    /// more. Others than those kept are left as they are.
    pub fn release_orphan(&self, ino: Ino) -> Result<()> {
        if let Some(let_go) = &mut *self.core.inherited.let_go.lock() {
            if self.core.inherited.kept.lock().contains_key(&ino) {
                let_go.push(ino);
            }
            return Ok(());
        }
        self.release_kept(ino)
    }

    /// No attached process comes back any more ([`TakeOver::returning`]): what was released
    /// meanwhile goes.
    pub fn end_returning(&self) -> Result<()> {
        let let_go = self.core.inherited.let_go.lock().take().unwrap_or_default();
        let_go.into_iter().try_for_each(|ino| self.release_kept(ino))
    }

    fn release_kept(&self, ino: Ino) -> Result<()> {
        let kept = self.core.inherited.kept.lock().remove(&ino);
        kept.map_or(Ok(()), |inode| self.core.release(&inode))
    }

    /// Nobody holds any inode from before the open but by a handle. From now on files go with their
    /// last name, or handle.
    pub fn end_inheritance(&self) -> Result<()> {
        // between two changes: each keeps what it finds, or finds that it is over
        let closed = self.core.pool.close_gate();
        self.core.inherited.is_over.store(true, Ordering::Release);
        drop(closed);
        drop(self.core.inherited.let_go.lock().take());
        self.release_orphans()
    }

    /// The same for all that are kept.
    pub(crate) fn release_orphans(&self) -> Result<()> {
        let kept = std::mem::take(&mut *self.core.inherited.kept.lock());
        kept.values().try_for_each(|inode| self.core.release(inode))
    }
}

/// The engine over `pool` with everything that the trees and the log hold, and the number of
/// records that the log held.
pub(crate) fn recover(pool: Pool, recovery: &Recovery, asked: &TakeOver) -> Result<(Core, u64)> {
    let mut core = Core::new(pool);
    core.tickets = Tickets::new(&asked.requests, asked.returning);
    core.load_tickets()?;
    let replayed = core.replay(recovery)?;
    core.tickets.recovered();
    if asked.keep_orphans {
        let slices = core.pool.slices().iter();
        core.inherited.below = slices.map(|slice| slice.inodes_below()).collect();
        core.inherited.let_go = Mutex::new(asked.returning.then(Vec::new));
    }
    Ok((core, replayed))
}

impl Core {
    /// The inodes that were open without a name when the pool was closed or died.
    fn orphans(&self) -> Result<Vec<Orphan>> {
        let mut found = Vec::new();
        for slice in 0..self.pool.slices().len() {
            let (mut orphans, mut damaged) = (Vec::new(), None);
            let (from, to) = (
                pool::tree::Key::new(0, keys::ORPHAN, 0),
                pool::tree::Key::new(0, keys::ORPHAN + 1, 0),
            );
            self.pool.scan(slice as u8, from, to, &mut |key, value| {
                match decode_orphan(value) {
                    Some(says) => orphans.push((Ino(key.index), says)),
                    None => damaged = Some(key),
                }
                damaged.is_none()
            })?;
            if let Some(key) = damaged {
                return Err(damaged_value(&key));
            }
            for (ino, (nameable, made_for)) in orphans {
                let inode = self.inode(ino).map_err(|error| match error {
                    Error::NotFound => damaged_value(&keys::orphan(ino)),
                    error => error,
                })?;
                let mut meta = inode.meta.write();
                (meta.orphan, meta.nameable) = (true, nameable);
                drop(meta);
                found.push(Orphan { inode, made_for });
            }
        }
        Ok(found)
    }
}

/// Drops the inodes without a name, or keeps them as if they were open.
pub(crate) fn settle_orphans(core: &Core, keep: bool) -> Result<()> {
    for Orphan { inode, made_for } in core.orphans()? {
        if !keep {
            core.drop_orphan(&inode)?;
            continue;
        }
        core.inherited.keep_certainly(&inode);
        if let Some(id) = made_for {
            core.inherited.made.lock().insert(id, inode.ino);
        }
    }
    Ok(())
}
