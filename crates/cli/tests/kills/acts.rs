//! What a client does next, by its seed: the client itself and the one who watches it agree on it.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::model::{Model, Op, Random};

/// Files that are locked, one for each kind of lock.
pub const LOCKS: u64 = 3;
/// A record of the shared file: client, its seed, number, and their sum. No page divides one, so
/// each is one request.
pub const RECORD: usize = 32;
/// Bytes of a file without a name.
const NAMELESS_BYTES: usize = 40_000;
const PAGE: usize = 4096;

/// One thing that a client does.
#[derive(Clone, Debug)]
pub enum Act {
    /// A change in its own directory.
    Own(Op),
    /// A record at the end of the file that all share.
    Append,
    /// Takes a lock if it is free, makes some calls, lets it go.
    Lock { lock: u64, calls: u64 },
    /// Makes a file that never has a name, and keeps it open in the place of the last one.
    Unnamed,
    /// The same with one that had a name.
    Unlinked,
}

impl Act {
    /// The next one.
    pub fn pick(random: &mut Random) -> Act {
        match random.below(14) {
            0..2 => Act::Append,
            2..4 => {
                let calls = if random.below(3) == 0 { 200 } else { 3 };
                Act::Lock { lock: random.below(LOCKS), calls: 1 + random.below(calls) }
            }
            4 if random.below(2) == 0 => Act::Unnamed,
            4 => Act::Unlinked,
            _ => Act::Own(Op::pick(random)),
        }
    }
}

/// The record of one append.
pub fn record(client: u64, seed: u64, number: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let sum = client.wrapping_add(seed).wrapping_mul(31).wrapping_add(number);
    for (place, word) in bytes.chunks_exact_mut(8).zip([client, seed, number, sum]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Makes a change below `root`.
pub fn make(op: &Op, root: &Path) -> Result<()> {
    let open = |path: &str| OpenOptions::new().write(true).open(root.join(path));
    let append = |path: &str| OpenOptions::new().append(true).open(root.join(path));
    match *op {
        Op::Create(path) => {
            OpenOptions::new().write(true).create_new(true).open(root.join(path)).map(drop)
        }
        Op::Write(path, offset, len, byte) => open(path)?.write_all_at(&vec![byte; len], offset),
        Op::Append(path, len, byte) => append(path)?.write_all(&vec![byte; len]),
        Op::Resize(path, bytes) => open(path)?.set_len(bytes),
        Op::Rename(from, to) => std::fs::rename(root.join(from), root.join(to)),
        Op::Unlink(path) => std::fs::remove_file(root.join(path)),
        Op::MakeDir(dir) => std::fs::create_dir(root.join(dir)),
        Op::RemoveDir(dir) => std::fs::remove_dir(root.join(dir)),
    }
}

/// What a change may have left that was not acknowledged, besides nothing and all of it: a write
/// goes page by page where it begins or ends inside one that the kernel does not have.
pub fn parts(op: &Op, model: &Model) -> Vec<Op> {
    let cuts = |offset: usize, len: usize| {
        let first = PAGE - offset % PAGE;
        (first..len).step_by(PAGE).chain([len])
    };
    match *op {
        Op::Write(path, offset, len, byte) => {
            cuts(offset as usize, len).map(|len| Op::Write(path, offset, len, byte)).collect()
        }
        Op::Append(path, len, byte) => {
            let end = model.0.get(path).and_then(Option::as_ref).map_or(0, Vec::len);
            cuts(end, len).map(|len| Op::Append(path, len, byte)).collect()
        }
        ref whole => vec![whole.clone()],
    }
}

/// What is below `root`.
pub fn read_tree(root: &Path, direct: bool) -> Result<Model> {
    let mut model = Model::default();
    let mut dirs = vec![String::new()];
    let flags = if direct { libc::O_DIRECT } else { 0 };
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = format!("{dir}{}", entry.file_name().display());
            if entry.file_type()?.is_dir() {
                dirs.push(format!("{path}/"));
                model.0.insert(path, None);
            } else {
                let file = OpenOptions::new().read(true).custom_flags(flags).open(entry.path())?;
                let mut content = vec![0; file.metadata()?.len() as usize];
                file.read_exact_at(&mut content, 0)?;
                model.0.insert(path, Some(content));
            }
        }
    }
    Ok(model)
}

/// A file that nobody can open.
#[derive(Debug)]
pub struct Nameless {
    file: File,
    byte: u8,
}

impl Nameless {
    /// Makes one in `dir`, for a moment by `name` if it is given.
    pub fn new(dir: &Path, name: Option<&str>, byte: u8) -> Result<Nameless> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match name {
            None => options.custom_flags(libc::O_TMPFILE).open(dir)?,
            Some(name) => {
                let path = dir.join(name);
                let file = options.create_new(true).open(&path)?;
                std::fs::remove_file(path)?;
                file
            }
        };
        file.write_all_at(&[byte; NAMELESS_BYTES], 0)?;
        Ok(Nameless { file, byte })
    }

    /// Whether it is what was written.
    pub fn verify(&self) -> Result<()> {
        let mut content = vec![0; NAMELESS_BYTES];
        self.file.read_exact_at(&mut content, 0)?;
        let is_whole = content.iter().all(|byte| *byte == self.byte);
        is_whole.then_some(()).ok_or_else(|| Error::other("a file without a name has changed"))
    }
}
