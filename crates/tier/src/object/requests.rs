//! What is asked of a store: objects, and the one that says how large the device is.

use super::lease::Validity;
use super::store::Place;
use super::{OBJECT_BLOCKS, OBJECT_BYTES};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// Requests that are under way at one time.
const DEPTH: usize = 32;
/// Locks of objects, which share them.
const LOCKS: usize = 64;
/// Times that an object is read and put, where it was changed in between or no answer came.
const ATTEMPTS: usize = 5;
/// How long after its begin a write without an answer is made again.
const AGAIN_TIME: Duration = Duration::from_secs(10);
/// Bytes at the end of an object that are no other's.
const MARK_BYTES: usize = 16;

/// A part of an object, and of what a caller reads or writes.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Which object.
    pub object: u64,
    /// Where in it, bytes.
    pub from: usize,
    /// Which of the caller's bytes.
    pub of: Range<usize>,
}

/// What is to be in an object.
#[derive(Debug)]
pub struct Patch {
    /// Where in it, bytes.
    pub from: usize,
    /// The bytes, whole blocks.
    pub bytes: Vec<u8>,
}

/// A store, and the place in it.
#[derive(Debug)]
pub struct Requests {
    pub store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Objects are put on the condition that nobody did since they were looked at.
    is_conditional: bool,
    /// Held while an object is read, changed and put again: nobody's change is lost.
    locks: [Mutex<()>; LOCKS],
    room: Semaphore,
    /// Until when the device is this one's to use; `None`: as long as it is open.
    pub validity: Option<Arc<Validity>>,
}

/// The store's error as one of the system.
pub fn io_error(error: Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// `None` for what is not there.
fn there<T>(found: Result<T, Error>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(io_error(error)),
    }
}

/// Whether an object was not the one that was to be replaced.
pub fn is_stale(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. })
}

/// Replaces nothing but the object that has this tag, or, without any, none.
pub fn only_instead_of(tag: Option<String>) -> PutMode {
    match tag {
        Some(tag) => PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None }),
        None => PutMode::Create,
    }
}

fn covers_all(patches: &[Patch]) -> bool {
    let mut blocks = [false; OBJECT_BLOCKS as usize];
    let block = OBJECT_BYTES / blocks.len();
    for patch in patches {
        let from = patch.from / block;
        blocks[from..from + patch.bytes.len() / block].fill(true);
    }
    blocks.iter().all(|it| *it)
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Requests {
    /// For the device there.
    pub fn new(place: &Place) -> Requests {
        Requests {
            store: place.store.clone(),
            prefix: place.prefix.clone(),
            is_conditional: place.is_shared(),
            locks: std::array::from_fn(|_| Mutex::default()),
            room: Semaphore::new(DEPTH),
            validity: place.is_shared().then(Arc::default),
        }
    }

    /// Where the thing of this name is.
    pub fn named(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn object(&self, number: u64) -> Path {
        self.named(&format!("{number:08x}"))
    }

    fn check(&self) -> io::Result<()> {
        self.validity.as_ref().map_or(Ok(()), |validity| validity.check())
    }

    fn instead_of(&self, tag: Option<String>) -> PutMode {
        match self.is_conditional {
            true => only_instead_of(tag),
            false => PutMode::Overwrite,
        }
    }

    /// Whether there is such an object.
    pub async fn exists(&self, number: u64) -> io::Result<bool> {
        Ok(there(self.store.head(&self.object(number)).await)?.is_some())
    }

    /// Notes how large the device is.
    pub async fn put_size(&self, bytes: u64) -> io::Result<()> {
        let text = format!(
            "nearside object device\nversion 1\nbytes {bytes}\nobject-blocks {OBJECT_BLOCKS}\n"
        );
        let path = self.named("layout");
        // a format that failed may have left one
        let tag = there(self.store.head(&path).await)?.and_then(|found| found.e_tag);
        self.check()?;
        let put = self.store.put_opts(&path, text.into(), self.instead_of(tag).into()).await;
        put.map(drop).map_err(io_error)
    }

    /// How large it is, if that was ever noted.
    pub async fn size(&self) -> io::Result<Option<u64>> {
        let path = self.named("layout");
        let Some(found) = there(self.store.get(&path).await)? else { return Ok(None) };
        let text = found.bytes().await.map_err(io_error)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let size = text.strip_prefix("nearside object device\nversion 1\nbytes ");
        let size =
            size.and_then(|it| it.strip_suffix(&format!("\nobject-blocks {OBJECT_BLOCKS}\n")));
        match size.map(str::parse) {
            Some(Ok(bytes)) => Ok(Some(bytes)),
            _ => Err(bad(format!("{path} makes no sense, or was made by another Nearside"))),
        }
    }

    /// Makes reads and writes side by side; gives what was read, `None` for what was never written.
    /// All of them are done when this returns, also when one fails: none is to come late.
    pub async fn make(
        &self,
        reads: Vec<Piece>,
        writes: BTreeMap<u64, Vec<Patch>>,
    ) -> io::Result<Vec<Option<Bytes>>> {
        let writes = writes.into_iter().map(|(object, patches)| self.write(object, patches));
        let reads = reads.into_iter().map(|piece| self.read(piece));
        let (read, written) = join(join_all(reads), join_all(writes)).await;
        written.into_iter().collect::<io::Result<()>>()?;
        read.into_iter().collect()
    }

    async fn read(&self, piece: Piece) -> io::Result<Option<Bytes>> {
        let _room = self.room.acquire().await.map_err(io::Error::other)?;
        let path = self.object(piece.object);
        let end = piece.from + piece.of.len();
        let found = there(self.store.get_range(&path, piece.from as u64..end as u64).await)?;
        // what was read is right if the device was not yet another's when it was there
        self.check()?;
        match &found {
            Some(bytes) if bytes.len() != piece.of.len() => Err(bad(format!("{path} is cut off"))),
            _ => Ok(found),
        }
    }

    async fn write(&self, object: u64, patches: Vec<Patch>) -> io::Result<()> {
        let _one = self.locks[object as usize % LOCKS].lock().await;
        let _room = self.room.acquire().await.map_err(io::Error::other)?;
        let path = self.object(object);
        let is_whole = covers_all(&patches);
        let started = Instant::now();
        for _ in 0..ATTEMPTS {
            let (mut bytes, tag) = self.before(&path, is_whole).await?;
            for patch in &patches {
                bytes[patch.from..patch.from + patch.bytes.len()].copy_from_slice(&patch.bytes);
            }
            bytes[OBJECT_BYTES..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
            // the device was not another's when the object was looked at: whatever happens from
            // here on, it is replaced only if it has not changed since
            self.check()?;
            let mode = self.instead_of(tag).into();
            match self.store.put_opts(&path, PutPayload::from(bytes), mode).await {
                Ok(_) => return Ok(()),
                // an earlier attempt, or a retry's, has come through after all
                Err(error) if is_stale(&error) => {}
                // a connection that broke: nobody knows what came through, and it does not matter
                Err(Error::Generic { .. }) if started.elapsed() < AGAIN_TIME => {}
                Err(error) => return Err(io_error(error)),
            }
        }
        Err(bad(format!("{path} cannot be put, or is being changed by somebody else")))
    }

    /// What an object holds before it is changed, and its tag: zeros if it is not there, or if all
    /// of it is changed.
    async fn before(&self, path: &Path, is_whole: bool) -> io::Result<(Vec<u8>, Option<String>)> {
        let zeros = || vec![0; OBJECT_BYTES + MARK_BYTES];
        if is_whole && !self.is_conditional {
            return Ok((zeros(), None));
        }
        let options = GetOptions { head: is_whole, ..GetOptions::default() };
        let Some(found) = there(self.store.get_opts(path, options).await)? else {
            return Ok((zeros(), None));
        };
        let tag = found.meta.e_tag.clone();
        if self.is_conditional && tag.is_none() {
            return Err(bad(format!("{path} has no ETag: this store cannot keep a device")));
        }
        if is_whole {
            return Ok((zeros(), tag));
        }
        let bytes = Vec::from(found.bytes().await.map_err(io_error)?);
        match bytes.len() == OBJECT_BYTES + MARK_BYTES {
            true => Ok((bytes, tag)),
            false => Err(bad(format!("{path} is cut off"))),
        }
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
