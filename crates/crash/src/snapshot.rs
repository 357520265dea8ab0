//! Everything that a program can see of a file system, timestamps left out.

use crate::images::{Outcome, failed};
use fs::{Attr, FileKind, FileSystem, Ino, Layout, Levers};
use std::collections::{BTreeMap, HashMap};

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    rdev: u32,
    links: u32,
    size: u64,
    sectors: u64,
    /// The first name of the same inode, in the order of names.
    same_as: String,
    content: Vec<u8>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    layout: Layout,
    levers: Levers,
}

/// All names, by path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    entries: BTreeMap<String, Entry>,
}

impl Snapshot {
    /// What `fs` shows.
    pub fn of(fs: &FileSystem) -> Outcome<Snapshot> {
        let mut walk = Walk { fs, snapshot: Snapshot::default(), first: HashMap::new() };
        let root = fs.getattr(Ino::ROOT).map_err(|error| failed("getattr of the root")(&error))?;
        walk.entry("/", &root)?;
        walk.directory("/", Ino::ROOT)?;
        Ok(walk.snapshot)
    }

    /// Names, the root's not counted.
    pub fn names(&self) -> usize {
        self.entries.len().saturating_sub(1)
    }

    /// Inodes, the root's counted.
    pub fn inodes(&self) -> u64 {
        self.entries.iter().filter(|(path, entry)| **path == entry.same_as).count() as u64
    }

    /// How this differs from `other`, in a line; empty if it does not.
    pub fn difference(&self, other: &Snapshot) -> String {
        let mut lines = Vec::new();
        for (path, entry) in &self.entries {
            match other.entries.get(path) {
                None => lines.push(format!("{path} is there")),
                Some(expected) if expected == entry => {}
                Some(expected) => lines.push(format!("{path}: {}", entry.difference(expected))),
            }
        }
        let missing = other.entries.keys().filter(|path| !self.entries.contains_key(*path));
        lines.extend(missing.map(|path| format!("{path} is missing")));
        lines.truncate(6);
        lines.join("; ")
    }
}

impl Entry {
    fn difference(&self, other: &Entry) -> String {
        if self.content != other.content {
            let differ = self.content.iter().zip(&other.content).position(|(a, b)| a != b);
            let at = differ.unwrap_or(self.content.len().min(other.content.len()));
            return format!(
                "content differs from byte {at}, sizes {} and {}",
                self.size, other.size
            );
        }
        let brief = |entry: &Entry| {
            let mut entry = entry.clone();
            entry.content = Vec::new();
            entry.xattrs.values_mut().for_each(|value| value.truncate(8));
            format!("{entry:?}")
        };
        format!("{}, not {}", brief(self), brief(other))
    }
}

struct Walk<'f> {
    fs: &'f FileSystem,
    snapshot: Snapshot,
    first: HashMap<Ino, String>,
}

impl Walk<'_> {
    fn directory(&mut self, path: &str, ino: Ino) -> Outcome<()> {
        let mut entries = BTreeMap::new();
        let listed = self.fs.readdir(ino, 0, &mut |entry| {
            entries.insert(String::from_utf8_lossy(&entry.name).into_owned(), entry.clone());
            true
        });
        listed.map_err(|error| format!("readdir of {path}: {error}"))?;
        for (name, entry) in entries {
            let path = format!("{}/{name}", path.trim_end_matches('/'));
            let attr = self.fs.lookup(ino, &entry.name).map_err(|e| failed(&path)(&e))?;
            if (attr.ino, attr.kind) != (entry.ino, entry.kind) {
                return Err(format!("{path}: lookup and readdir disagree"));
            }
            self.entry(&path, &attr)?;
            if attr.kind == FileKind::Directory {
                let parent = self.fs.parent(attr.ino).map_err(|e| failed(&path)(&e))?;
                if parent != ino {
                    return Err(format!("{path}: its parent is inode {}", parent.0));
                }
                self.directory(&path, attr.ino)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, attr: &Attr) -> Outcome<()> {
        let of = failed(path);
        let mut content = Vec::new();
        if attr.kind == FileKind::File {
            let handle = self.fs.open(attr.ino).map_err(|e| of(&e))?;
            content = vec![0xa5; attr.size.min(4 << 20) as usize + 1];
            let read = self.fs.read(&handle, 0, &mut content).map_err(|e| of(&e))?;
            if read as u64 != attr.size.min(content.len() as u64) {
                return Err(format!("{path}: read {read} of {} bytes", attr.size));
            }
            content.truncate(read);
        }
        let target = match attr.kind {
            FileKind::Symlink => self.fs.readlink(attr.ino).map_err(|e| of(&e))?,
            _ => Vec::new(),
        };
        let mut xattrs = BTreeMap::new();
        for name in self.fs.listxattr(attr.ino).map_err(|e| of(&e))? {
            let value = self.fs.getxattr(attr.ino, &name).map_err(|e| of(&e))?;
            xattrs.insert(name, value);
        }
        let same_as = self.first.entry(attr.ino).or_insert_with(|| path.to_owned()).clone();
        let entry = Entry {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            links: attr.links,
            size: attr.size,
            sectors: attr.sectors,
            same_as,
            content,
            target,
            xattrs,
            layout: self.fs.layout(attr.ino).map_err(|e| of(&e))?,
            levers: self.fs.levers(attr.ino).map_err(|e| of(&e))?,
        };
        self.snapshot.entries.insert(path.to_owned(), entry);
        Ok(())
    }
}
