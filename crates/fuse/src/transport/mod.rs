//! Requests as the protocol brings them, and replies as it takes them.
//!
//! Nothing is decided here: arguments are put into the engine's words, the service answers, the
//! answer is put into the kernel's words.

mod attributes;
mod calls;
mod data;
mod directories;
mod locks;
mod names;
mod once;

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nearside::FileSystem;
use nearside::files::{Attr, Call, Changer, Ino, changing_for, shown};

use crate::convert::node_attr;
use crate::kernel_pages::{Notices, Way};
use crate::locks::DoorLocks;
pub(crate) use once::changes;

use crate::service::{Caller, Changes, May, OpenFile, Served, Service};
use crate::wire::{
    AttrAnswer, Capabilities, EntryAnswer, Notifier, Operation, Reply, Request, RequestHead,
    open_flags,
};
use crate::{Connected, Result, Server, Wishes};

/// How long the kernel trusts names and attributes when nobody else can change them: a year.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The service behind the protocol.
pub(crate) struct Transport {
    service: Service,
    pub(crate) locks: DoorLocks,
    notifier: OnceLock<Notifier>,
    /// Files are opened past the kernel's pages.
    past_pages: OnceLock<bool>,
    trusted_for: Duration,
    sole_door: bool,
}

impl Transport {
    pub(crate) fn new(fs: Arc<FileSystem>, service: Service, sole_door: bool) -> Transport {
        let trusted_for = if sole_door { FOR_EVER } else { Duration::ZERO };
        let locks = DoorLocks::new(fs);
        let (notifier, past_pages) = (OnceLock::new(), OnceLock::new());
        Transport { service, locks, notifier, past_pages, trusted_for, sole_door }
    }

    /// What a server of ours asks of the kernel. It keeps the locks where there is no other door:
    /// all who lock come to it, and a close need not ask the server whether something was locked.
    pub(crate) fn wishes(sole_door: bool) -> Wishes {
        Wishes { sole_door, locks: !sole_door, acls: true }
    }

    /// Makes the kernel forget the attributes of `ino`, but no page: this may be said while a
    /// request on the same file is served.
    fn forget_attributes(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(ino.0, -1, 0)
        {
            // ENOENT: the kernel did not know them.
            tracing::debug!(%error, "inval_inode");
        }
    }

    /// Makes a change of the content of the request's file, for whoever asks.
    fn changing<T>(
        &self,
        request: &Request<'_>,
        how: (Changes, Way),
        change: impl FnOnce() -> T,
    ) -> T {
        self.changing_of(node(request), request, how, change)
    }

    /// The same of another file. The replies to such requests carry no mode, and exec(2) would go
    /// by the one that the kernel knows: it forgets that where set-id bits went.
    fn changing_of<T>(
        &self,
        ino: Ino,
        request: &Request<'_>,
        (changes, way): (Changes, Way),
        change: impl FnOnce() -> T,
    ) -> T {
        let changer = self.service.changer(caller(request), changes);
        let change = || self.service.pages().changing(way, change);
        if matches!(changer, Changer::Root) {
            return change();
        }
        let (changed, took) = changing_for(changer, change);
        if took {
            self.forget_attributes(ino);
        }
        changed
    }

    fn entry(&self, attr: &Attr) -> EntryAnswer {
        // also of what was just made, which the kernel tells without asking again
        shown(attr.changed.0);
        EntryAnswer::new(node_attr(attr), self.trusted_for)
    }

    fn answer_entry(&self, served: Served<Attr>, reply: Reply<'_>) {
        match served {
            Ok(attr) => reply.entry(&self.entry(&attr)),
            Err(errno) => reply.error(errno.0),
        }
    }

    fn answer_attr(&self, served: Served<Attr>, reply: Reply<'_>) {
        match served {
            Ok(attr) => reply.attributes(&AttrAnswer::new(node_attr(&attr), self.trusted_for)),
            Err(errno) => reply.error(errno.0),
        }
    }

    /// What the kernel may keep of what a request opens. Where there are other doors, a read out of
    /// its pages is of several moments, and sees there what a write is about to bring here; so
    /// calls come past them, if the kernel maps files all the same. Not where writes go to the end
    /// and reads go on from there: only with its pages the kernel asks first where that is.
    fn keep(&self, request: &Request<'_>) -> u32 {
        let past_pages = self.past_pages.get().is_some_and(|it| *it);
        let flags = match &request.operation {
            Operation::Opendir { .. } if self.sole_door => {
                return open_flags::KEEP_CACHE | open_flags::CACHE_DIR;
            }
            Operation::Opendir { .. } => return 0,
            Operation::Open { flags, .. } | Operation::Create { flags, .. } => *flags,
            _ => 0,
        };
        let goes_on = flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_RDWR;
        match self.sole_door {
            true => open_flags::KEEP_CACHE,
            false if past_pages && !goes_on => open_flags::DIRECT_IO,
            false => 0,
        }
    }

    fn answer_opened(&self, request: &Request<'_>, served: Served<u64>, reply: Reply<'_>) {
        match served {
            Ok(number) => {
                let is_taken = reply.opened(number, self.keep(request));
                self.close_unless(is_taken, (number, node(request)));
            }
            Err(errno) => reply.error(errno.0),
        }
    }
}

impl Transport {
    /// Whether this is open here for what is wanted: opened here, or said to have been open before
    /// this server was.
    pub(crate) fn may_lock(&self, file: OpenFile, wanted: May) -> bool {
        self.service.may_lock(file, wanted)
    }

    /// Whether this was said to have been open before this server was.
    pub(crate) fn has_open(&self, ino: Ino) -> bool {
        self.service.has_inherited(ino)
    }

    /// An error where a lock is asked about of what is not open here.
    pub(crate) fn permit_lock(&self, request: &Request<'_>) -> Served<()> {
        match &request.operation {
            Operation::Getlk(lock) => {
                self.service.permit_use((lock.handle, node(request)), May::NOTHING)
            }
            _ => Ok(()),
        }
    }

    /// Opens what an earlier server had open; where that cannot be, each request for it says why.
    pub(crate) fn reopen(&self, file: OpenFile) {
        if let Err(errno) = self.service.reopen_handle(file) {
            let (number, ino) = (file.0, file.1.0);
            tracing::info!(number, ino, errno = errno.0, "not open any more");
        }
    }

    /// Closes an open file that the kernel does not know of, since nobody took the answer: the
    /// caller was killed, or has it from the server before.
    fn close_unless(&self, is_taken: bool, file: OpenFile) {
        if !is_taken {
            self.close(file);
        }
    }

    pub(crate) fn close(&self, file: OpenFile) {
        if let Err(errno) = self.service.release(file) {
            tracing::debug!(number = file.0, errno = errno.0, "closing what nobody opened");
        }
    }
}

fn answer_done(served: Served<()>, reply: Reply<'_>) {
    match served {
        Ok(()) => reply.done(),
        Err(errno) => reply.error(errno.0),
    }
}

fn answer_size(served: Served<u32>, reply: Reply<'_>) {
    match served {
        Ok(size) => reply.size(size),
        Err(errno) => reply.error(errno.0),
    }
}

fn caller(request: &Request<'_>) -> Caller {
    let head = &request.head;
    Caller { uid: head.uid, gid: head.gid, thread: head.pid }
}

/// For the log: refused calls at the level debug, all at the level trace.
#[inline]
fn tell(request: &Request<'_>, call: Call, errno: i32) {
    let RequestHead { node, uid, pid, unique, .. } = request.head;
    match errno {
        0 => tracing::trace!(?call, node, uid, pid, unique, "done"),
        _ => tracing::debug!(?call, node, uid, pid, unique, errno, "refused"),
    }
}

fn node(request: &Request<'_>) -> Ino {
    Ino(request.head.node)
}

impl Server for Transport {
    fn wishes(&self) -> Wishes {
        Transport::wishes(self.sole_door)
    }

    fn connected(&self, mut connected: Connected) -> Result<()> {
        // Set once, before any request is read.
        let _ = self.notifier.set(connected.notifier.clone());
        let pages = self.service.pages();
        let notices = Arc::new(Notices::new(connected.notifier.clone(), pages));
        pages.begin(notices, connected.threads, connected.opened.take());
        let maps = connected.agreed.has(Capabilities::DIRECT_IO_ALLOW_MMAP);
        let _ = self.past_pages.set(maps && !self.sole_door);
        match connected.locks.take() {
            Some(memory) if self.wishes().locks => self.locks.take_over(memory, connected),
            _ => Ok(()),
        }
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        self.service.lets_go();
        let refused = Cell::new(false);
        let call = calls::call(&request.operation);
        let note = |errno| {
            refused.set(errno != 0);
            tell(request, call, errno);
            if errno == libc::ESTALE {
                self.service.tells_stale(caller(request));
            }
        };
        let reply = reply.noting(&note);
        self.service.metered(call, || {
            match changes(request) {
                true => self.serve_once(request, reply),
                false => self.dispatch(request, reply),
            }
            refused.get()
        });
    }

    fn answered(&self, unique: u64) {
        self.service.acknowledge(unique);
        self.locks.released(unique);
    }

    fn leaves(&self) {
        self.locks.leave();
    }
}

impl Transport {
    fn dispatch(&self, request: &Request<'_>, reply: Reply<'_>) {
        match &request.operation {
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Fsync { .. }
            | Operation::Fallocate { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. }
            | Operation::Release { .. }
            | Operation::Open { .. }
            | Operation::Syncfs => self.serve_data(request, reply),
            Operation::Lookup { .. }
            | Operation::Create { .. }
            | Operation::Tmpfile { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Readlink => self.serve_names(request, reply),
            Operation::Opendir { .. }
            | Operation::Readdir { .. }
            | Operation::Readdirplus { .. }
            | Operation::Releasedir { .. }
            | Operation::Fsyncdir { .. } => self.serve_directories(request, reply),
            Operation::Getlk(_)
            | Operation::Setlk { .. }
            | Operation::Flush { .. }
            | Operation::Interrupt { .. } => self.serve_locks(request, reply),
            Operation::NotifyReply => reply.nothing(),
            _ => self.serve_attributes(request, reply),
        }
    }
}
