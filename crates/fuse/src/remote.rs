//! A mount that another machine has: its kernel's requests come over a network, and what they mean
//! is what it is for a mount of this machine.
//!
//! Nothing that comes is believed. A request is looked at in a copy, and taken apart by code that
//! trusts no length; what a kernel would never ask for is refused. Open files are the mount's own,
//! by number and inode. Who may have a part of the pool only names inodes as the service made up
//! ([`Nodes`]).

mod nodes;
mod way;

pub use nodes::Nodes;
pub(crate) use way::Way;

use std::sync::Arc;

use nearside::FileSystem;
use nearside::files::Ino;
use parking_lot::Mutex;
use wire::{MountServer, Notice, Outlet, Told};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel_pages::AwayNotices;
use crate::locks::{self, Ask, Mirror, Mirrored};
use crate::service::{May, REQUEST_BYTES_MAX, Service, Users, asked_by};
use crate::transport::{self, Transport};
use crate::wire::{
    Capabilities, Channel, LateReply, Notifier, Operation, Reply, Request, RequestHead, is_long,
};
use crate::{Connected, Result, Server, Turn};

/// Where in a request its number is.
const UNIQUE_AT: std::ops::Range<usize> = 8..16;
/// Open files and lock requests that are told of one mount, at most.
const TOLD_MAX: usize = 1 << 17;

/// Whose mount it is, and of what.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Who it is, and how often it was served before.
    pub turn: Turn,
    /// What its kernel agreed on with the forwarder.
    pub capabilities: u64,
    /// What its kernel calls inodes, its root among them.
    pub nodes: Nodes,
    /// Nothing is changed.
    pub read_only: bool,
    /// Whose rights its users have.
    pub users: Users,
}

/// Serves a mount that another machine has.
pub struct RemoteServer {
    transport: Transport,
    pages: Arc<AwayNotices>,
    channel: Arc<Channel>,
    way: Arc<Way>,
    agreed: Capabilities,
    options: RemoteOptions,
    progress: Mutex<Progress>,
}

/// What was told so far.
#[derive(Debug, Default)]
struct Progress {
    has_begun: bool,
    opened: usize,
    asked: Vec<u64>,
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RemoteServer").field("options", &self.options).finish_non_exhaustive()
    }
}

impl RemoteServer {
    /// Serves what `options` say of a pool; answers go to `outlet`.
    pub fn new(
        fs: Arc<FileSystem>,
        options: RemoteOptions,
        outlet: Arc<dyn Outlet>,
    ) -> RemoteServer {
        let is_checked = options.users != Users::Trusted;
        let service = Service::away(fs.clone(), is_checked, options.turn);
        let way = Arc::new(Way::new(outlet, options.nodes));
        let number = options.turn.number;
        let pages = Arc::new(AwayNotices::new(way.clone(), service.pages(), number));
        service.pages().begin(pages.clone(), 0, None);
        RemoteServer {
            transport: Transport::new(fs, service, false),
            pages,
            channel: Arc::new(Channel::Away(way.clone())),
            way,
            agreed: Capabilities(options.capabilities),
            options,
            progress: Mutex::default(),
        }
    }

    /// Requests follow. `journal`: the locks that the kernel's programs have.
    fn begin(&self, journal: &[u8]) -> Result<()> {
        let mut progress = self.progress.lock();
        let asked = std::mem::take(&mut progress.asked);
        if std::mem::replace(&mut progress.has_begun, true) {
            for (unique, errno) in self.transport.locks.resume(&asked) {
                LateReply::new(self.channel.clone(), unique).answer(errno);
            }
            self.pages.say_again();
            return Ok(());
        }
        let way = self.way.clone();
        let mirror = Mirror(Box::new(move |mirrored| match mirrored {
            Mirrored::More(records) => way.say_locks(Notice::Journal, records),
            Mirrored::All(records) => way.say_locks(Notice::Journals, records),
        }));
        self.transport.connected(Connected {
            notifier: Notifier::new(self.channel.clone()),
            owed: Vec::new(),
            channel: self.channel.clone(),
            owes: Arc::new(|_| false),
            locks: Some(locks::memory_for(&self.locked(journal))?),
            opened: None,
            memo: None,
            mirror: Some(mirror),
            threads: 0,
            agreed: self.agreed,
        })?;
        // what was not to be had again is out of the journal there, too
        self.transport.locks.resume(&asked);
        Ok(())
    }

    /// What of a journal is of files that are open here.
    fn locked(&self, journal: &[u8]) -> Vec<u8> {
        let records = self.options.nodes.records_of(journal);
        let is_open = |record: &&[u8]| match record.first_chunk() {
            Some(ino) if record.len() == locks::RECORD_BYTES => {
                self.transport.has_open(Ino(u64::from_ne_bytes(*ino)))
            }
            // what is no record is told by whoever takes it
            _ => true,
        };
        records.chunks(locks::RECORD_BYTES).filter(is_open).collect::<Vec<_>>().concat()
    }

    /// The inode that the kernel calls so, if it may.
    fn inode(&self, name: u64) -> Option<u64> {
        self.options.nodes.inode(name)
    }

    /// A request of the inodes that its names are. `None`: one is no name.
    fn place<'r>(&self, mut request: Request<'r>) -> Option<Request<'r>> {
        request.head.node = self.inode(request.head.node)?;
        match &mut request.operation {
            Operation::Rename { new_parent: node, .. }
            | Operation::Link { of: node, .. }
            | Operation::CopyFileRange { to_node: node, .. } => *node = self.inode(*node)?,
            Operation::Read { size, .. } => *size = (*size).min(REQUEST_BYTES_MAX as u32),
            _ => {}
        }
        Some(request)
    }

    /// The errno of a request that is none of this mount's.
    fn refused(&self, request: &Request<'_>) -> Option<i32> {
        match &request.operation {
            Operation::Init(..)
            | Operation::Destroy
            | Operation::Setlk { .. }
            | Operation::Interrupt { .. }
            | Operation::NotifyReply => Some(libc::EINVAL),
            // no way out of the root, nor by what was made already: a kernel knows by itself where
            // these lead
            operation if operation.names().into_iter().flatten().any(is_dots) => Some(libc::EINVAL),
            Operation::Open { flags, .. } => {
                let writes = flags & (libc::O_ACCMODE | libc::O_TRUNC) != libc::O_RDONLY;
                (self.options.read_only && writes).then_some(libc::EROFS)
            }
            Operation::CopyFileRange { .. } if self.options.read_only => Some(libc::EROFS),
            _ => (self.options.read_only && transport::changes(request)).then_some(libc::EROFS),
        }
    }

    /// Whether a file is open here for the lock that is asked for: one of a range needs a file
    /// that is open for reading or for writing, as it is.
    fn may_lock(&self, ask: &Ask) -> bool {
        let wanted = match ask.kind {
            libc::F_RDLCK if ask.flock == 0 => May::READ,
            libc::F_WRLCK if ask.flock == 0 => May::WRITE,
            _ => May::NOTHING,
        };
        let writes = wanted == May::WRITE && self.options.read_only;
        !writes && self.transport.may_lock((ask.handle, Ino(ask.node)), wanted)
    }

    /// A lock request.
    fn ask(&self, data: &[u8]) -> Option<Ask> {
        let ask = Ask::read_from_bytes(data).ok().filter(|ask| !way::is_of_slot(ask.unique))?;
        Some(Ask { node: self.inode(ask.node)?, ..ask })
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The numbers that these bytes are, 8 each.
fn numbers(data: &[u8]) -> Option<Vec<u64>> {
    let (numbers, rest) = data.as_chunks::<8>();
    let fits = rest.is_empty() && numbers.len() <= TOLD_MAX;
    fits.then(|| numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect())
}

impl MountServer for RemoteServer {
    fn serve(&self, unique: u64, again: bool, request: &mut [u8]) {
        let reply = Reply::new(&self.channel, unique);
        if request.len() < UNIQUE_AT.end || !self.progress.lock().has_begun {
            return reply.error(libc::EINVAL);
        }
        request[UNIQUE_AT].copy_from_slice(unique.as_bytes());
        let Ok(parsed) = Request::parse(request, self.agreed) else {
            return reply.error(libc::EINVAL);
        };
        if let Some(errno) = self.refused(&parsed) {
            return reply.error(errno);
        }
        if let Operation::BatchForget(forgets) = parsed.operation {
            let known = forgets.filter_map(|(name, lookups)| Some((self.inode(name)?, lookups)));
            known.for_each(|(ino, lookups)| self.transport.forget(Ino(ino), lookups));
            return reply.nothing();
        }
        let Some(request) = self.place(Request { again, ..parsed }) else {
            return reply.error(libc::ESTALE);
        };
        self.way.expects(unique, &request.operation);
        let RequestHead { uid, gid, .. } = request.head;
        let asking = self.options.users.asking(uid, (gid, request.group));
        let request = request.asked_by(asking.as_deref());
        asked_by(asking, || match self.transport.permit_lock(&request) {
            Ok(()) => self.transport.serve(&request, reply),
            Err(errno) => reply.error(errno.0),
        });
    }

    fn told(&self, told: &Told, data: &[u8]) -> bool {
        let locks = &self.transport.locks;
        match told {
            Told::Opened => {
                let Some(numbers) = numbers(data) else { return false };
                let mut progress = self.progress.lock();
                progress.opened += numbers.len();
                if progress.has_begun || progress.opened > TOLD_MAX {
                    return false;
                }
                drop(progress);
                let (pairs, _) = numbers.as_chunks::<2>();
                let known = |[number, name]: &[u64; 2]| Some((*number, Ino(self.inode(*name)?)));
                // by whom is not said, where they are not all one
                asked_by(self.options.users.one(), || {
                    pairs.iter().filter_map(known).for_each(|opened| self.transport.reopen(opened));
                });
                true
            }
            Told::Asked => match numbers(data) {
                Some(numbers) => {
                    let mut progress = self.progress.lock();
                    // another connection may be lost before the beginning, and all be told again
                    (progress.asked, progress.opened) = (numbers, 0);
                    true
                }
                None => false,
            },
            Told::Begin => match self.begin(data) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!("a mount of another machine cannot go on: {error}");
                    false
                }
            },
            Told::Lock => {
                let Some(ask) = self.ask(data) else { return false };
                let reply = Reply::new(&self.channel, ask.unique);
                match self.may_lock(&ask) {
                    true => locks.set(&ask, reply),
                    false => reply.error(libc::EBADF),
                }
                true
            }
            Told::Interrupt(unique) => {
                locks.interrupt(*unique);
                true
            }
            Told::Heard(unique) => {
                locks.released(*unique);
                true
            }
            Told::Forgot(number) => {
                self.pages.heard(*number);
                true
            }
            Told::Close(number, name) => {
                let ino = self.inode(*name).map(Ino);
                ino.inspect(|ino| self.transport.close((*number, *ino)));
                true
            }
            Told::Ends => true,
        }
    }

    fn takes_lock(&self, told: &Told, data: &[u8]) -> bool {
        *told == Told::Lock && self.ask(data).is_some_and(|ask| ask.kind != libc::F_UNLCK)
    }

    fn may_take_long(&self, request: &[u8]) -> bool {
        RequestHead::parse(request).is_ok_and(|head| is_long(&head))
    }
}

#[cfg(test)]
#[path = "remote_lock_tests.rs"]
mod lock_tests;
#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
