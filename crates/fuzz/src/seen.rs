//! What a file system shows: every name, with a digest of all that is behind it.

use fs::{Attr, DirEntry, FileKind, FileSystem, Ino};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};

/// What a whole file system shows: path and digest.
pub type State = BTreeMap<Vec<u8>, u64>;

/// Bytes of one file that are read at one place at most.
const READ_BYTES_MAX: usize = 1 << 20;

/// What was seen of a file system that may be damaged.
#[derive(Debug, Default)]
pub struct Seen {
    /// What is behind each path; `None` where it could not be read.
    pub paths: BTreeMap<Vec<u8>, Option<u64>>,
    /// Directories of which the entries could not be read.
    unread: Vec<Vec<u8>>,
    /// What the errors said.
    pub errors: Vec<fs::Error>,
}

impl Seen {
    /// Reads everything.
    pub fn of(fs: &FileSystem) -> Seen {
        let mut seen = Seen::default();
        let mut visited = HashSet::new();
        let mut to_do = vec![(Vec::new(), Ino::ROOT)];
        seen.node(fs, Vec::new(), Ino::ROOT);
        while let Some((path, ino)) = to_do.pop() {
            // a hostile image may have a directory in many places
            if !visited.insert(ino) {
                continue;
            }
            for entry in seen.entries(fs, &path, ino) {
                let path = [&path[..], b"/", &entry.name].concat();
                seen.node(fs, path.clone(), entry.ino);
                if entry.kind == FileKind::Directory {
                    to_do.push((path, entry.ino));
                }
            }
        }
        seen
    }

    fn entries(&mut self, fs: &FileSystem, path: &[u8], ino: Ino) -> Vec<DirEntry> {
        let mut entries: Vec<DirEntry> = Vec::new();
        let listed = fs.readdir(ino, 0, &mut |entry| {
            let last = entries.last().map_or(0, |last| last.cookie);
            assert!(entry.cookie > last, "cookies do not ascend: {last}, {}", entry.cookie);
            entries.push(entry.clone());
            true
        });
        if let Err(error) = listed {
            self.errors.push(error);
            self.unread.push(path.to_vec());
        }
        entries
    }

    fn node(&mut self, fs: &FileSystem, path: Vec<u8>, ino: Ino) {
        let digest = digest(fs, ino);
        let digest = digest.map_err(|error| self.errors.push(error)).ok();
        self.paths.insert(path, digest);
    }

    /// Whether nothing failed.
    pub fn whole(&self) -> bool {
        self.errors.is_empty()
    }

    /// All of it, if nothing failed.
    pub fn state(&self) -> Option<State> {
        let paths = self.paths.iter();
        let all = paths.map(|(path, digest)| Some((path.clone(), (*digest)?))).collect();
        if self.unread.is_empty() { all } else { None }
    }

    /// Paths that are not as in `state`.
    pub fn differing(&self, state: &State) -> Vec<String> {
        let more = self.paths.iter().filter(|(path, digest)| {
            digest.is_some_and(|digest| state.get(*path) != Some(&digest))
        });
        let missing = state.keys().filter(|path| !self.paths.contains_key(*path));
        let paths = more.map(|(path, _)| path).chain(missing);
        paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// Whether all that could be read is what `state` is, and what is missing could not be read.
    pub fn fits(&self, state: &State) -> bool {
        let shown = self.paths.iter().all(|(path, digest)| {
            state.get(path).is_some_and(|right| digest.is_none_or(|digest| digest == *right))
        });
        let below_unread = |path: &[u8]| {
            let inside = |dir: &Vec<u8>| path.len() > dir.len() && path.starts_with(dir);
            self.unread.iter().any(inside)
        };
        let missing = state.keys().filter(|path| !self.paths.contains_key(*path));
        shown && missing.into_iter().all(|path| below_unread(path))
    }
}

/// A number for all that an inode shows, times and numbers of inodes apart.
fn digest(fs: &FileSystem, ino: Ino) -> fs::Result<u64> {
    let attr = fs.getattr(ino)?;
    let mut hasher = DefaultHasher::new();
    (attr.kind as u8, attr.mode, attr.links, attr.uid, attr.gid, attr.rdev, attr.size)
        .hash(&mut hasher);
    let mut names = fs.listxattr(ino)?;
    names.sort();
    for name in names {
        (fs.getxattr(ino, &name)?, name).hash(&mut hasher);
    }
    match attr.kind {
        FileKind::File => content(fs, &attr, &mut hasher)?,
        FileKind::Symlink => fs.readlink(ino)?.hash(&mut hasher),
        _ => {}
    }
    Ok(hasher.finish())
}

/// The content: all of a small file; of a large one the ends and the first data.
fn content(fs: &FileSystem, attr: &Attr, hasher: &mut DefaultHasher) -> fs::Result<()> {
    let handle = fs.open(attr.ino)?;
    let mut places = vec![0];
    if attr.size > READ_BYTES_MAX as u64 {
        places.push(attr.size - READ_BYTES_MAX as u64);
        let mut at = 0;
        for _ in 0..20 {
            let Ok(data) = fs.seek(&handle, at, true) else { break };
            places.push(data);
            let Ok(hole) = fs.seek(&handle, data, false) else { break };
            at = hole;
        }
    }
    let mut buffer = vec![0; READ_BYTES_MAX.min(attr.size as usize)];
    for place in places {
        let read = fs.read(&handle, place, &mut buffer)?;
        let expected = (attr.size - place).min(buffer.len() as u64);
        assert_eq!(read as u64, expected, "a read at {place} of {} was short", attr.size);
        buffer[..read].hash(hasher);
    }
    Ok(())
}
