//! The same acts at any door.

use std::path::{Path, PathBuf};

use nearside::Pool;
use serde::{Deserialize, Serialize};

use crate::copied_files::CopiedFiles;
use crate::kernel_doors::mapped_files::MappedFiles;
use crate::kernel_doors::pipe_files::PipedFiles;
use crate::kernel_doors::queued_files::{QueuedFiles, io_uring};
use crate::outside::Outside;
use crate::plan::{Abilities, History};
use crate::record::{Act, Answer, Record};
use crate::{Result, library, regions, said};

/// How a caller reaches the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoorKind {
    /// The library, in the process that owns the pool.
    Owner,
    /// The library, in an attached process.
    Attached,
    /// Regions of either, in histories with transactions.
    Regions,
    /// read(2) and write(2) at the mount.
    Mount,
    /// The same by O_DIRECT.
    Direct,
    /// Mappings at the mount.
    Mapped,
    /// sendfile and splice at the mount.
    Pipes,
    /// O_DIRECT by libaio.
    Aio,
    /// O_DIRECT by io_uring.
    Uring,
    /// `nearside cp`, a process for each copy.
    Copies,
    /// read(2) and write(2) at a mount over a network.
    Away,
    /// Mappings for loads at such a mount.
    AwayMapped,
}

impl DoorKind {
    /// Calls of one caller in a history where others make so many.
    pub fn calls(self, calls: u32) -> u32 {
        match self {
            // each takes as long as all calls of another caller
            DoorKind::Copies => calls.min(2),
            _ => calls,
        }
    }

    /// The doors of the callers of a process, by its kind.
    pub fn of_process(process: &str) -> &'static [DoorKind] {
        use DoorKind::{
            Aio, Attached, Away, AwayMapped, Copies, Direct, Mapped, Mount, Owner, Pipes, Regions,
            Uring,
        };
        match process {
            "own" => &[Regions, Owner],
            "attached" => &[Regions, Attached],
            "mount" => &[Mount, Direct],
            "pages" if io_uring().is_ok() => &[Mapped, Mapped, Pipes, Aio, Uring],
            "pages" => &[Mapped, Mapped, Pipes, Aio],
            "copies" => &[Copies],
            "away" => &[Away, AwayMapped],
            _ => &[],
        }
    }

    /// Opens the files of a history.
    pub fn open<'p>(self, place: &Place<'p>, history: &History) -> Result<Door<'p>> {
        match place {
            Place::Pool(pool) => {
                let library = library::Library::open(pool, history).map_err(said("open"))?;
                if self != DoorKind::Regions {
                    return Ok(Door::Library(library));
                }
                let mapped = regions::Mapped::map(pool, library, history);
                Ok(match mapped.is_mapped() {
                    true => Door::Regions(mapped),
                    false => Door::Library(mapped.into_library()),
                })
            }
            Place::Program { nearside, pool } => {
                let copied = CopiedFiles::new(nearside.clone(), pool.clone());
                Ok(Door::Copied(copied.map_err(said("scratch"))?))
            }
            Place::Mount(dir) => self.open_outside(dir, history).map_err(said("open in the mount")),
        }
    }

    fn open_outside<'p>(self, dir: &Path, history: &History) -> std::io::Result<Door<'p>> {
        let is_direct = matches!(self, DoorKind::Direct | DoorKind::Aio | DoorKind::Uring);
        let outside = Outside::open(dir, history, is_direct)?;
        Ok(match self {
            DoorKind::Mapped => Door::Mapped(MappedFiles::map(outside)?),
            DoorKind::AwayMapped => Door::AwayMapped(MappedFiles::map(outside)?),
            DoorKind::Pipes => Door::Pipes(PipedFiles::new(outside)?),
            DoorKind::Aio => Door::Queued(QueuedFiles::by_aio(outside)?),
            DoorKind::Uring => Door::Queued(QueuedFiles::by_uring(outside)?),
            _ => Door::Outside(outside),
        })
    }
}

/// Where the callers of a process call.
#[derive(Debug)]
pub enum Place<'p> {
    /// The library.
    Pool(&'p Pool),
    /// A mount.
    Mount(PathBuf),
    /// The command `nearside`, and a pool.
    Program { nearside: PathBuf, pool: PathBuf },
}

/// A door as one caller uses it in one history.
#[derive(Debug)]
pub enum Door<'p> {
    /// The library, in the process that owns the pool or in one that is attached.
    Library(library::Library<'p>),
    /// Regions of it.
    Regions(regions::Mapped<'p>),
    /// The mount.
    Outside(Outside),
    /// Mappings at the mount.
    Mapped(MappedFiles),
    /// Mappings for loads at a mount over a network.
    AwayMapped(MappedFiles),
    /// Pipes at the mount.
    Pipes(PipedFiles),
    /// A queue of the kernel's at the mount.
    Queued(QueuedFiles),
    /// Copies of files.
    Copied(CopiedFiles),
}

impl Door<'_> {
    /// What it can do.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            is_library: matches!(self, Door::Library(_) | Door::Regions(_)),
            transacts: matches!(self, Door::Regions(_)),
            loads: matches!(self, Door::Mapped(_) | Door::AwayMapped(_) | Door::Pipes(_)),
            stores: matches!(self, Door::Mapped(_)),
            copies: matches!(self, Door::Copied(_)),
        }
    }

    /// Makes and writes down one act, or two where the door has no single call for it.
    pub fn act(&mut self, history: &History, record: &mut Record, act: &Act) -> Result<()> {
        match (&mut *self, act) {
            (Door::Outside(door), Act::Link { from, to }) => {
                let lookup = Act::Lookup { name: from.clone() };
                let mut found = None;
                let answer = record.call(&lookup, |_| match door.hold(from) {
                    Ok((held, ino)) => {
                        found = Some(held);
                        Answer { ino: Some(ino), ..Answer::default() }
                    }
                    Err(answer) => answer,
                })?;
                let (Some(held), Some(ino)) = (found, answer.ino) else { return Ok(()) };
                let act = Act::LinkInode { ino, to: to.clone() };
                record.call(&act, |_| door.link_held(&held, to)).map(drop)
            }
            _ => record.call(act, |number| self.answer(history, act, number)).map(drop),
        }
    }

    /// Makes it; `number` is what it writes.
    pub fn answer(&mut self, history: &History, act: &Act, number: u64) -> Answer {
        match self {
            Door::Library(door) => door.answer(history, act, number),
            Door::Regions(door) => door.answer(history, act, number),
            Door::Outside(door) => door.answer(history, act, number),
            Door::Mapped(door) | Door::AwayMapped(door) => door.answer(history, act, number),
            Door::Pipes(door) => door.answer(history, act, number),
            Door::Queued(door) => door.answer(history, act, number),
            Door::Copied(door) => door.answer(history, act),
        }
    }
}
