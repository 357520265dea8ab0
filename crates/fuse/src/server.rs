//! What answers the requests of a mount.

use std::sync::Arc;

use crate::Result;
use crate::locks::Mirror;
use crate::state::{LockMemory, Memo};
use crate::wire::{Capabilities, Channel, LateReply, Notifier, Reply, Request};

/// What a server asks of the kernel beyond what every mount of ours asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Nobody changes the files but through this mount, so that pages stay valid.
    pub sole_door: bool,
    /// The server keeps the locks of fcntl(2) and flock(2).
    pub locks: bool,
    /// The server keeps POSIX ACLs, and applies the umask where there is none to inherit.
    pub acls: bool,
}

impl Wishes {
    /// As one number, for the state of a connection.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.sole_door) | u32::from(self.locks) << 1 | u32::from(self.acls) << 2
    }
}

/// Answers the requests of one mount, each in one of several threads.
pub trait Server: Send + Sync + 'static {
    /// What it asks of the kernel; always the same.
    fn wishes(&self) -> Wishes;

    /// The connection stands; comes before the first request.
    fn connected(&self, _connected: Connected) -> Result<()> {
        Ok(())
    }

    /// Serves one request. A panic costs that request: it answers EIO.
    fn serve(&self, request: &Request<'_>, reply: Reply<'_>);

    /// Request `unique` is answered, or kept by this server until it is: no server will be given
    /// it again.
    fn answered(&self, _unique: u64) {}

    /// This server leaves: it serves nothing more, and what it keeps is for the next one.
    fn leaves(&self) {}
}

/// Tells, by its number, whether a request is still in a slot.
pub(crate) type Owes = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What a server is told when its turn begins.
#[non_exhaustive]
pub struct Connected {
    /// Tells the kernel to forget.
    pub notifier: Notifier,
    /// Numbers of the requests that an earlier server was given and did not answer, which this
    /// one will be asked to serve.
    pub owed: Vec<u64>,
    pub(crate) channel: Arc<Channel>,
    /// Whether a server of this connection was given a request and has not answered it.
    pub(crate) owes: Owes,
    pub(crate) locks: Option<LockMemory>,
    /// Where a server without an engine keeps what is open, and one with an engine what its kernel
    /// has pages of.
    pub(crate) opened: Option<shm::Area>,
    /// What a server notes for the next one.
    pub(crate) memo: Option<Memo>,
    /// Is told what becomes of the journal of locks.
    pub(crate) mirror: Option<Mirror>,
    /// How many threads serve.
    pub(crate) threads: usize,
    /// What server and kernel agreed on.
    pub(crate) agreed: Capabilities,
}

impl Connected {
    /// The place for the answer to a request that an earlier server kept.
    pub fn late_reply(&self, unique: u64) -> LateReply {
        LateReply::new(self.channel.clone(), unique)
    }
}
