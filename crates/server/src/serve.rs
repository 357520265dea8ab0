//! What calls mean: each is a call of the library, made for the process that asks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fs::{Arrival, Error as FsError, LockKind};
use nearside::{Error, File};
use wire::{DATA_BYTES_MAX, Failure, Reply, Request, Taken};

use crate::data::Data;
use crate::opened::Opened;
use crate::session::{Begin, Session};
use crate::shared::Shared;
use crate::stream::Serves;
use crate::{exports, lock_wait, mount, new_nodes};

/// Most bytes that one call copies: who wants more asks again.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Threads that serve what may take long, of all processes.
const SLOW_MAX: usize = 1024;

/// Memory that a worker keeps for its next call.
#[derive(Debug, Default)]
pub struct Room {
    /// What was asked.
    pub message: Vec<u8>,
    /// What came with it.
    pub data: Vec<u8>,
    /// What goes with the answer.
    pub answer: Vec<u8>,
}

/// Serves the calls of a process.
#[derive(Debug)]
pub struct Of<'s> {
    pub shared: &'s Arc<Shared>,
    pub session: &'s Arc<Session>,
    pub answer: &'s mut Vec<u8>,
}

impl Serves for Of<'_> {
    fn begin(&mut self, message: &[u8], data: usize) -> Option<Arrival> {
        begin(self.session, message, data)
    }

    fn serve(&mut self, taken: Taken, message: &[u8], data: Data<'_>) {
        serve(self.shared, self.session, taken, (message, data), self.answer);
    }
}

/// What a call ended with.
pub type Answer = nearside::Result<Reply>;

/// Where the data of a call goes that is to come; `None`: it is to be collected.
pub fn begin(session: &Session, message: &[u8], data: usize) -> Option<Arrival> {
    if session.mount.is_some() || session.read_only {
        return None;
    }
    let (_, request) = wire::decode::<wire::Call<'_>>(message).ok()?;
    let Request::Write { file, offset } = request else { return None };
    session.opened.file(file).ok()?.begin_write_at(offset, data)
}

/// Serves a call: its message, and the data that came with it; at once, or by a thread of its own.
pub fn serve(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    taken: Taken,
    (message, data): (&[u8], Data<'_>),
    answer: &mut Vec<u8>,
) {
    if let Some(mount) = &session.mount {
        let data = data.here();
        return match mount.may_take_long(message) {
            false => mount.serve(session, taken, message, data),
            true => serve_apart(shared, session, (taken, &mount::joined(message, data)), answer),
        };
    }
    let Ok((count, request)) = wire::decode::<wire::Call<'_>>(message) else {
        let failure = Failure::of(&FsError::Invalid("the call makes no sense"), None);
        return session.answer(taken, &Reply::Failed(failure), &[]);
    };
    if session.read_only && exports::is_change(&request) {
        let failure = Failure::of(&FsError::ReadOnly, None);
        return session.answer(taken, &Reply::Failed(failure), &[]);
    }
    if !matches!(request, Request::Restore { .. }) {
        session.opened.end_inheritance();
    }
    if request == Request::Restored {
        shared.grace().has_its_locks(session.client);
    }
    if let Request::Lock { file, kind: LockKind::Read | LockKind::Write, .. } = request
        && session.opened.file(file).is_ok()
    {
        session.has_locks();
        if shared.grace().holds_back(session, taken, message) {
            return;
        }
    }
    if let Request::Lock { file, kind, start, end, wait: true } = request {
        return lock_wait::begin(session, taken, file, kind, (start, end));
    }
    if !matches!(request, Request::Sync | Request::Checkpoint | Request::Copy { .. }) {
        return serve_now(session, (taken, count), &request, data, answer);
    }
    // no data comes with these
    serve_apart(shared, session, (taken, message), answer);
}

/// Serves a call that may take long, and came without data: by a thread of its own, if there may
/// be one more.
fn serve_apart(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (taken, message): (Taken, &[u8]),
    answer: &mut Vec<u8>,
) {
    let mut thread = None;
    let begin = || {
        thread = shared.slow.begin(SLOW_MAX);
        thread.is_some()
    };
    match session.begin_slow(taken, message, begin) {
        Begin::Waits => {}
        Begin::Here => serve_message(session, taken, message, answer),
        Begin::InThread => {
            let theirs = session.clone();
            let own = message.to_vec();
            let serve = move || {
                serve_slow(&theirs, (taken, own));
                drop(theirs);
                drop(thread);
            };
            if std::thread::Builder::new().name("ns-slow".to_owned()).spawn(serve).is_err() {
                serve_slow(session, (taken, message.to_vec()));
            }
        }
    }
}

/// Serves a call that came without data.
fn serve_message(session: &Session, taken: Taken, message: &[u8], answer: &mut Vec<u8>) {
    if let Some(mount) = &session.mount {
        mount.serve(session, taken, message, &[]);
    } else if let Ok((count, request)) = wire::decode::<wire::Call<'_>>(message) {
        serve_now(session, (taken, count), &request, Data::Here(&[]), answer);
    }
}

/// Serves long calls of a process, until none of them waits.
fn serve_slow(session: &Session, first: (Taken, Vec<u8>)) {
    let mut answer = Vec::new();
    let mut next = Some(first);
    while let Some((taken, message)) = next {
        serve_message(session, taken, &message, &mut answer);
        next = session.next_slow();
    }
}

fn serve_now(
    session: &Session,
    (taken, count): (Taken, u64),
    request: &Request<'_>,
    data: Data<'_>,
    answer: &mut Vec<u8>,
) {
    answer.clear();
    session.trace_as(taken.slot());
    // A call that panics is this process's misfortune, and a fault to be found; the others go on.
    let call = Call { session, data, answer };
    let made = || call.make_once((taken.slot(), count), request);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(made));
    let reply = match outcome {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => Reply::Failed(failure(error)),
        Err(_) => {
            let words = "the service met a fault of its own; its log says where".to_owned();
            Reply::Failed(Failure::other(rustix::io::Errno::IO.raw_os_error(), words, None))
        }
    };
    session.answer(taken, &reply, &answer[..answer.len().min(DATA_BYTES_MAX)]);
}

/// The error as it travels.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Path { path, source } => {
            Failure::of(&source, Some(path.into_os_string().into_encoded_bytes()))
        }
        Error::Files(source) => Failure::of(&source, None),
        Error::Region(nearside::RegionError::File(source)) => Failure::of(&source, None),
        other => Failure::other(other.errno(), other.to_string(), None),
    }
}

/// A call that is being made.
pub struct Call<'c> {
    pub session: &'c Session,
    /// What came with it.
    pub data: Data<'c>,
    /// What goes with the answer.
    pub answer: &'c mut Vec<u8>,
}

pub fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

impl Call<'_> {
    pub fn make(self, request: &Request<'_>) -> Answer {
        match request {
            // these take memory that both share
            Request::Cache | Request::Lane { .. } if self.session.line.is_remote() => {
                Ok(Reply::Nothing)
            }
            Request::Open(..)
            | Request::OpenDirectory(_)
            | Request::Restore { .. }
            | Request::Restored
            | Request::Close(_)
            | Request::ReadDirectory(..) => self.opened(request),
            Request::Cache => self.new_cache(),
            Request::ReadCached { file, offset, len } => self.read_cached(*file, *offset, *len),
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Append(_)
            | Request::Copy { .. }
            | Request::FileAttributes(_)
            | Request::SetLength(..)
            | Request::PunchHole(..)
            | Request::Allocate(..)
            | Request::Seek(..)
            | Request::Lock { .. } => self.of_file(request),
            Request::Lane { .. }
            | Request::Lease { .. }
            | Request::GiveBack(_)
            | Request::Fold
            | Request::Happened { .. } => self.of_lane(request),
            Request::Commit { staged, pieces, writes, expected } => {
                self.commit((*staged, *pieces), writes, expected)
            }
            Request::Stage { staged, writes, expected } => self.stage(*staged, writes, expected),
            Request::Unstage(number) => self.unstage(*number),
            Request::Map { copy, file, offset, bytes } => self.map(*copy, *file, (*offset, *bytes)),
            Request::Fill { copy, page, pages } => {
                let close = |blocks: &fs::Blocks| self.session.lane.close_to_others(blocks);
                self.session.copies.fill(self.session.pool.fs(), *copy, (*page, *pages), close)?;
                Ok(Reply::Done)
            }
            Request::Unmap(copy) => {
                self.session.copies.unmap(self.session.pool.fs(), *copy);
                Ok(Reply::Done)
            }
            Request::ReadTogether { pieces, watched } => self.read_together(pieces, watched),
            Request::Sync | Request::Checkpoint | Request::StatFs | Request::Info => {
                self.of_pool(request)
            }
            _ => self.of_path(request),
        }
    }

    /// Reads a file.
    pub fn read(self, file: &File, offset: u64, len: usize) -> Answer {
        self.answer.resize(len, 0);
        let read = file.read_at(self.answer, offset)?;
        self.answer.truncate(read);
        Ok(Reply::Done)
    }

    /// The file of this number.
    pub fn file(&self, number: u64) -> nearside::Result<File> {
        self.session.opened.file(number)
    }

    fn of_file(self, request: &Request<'_>) -> Answer {
        match *request {
            Request::Read { file, offset, len } => {
                let file = self.file(file)?;
                self.read(&file, offset, (len as usize).min(DATA_BYTES_MAX))
            }
            Request::Write { file, offset } => {
                let file = self.file(file)?;
                let written = match self.data {
                    Data::Here(data) => file.write_at(data, offset)?,
                    Data::Arrived(arrival) => file.end_write(arrival)?,
                };
                Ok(Reply::Number(written as u64))
            }
            Request::Append(file) => Ok(Reply::Number(self.file(file)?.append(self.data.here())?)),
            Request::Copy { from, to, len } => {
                let (source, target) = (self.file(from.0)?, self.file(to.0)?);
                Ok(Reply::Number(source.copy_to(from.1, &target, to.1, len.min(COPY_BYTES_MAX))?))
            }
            Request::FileAttributes(number) => match self.session.opened.get(number)? {
                Opened::Directory(directory) => {
                    Ok(Reply::Attributes(self.session.pool.fs().getattr(directory.ino())?))
                }
                _ => Ok(Reply::Attributes(*self.file(number)?.metadata()?.attr())),
            },
            Request::SetLength(file, bytes) => done(self.file(file)?.set_len(bytes)),
            Request::PunchHole(file, offset, bytes) => {
                done(self.file(file)?.punch_hole(offset, bytes))
            }
            Request::Allocate(file, offset, bytes) => {
                done(self.file(file)?.allocate(offset, bytes))
            }
            Request::Seek(file, offset, true) => {
                Ok(Reply::Number(self.file(file)?.seek_data(offset)?))
            }
            Request::Seek(file, offset, false) => {
                Ok(Reply::Number(self.file(file)?.seek_hole(offset)?))
            }
            Request::Lock { file, kind: LockKind::Unlock, start, end, .. } => {
                done(self.file(file)?.unlock(start..=end))
            }
            Request::Lock { file, kind, start, end, .. } => {
                match self.file(file)?.try_lock(kind, start..=end)? {
                    true => Ok(Reply::Done),
                    false => Ok(Reply::Nothing),
                }
            }
            _ => Err(Error::Files(NO_SUCH_CALL)),
        }
    }

    fn of_path(self, request: &Request<'_>) -> Answer {
        let pool = &self.session.pool;
        match *request {
            Request::Attributes(name, true) => {
                Ok(Reply::Attributes(*pool.metadata(path(name))?.attr()))
            }
            Request::Attributes(name, false) => {
                Ok(Reply::Attributes(*pool.symlink_metadata(path(name))?.attr()))
            }
            Request::SetMode(name, mode) => done(pool.set_permissions(path(name), mode)),
            Request::SetOwner(name, follow, uid, gid) => done(match follow {
                true => pool.set_owner(path(name), uid, gid),
                false => pool.set_symlink_owner(path(name), uid, gid),
            }),
            Request::SetTimes(name, follow, accessed, modified) => {
                let (accessed, modified) = (accessed.map(time), modified.map(time));
                done(match follow {
                    true => pool.set_times(path(name), accessed, modified),
                    false => pool.set_symlink_times(path(name), accessed, modified),
                })
            }
            Request::Make(name, node) => done(new_nodes::make(pool, path(name), node)),
            Request::ReadLink(name) => {
                let target = pool.read_link(path(name))?;
                self.answer.extend_from_slice(target.as_os_str().as_bytes());
                Ok(Reply::Done)
            }
            Request::Remove(name, true) => done(pool.remove_dir(path(name))),
            Request::Remove(name, false) => done(pool.remove_file(path(name))),
            Request::Rename(from, to, mode) => done(pool.rename_with(path(from), path(to), mode)),
            _ => self.of_xattrs(request),
        }
    }

    fn of_pool(self, request: &Request<'_>) -> Answer {
        let pool = &self.session.pool;
        match request {
            Request::Sync => done(pool.sync()),
            Request::Checkpoint => done(pool.checkpoint()),
            Request::StatFs => Ok(Reply::Space(pool.statfs())),
            Request::Info => {
                let info = serde_json::to_vec(&pool.info());
                *self.answer = info.map_err(|_| Error::Files(NO_SUCH_CALL))?;
                Ok(Reply::Done)
            }
            _ => Err(Error::Files(NO_SUCH_CALL)),
        }
    }
}

pub const NO_SUCH_CALL: FsError = FsError::Unsupported("this call of an attached process");

pub fn done(result: nearside::Result<()>) -> Answer {
    result.map(|()| Reply::Done)
}

pub fn encoded(message: &impl serde::Serialize) -> nearside::Result<Vec<u8>> {
    wire::encode(message, Vec::new()).map_err(|_| Error::Files(NO_SUCH_CALL))
}
