//! What one program or thread does to its directory, and what must be there then. The kills of the
//! library use it, and those of the mount (crates/cli/tests/kills).

use std::collections::BTreeMap;

const PATHS: [&str; 8] = ["a", "b", "c", "d", "s/a", "s/b", "t/a", "t/b"];
const DIRS: [&str; 2] = ["s", "t"];
const FILE_BYTES_MAX: u64 = 150_000;

/// A small generator of numbers (xorshift64*), the same for the same seed.
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// One change; it may turn out to be impossible.
#[derive(Clone, Debug)]
pub enum Op {
    /// Make a file.
    Create(&'static str),
    /// Write these many of the byte at an offset.
    Write(&'static str, u64, usize, u8),
    /// The same at the end of the file.
    Append(&'static str, usize, u8),
    /// Set the size.
    Resize(&'static str, u64),
    /// Give a file another name, which may be one that exists.
    Rename(&'static str, &'static str),
    /// Remove a file.
    Unlink(&'static str),
    /// Make a directory.
    MakeDir(&'static str),
    /// Remove a directory.
    RemoveDir(&'static str),
}

impl Op {
    /// The next one.
    pub fn pick(random: &mut Random) -> Op {
        let path = PATHS[random.below(8) as usize];
        let other = PATHS[random.below(8) as usize];
        let dir = DIRS[random.below(2) as usize];
        let byte = 1 + random.below(255) as u8;
        let block = random.below(20) * 4096;
        let small = 1 + random.below(300);
        match random.below(24) {
            0..4 => Op::Create(path),
            4..9 => Op::Write(path, block, 4096, byte),
            9..13 => Op::Write(path, block + random.below(4000), small as usize, byte),
            13 => Op::Write(path, block + 77, 60_000, byte),
            14..17 => Op::Append(path, (small * 9) as usize, byte),
            17 => Op::Resize(path, random.below(FILE_BYTES_MAX)),
            18..20 => Op::Rename(path, other),
            20..22 => Op::Unlink(path),
            22 => Op::MakeDir(dir),
            _ => Op::RemoveDir(dir),
        }
    }
}

/// What is below one's directory: the content of files, nothing for directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<String, Option<Vec<u8>>>);

impl Model {
    /// Whether there is a directory to hold `path`.
    fn has_parent(&self, path: &str) -> bool {
        path.split_once('/').is_none_or(|(dir, _)| self.0.contains_key(dir))
    }

    fn file(&mut self, path: &str) -> Option<&mut Vec<u8>> {
        self.0.get_mut(path)?.as_mut()
    }

    /// Applies `op`; false, and nothing changed, if it cannot be made.
    pub fn apply(&mut self, op: &Op) -> bool {
        let done = match *op {
            Op::Create(path) => (self.has_parent(path) && !self.0.contains_key(path))
                .then(|| self.0.insert(path.to_owned(), Some(Vec::new())))
                .map(|_| ()),
            Op::Write(path, offset, len, byte) => self.file(path).map(|content| {
                let end = offset as usize + len;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].fill(byte);
            }),
            Op::Append(path, len, byte) => {
                self.file(path).map(|content| content.resize(content.len() + len, byte))
            }
            Op::Resize(path, bytes) => {
                self.file(path).map(|content| content.resize(bytes as usize, 0))
            }
            Op::Rename(from, to) => (self.0.contains_key(from) && self.has_parent(to)).then(|| {
                let content = self.0.remove(from).flatten();
                self.0.insert(to.to_owned(), content);
            }),
            Op::Unlink(path) => self.0.remove(path).map(|_| ()),
            Op::MakeDir(dir) => {
                (!self.0.contains_key(dir)).then(|| self.0.insert(dir.to_owned(), None)).map(|_| ())
            }
            Op::RemoveDir(dir) => {
                let inside = format!("{dir}/");
                let empty = !self.0.keys().any(|path| path.starts_with(&inside));
                (empty && self.0.contains_key(dir)).then(|| self.0.remove(dir)).map(|_| ())
            }
        };
        done.is_some()
    }

    /// Paths that are not the same in both.
    pub fn differing(&self, other: &Model) -> Vec<String> {
        let one = self.0.iter().filter(|(path, content)| other.0.get(*path) != Some(content));
        let two = other.0.keys().filter(|path| !self.0.contains_key(*path));
        one.map(|(path, _)| path).chain(two).cloned().collect()
    }
}
