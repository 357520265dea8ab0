//! Calls that open, list and close.

use fs::{Error as FsError, Ino};
use nearside::{Error, File, OpenFlags};
use wire::{Entry, Flags, Held, Proof, Reply, Request};

use crate::opened::Opened;
use crate::serve::{Answer, Call, NO_SUCH_CALL, encoded, path};

/// Entries of a directory that one call brings; the longest of them fit into its data.
const ENTRIES_MAX: usize = 4096;

const IS_GONE: &str = "the service was replaced, and what was open is not there any more";
const LOST_ITS_LOCK: &str =
    "the service was replaced, and another one has got a lock of this file; open it again";

impl Call<'_> {
    fn add(&self, opened: Opened) -> nearside::Result<u64> {
        self.session.opened.add(opened).ok_or_else(too_many)
    }

    /// Adds a file that was opened so, and says it.
    pub fn add_opened(&self, file: File, flags: &Flags) -> Answer {
        let attributes = *file.metadata()?.attr();
        let number = self.add(Opened::File(file))?;
        let proof = self.session.proof(number, attributes.ino.0, Some(*flags));
        Ok(Reply::Opened(number, attributes, proof))
    }

    pub fn opened(self, request: &Request<'_>) -> Answer {
        let pool = &self.session.pool;
        match request {
            Request::Open(name, flags) => {
                self.add_opened(pool.open_file(path(name), &open_flags(flags))?, flags)
            }
            Request::OpenDirectory(name) => {
                let directory = pool.read_dir(path(name))?;
                let attributes = *directory.metadata()?.attr();
                let number = self.add(Opened::Directory(directory.handle()?.clone()))?;
                let proof = self.session.proof(number, attributes.ino.0, None);
                Ok(Reply::Opened(number, attributes, proof))
            }
            Request::Restore { number, ino, flags, proof, locks } => {
                self.restore((*number, *ino), *flags, *proof, locks)
            }
            Request::Restored => Ok(Reply::Done),
            Request::ReadDirectory(number, cookie) => self.read_directory(*number, *cookie),
            Request::Close(number) => {
                drop(self.session.opened.remove(*number));
                Ok(Reply::Done)
            }
            _ => Err(Error::Files(NO_SUCH_CALL)),
        }
    }

    fn read_directory(self, number: u64, cookie: u64) -> Answer {
        let Opened::Directory(directory) = self.session.opened.get(number)? else {
            return Err(Error::Files(FsError::NotDirectory));
        };
        let (mut entries, mut next) = (Vec::new(), cookie);
        self.session.pool.fs().readdir(directory.ino(), cookie, &mut |entry| {
            next = entry.cookie;
            let (name, ino) = (entry.name.clone(), entry.ino.0);
            entries.push(Entry { name, ino, kind: entry.kind });
            entries.len() < ENTRIES_MAX
        })?;
        *self.answer = encoded(&entries)?;
        Ok(Reply::Number(next))
    }

    /// Opens what the process had open, if a service said so to it. What is not there any more, or
    /// has lost a lock, is stale, and each call on it says so.
    fn restore(
        self,
        (number, ino): (u64, u64),
        flags: Option<Flags>,
        proof: Proof,
        locks: &[Held],
    ) -> Answer {
        if self.session.proof(number, ino, flags) != proof {
            let words = "no service had this open for this process";
            return Err(Error::Files(FsError::NotPermitted(words)));
        }
        if !locks.is_empty() {
            self.session.has_locks();
        }
        if self.session.opened.take_over(number) {
            return Ok(Reply::Done);
        }
        let opened = self.open_again(Ino(ino), flags, locks).unwrap_or_else(|error| {
            tracing::info!(ino, "not open any more: {error}");
            Opened::Stale(IS_GONE)
        });
        match self.session.opened.restore(number, opened) {
            true => Ok(Reply::Done),
            false => Err(too_many()),
        }
    }

    fn open_again(
        &self,
        ino: Ino,
        flags: Option<Flags>,
        locks: &[Held],
    ) -> nearside::Result<Opened> {
        let pool = &self.session.pool;
        let handle = pool.fs().open(ino)?;
        let Some(flags) = flags else { return Ok(Opened::Directory(handle)) };
        let file = pool.open_handle(handle, &open_flags(&flags))?;
        for held in locks {
            if !file.try_lock(held.kind, held.start..=held.end)? {
                return Ok(Opened::Stale(LOST_ITS_LOCK));
            }
        }
        Ok(Opened::File(file))
    }
}

fn too_many() -> Error {
    let words = "this process has as many files open as it may".to_owned();
    let errno = rustix::io::Errno::MFILE.raw_os_error();
    Error::Files(FsError::Elsewhere { errno, words })
}

/// As the library takes them.
pub fn open_flags(flags: &Flags) -> OpenFlags {
    OpenFlags::new()
        .read(flags.read)
        .write(flags.write)
        .append(flags.append)
        .truncate(flags.truncate)
        .create(flags.create)
        .create_new(flags.create_new)
        .mode(flags.mode)
}
