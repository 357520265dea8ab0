//! A pool as one process holds it: made, opened, described, closed.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fs::{Caller, CheckReport, FileSystem, Ino, Repair, Resilvered, ScrubReport, StatFs, TakeOver};
use pool::{FormatOptions, OpenOptions, PoolInfo};
use region::Regions;

use crate::attached::{Attached, owners_alone};
use crate::{Error, Result, owner};
use client::Options as AttachOptions;

/// Longest time that a service may take to be there.
const START_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks.
const START_PAUSE: Duration = Duration::from_millis(20);
/// A service that was started on demand ends when nobody has been attached for so long.
const IDLE_SECONDS: u32 = 5;

/// An open pool, which this process owns, or to whose owner it is attached. Share it between
/// threads by reference or in an [`Arc`].
#[derive(Debug)]
pub struct Pool {
    pub(crate) door: Door,
    /// Made when the first region is.
    pub(crate) regions: OnceLock<Regions>,
}

/// How its calls are made.
#[derive(Debug)]
pub(crate) enum Door {
    /// By this process, which has it open.
    Owned(Owned),
    /// By the process that has it open.
    Attached(Attached),
}

/// A pool that this process has open.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) fs: Arc<FileSystem>,
    /// The user of the process that has it open.
    pub(crate) process_uid: u32,
    /// Owner and group of what is made.
    pub(crate) uid: u32,
    /// See above.
    pub(crate) gid: u32,
    /// For whom calls are made, and checked.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The directory where paths begin.
    pub(crate) root: Ino,
}

impl Pool {
    /// Makes an empty pool in directory `dir`.
    pub fn format(dir: impl AsRef<Path>, options: &FormatOptions) -> Result<()> {
        Ok(fs::format(dir.as_ref(), options)?)
    }

    /// An error if a file or block device that is named there is another pool's, and may not be
    /// lost: as `format` says it, but nothing is made.
    pub fn check_places(options: &FormatOptions) -> Result<()> {
        Ok(pool::refuse_used(options).map_err(fs::Error::from)?)
    }

    /// The same as `format`. `each` is told how many bytes of the slices' files are set aside, of
    /// how many, and ends it by returning false: then what it made is removed.
    pub fn format_watched(
        dir: impl AsRef<Path>,
        options: &FormatOptions,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        Ok(fs::format_watched(dir.as_ref(), options, each)?)
    }

    /// Opens the pool in directory `dir` for reading and writing, exclusively, and recovers it if
    /// it was not closed.
    pub fn open(dir: impl AsRef<Path>) -> Result<Pool> {
        Pool::open_with(dir, &OpenOptions::default())
    }

    /// Opens the pool in directory `dir` as `options` say.
    pub fn open_with(dir: impl AsRef<Path>, options: &OpenOptions) -> Result<Pool> {
        let fs = FileSystem::open_pool(dir.as_ref(), options)?;
        Pool::recovered(dir.as_ref(), fs, options)
    }

    /// Opens the pool in directory `dir` where a server was killed whose doors' connections are
    /// still there, with what it left undone.
    pub fn take_over(
        dir: impl AsRef<Path>,
        options: &OpenOptions,
        asked: &TakeOver,
    ) -> Result<Pool> {
        let fs = FileSystem::take_over_pool(dir.as_ref(), options, asked)?;
        Pool::recovered(dir.as_ref(), fs, options)
    }

    /// Attaches to the service that owns the pool in directory `place`, or that listens at the
    /// socket `place`. What may be done is what this process's user and groups may.
    ///
    /// `near://HOST[:PORT]` is a service on another machine. All that goes there is encrypted, both
    /// sides show certificates ([`AttachOptions::credentials`]), and what may be done is what the
    /// service has written down for this one. With `near+insecure://HOST[:PORT]` nothing is
    /// encrypted, and nobody is asked who it is.
    ///
    /// When the service dies, or is replaced, calls wait for the next one, which answers them
    /// exactly once; what is open stays so. They fail (ENOTCONN) when none comes for a while, and
    /// at once when the service ended in order.
    pub fn attach(place: impl AsRef<Path>) -> Result<Pool> {
        Pool::attach_with(place, &AttachOptions::default())
    }

    /// The same, as `options` say.
    pub fn attach_with(place: impl AsRef<Path>, options: &AttachOptions) -> Result<Pool> {
        Ok(Pool::behind(Door::Attached(Attached::to(place.as_ref(), options)?)))
    }

    /// Attaches to the service that owns the pool in directory `dir`; opens it where there is none.
    pub fn attach_or_open(dir: impl AsRef<Path>, options: &OpenOptions) -> Result<Pool> {
        let is_remote = client::is_address(dir.as_ref());
        match Pool::attach(dir.as_ref()) {
            Err(Error::Service(client::Error::NoService(_))) if !is_remote => {
                Pool::open_with(dir, options)
            }
            attached => attached,
        }
    }

    /// Attaches to the service that owns the pool in directory `dir`; starts one where there is
    /// none, which ends when nobody has been attached for a few seconds.
    ///
    /// The service is the command `nearside`, or what the environment variable `NEARSIDE_PROGRAM`
    /// names.
    pub fn attach_or_serve(dir: impl AsRef<Path>) -> Result<Pool> {
        let program = std::env::var_os("NEARSIDE_PROGRAM").unwrap_or_else(|| "nearside".into());
        Pool::attach_or_serve_by(dir, program)
    }

    /// The same, where the service is started by this program.
    pub fn attach_or_serve_by(dir: impl AsRef<Path>, program: impl AsRef<OsStr>) -> Result<Pool> {
        let (dir, program) = (dir.as_ref(), program.as_ref());
        let until = Instant::now() + START_MAX;
        loop {
            let said = match Pool::attach(dir) {
                Err(Error::Service(client::Error::NoService(_))) => start_service(dir, program)?,
                // it was at its end
                Err(Error::Service(client::Error::Lost)) => String::new(),
                attached => return attached,
            };
            // another one may have been faster, or is closing
            if Instant::now() > until {
                return Err(Error::Service(client::Error::NotStarted(said)));
            }
            std::thread::sleep(START_PAUSE);
        }
    }

    /// With what processes had committed that were attached to a service which died.
    fn recovered(dir: &Path, fs: FileSystem, options: &OpenOptions) -> Result<Pool> {
        match lanes::recover(dir, &fs, options.read_only) {
            Ok(_) => Ok(Pool::owned(fs)),
            Err(error) => Err(Error::Lanes(Arc::new(error))),
        }
    }

    fn owned(fs: FileSystem) -> Pool {
        let uid = nix::unistd::geteuid().as_raw();
        Pool::behind(Door::Owned(Owned {
            fs: Arc::new(fs),
            process_uid: uid,
            uid,
            gid: nix::unistd::getegid().as_raw(),
            caller: None,
            root: Ino::ROOT,
        }))
    }

    pub(crate) fn behind(door: Door) -> Pool {
        Pool { door, regions: OnceLock::new() }
    }

    /// Whether another process owns the pool, and this one is attached to it.
    pub fn is_attached(&self) -> bool {
        matches!(self.door, Door::Attached(_))
    }

    /// The pool, if this process has it open.
    pub(crate) fn here(&self) -> Result<&Owned> {
        match &self.door {
            Door::Owned(owned) => Ok(owned),
            Door::Attached(_) => Err(owners_alone()),
        }
    }

    /// Checkpoints and closes; calls after this one fail. A pool that is dropped without it
    /// loses nothing: the next open recovers it from the log. Of an attached process: what it has
    /// written is durable.
    ///
    /// Others can open it when the [`Pool`] and every [`File`](crate::File) and
    /// [`ReadDir`](crate::ReadDir) of it are dropped, too.
    pub fn close(&self) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => {
                owned.rule()?;
                Ok(owned.fs.close()?)
            }
            Door::Attached(attached) => attached.sync(),
        }
    }

    /// What the pool says about itself; in a forked child, and where the service is gone, what it
    /// said.
    pub fn info(&self) -> PoolInfo {
        match &self.door {
            Door::Owned(owned) => owned.fs.info(),
            Door::Attached(attached) => attached.info(),
        }
    }

    /// Folds all changes into the trees and frees the log.
    pub fn checkpoint(&self) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => {
                owned.rule()?;
                Ok(owned.fs.checkpoint()?)
            }
            Door::Attached(attached) => attached.checkpoint(),
        }
    }

    /// Everything that was changed before is durable when this returns (needed in the `sync`
    /// domain only).
    pub fn sync(&self) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => {
                owned.own()?;
                Ok(owned.fs.sync()?)
            }
            Door::Attached(attached) => attached.sync(),
        }
    }

    /// Verifies all that is stored, while it is in use, and writes damaged copies of metadata again
    /// from the other ones; reads `bytes_per_s` at most, if that is given. `each` is told how many
    /// bytes are done, of about how many, and ends it by returning false: then there is no report.
    pub fn scrub(
        &self,
        bytes_per_s: Option<u64>,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<ScrubReport>> {
        let owned = self.here()?;
        owned.rule()?;
        Ok(owned.fs.scrub(bytes_per_s, each)?)
    }

    /// Brings files of a mirrored pool that were away while it was changed up to date, at once: in
    /// the background that has begun when the pool was opened for writing. `each` is told how many
    /// bytes are done, of how many; it ends the wait by returning false. None if nothing is stale.
    pub fn resilver(&self, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<Option<Resilvered>> {
        let owned = self.here()?;
        owned.rule()?;
        Ok(owned.fs.resilver(each))
    }

    /// Space in blocks, and inodes; in a forked child, as they were, and where the service is gone,
    /// none.
    pub fn statfs(&self) -> StatFs {
        match &self.door {
            Door::Owned(owned) => owned.fs.statfs(),
            Door::Attached(attached) => attached.statfs().unwrap_or_default(),
        }
    }

    /// The engine itself, inodes and all, for doors that do not speak paths. It checks nothing,
    /// whoever this pool is for; [`FileSystem::for_caller`] does.
    ///
    /// # Panics
    /// In an attached process, which has no engine.
    pub fn fs(&self) -> &Arc<FileSystem> {
        match &self.door {
            Door::Owned(owned) => &owned.fs,
            Door::Attached(_) => panic!("an attached process has no engine"),
        }
    }
}

/// Starts a service and waits until it answers; what it complained of, if it does not.
fn start_service(dir: &Path, program: &OsStr) -> Result<String> {
    let mut command = std::process::Command::new(program);
    command.arg("serve").arg(dir).arg("--until-idle").arg(IDLE_SECONDS.to_string());
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| {
        let program = program.to_string_lossy();
        Error::Service(client::Error::NotStarted(format!("{program}: {error}")))
    })?;
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

impl Owned {
    /// Refuses a forked child.
    #[inline]
    pub(crate) fn own(&self) -> Result<()> {
        owner::check(&self.fs)
    }
}

/// Verifies everything that the closed pool in `dir` stores; changes nothing.
///
/// Damage is in the report; an error means that it could not look.
pub fn check(dir: impl AsRef<Path>) -> Result<CheckReport> {
    Ok(fs::check(dir.as_ref())?)
}

/// The same. `each` is told how many bytes of data are done, of about how many.
pub fn check_watched(dir: impl AsRef<Path>, each: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    Ok(fs::check_watched(dir.as_ref(), each)?)
}

/// Tries out, in memory, what can be done for the damaged and closed pool in `dir`; not a byte of
/// it changes before [`Repair::write`]. None if nothing is wrong. `each` is told how many bytes of
/// data are read, of about how many.
pub fn repair(dir: impl AsRef<Path>, each: &mut dyn FnMut(u64, u64)) -> Result<Option<Repair>> {
    Ok(fs::repair(dir.as_ref(), each)?)
}

/// Puts back what a repair replaced, from the file that it saved that in; gives the number of
/// pages. Refused if the pool in `dir` has changed since.
pub fn undo(dir: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<u64> {
    Ok(fs::undo(dir.as_ref(), file.as_ref())?)
}

/// Makes the missing file of a slice of a mirrored pool anew, in the pool's directory or at `path`,
/// which is overwritten. It is stale: the next open for writing brings it up to date. Nobody has
/// the pool open. `each` is told how many bytes of the file are there, of how many; it ends this by
/// returning false.
pub fn replace_slice(
    dir: &Path,
    slice: usize,
    path: Option<&Path>,
    each: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    Ok(fs::replace_slice(dir, slice, path, each)?)
}
