//! Requests as a client sends them, by name, and everything that it can see of what they did. Few
//! of them can be done twice without a trace.

use crate::common::{BY, pattern, random};
use fs::{
    Attr, Fallocate, FileKind, FileSystem, Ino, NewNode, RenameMode, SetAttr, Write, XattrMode,
};
use std::collections::BTreeMap;

const NAMES: u64 = 5;

/// One request. Names are those of one directory; numbers are offsets, lengths and seeds.
#[derive(Clone, Debug)]
pub enum Request {
    Create(String),
    Mkdir(String),
    Symlink(String, usize),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    Link(String, String),
    Append(String, usize, u64),
    Write(String, u64, usize, u64),
    /// Writes that happen together.
    Commit(Vec<(String, u64, usize, u64)>),
    Truncate(String, u64),
    Zero(String, Fallocate, u64, u64),
    SetXattr(String, usize, XattrMode),
    RemoveXattr(String),
    Chmod(String, u16),
}

/// A number below `below`.
pub fn roll(state: &mut u64, below: u64) -> u64 {
    *state = random(state);
    (*state >> 11) % below
}

impl Request {
    /// Any request.
    pub fn any(dice: &mut u64) -> Request {
        let name = |dice: &mut u64| format!("n{}", roll(dice, NAMES));
        let one = name(dice);
        let len = [3, 90, 600, 4096, 9000][roll(dice, 5) as usize];
        let offset = roll(dice, 16) * 4096 + [0, 0, 33][roll(dice, 3) as usize];
        match roll(dice, 33) {
            0..4 => Request::Create(one),
            4 => Request::Mkdir(one),
            5 => Request::Symlink(one, 1 + roll(dice, 3000) as usize),
            6..8 => Request::Unlink(one),
            8 => Request::Rmdir(one),
            9..13 => {
                let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                Request::Rename(one, name(dice), mode[roll(dice, 3) as usize])
            }
            13 => Request::Link(one, name(dice)),
            14..18 => Request::Append(one, len, roll(dice, 1 << 40)),
            18..22 => Request::Write(one, offset, len, roll(dice, 1 << 40)),
            22 => Request::Write(one, offset, (2 << 20) + 5000, roll(dice, 1 << 40)),
            23..25 => Request::Truncate(one, roll(dice, 40_000)),
            25 => Request::Zero(one, Fallocate::PunchHole, offset, 9000),
            // more than one record: a GiB each
            26 => Request::Zero(one, Fallocate::Zero { keep_size: false }, offset, 3 << 30),
            27 => {
                let mode = [XattrMode::Create, XattrMode::Any][roll(dice, 2) as usize];
                Request::SetXattr(one, roll(dice, 4000) as usize, mode)
            }
            28 => Request::RemoveXattr(one),
            29..32 => {
                let mut writes = vec![(one, offset, len, roll(dice, 1 << 40))];
                if roll(dice, 3) == 0 {
                    writes.push((name(dice), roll(dice, 60_000), 300, roll(dice, 1 << 40)));
                }
                Request::Commit(writes)
            }
            _ => Request::Chmod(one, roll(dice, 0o1000) as u16),
        }
    }

    /// Whether it changes something whenever it does not fail.
    pub fn changes_always(&self) -> bool {
        matches!(self, Request::Append(..) | Request::Write(..) | Request::Commit(_))
    }

    /// Does it in the directory `dir`.
    pub fn run(&self, fs: &FileSystem, dir: Ino) -> fs::Result<()> {
        let ino = |name: &String| fs.lookup(dir, name.as_bytes()).map(|attr| attr.ino);
        let open = |name: &String| fs.open(ino(name)?);
        let create = |name: &String, node| fs.create(dir, name.as_bytes(), node, BY).map(|_| ());
        match self {
            Request::Create(name) => create(name, NewNode::File),
            Request::Mkdir(name) => create(name, NewNode::Directory),
            Request::Symlink(name, len) => create(name, NewNode::Symlink(&vec![b't'; *len])),
            Request::Unlink(name) => fs.unlink(dir, name.as_bytes()).map(drop),
            Request::Rmdir(name) => fs.rmdir(dir, name.as_bytes()).map(drop),
            Request::Rename(from, to, mode) => {
                fs.rename((dir, from.as_bytes()), (dir, to.as_bytes()), *mode).map(drop)
            }
            Request::Link(name, new) => fs.link(ino(name)?, dir, new.as_bytes()).map(|_| ()),
            Request::Append(name, len, seed) => {
                fs.append(&*open(name)?, &pattern(*seed, *len)).map(|_| ())
            }
            Request::Write(name, offset, len, seed) => {
                fs.write(&*open(name)?, *offset, &pattern(*seed, *len)).map(|_| ())
            }
            Request::Commit(writes) => {
                let opened = writes.iter().map(|(name, offset, len, seed)| {
                    Ok((open(name)?, *offset, pattern(*seed, *len)))
                });
                let opened = opened.collect::<fs::Result<Vec<_>>>()?;
                let writes: Vec<_> = opened
                    .iter()
                    .map(|(file, offset, data)| Write { file, offset: *offset, data })
                    .collect();
                fs.commit(&writes, &[])
            }
            Request::Truncate(name, size) => {
                let change = SetAttr { size: Some(*size), ..SetAttr::default() };
                fs.setattr(ino(name)?, &change).map(|_| ())
            }
            Request::Zero(name, mode, offset, len) => {
                fs.fallocate(&*open(name)?, *mode, *offset, *len)
            }
            Request::SetXattr(name, len, mode) => {
                fs.setxattr(ino(name)?, b"user.x", &pattern(*len as u64, *len), *mode)
            }
            Request::RemoveXattr(name) => fs.removexattr(ino(name)?, b"user.x"),
            Request::Chmod(name, mode) => {
                let change = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                fs.setattr(ino(name)?, &change).map(|_| ())
            }
        }
    }
}

/// What can be seen of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    kind: FileKind,
    mode: u16,
    links: u32,
    size: u64,
    sectors: u64,
    /// Checksums of the blocks that hold data, and their places.
    blocks: Vec<(u64, u32)>,
    target: Vec<u8>,
    xattr: Option<u32>,
}

/// What can be seen of an inode.
pub fn seen(fs: &FileSystem, attr: &Attr) -> Seen {
    let xattr = fs.getxattr(attr.ino, b"user.x").ok().map(|value| pmem::crc32c(7, &value));
    let mut target = Vec::new();
    let mut blocks = Vec::new();
    match attr.kind {
        FileKind::File => {
            let handle = fs.open(attr.ino).unwrap();
            let mut at = 0;
            let mut block = [0; 4096];
            while let Ok(found) = fs.seek(&handle, at, true) {
                let start = found / 4096 * 4096;
                let read = fs.read(&handle, start, &mut block).unwrap();
                blocks.push((start, pmem::crc32c(0, &block[..read])));
                at = start + 4096;
            }
        }
        FileKind::Symlink => target = fs.readlink(attr.ino).unwrap(),
        _ => {}
    }
    let Attr { kind, mode, links, size, sectors, .. } = *attr;
    Seen { kind, mode, links, size, sectors, blocks, target, xattr }
}

/// What can be seen of a directory's entries.
pub fn all(fs: &FileSystem, dir: Ino) -> BTreeMap<Vec<u8>, Seen> {
    let entry = |name: Vec<u8>| {
        let attr = fs.lookup(dir, &name).unwrap();
        (name, seen(fs, &attr))
    };
    crate::common::names(fs, dir).into_iter().map(entry).collect()
}
