//! Does each operation to the file system and to the reference, and compares the answers.

use crate::common::{TestPool, delegated, options, pattern, write_seeded};
use crate::model::away::{self, Away};
use crate::model::compare;
pub use crate::model::ops::name;
use crate::model::ops::{Make, Op, Pick, Place};
use crate::model::reference::{ANY_ERROR, Model};
use fs::{Creation, FileKind, FileSystem, Handle, Ino, NewNode, SetAttr};
use pool::{Atime, FormatOptions, SliceSpec};
use std::fmt::Debug;
use std::sync::Arc;

/// A difference between file system and reference, in words.
pub type Verdict = Result<(), String>;

/// How the pool of a test case is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub slices: usize,
    pub slice_bytes: u64,
    pub log_line_bytes: u32,
    pub memory_bytes: Option<u64>,
    pub background: bool,
    pub atime: Atime,
    /// Two copies of everything, where there are slices for that.
    pub mirrored: bool,
    /// Workers copy whatever lies on another node.
    pub delegates: bool,
    /// Devices of the capacity tier, in pools with one copy of everything.
    pub devices: usize,
}

/// Bytes of a device of the tier: more than most cases write.
const DEVICE_BYTES: u64 = 16 << 20;
/// Bytes of a node's cache for the tier: less than many cases read from there.
const TIER_CACHE_BYTES: u64 = 256 << 10;

/// The file system and the reference, side by side.
pub struct Harness {
    setup: Setup,
    pool: TestPool,
    fs: Option<FileSystem>,
    pub model: Model,
    pub handles: Vec<(Ino, Arc<Handle>)>,
    /// Inodes that once were: asking for them must fail.
    dead: Vec<Ino>,
    /// Blocks of data that the test lets the model hold.
    pub blocks_max: u64,
    away: Away,
}

/// The file system's answer must be the reference's, by value or by errno.
pub fn same<T: PartialEq + Debug>(what: &str, fs: fs::Result<T>, model: Result<T, i32>) -> Verdict {
    match (&fs, &model) {
        (Ok(fs), Ok(model)) if fs == model => Ok(()),
        (Err(error), Err(errno)) if *errno == ANY_ERROR || error.errno() == *errno => Ok(()),
        (Err(error), _) => Err(format!("{what}: {error} ({}); expected {model:?}", error.errno())),
        _ => Err(format!("{what}: {fs:?}; expected {model:?}")),
    }
}

pub fn same_bytes(what: &str, fs: fs::Result<Vec<u8>>, model: Result<Vec<u8>, i32>) -> Verdict {
    if let (Ok(fs), Ok(model)) = (&fs, &model)
        && fs != model
    {
        let at = fs.iter().zip(model).position(|(a, b)| a != b);
        let (fs, model) = (fs.len(), model.len());
        return Err(format!("{what}: first difference at {at:?} ({fs} bytes, expected {model})"));
    }
    same(what, fs, model)
}

impl Harness {
    pub fn new(setup: Setup) -> Harness {
        let options = options(setup.slices, setup.slice_bytes);
        let log_line_bytes = Some(setup.log_line_bytes);
        let mirrored = setup.mirrored && setup.slices > 1;
        let options = away::mirrored(options, mirrored);
        let device = SliceSpec { path: None, bytes: Some(DEVICE_BYTES) };
        let capacity = vec![device; if mirrored { 0 } else { setup.devices }];
        let mut pool = TestPool::with(&FormatOptions { log_line_bytes, capacity, ..options });
        pool.open.tier_cache_bytes = Some(TIER_CACHE_BYTES);
        pool.open.memory_bytes = setup.memory_bytes;
        pool.open.atime = setup.atime;
        pool.open.policy = setup.delegates.then(|| delegated(2));
        let mut harness = Harness {
            setup,
            pool,
            fs: None,
            model: Model::new(),
            handles: Vec::new(),
            dead: vec![Ino(0), Ino(u64::MAX), Ino(77 << 8 | 200)],
            blocks_max: 0,
            away: Away::new(if mirrored { setup.slices } else { 0 }),
        };
        harness.model.reads_count = setup.atime == Atime::Relatime;
        harness.start();
        harness.blocks_max = harness.fs().statfs().blocks_free / 3;
        harness
    }

    /// A few files to begin with, open.
    fn first_files(&mut self) -> Verdict {
        let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
        (0..3).try_for_each(|i| {
            self.create(Ino::ROOT, format!("n{i}").as_bytes(), NewNode::File, by)
        })?;
        self.open_some()
    }

    /// Opens a few files again after a restart, so that the operations on handles have some.
    fn open_some(&mut self) -> Verdict {
        let files = self.model.nodes.iter().filter(|(_, node)| node.kind == FileKind::File);
        let files: Vec<Ino> = files.map(|(ino, _)| *ino).take(3).collect();
        files.into_iter().try_for_each(|ino| self.open(ino))
    }

    fn start(&mut self) {
        let background = self.setup.background;
        self.fs = Some(if background { self.pool.start() } else { self.pool.start_alone() });
        self.away.settle(self.fs());
    }

    pub fn fs(&self) -> &FileSystem {
        self.fs.as_ref().unwrap()
    }

    /// Runs all operations, and kills and compares at the end.
    pub fn run(mut self, ops: &[Op]) -> Verdict {
        self.first_files()?;
        let all = ops.iter().chain(&[Op::Kill, Op::Reopen]);
        for (index, op) in all.enumerate() {
            self.step(op).map_err(|why| format!("operation {index}, {op:?}: {why}"))?;
        }
        Ok(())
    }

    /// One of the inodes, sometimes one that is gone.
    pub fn node(&self, pick: Pick) -> Ino {
        let alive: Vec<&Ino> = self.model.nodes.keys().collect();
        match pick % 50 {
            0 => self.dead[usize::from(pick) % self.dead.len()],
            _ => *alive[usize::from(pick) % alive.len()],
        }
    }

    /// One of the directories, sometimes something else.
    pub fn dir(&self, pick: Pick) -> Ino {
        let dirs = self.model.nodes.iter().filter(|(_, node)| node.kind == FileKind::Directory);
        let dirs: Vec<Ino> = dirs.map(|(ino, _)| *ino).collect();
        match pick % 25 {
            0 => self.node(pick / 25),
            _ => dirs[usize::from(pick) % dirs.len()],
        }
    }

    pub fn handle(&self, pick: Pick) -> Option<(Ino, Arc<Handle>)> {
        // the last few are chosen more often, so that operations meet in one file
        let len = self.handles.len();
        let recent = len.min(4);
        let index = if pick.is_multiple_of(4) {
            usize::from(pick) % len.max(1)
        } else {
            (len - recent) + usize::from(pick) % recent.max(1)
        };
        self.handles.get(index).cloned()
    }

    pub fn offset(&self, ino: Ino, place: Place) -> u64 {
        let size = self.model.nodes.get(&ino).map_or(0, |node| node.content.size);
        match place {
            Place::At(offset) => offset,
            Place::End(by) => size.saturating_add_signed(by),
        }
    }

    fn step(&mut self, op: &Op) -> Verdict {
        match *op {
            Op::Create { .. } | Op::CreateMany { .. } => self.step_create(op),
            Op::CreateUnnamed { dir, mode, gid } => self.step_unnamed(dir, mode, gid),
            Op::Lookup { dir, name: pick } => {
                let (dir, name) = (self.dir(dir), name(pick));
                let found = self.fs().lookup(dir, &name).map(|attr| attr.ino);
                same("lookup", found, self.model.lookup(dir, &name))
            }
            Op::Open { node } => self.step_open(node),
            Op::Close { handle } => {
                if let Some((ino, _)) = self.handle(handle) {
                    let index = self.handles.iter().position(|(own, _)| *own == ino).unwrap();
                    drop(self.handles.remove(index));
                    self.model.close(ino);
                    self.forget(ino);
                }
                Ok(())
            }
            Op::Write { .. } | Op::Append { .. } | Op::Read { .. } => self.step_data(op),
            Op::Commit { ref writes, expected } => self.step_commit(writes, expected),
            Op::Copy { from, to, len } => self.step_copy(from, to, len),
            Op::Truncate { .. } | Op::Fallocate { .. } | Op::Seek { .. } => self.step_size(op),
            Op::SetAttr { .. } => self.step_setattr(op),
            Op::SetAcl { .. } => self.step_acl(op),
            Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::ListXattr { .. } => {
                self.step_xattr(op)
            }
            Op::Readdir { dir, first, create, remove } => {
                self.step_readdir(dir, first, create, remove)
            }
            Op::Checkpoint => same("checkpoint", self.fs().checkpoint(), Ok(())),
            Op::WriteBack { evict } => self.step_write_back(evict),
            Op::Check => self.step_check(),
            Op::Reopen => self.step_reopen(),
            Op::Kill => self.step_kill(),
            _ => self.step_names(op),
        }
    }

    /// Remembers inodes that died.
    pub fn forget(&mut self, ino: Ino) {
        if !self.model.nodes.contains_key(&ino) {
            self.dead.push(ino);
        }
    }

    pub fn create(&mut self, dir: Ino, name: &[u8], node: NewNode<'_>, by: Creation) -> Verdict {
        let made = self.fs().create(dir, name, node, by);
        let expected = self.model.may_create(dir, name, &node);
        if let (Ok(attr), Ok(())) = (&made, &expected) {
            self.model.create(dir, name, node, by, attr.ino);
            return compare::attr(attr, &self.model.nodes[&attr.ino]);
        }
        same("create", made.map(|_| ()), expected)
    }

    fn step_create(&mut self, op: &Op) -> Verdict {
        match *op {
            Op::Create { dir, name: pick, make, mode, gid } => {
                let by = Creation { mode, umask: mode >> 12 << 2, uid: 1, gid };
                let dir = self.dir(dir);
                let target;
                let node = match make {
                    Make::File => NewNode::File,
                    Make::Directory => NewNode::Directory,
                    Make::Fifo => NewNode::Special(FileKind::Fifo, 0),
                    Make::Device(number) => NewNode::Special(FileKind::CharDevice, number),
                    Make::Symlink(len) => {
                        target = vec![b'a' + (len % 26) as u8; usize::from(len)];
                        NewNode::Symlink(&target)
                    }
                };
                self.create(dir, &name(pick), node, by)
            }
            Op::CreateMany { dir, count } => {
                let dir = self.dir(dir);
                let by = Creation { mode: 0o600, umask: 0, uid: 0, gid: 0 };
                (0..count).try_for_each(|i| {
                    self.create(dir, format!("many{i}").as_bytes(), NewNode::File, by)
                })
            }
            _ => Ok(()),
        }
    }

    fn step_open(&mut self, node: Pick) -> Verdict {
        if self.handles.len() > 20 {
            return Ok(());
        }
        self.open(self.node(node))
    }

    fn open(&mut self, ino: Ino) -> Verdict {
        let opened = self.fs().open(ino);
        let expected = self.model.open(ino);
        match (opened, expected) {
            (Ok(handle), Ok(())) => {
                self.handles.push((ino, handle));
                Ok(())
            }
            (opened, expected) => same("open", opened.map(|_| ()), expected),
        }
    }

    fn step_data(&mut self, op: &Op) -> Verdict {
        match *op {
            Op::Write { handle, place, len, seed } => {
                let Some((ino, handle)) = self.handle(handle) else { return Ok(()) };
                if self.model.blocks() + len as u64 / 4096 > self.blocks_max {
                    return Ok(());
                }
                let data = pattern(seed, len);
                let offset = self.offset(ino, place);
                let written = write_seeded(self.fs(), &handle, offset, &data, seed);
                same("write", written, self.model.write(ino, offset, &data).map(|()| len))
            }
            Op::Append { handle, len, seed } => {
                let Some((ino, handle)) = self.handle(handle) else { return Ok(()) };
                if self.model.blocks() + len as u64 / 4096 > self.blocks_max {
                    return Ok(());
                }
                let data = pattern(seed, len);
                let offset = self.model.nodes[&ino].content.size;
                let written = self.fs().append(&handle, &data);
                same("append", written, self.model.write(ino, offset, &data).map(|()| offset))
            }
            Op::Read { handle, place, len } => {
                let Some((ino, handle)) = self.handle(handle) else { return Ok(()) };
                let offset = self.offset(ino, place);
                let mut buffer = vec![0xAA; len];
                let read = self.fs().read(&handle, offset, &mut buffer).map(|read| {
                    buffer.truncate(read);
                    buffer
                });
                same_bytes(
                    "read",
                    read,
                    compare::expected_read(&self.model.nodes[&ino], offset, len),
                )
            }
            _ => Ok(()),
        }
    }

    fn step_size(&mut self, op: &Op) -> Verdict {
        match *op {
            Op::Truncate { node, place } => {
                let ino = self.node(node);
                let size = self.offset(ino, place);
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                let done = self.fs().setattr(ino, &change).map(|attr| attr.size);
                same("truncate", done, self.model.setattr(ino, &change).map(|()| size))
            }
            Op::Fallocate { handle, mode, place, len } => {
                self.step_fallocate(handle, mode, place, len)
            }
            Op::Seek { handle, place, data } => {
                let Some((ino, handle)) = self.handle(handle) else { return Ok(()) };
                let offset = self.offset(ino, place);
                let node = &self.model.nodes[&ino];
                let expected = match node.kind {
                    FileKind::File => node.content.seek(offset, data).ok_or(libc::ENXIO),
                    _ => Err(ANY_ERROR),
                };
                same("seek", self.fs().seek(&handle, offset, data), expected)
            }
            _ => Ok(()),
        }
    }

    fn step_check(&mut self) -> Verdict {
        // a check needs the pool for itself: it looks at what a kill now would leave
        let copy = crate::common::scratch();
        crate::common::snapshot(&self.pool.dir(), copy.path());
        compare::clean(copy.path(), self.away.is_any())
    }

    fn step_reopen(&mut self) -> Verdict {
        self.handles.clear();
        self.model.end_of_process();
        let before = compare::attributes(self.fs(), &self.model)?;
        same("close", self.fs().close(), Ok(()))?;
        self.fs = None;
        compare::clean(&self.pool.dir(), self.away.is_any())?;
        self.away.turn(&self.pool.dir());
        self.start();
        if self.fs().replayed() != 0 {
            return Err(format!("{} records replayed after a close", self.fs().replayed()));
        }
        self.compare(&before)?;
        self.open_some()
    }

    fn step_kill(&mut self) -> Verdict {
        self.pool.kill();
        let gone: Vec<Ino> = self.model.nodes.keys().copied().collect();
        self.model.end_of_process();
        let before = compare::attributes(self.fs(), &self.model)?;
        self.handles.clear();
        self.fs = None;
        gone.into_iter().for_each(|ino| self.forget(ino));
        compare::clean(&self.pool.dir(), self.away.is_any())?;
        self.away.turn(&self.pool.dir());
        self.start();
        self.compare(&before)?;
        self.open_some()
    }

    fn compare(&self, before: &[fs::Attr]) -> Verdict {
        compare::all(self.fs(), &self.model)?;
        for attr in before {
            let mut now = self.fs().getattr(attr.ino).map_err(|error| error.to_string())?;
            if self.model.reads_count {
                now.accessed = attr.accessed;
            }
            if now != *attr {
                return Err(format!("attributes changed over a restart: {attr:?} to {now:?}"));
            }
        }
        Ok(())
    }
}
