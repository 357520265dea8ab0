//! Random calls of several users: most on names that exist, in a tree of few names.

use nearside::RenameMode;

use crate::lists;

/// Users: user, group, groups besides. The first is root.
pub const USERS: [(u32, u32, &[u32]); 4] =
    [(0, 0, &[]), (1001, 2001, &[2002]), (1002, 2002, &[2003, 2001]), (1003, 2003, &[])];
const UIDS: [u32; 4] = [0, 1001, 1002, 1003];
const GIDS: [u32; 4] = [0, 2001, 2002, 2003];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Names in a path at most, where one is added.
const DEPTH_MAX: usize = 3;
/// Attributes.
pub const XATTRS: [&str; 5] = ["user.a", "trusted.a", "security.a", lists::ACCESS, lists::DEFAULT];
const MODES: [u32; 22] = [
    0o777, 0o777, 0o755, 0o750, 0o700, 0o770, 0o070, 0o007, 0o1777, 0o1770, 0o1775, 0o2777, 0o2770,
    0o333, 0o555, 0o111, 0o4755, 0o6755, 0o2666, 0o6744, 0o4777, 0o000,
];

/// A small generator of numbers (xorshift64*), the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    pub create: bool,
    pub create_new: bool,
    pub mode: u32,
}

/// One call.
#[derive(Clone, Debug)]
pub enum Op {
    Stat(String),
    /// Opens a file and keeps it, in place of the one before.
    Open(String, Flags),
    /// Writes a byte to the file that was opened last.
    Write,
    /// Sets that file's length.
    SetLen(u64),
    List(String),
    MakeDir(String),
    Symlink(String, String),
    ReadLink(String),
    Link(String, String),
    Unlink(String),
    RemoveDir(String),
    Rename(String, String, RenameMode),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>),
    /// Sets the time of the last read, of the last change.
    Times(String, bool, bool),
    GetXattr(String, &'static str),
    SetXattr(String, &'static str, Vec<u8>),
    RemoveXattr(String, &'static str),
    ListXattrs(String),
}

/// What the kernel refuses by options of its own, which callers of a pool are not refused.
#[derive(Clone, Copy, Debug)]
pub struct Protected {
    pub hardlinks: bool,
    pub symlinks: bool,
    pub regular: bool,
}

/// What exists.
#[derive(Default)]
pub struct Tree {
    /// All paths.
    pub paths: Vec<String>,
    /// Those of directories.
    pub directories: Vec<String>,
    /// Those of files.
    pub files: Vec<String>,
}

/// Makes histories.
pub struct History {
    pub random: Random,
    pub protected: Protected,
}

impl History {
    /// The next call and its user, by what exists.
    pub fn next(&mut self, tree: &Tree) -> (usize, Op) {
        let user = self.random.below(5).min(3) as usize;
        match self.random.below(2) {
            // else users would soon have closed all to each other
            0 if user == 0 => (user, self.mend(tree)),
            _ => (user, self.op(tree)),
        }
    }

    fn mend(&mut self, tree: &Tree) -> Op {
        let directory = match self.random.below(4) {
            0 => "/".to_owned(),
            _ => {
                tree.directories[self.random.below(tree.directories.len() as u64) as usize].clone()
            }
        };
        let modes =
            [0o777, 0o777, 0o2777, 0o775, if self.protected.symlinks { 0o1775 } else { 0o1777 }];
        Op::Chmod(directory, self.random.one(&modes))
    }

    fn op(&mut self, tree: &Tree) -> Op {
        let paths = &tree.paths;
        let path = self.path(paths);
        match self.random.below(40) {
            0..2 => Op::Stat(path),
            2..8 => {
                let files = self.random.below(3) != 0 && !tree.files.is_empty();
                Op::Open(if files { self.path(&tree.files) } else { path }, self.flags())
            }
            8..10 => Op::Write,
            10 => Op::SetLen(self.random.below(100)),
            11 => Op::List(path),
            12 => Op::MakeDir(self.place(paths)),
            13 => Op::Open(self.place(paths), Flags { create: true, write: true, ..self.flags() }),
            14 => Op::Symlink(self.target(paths), self.place(paths)),
            15 => Op::ReadLink(path),
            16 => Op::Link(path, self.place(paths)),
            17..19 => Op::Unlink(self.entry(paths)),
            19 => Op::RemoveDir(self.entry(paths)),
            20..24 => {
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                Op::Rename(self.entry(paths), self.place(paths), self.random.one(&modes))
            }
            24..30 => Op::Chmod(path, self.mode()),
            30..33 => {
                let (uid, gid) = (self.random.one(&UIDS), self.random.one(&GIDS));
                match self.random.below(4) {
                    0 => Op::Chown(path, Some(uid), None),
                    1 => Op::Chown(path, Some(uid), Some(gid)),
                    _ => Op::Chown(path, None, Some(gid)),
                }
            }
            33 => {
                let (accessed, modified) = self.random.one(&[(true, false), (false, true)]);
                Op::Times(path, accessed, modified)
            }
            34..36 => {
                let name = self.random.one(&XATTRS);
                Op::SetXattr(path, name, self.value(name))
            }
            36 => Op::GetXattr(path, self.random.one(&XATTRS)),
            37 => Op::RemoveXattr(path, self.random.one(&XATTRS)),
            38 => Op::ListXattrs(path),
            _ => Op::SetXattr(path, lists::ACCESS, self.value(lists::ACCESS)),
        }
    }

    fn flags(&mut self) -> Flags {
        let [read, write, append] = [0; 3].map(|_| self.random.below(2) == 0);
        let mode = self.mode();
        let changes = write || append;
        Flags {
            read: read || !changes,
            write,
            append,
            truncate: write && self.random.below(3) == 0,
            create: changes && self.random.below(2) == 0,
            create_new: changes && self.random.below(4) == 0,
            mode,
        }
    }

    fn mode(&mut self) -> u32 {
        let mode = match self.random.below(4) {
            0 => self.random.below(0o10000) as u32,
            _ => self.random.one(&MODES),
        };
        // what links in such directories lead to is not for everybody then
        let watched = self.protected.symlinks && mode & 0o1000 != 0;
        if watched { mode & !0o002 } else { mode }
    }

    /// A path that exists, or one below it; maybe on a way round.
    fn path(&mut self, paths: &[String]) -> String {
        let known = paths[self.random.below(paths.len() as u64) as usize].as_str();
        let name = self.random.one(&NAMES);
        let path = match self.random.below(5) {
            0 if known == "/" => format!("/{name}"),
            0 => format!("{known}/{name}"),
            _ => known.to_owned(),
        };
        match self.random.below(8) {
            0 => format!("/.{path}"),
            1 => {
                let round = paths[self.random.below(paths.len() as u64) as usize].as_str();
                format!("{round}/{}{path}", "../".repeat(round.matches('/').count()))
            }
            _ => path,
        }
    }

    /// The same that ends in a name.
    fn entry(&mut self, paths: &[String]) -> String {
        let below: Vec<String> = paths.iter().filter(|path| *path != "/").cloned().collect();
        if below.is_empty() { self.place(paths) } else { self.path(&below) }
    }

    /// Where a name could be made: not the root, and not too deep.
    fn place(&mut self, paths: &[String]) -> String {
        let shallow = |path: &&String| path.matches('/').count() < DEPTH_MAX;
        let parents: Vec<&String> = paths.iter().filter(shallow).collect();
        let parent = self.random.one(&parents);
        let parent = if parent == "/" { "" } else { parent };
        format!("{parent}/{}", self.random.one(&NAMES))
    }

    fn target(&mut self, paths: &[String]) -> String {
        let path = self.path(paths);
        match self.random.below(3) {
            0 => path,
            1 => format!("..{path}"),
            _ => self.random.one(&NAMES).to_owned(),
        }
    }

    /// A value of an attribute with this name.
    fn value(&mut self, name: &str) -> Vec<u8> {
        if name != lists::ACCESS && name != lists::DEFAULT {
            return b"value".to_vec();
        }
        let watched = self.protected.symlinks;
        let mut permissions = || self.random.below(8) as u16;
        let mut entries = vec![(lists::USER_OBJ, permissions(), 0)];
        let users = [(lists::USER, &UIDS), (lists::GROUP, &GIDS)];
        let mut named = users.map(|(tag, ids)| {
            let ids = ids.iter().filter(|_| permissions() < 3).copied().collect::<Vec<u32>>();
            ids.into_iter().map(|id| (tag, permissions(), id)).collect::<Vec<_>>()
        });
        let has_named = named.iter().any(|named| !named.is_empty());
        entries.append(&mut named[0]);
        entries.push((lists::GROUP_OBJ, permissions(), 0));
        entries.append(&mut named[1]);
        if has_named || permissions() == 0 {
            entries.push((lists::MASK, permissions() | permissions(), 0));
        }
        entries.push((lists::OTHER, permissions() & if watched { !2 } else { 7 }, 0));
        lists::list(&entries)
    }
}
