//! A pool as somebody else than its process may use it: every call is checked for him.
//!
//! Who may do what is the engine's to say (`fs::ForCaller`), under the locks with which it makes a
//! change. Here is who asks it, and what the pool as a whole is closed to.

use std::path::Path;
use std::sync::Arc;

use fs::{Caller, Error as FsError, FileKind, ForCaller};

use crate::names::at;
use crate::pool_door::{Door, Owned};
use crate::{Pool, Result};

impl Pool {
    /// The same pool for this caller: all that is called on it and on what it opens is refused
    /// (EACCES, EPERM) where Linux would refuse it to a process with these ids on a file system of
    /// its own, and what it makes is the caller's. It has regions of its own.
    ///
    /// - Directories of a path must be searchable, those of the targets of symbolic links, too.
    /// - A file is asked for its permission bits and its access list when it is opened; what is
    ///   open for reading or writing stays so, whatever they become.
    /// - A write, of data or of the size, takes setuid and setgid away, unless it is root's; so
    ///   does a change of owner or group, root's as well.
    /// - [`checkpoint`](Pool::checkpoint), [`scrub`](Pool::scrub), [`resilver`](Pool::resilver),
    ///   [`close`](Pool::close) and [`set_region_settings`](Pool::set_region_settings) concern all
    ///   who use the pool: root may, and the user whose process has it open.
    /// - What options of the kernel (`fs.protected_hardlinks`, `protected_symlinks`,
    ///   `protected_regular`) would refuse besides is not refused.
    ///
    /// ```
    /// # fn main() -> nearside::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let options = nearside::FormatOptions {
    /// #     slices: vec![nearside::SliceSpec::default()], slice_bytes: 32 << 20,
    /// #     process: true, ..nearside::FormatOptions::default() };
    /// # nearside::Pool::format(scratch.path(), &options)?;
    /// # let pool = nearside::Pool::open(scratch.path())?;
    /// use nearside::Caller;
    ///
    /// pool.create_dir("/home")?;
    /// pool.set_owner("/home", Some(1000), Some(1000))?;
    /// let his = pool.for_caller(Caller::new(1000, 1000, vec![]));
    /// his.write("/home/notes", "mine")?;
    /// his.set_permissions("/home/notes", 0o600)?;
    /// let other = pool.for_caller(Caller::new(1001, 1001, vec![1000]));
    /// assert_eq!(other.metadata("/home/notes")?.len(), 4);
    /// assert_eq!(other.read("/home/notes").unwrap_err().errno(), libc::EACCES);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// In an attached process: there the service says who calls.
    pub fn for_caller(&self, caller: Caller) -> Pool {
        let Door::Owned(owned) = &self.door else { panic!("the service says who calls") };
        Pool::behind(Door::Owned(Owned {
            fs: owned.fs.clone(),
            process_uid: owned.process_uid,
            uid: caller.uid(),
            gid: caller.gid(),
            caller: Some(Arc::new(caller)),
            root: owned.root,
        }))
    }

    /// The same, where the directory at `dir` is the root: nothing that this caller names lies
    /// outside of it, whatever links, `..` and renames there are. Who may search the directories
    /// above it is not asked. It stays the root when it is moved; when it is removed, nothing is
    /// there.
    ///
    /// # Errors
    /// There is no directory at `dir`.
    ///
    /// # Panics
    /// As above.
    pub fn for_caller_in(&self, caller: Caller, dir: impl AsRef<Path>) -> Result<Pool> {
        let dir = dir.as_ref();
        let found = *self.metadata(dir)?.attr();
        if found.kind != FileKind::Directory {
            return Err(at(dir)(FsError::NotDirectory));
        }
        let mut pool = self.for_caller(caller);
        if let Door::Owned(owned) = &mut pool.door {
            owned.root = found.ino;
        }
        Ok(pool)
    }

    /// For whom its calls are made; none: for the process that has it open, which may do all, or
    /// that is attached.
    pub fn caller(&self) -> Option<&Caller> {
        self.here().ok().and_then(|owned| owned.caller.as_deref())
    }

    /// Makes changes of files' content by the engine's own calls, for whoever this pool is for.
    #[doc(hidden)]
    pub fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        fs::changing_by(self.here().ok().and_then(|owned| owned.caller.as_ref()), change)
    }
}

impl Owned {
    /// The engine's calls that need rights.
    #[inline]
    pub(crate) fn checked(&self) -> ForCaller<'_> {
        self.fs.for_caller(self.caller.as_deref())
    }

    /// Refuses a forked child, and a caller who may not act on the pool as a whole.
    pub(crate) fn rule(&self) -> Result<()> {
        self.own()?;
        match &self.caller {
            Some(caller) if !caller.is_root() && caller.uid() != self.process_uid => {
                Err(FsError::NotPermitted(
                    "this concerns the whole pool: root may, and the user whose process has it open",
                )
                .into())
            }
            _ => Ok(()),
        }
    }
}
