//! The same acts at any door.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearside::Pool;
use serde::{Deserialize, Serialize};

use crate::copied_files::CopiedFiles;
use crate::kernel_doors::mapped_files::MappedFiles;
use crate::kernel_doors::pipe_files::PipedFiles;
use crate::kernel_doors::queued_files::{QueuedFiles, io_uring};
use crate::outside::Outside;
use crate::plan::{Abilities, FILE_CELLS, History};
use crate::record::{Act, Answer, Record};
use crate::{Result, library, regions, said};

/// A file that is copied over is read so long after it was read.
const READ_EVERY: Duration = Duration::from_micros(100);

/// How a caller reaches the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoorKind {
    /// The library, in the process that owns the pool.
    Owner,
    /// The library, in an attached process.
    Attached,
    /// Regions of either, in histories with transactions or doors through pages.
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
    /// The same into the pool.
    CopiesIn,
    /// The library, in the process that copies into the pool: it reads what is copied over, all the
    /// while. So it is known when that happened, and few orders have to be searched.
    CopyReader,
    /// read(2) and write(2) at a mount over a network.
    Away,
    /// Mappings for loads at such a mount.
    AwayMapped,
}

impl DoorKind {
    /// Calls of one caller in a history.
    pub fn calls(self, history: &History) -> u32 {
        match self {
            // a file that is stored to does not end meanwhile
            DoorKind::CopiesIn if history.stores => 0,
            DoorKind::CopyReader => 0,
            // more of them leave too many orders to search
            DoorKind::CopiesIn => history.calls.min(1),
            _ if self.copies() => history.calls.min(2),
            _ => history.calls,
        }
    }

    /// Whether it copies files by a program: a call takes as long as all calls of another caller.
    pub fn copies(self) -> bool {
        matches!(self, DoorKind::Copies | DoorKind::CopiesIn)
    }

    /// The doors of the callers of a process, by its kind.
    pub fn of_process(process: &str) -> &'static [DoorKind] {
        use DoorKind::{
            Aio, Attached, Away, AwayMapped, Copies, CopiesIn, CopyReader, Direct, Mapped, Mount,
            Owner, Pipes, Regions, Uring,
        };
        match process {
            "own" => &[Regions, Owner],
            "attached" => &[Regions, Attached],
            "mount" => &[Mount, Direct],
            "pages" if io_uring().is_ok() => &[Mapped, Mapped, Pipes, Aio, Uring],
            "pages" => &[Mapped, Mapped, Pipes, Aio],
            "copies" => &[Copies, CopiesIn, CopyReader],
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
            Place::Program { nearside, dir, pool } => {
                let library = library::Library::open(pool, history).map_err(said("open"))?;
                let copied = CopiedFiles::new(nearside.clone(), dir.clone());
                let copied = copied.map_err(said("scratch"))?;
                Ok(match self {
                    DoorKind::CopyReader => Door::Library(library),
                    DoorKind::CopiesIn => Door::CopiedIn(copied, library),
                    _ => Door::Copied(copied),
                })
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
    /// The command `nearside`, and a pool, by its directory and as this process is attached to it.
    Program { nearside: PathBuf, dir: PathBuf, pool: &'p Pool },
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
    /// Copies over files, and what reads them meanwhile.
    CopiedIn(CopiedFiles, library::Library<'p>),
}

impl Door<'_> {
    /// What it can do.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            is_library: matches!(self, Door::Library(_) | Door::Regions(_)),
            transacts: matches!(self, Door::Regions(_)),
            loads: matches!(
                self,
                Door::Mapped(_) | Door::AwayMapped(_) | Door::Pipes(_) | Door::Regions(_)
            ),
            stores: matches!(self, Door::Mapped(_)),
            copies: matches!(self, Door::Copied(_)),
            copies_in: matches!(self, Door::CopiedIn(..)),
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
            (Door::CopiedIn(door, reader), Act::CopyIn { file, .. }) => {
                let mut beside = record.beside()?;
                let read = Act::Read { file: *file, at: 0, cells: 4 * FILE_CELLS };
                let is_copied = AtomicBool::new(false);
                std::thread::scope(|threads| {
                    let reading = threads.spawn(|| {
                        while !is_copied.load(Ordering::Acquire) {
                            beside.call(&read, |number| reader.answer(history, &read, number))?;
                            std::thread::sleep(READ_EVERY);
                        }
                        Ok(())
                    });
                    let copied = record.call(act, |number| door.answer(history, act, number));
                    is_copied.store(true, Ordering::Release);
                    let read = reading.join().unwrap_or(Err("panicked".into()));
                    copied.and(read)
                })
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
            Door::Copied(door) | Door::CopiedIn(door, _) => door.answer(history, act, number),
        }
    }

    /// Makes a copy into the pool that leaves out a block, and any other act as it is.
    pub fn answer_with_gap(&mut self, history: &History, act: &Act, number: u64) -> Answer {
        match self {
            Door::CopiedIn(door, _) => door.copy_in_with_gap(history, act, number),
            _ => self.answer(history, act, number),
        }
    }
}
