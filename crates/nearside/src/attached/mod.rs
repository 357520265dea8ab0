//! The library's calls in a process that is attached to the service of a pool: each asks the
//! service, which makes the same call for it, with the rights of the process's user and groups.

mod directory;
mod file;
mod paths;
mod regions;
mod together;

use std::path::Path;
use std::sync::Arc;

use client::{Options as AttachOptions, Session};
use fs::{Error as FsError, StatFs};
use pool::PoolInfo;
use wire::{Reply, Request};

pub(crate) use directory::AttachedDir;
pub(crate) use file::AttachedFile;

use crate::{Error, Result};

/// Bytes of answers whose length is not known: attributes, links, what a pool says of itself.
const ANSWER_BYTES_MAX: usize = wire::DATA_BYTES_MAX;

/// A pool that another process owns.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    session: Arc<Session>,
    /// What the pool said of itself at the beginning.
    info: Arc<PoolInfo>,
}

impl Attached {
    pub(crate) fn to(place: &Path, options: &AttachOptions) -> Result<Attached> {
        let session = Session::attach_with(place, options)?;
        let mut said = vec![0; ANSWER_BYTES_MAX];
        let (_, len) = session.ask(&Request::Info, &[], &mut said)?;
        let info = serde_json::from_slice(&said[..len]).map_err(|_| nonsense())?;
        Ok(Attached { session: Arc::new(session), info: Arc::new(info) })
    }

    /// Refuses a forked child.
    pub(crate) fn own(&self) -> Result<()> {
        match self.session.process().is_here() {
            true => Ok(()),
            false => Err(Error::Forked { owner: self.session.process().id() }),
        }
    }

    /// Whether the two are one attachment.
    pub(crate) fn is(&self, other: &Attached) -> bool {
        Arc::ptr_eq(&self.session, &other.session)
    }

    /// Asks, with data both ways; gives how much came back.
    fn exchange(
        &self,
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize)> {
        self.own()?;
        fs::check_buffer(into)?;
        match self.session.ask(request, data, into)? {
            (Reply::Failed(failure), _) => Err(told(failure)),
            answered => Ok(answered),
        }
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        Ok(self.exchange(request, &[], &mut [])?.0)
    }

    /// Asks for what is done and has no answer.
    fn act(&self, request: &Request<'_>) -> Result<()> {
        self.ask(request).map(drop)
    }

    /// Asks for bytes; `None` where there are none.
    fn bytes(&self, request: &Request<'_>) -> Result<Option<Vec<u8>>> {
        let (reply, bytes) = self.reply_and_bytes(request)?;
        Ok((reply != Reply::Nothing).then_some(bytes))
    }

    fn reply_and_bytes(&self, request: &Request<'_>) -> Result<(Reply, Vec<u8>)> {
        let mut bytes = vec![0; ANSWER_BYTES_MAX];
        let (reply, len) = self.exchange(request, &[], &mut bytes)?;
        bytes.truncate(len);
        bytes.shrink_to_fit();
        Ok((reply, bytes))
    }

    fn number(&self, request: &Request<'_>, data: &[u8]) -> Result<u64> {
        match self.exchange(request, data, &mut [])?.0 {
            Reply::Number(number) => Ok(number),
            _ => Err(nonsense()),
        }
    }

    /// What the pool says of itself, or said when it could still be asked.
    pub(crate) fn info(&self) -> PoolInfo {
        let said = self.bytes(&Request::Info).ok().flatten().unwrap_or_default();
        serde_json::from_slice(&said).unwrap_or_else(|_| PoolInfo::clone(&self.info))
    }

    pub(crate) fn statfs(&self) -> Result<StatFs> {
        match self.ask(&Request::StatFs)? {
            Reply::Space(space) => Ok(space),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.act(&Request::Checkpoint)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.act(&Request::Sync)
    }
}

/// The service's error, as the library tells it.
pub(crate) fn told(failure: wire::Failure) -> Error {
    let path = failure.path.clone();
    match (path, failure.error()) {
        (Some(path), source) => Error::Path { path: crate::names::path_of(path), source },
        (None, source) => Error::Files(source),
    }
}

fn nonsense() -> Error {
    Error::Service(client::Error::Nonsense("an answer to another call"))
}

/// What only the process that owns the pool can do.
pub(crate) fn owners_alone() -> Error {
    Error::Files(FsError::Unsupported("only the process that owns the pool can do this"))
}
