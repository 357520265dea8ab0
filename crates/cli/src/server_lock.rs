//! `POOL/nearside.pid`: who serves the pool, and how it ended.
//!
//! The keeper takes a lock on the file and shares it with its servers, so that it is held until the
//! kernel has taken the last of their processes apart, however that comes about. So whoever gets
//! the lock knows that they have gone, and reads what was written last: the keeper's process id and
//! the server's, or, if it came so far, how closing the pool went. The file stays, for those who
//! come between that and the very end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::dying;
use crate::error::{self, Error, Result};
use crate::own_file;

/// Longest time that a killed server may take to be gone; its memory has to be unmapped.
const DYING_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at it.
const POLL: Duration = Duration::from_millis(2);
/// Before the server's process id, in a line after its keeper's.
const SERVER: &str = "server ";
/// More than any reason for a failure.
const TEXT_BYTES_MAX: u64 = 64 << 10;
const CLOSED: &str = "closed";
const FAILED: &str = "failed: ";

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is checkpointed and the pool closed.
    Closed,
    /// Closing failed, for this reason.
    Failed(String),
    /// It was killed, or the machine stopped.
    Died,
    /// There was no room to say it.
    Untold,
}

fn path(pool: &Path) -> PathBuf {
    pool.join("nearside.pid")
}

/// The side of those who serve.
#[derive(Debug)]
pub struct ServerLock {
    path: PathBuf,
    file: Flock<File>,
    /// Whether the file was not there before.
    is_new: bool,
}

impl ServerLock {
    /// Takes the lock and writes this process's id. A pool on read-only media goes without.
    pub fn take(pool: &Path, read_only: bool) -> Result<Option<ServerLock>> {
        let path = path(pool);
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = match own_file::open(&path, &mut options) {
            Ok(file) => file,
            Err(error) if read_only => {
                tracing::warn!("{}: {error}; nearside umount will not wait", path.display());
                return Ok(None);
            }
            Err(source) => return Err(error::io(&path)(source)),
        };
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((file, Errno::EWOULDBLOCK)) => return Err(served(pool, &file)),
            Err((_, errno)) => return Err(error::io(&path)(errno.into())),
        };
        let mut lock = ServerLock { path, file, is_new };
        lock.name(None, std::process::id());
        Ok(Some(lock))
    }

    /// The same lock in another process, which got its descriptor.
    pub fn inherit(pool: &Path, descriptor: OwnedFd) -> Result<ServerLock> {
        let path = path(pool);
        // Locking what is locked through the same open file changes nothing.
        let lock = Flock::lock(File::from(descriptor), FlockArg::LockExclusiveNonblock);
        let file = lock.map_err(|(_, errno)| error::io(&path)(errno.into()))?;
        Ok(ServerLock { path, file, is_new: false })
    }

    /// Writes whose the lock is now: the keeper's process, if there is one, and the server's. What
    /// counts is the lock; where there is no room for the names, the mount works all the same.
    pub fn name(&mut self, keeper: Option<u32>, server: u32) {
        let text = match keeper {
            Some(keeper) => format!("{keeper}\n{SERVER}{server}"),
            None => server.to_string(),
        };
        if let Err(error) = self.write(&text) {
            tracing::warn!("{error}; who serves the pool cannot be told");
        }
    }

    /// Says how closing the pool went. The lock stays until the process has gone.
    pub fn finish(mut self, outcome: &Result<()>) {
        let line = match outcome {
            Ok(()) => CLOSED.to_owned(),
            Err(error) => format!("{FAILED}{error}"),
        };
        if let Err(error) = self.write(&line) {
            tracing::warn!("{error}");
        }
        // Dropping would unlock before the process has gone.
        std::mem::forget(self.file);
    }

    /// Leaves nothing behind where nothing was: the directory may be no pool at all.
    pub fn withdraw(self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        // Cut at the end, so that a reader never finds it empty.
        let text = format!("{text}\n");
        let written = self.file.write_all_at(text.as_bytes(), 0);
        let written = written.and_then(|()| self.file.set_len(text.len() as u64));
        written.map_err(error::io(&self.path))
    }

    /// Fails when a server runs on `pool`.
    pub fn refuse_if_served(pool: &Path) -> Result<()> {
        match Watch::open(pool) {
            Some(watch) if watch.is_served() => Err(served(pool, &watch.file)),
            _ => Ok(()),
        }
    }
}

/// The side of those who wait for a server's end.
#[derive(Debug)]
pub struct Watch {
    file: File,
}

impl AsFd for ServerLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Watch {
    /// The file, if there is one that can be read.
    pub fn open(pool: &Path) -> Option<Watch> {
        own_file::open(&path(pool), OpenOptions::new().read(true)).ok().map(|file| Watch { file })
    }

    /// The process that ends it when it is told to: the keeper, or a server without one.
    pub fn process(&self) -> Option<rustix::process::Pid> {
        let number = process_of(&self.file)?.parse().ok()?;
        rustix::process::Pid::from_raw(number)
    }

    /// Whether a server runs. One that is being killed is waited for: the kernel takes it apart in
    /// its own time, and until then it is neither here nor gone.
    pub fn is_served(&self) -> bool {
        let deadline = Instant::now() + DYING_MAX;
        let mut seen_alive = false;
        while self.is_locked() {
            let alive = match text_of(&self.file) {
                // It had no room to say who it is.
                Ok(text) if text.is_empty() => true,
                Ok(text) => process_in(&text).is_some_and(|process| !dying::is_dying(process)),
                Err(_) => false,
            };
            // Twice, since between two steps of its end it looks alive for a moment.
            if (alive && seen_alive) || Instant::now() > deadline {
                return true;
            }
            seen_alive = alive;
            std::thread::sleep(POLL);
        }
        false
    }

    fn is_locked(&self) -> bool {
        let Ok(file) = self.file.try_clone() else { return false };
        let taken = Flock::lock(file, FlockArg::LockSharedNonblock);
        matches!(taken, Err((_, Errno::EWOULDBLOCK)))
    }

    /// Waits until the server has gone, and says how it ended.
    pub fn wait(self) -> std::io::Result<End> {
        let mut file = self.file.try_clone()?;
        let lock = loop {
            match Flock::lock(file, FlockArg::LockShared) {
                Ok(lock) => break lock,
                Err((same, Errno::EINTR)) => file = same,
                Err((_, errno)) => return Err(errno.into()),
            }
        };
        let text = text_of(&self.file)?;
        drop(lock);
        Ok(end(&text))
    }
}

fn end(text: &str) -> End {
    match text.trim_end() {
        CLOSED => End::Closed,
        "" => End::Untold,
        line => match line.strip_prefix(FAILED) {
            Some(reason) => End::Failed(reason.to_owned()),
            None => End::Died,
        },
    }
}

fn served(pool: &Path, file: &File) -> Error {
    let process = process_of(file).unwrap_or_else(|| "(unknown)".to_owned());
    Error::Served { pool: pool.to_path_buf(), process }
}

/// The process id in the first line, unless the pool is closed already.
fn process_of(file: &File) -> Option<String> {
    process_in(&text_of(file).ok()?).map(str::to_owned)
}

fn process_in(text: &str) -> Option<&str> {
    let process = text.lines().next()?;
    process.parse::<u32>().is_ok().then_some(process)
}

/// What the file says; of a longer one the beginning.
fn text_of(mut file: &File) -> std::io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_and_the_end_is_told() {
        let pool = tempfile::tempdir().unwrap();
        assert!(Watch::open(pool.path()).is_none());
        let mut lock = ServerLock::take(pool.path(), false).unwrap().unwrap();
        lock.name(Some(std::process::id()), 1);
        let refused = ServerLock::take(pool.path(), false).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        assert!(ServerLock::refuse_if_served(pool.path()).is_err());
        let watch = Watch::open(pool.path()).unwrap();
        assert!(watch.is_served());
        drop(lock);
        assert!(!watch.is_served());
        assert_eq!(watch.wait().unwrap(), End::Died);
        ServerLock::refuse_if_served(pool.path()).unwrap();
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(end(""), End::Untold);
        assert_eq!(end("12\nserver 13\n"), End::Died);
        assert_eq!(end("closed\n"), End::Closed);
        assert_eq!(end("failed: no space\n"), End::Failed("no space".to_owned()));
    }
}
