//! Locks that come through this door: the engine's, kept over servers.
//!
//! The engine's table holds a lock against every door, and is gone with its server. So each change
//! is in a journal before anybody is told of it ([`journal`]), and each request from before it is
//! served until no server will be given it again ([`asked`]). A server that goes on where another
//! was killed puts the locks back, then has those wait that waited, in their order; the first
//! request comes after that.
//!
//! No thread waits for a lock. A wait ends when the lock is granted, when the kernel says that the
//! caller got a signal, or with the server, whose successor goes on with it.

mod ask;
mod asked;
mod journal;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use nearside::files::{
    Error as FsError, Ino, LockChange, LockClass, LockObserver, LockOwner, Result as FsResult,
};
use nearside::{FileSystem, LockKind};

use crate::server::Owes;
use crate::state::LockMemory;
use crate::wire::{LateReply, Lock, LockAnswer, Reply, RequestHead};
use crate::{Connected, Result};
pub(crate) use ask::Ask;
use ask::WAITS;
pub(crate) use asked::{Asked, Begun, Signal};
use journal::Journal;
pub(crate) use journal::{Mirror, Mirrored, RECORD_BYTES, put, records};

/// Memory for the locks of a kernel that another machine has, with this journal.
pub(crate) fn memory_for(journal: &[u8]) -> Result<LockMemory> {
    let mut memory = LockMemory::new()?;
    journal::put(&mut memory.journal, Mirrored::More(journal))?;
    Ok(memory)
}

/// The kernel's largest offset, which stands for the end of any file; the engine's is larger.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The locks of a door.
pub(crate) struct DoorLocks {
    fs: Arc<FileSystem>,
    door: u64,
    /// Nothing where the kernel keeps the locks.
    kept: OnceLock<Kept>,
}

struct Kept {
    owes: Owes,
    journal: Arc<Journal>,
    asked: Arc<Asked>,
    observer: LockObserver,
}

fn kind_of(kind: i32) -> Option<LockKind> {
    Some(match kind {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    })
}

impl Ask {
    pub(crate) fn new(head: &RequestHead, lock: &Lock, waits: bool) -> Ask {
        let Lock { handle, owner, start, end, kind, pid, flock } = *lock;
        let (unique, node, order) = (head.unique, head.node, 0);
        let (flock, waits) = (u32::from(flock), if waits { WAITS } else { 0 });
        Ask { unique, order, node, handle, owner, start, end, kind, pid, flock, waits }
    }

    fn change(&self, door: u64) -> Option<LockChange> {
        let class = if self.flock != 0 { LockClass::Flock } else { LockClass::Posix };
        let end = if self.end >= OFFSET_MAX { u64::MAX } else { self.end };
        let owner = LockOwner { door, key: self.owner };
        let (kind, start, pid) = (kind_of(self.kind)?, self.start, self.pid);
        Some(LockChange { class, owner, kind, start, end, pid })
    }
}

/// Whether nothing could be left of the owner's locks.
fn lets_go_of_all(change: &LockChange) -> bool {
    let all = change.class == LockClass::Flock || (change.start == 0 && change.end == u64::MAX);
    change.kind == LockKind::Unlock && all
}

impl DoorLocks {
    pub(crate) fn new(fs: Arc<FileSystem>) -> DoorLocks {
        let door = fs.new_lock_door();
        DoorLocks { fs, door, kept: OnceLock::new() }
    }

    /// Whether they are kept here, not by the kernel.
    pub(crate) fn are_kept(&self) -> bool {
        self.kept.get().is_some()
    }

    /// Goes on where an earlier server stopped.
    pub(crate) fn take_over(&self, memory: LockMemory, mut connected: Connected) -> Result<()> {
        let fs = &self.fs;
        let of = (self.door, connected.mirror.take());
        // what another machine says that it had, it gets if nobody is in the way
        let is_told = of.1.is_some();
        let journal = Journal::take_over(memory.journal, of, |ino, change| match is_told {
            false => fs.restore_lock(ino, change).map_err(|_| crate::state::FOREIGN),
            true => {
                if let Err(error) = fs.lock(ino, change) {
                    tracing::warn!(ino = ino.0, "a lock of another machine's is lost: {error}");
                }
                Ok(())
            }
        })?;
        let (asked, left) = Asked::take_over(memory.asked, &connected.owed)?;
        let (journal, asked, door) = (Arc::new(journal), Arc::new(asked), self.door);
        let noting = journal.clone();
        let observer: LockObserver = Arc::new(move |ino, change| {
            if change.owner.door == door {
                noting.note(ino, change);
            }
        });
        fs.observe_locks(observer.clone());
        let owes = connected.owes.clone();
        let kept = self.kept.get_or_init(|| Kept { owes, journal, asked, observer });
        for (unique, errno) in left.answers {
            connected.late_reply(unique).answer(errno);
            kept.asked.told(unique);
        }
        for ask in left.asks {
            self.go(kept, &ask, connected.late_reply(ask.unique));
        }
        Ok(())
    }

    /// Takes or lets go of a lock.
    pub(crate) fn set(&self, ask: &Ask, reply: Reply<'_>) {
        let Some(kept) = self.kept.get() else { return reply.error(libc::ENOSYS) };
        if kept.journal.is_long() {
            self.fs.with_locks(self.door, |held| kept.journal.fold(held));
        }
        let (unique, late) = match kept.asked.begin(ask) {
            Begun::New => return self.go(kept, ask, reply.later()),
            // Whoever was asked first answers.
            Begun::Again => return reply.nothing(),
            Begun::Full => return reply.error(libc::ENOLCK),
            Begun::Interrupted => (ask.unique, reply.later()),
        };
        kept.asked.end(unique, late, Some(libc::EINTR));
    }

    fn go(&self, kept: &Kept, ask: &Ask, late: LateReply) {
        let (unique, ino) = (ask.unique, Ino(ask.node));
        let Some(change) = ask.change(self.door) else {
            kept.asked.end(unique, late, Some(libc::EINVAL));
            return;
        };
        if kept.journal.is_full() && !lets_go_of_all(&change) {
            kept.asked.end(unique, late, Some(libc::ENOLCK));
            return;
        }
        if change.class == LockClass::Posix && change.kind != LockKind::Unlock {
            kept.journal.took(ask.handle, (ino, ask.owner));
        }
        let asked = kept.asked.clone();
        let end = move |result: FsResult<()>| {
            asked.end(unique, late, result.err().map(|error: FsError| error.errno()));
        };
        if ask.waits != WAITS {
            return end(self.fs.lock(ino, &change));
        }
        let ticket = self.fs.lock_wait(ino, &change, Box::new(end));
        if kept.asked.waits(unique, ticket) {
            self.fs.cancel_lock(ticket);
        }
    }

    /// Goes on where the way to the kernel was lost: it has the answers to all requests but
    /// `open`. Gives those of them that are answered.
    pub(crate) fn resume(&self, open: &[u64]) -> Vec<(u64, Option<i32>)> {
        let Some(kept) = self.kept.get() else { return Vec::new() };
        self.fs.with_locks(self.door, |held| kept.journal.fold(held));
        let (answers, waits) = kept.asked.resume(open);
        waits.into_iter().for_each(|ticket| self.fs.cancel_lock(ticket));
        answers
    }

    /// What is in the way of a lock.
    pub(crate) fn holder(&self, ask: &Ask) -> Option<LockAnswer> {
        let change = ask.change(self.door)?;
        let holder = self.fs.lock_holder(Ino(ask.node), &change);
        let kind = |kind| match kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        };
        Some(match holder {
            None => LockAnswer { start: 0, end: 0, kind: libc::F_UNLCK as u32, pid: 0 },
            Some(lock) => LockAnswer {
                start: lock.start.min(OFFSET_MAX),
                end: lock.end.min(OFFSET_MAX),
                kind: kind(lock.kind) as u32,
                pid: lock.pid,
            },
        })
    }

    /// A process closed a file: its record locks there go.
    pub(crate) fn flushed(&self, ino: Ino, key: u64) {
        self.fs.unlock_all(ino, LockOwner { door: self.door, key }, LockClass::Posix);
    }

    /// The last close of an open file: what was locked through it goes.
    pub(crate) fn closed(&self, handle: u64, (ino, flock): (Ino, Option<u64>)) {
        let Some(kept) = self.kept.get() else { return };
        if let Some(key) = flock {
            self.fs.unlock_all(ino, LockOwner { door: self.door, key }, LockClass::Flock);
        }
        for (ino, key) in kept.journal.closed(handle) {
            self.flushed(ino, key);
        }
    }

    /// The caller of request `unique` got a signal. False if the kernel is to say it again.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let Some(kept) = self.kept.get() else { return true };
        match kept.asked.interrupt(unique, &*kept.owes) {
            Signal::Cancel(ticket) => self.fs.cancel_lock(ticket),
            Signal::Noted => {}
            Signal::Full => return false,
        }
        true
    }

    /// No server will be given request `unique` again.
    pub(crate) fn released(&self, unique: u64) {
        if let Some(kept) = self.kept.get() {
            kept.asked.released(unique);
        }
    }

    /// The locks and those who wait are the next server's.
    pub(crate) fn leave(&self) {
        if let Some(kept) = self.kept.get() {
            kept.asked.leave();
            self.fs.forget_lock_observer(&kept.observer);
        }
    }
}

impl Drop for DoorLocks {
    fn drop(&mut self) {
        self.leave();
        self.fs.unlock_door(self.door);
    }
}
