//! The library's door, owning or attached.

use nearside::{Error, File, OpenFlags, Pool, RenameMode};

use crate::plan::{CELL_BYTES, FILES, History, Kind};
use crate::record::{Act, Answer, bytes, runs};

/// The files of a history.
#[derive(Debug)]
pub struct Library<'p> {
    pool: &'p Pool,
    dir: String,
    files: Vec<File>,
}

/// Flags of the files.
pub fn flags() -> OpenFlags {
    OpenFlags::new().read(true).write(true)
}

const CELL: u64 = CELL_BYTES as u64;

impl<'p> Library<'p> {
    /// Opens them.
    pub fn open(pool: &'p Pool, history: &History) -> Result<Library<'p>, Error> {
        let files = match history.kind {
            Kind::Data | Kind::Transactions | Kind::Pages => FILES,
            Kind::Links | Kind::Renames => 0,
        };
        let open = |file| pool.open_file(history.file(file), &flags());
        let files = (0..files).map(open).collect::<Result<_, _>>()?;
        Ok(Library { pool, dir: history.dir(), files })
    }

    /// The files.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        let made = match act {
            Act::Create { .. }
            | Act::Link { .. }
            | Act::LinkInode { .. }
            | Act::Rename { .. }
            | Act::Move { .. }
            | Act::Unlink { .. }
            | Act::Lookup { .. } => self.name(act),
            _ => self.data(history, act, number),
        };
        made.unwrap_or_else(|error| Answer::failed(error.errno()))
    }

    fn data(&self, history: &History, act: &Act, number: u64) -> Result<Answer, Error> {
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
                let at = file(which).append(&bytes(number, cells))?;
                Ok(Answer { size: Some(at / CELL), ..none })
            }
            Act::Truncate { file: which, cells } => {
                file(which).set_len(u64::from(cells) * CELL).map(|()| none)
            }
            Act::Punch { file: which, at, cells } => {
                let (at, bytes) = (u64::from(at) * CELL, u64::from(cells) * CELL);
                file(which).punch_hole(at, bytes).map(|()| none)
            }
            Act::Size { file: which } => {
                Ok(Answer { size: Some(file(which).len()?.div_ceil(CELL)), ..none })
            }
            Act::Sync { file: which } => file(which).sync().map(|()| none),
            _ => Ok(Answer::failed(ENOSYS)),
        }
    }

    fn name(&self, act: &Act) -> Result<Answer, Error> {
        let (pool, none) = (self.pool, Answer::default());
        let at = |name: &str| format!("{}/{name}", self.dir);
        match act {
            Act::Create { name } => {
                let file = pool.open_file(at(name), &flags().create_new(true))?;
                // of this file, whatever has become of its name
                let ino = file.metadata()?.ino();
                Ok(Answer { ino: Some(ino), ..none })
            }
            Act::Link { from, to } => pool.hard_link(at(from), at(to)).map(|()| none),
            Act::Rename { from, to } => pool.rename(at(from), at(to)).map(|()| none),
            Act::Move { from, to } => {
                pool.rename_with(at(from), at(to), RenameMode::NoReplace).map(|()| none)
            }
            Act::Unlink { name } => pool.remove_file(at(name)).map(|()| none),
            Act::Lookup { name } => {
                let found = pool.metadata(at(name))?;
                Ok(Answer { ino: Some(found.ino()), links: Some(found.links()), ..none })
            }
            _ => Ok(Answer::failed(ENOSYS)),
        }
    }
}

/// No door has this.
pub const ENOSYS: i32 = 38;

/// A write that may have been a short one.
pub fn whole(written: usize, cells: u32) -> Answer {
    match written == cells as usize * CELL_BYTES {
        true => Answer::default(),
        // an error that no model knows
        false => Answer::failed(-1),
    }
}
