//! The mount, as any program uses it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags};

use crate::library::{ENOSYS, whole};
use crate::plan::{CELL_BYTES, FILES, History, Kind};
use crate::record::{Act, Answer, bytes, runs};

/// The files of a history, where the pool is mounted.
#[derive(Debug)]
pub struct Outside {
    dir: PathBuf,
    files: Vec<File>,
    /// The same, to append to.
    appended: Vec<File>,
}

const CELL: u64 = CELL_BYTES as u64;

/// The number of an error of the kernel.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

impl Outside {
    /// Opens them below `mount`, past the kernel's pages or not.
    pub fn open(mount: &Path, history: &History, is_direct: bool) -> io::Result<Outside> {
        let flags = if is_direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let open = |file, appends: bool| {
            let mut options = OpenOptions::new();
            options.read(!appends).write(true).append(appends).custom_flags(flags);
            options.open(mount.join(history.file(file)))
        };
        let files = match history.kind {
            Kind::Data | Kind::Transactions | Kind::Pages => FILES,
            Kind::Links | Kind::Renames => 0,
        };
        Ok(Outside {
            dir: mount.join(history.dir()),
            files: (0..files).map(|file| open(file, false)).collect::<io::Result<_>>()?,
            appended: (0..files).map(|file| open(file, true)).collect::<io::Result<_>>()?,
        })
    }

    /// The files, to read and write.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        let made = match act {
            Act::Create { .. } | Act::Move { .. } | Act::Unlink { .. } | Act::Lookup { .. } => {
                self.name(act)
            }
            _ => self.data(history, act, number),
        };
        made.unwrap_or_else(|error| Answer::failed(errno(&error)))
    }

    fn data(&self, history: &History, act: &Act, number: u64) -> io::Result<Answer> {
        let file = |file: u32| &self.files[file as usize];
        let none = Answer::default();
        match *act {
            Act::Write { file: which, at, cells } => {
                let written = file(which).write_at(&bytes(number, cells), u64::from(at) * CELL)?;
                Ok(whole(written, cells))
            }
            Act::Read { file: which, at, cells } => {
                let mut seen = vec![0; cells as usize * CELL_BYTES];
                let read = file(which).read_at(&mut seen, u64::from(at) * CELL)?;
                let runs = runs(history.number, &seen[..read]);
                Ok(Answer { runs: Some(vec![runs]), ..none })
            }
            Act::Append { file: which, cells } => {
                let written = (&self.appended[which as usize]).write(&bytes(number, cells))?;
                Ok(whole(written, cells))
            }
            Act::Truncate { file: which, cells } => {
                file(which).set_len(u64::from(cells) * CELL).map(|()| none)
            }
            Act::Punch { file: which, at, cells } => {
                let flags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
                let (at, len) = (u64::from(at) * CELL, u64::from(cells) * CELL);
                rustix::fs::fallocate(file(which), flags, at, len)?;
                Ok(none)
            }
            Act::Size { file: which } => {
                let size = file(which).metadata()?.len().div_ceil(CELL);
                Ok(Answer { size: Some(size), ..none })
            }
            Act::Sync { file: which } => file(which).sync_all().map(|()| none),
            _ => Ok(Answer::failed(ENOSYS)),
        }
    }

    fn name(&self, act: &Act) -> io::Result<Answer> {
        let none = Answer::default();
        let at = |name: &str| self.dir.join(name);
        match act {
            Act::Create { name } => {
                let file = OpenOptions::new().write(true).create_new(true).open(at(name))?;
                Ok(Answer { ino: Some(file.metadata()?.ino()), ..none })
            }
            Act::Move { from, to } => {
                let (from, to) = (at(from), at(to));
                rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?;
                Ok(none)
            }
            Act::Unlink { name } => fs::remove_file(at(name)).map(|()| none),
            // the kernel asks for the attributes, and so for the links, in another call
            Act::Lookup { name } => {
                let found = fs::symlink_metadata(at(name))?;
                Ok(Answer { ino: Some(found.ino()), ..none })
            }
            _ => Ok(Answer::failed(ENOSYS)),
        }
    }

    /// Holds what a name leads to, whatever becomes of the name.
    pub fn hold(&self, name: &str) -> Result<(OwnedFd, u64), Answer> {
        let held = rustix::fs::open(self.dir.join(name), OFlags::PATH, Mode::empty());
        let held = held.map_err(|errno| Answer::failed(errno.raw_os_error()))?;
        match rustix::fs::fstat(&held) {
            Ok(attributes) => Ok((held, attributes.st_ino)),
            // it was found, and is gone since: nobody knows which it was
            Err(_) => Err(Answer { unknown: true, ..Answer::default() }),
        }
    }

    /// Gives it a name.
    pub fn link_held(&self, held: &OwnedFd, to: &str) -> Answer {
        match rustix::fs::linkat(held, "", CWD, self.dir.join(to), AtFlags::EMPTY_PATH) {
            Ok(()) => Answer::default(),
            Err(errno) => Answer::failed(errno.raw_os_error()),
        }
    }
}
