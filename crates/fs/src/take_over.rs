//! Taking over from a server that was killed, or that makes room for a newer one.
//!
//! A door's connection can outlive its server: requests that were read and not answered, files that
//! are open without a name. The next server opens the pool with what it found ([`TakeOver`]),
//! serves those requests for which [`FileSystem::was_done`] says no, answers the others, and then
//! goes on. What it keeps true: each request is done once, and an inode that a client still holds
//! is there until the client lets go of it.
//!
//! An orphan that is kept counts as open. A crash, and a file system that is dropped without
//! `close`, leave it on the trees' list of orphans, where the next open finds it.

use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::request::{self, RequestId};
use crate::system::FileSystem;
use crate::tickets::Tickets;
use crate::types::Ino;
use parking_lot::Mutex;
use pool::{Candidate, OpenOptions, Pool, Recovery};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the server before left behind in doors that outlived it.
#[derive(Clone, Debug, Default)]
pub struct TakeOver {
    /// All requests that may be served again. What the pool remembers of others is forgotten.
    pub requests: Vec<RequestId>,
    /// Inodes without a name stay, by number, until they are released.
    pub keep_orphans: bool,
}

/// Inodes without a name that recovery found and keeps.
pub type Kept = Mutex<BTreeMap<Ino, Arc<Inode>>>;

impl FileSystem {
    /// Opens the pool in `dir`, exclusively, recovers it, and goes on where a server was killed.
    pub fn take_over_pool(
        dir: &Path,
        options: &OpenOptions,
        take_over: &TakeOver,
    ) -> Result<FileSystem> {
        let (pool, recovery) = Pool::open(dir, options)?;
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

    /// This client is gone, and no request of it will be sent again.
    pub fn forget_client(&self, client: u128) {
        self.core.tickets.forget(client);
    }

    /// Inodes without a name that recovery found and keeps.
    pub fn kept_orphans(&self) -> Vec<Ino> {
        self.kept.lock().keys().copied().collect()
    }

    /// Nobody holds this inode any more from before the open: it goes as soon as it has neither a
    /// name nor a handle. Others than those kept are left as they are.
    pub fn release_orphan(&self, ino: Ino) -> Result<()> {
        let kept = self.kept.lock().remove(&ino);
        kept.map_or(Ok(()), |inode| self.core.release(&inode))
    }

    /// The same for all that are kept.
    pub(crate) fn release_orphans(&self) -> Result<()> {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.values().try_for_each(|inode| self.core.release(inode))
    }
}

/// The engine over `pool` with everything that the trees and the log hold, and the number of
/// records that the log held.
pub(crate) fn recover(
    pool: Pool,
    recovery: &Recovery,
    requests: &[RequestId],
) -> Result<(Core, u64)> {
    let mut core = Core::new(pool);
    core.tickets = Tickets::new(requests);
    core.load_tickets()?;
    let replayed = core.replay(recovery)?;
    Ok((core, replayed))
}

/// Drops the inodes without a name, or keeps them as if they were open.
pub(crate) fn settle_orphans(core: &Core, keep: bool) -> Result<Kept> {
    let kept = Kept::default();
    for inode in core.orphans()? {
        if !keep {
            core.drop_orphan(&inode)?;
        } else if kept.lock().insert(inode.ino, inode.clone()).is_none() {
            // ordering: as at an open; nobody else is there yet
            inode.opens.fetch_add(1, Ordering::AcqRel);
        }
    }
    Ok(kept)
}
