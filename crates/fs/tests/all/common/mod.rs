//! What the tests of the file system share: pools to play with, and ways to end them.
#![allow(dead_code)]

pub mod costs;

use fs::{
    CheckReport, Creation, FileSystem, Handle, Ino, NewNode, Policy, SetAttr, Side, TakeOver,
};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Owner and mode of everything that a test makes without caring.
pub const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// A directory that goes away at the end; in memory where the machine has such a place.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = tempfile::tempdir_in(memory)
    {
        return dir;
    }
    tempfile::tempdir().unwrap()
}

/// A pool of `slices` slices of `slice_bytes` each, in the domain `process`.
pub fn options(slices: usize, slice_bytes: u64) -> FormatOptions {
    FormatOptions {
        slices: vec![SliceSpec::default(); slices],
        slice_bytes,
        virtual_nodes: Some(slices as u32),
        process: true,
        ..FormatOptions::default()
    }
}

/// Workers copy whatever lies on another node, and so many copy at one time.
pub fn delegated(limit: u32) -> Policy {
    let side = Side { limit, delegate_remote: 0, ..Side::default() };
    Policy { read: side, write: side }
}

/// A pool on files, which can be killed without ending the process.
pub struct TestPool {
    scratch: tempfile::TempDir,
    lives: u32,
    /// What it is opened with.
    pub open: OpenOptions,
}

impl TestPool {
    /// A new pool.
    pub fn new(slices: usize, slice_bytes: u64) -> TestPool {
        TestPool::with(&options(slices, slice_bytes))
    }

    /// A new pool on plain files, in the domain `sync`.
    pub fn synced(slices: usize, slice_bytes: u64) -> TestPool {
        TestPool::with(&FormatOptions { process: false, ..options(slices, slice_bytes) })
    }

    /// A new pool, made with these options.
    pub fn with(options: &FormatOptions) -> TestPool {
        let pool = TestPool { scratch: scratch(), lives: 0, open: OpenOptions::default() };
        fs::format(&pool.dir(), options).unwrap();
        pool
    }

    /// Where it lies now.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join(format!("life{}", self.lives))
    }

    /// Opens it as a server does: with checkpoints in the background.
    pub fn start(&self) -> FileSystem {
        FileSystem::open_pool(&self.dir(), &self.open).unwrap()
    }

    /// Opens it so that checkpoints happen only in the calls that need them.
    pub fn start_alone(&self) -> FileSystem {
        let candidates = candidates(&self.dir(), false).unwrap();
        let devices = tier::open_devices(&self.dir(), false).unwrap();
        let options = OpenOptions { devices, ..self.open.clone() };
        FileSystem::open_candidates(candidates, &options, false).unwrap()
    }

    /// Goes on where a server was killed.
    pub fn take_over(&self, asked: &TakeOver) -> FileSystem {
        let candidates = candidates(&self.dir(), false).unwrap();
        FileSystem::take_over_candidates(candidates, &self.open, asked, false).unwrap()
    }

    /// What a kill at this moment leaves is the pool from now on: the slices are copied as they
    /// are, and whoever has the old ones open goes on without any effect.
    pub fn kill(&mut self) {
        let old = self.dir();
        self.lives += 1;
        std::fs::create_dir(self.dir()).unwrap();
        snapshot(&old, &self.dir());
        std::fs::remove_dir_all(old).unwrap();
    }

    /// Kills the server of `fs`, checks what that leaves, and starts another one.
    #[track_caller]
    pub fn killed(&mut self, fs: FileSystem) -> FileSystem {
        self.kill();
        drop(fs);
        self.assert_clean();
        self.start()
    }

    /// Checks it; nobody has it open.
    pub fn check(&self) -> CheckReport {
        fs::check(&self.dir()).unwrap()
    }

    /// Nothing is wrong with it.
    #[track_caller]
    pub fn assert_clean(&self) -> CheckReport {
        let report = self.check();
        assert!(report.findings.is_empty(), "check found: {:#?}", report.findings);
        report
    }
}

/// Takes out of an image of a slice, of which the second half may be another copy, on which medium
/// it was open: so it opens as the file that it was read from would.
pub fn forget_medium(image: &mut [u8]) {
    const STATE: usize = 3 * 4096;
    for half in [0, image.len() / 2] {
        let Some(state) = image.get_mut(half + STATE..half + STATE + 48) else { return };
        if state.starts_with(b"NSSTATE1") && state[24..28] != [0; 4] {
            state[24..28].copy_from_slice(&1u32.to_le_bytes());
            state[40..44].fill(0);
            let crc = pmem::crc32c(0, &state[..44]);
            state[44..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Copies the slices, and the devices of the capacity tier, in `from` into the directory `to`, as
/// they are at one moment: a checkpoint in the background may still be writing, and then the copy
/// is made again.
pub fn snapshot(from: &Path, to: &Path) {
    let paths: Vec<PathBuf> = slices(from).into_iter().chain(devices(from)).collect();
    let read = || paths.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    let mut images = read();
    for _ in 0..1000 {
        let again = read();
        if again == images {
            for (path, mut image) in paths.iter().zip(images) {
                forget_medium(&mut image);
                std::fs::write(to.join(path.file_name().unwrap()), image).unwrap();
            }
            return;
        }
        images = again;
    }
    panic!("the pool never rests");
}

/// The slices in `dir`.
pub fn candidates(dir: &Path, read_only: bool) -> pool::Result<Vec<Candidate>> {
    pool::candidates(dir, &|path| Candidate::open(path, read_only)).map(|(found, _)| found)
}

/// Paths of the slices in `dir`, in order.
pub fn slices(dir: &Path) -> Vec<PathBuf> {
    pool::slice_paths(dir).unwrap()
}

/// Paths of the devices of the capacity tier in `dir`, in order.
pub fn devices(dir: &Path) -> Vec<PathBuf> {
    pool::device_paths(dir).unwrap()
}

/// Makes a file and opens it.
pub fn make(fs: &FileSystem, name: &str) -> Arc<Handle> {
    let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    fs.open(attr.ino).unwrap()
}

/// Opens a file of the root directory.
pub fn find(fs: &FileSystem, name: &str) -> Arc<Handle> {
    fs.open(fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino).unwrap()
}

/// The whole content of a file.
pub fn content(fs: &FileSystem, handle: &Handle) -> Vec<u8> {
    let mut bytes = vec![0xEE; fs.getattr(handle.ino()).unwrap().size as usize];
    let read = fs.read(handle, 0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

/// Free blocks once everything is folded and given back.
pub fn free(fs: &FileSystem) -> u64 {
    fs.checkpoint().unwrap();
    fs.setattr(Ino::ROOT, &SetAttr::default()).unwrap();
    fs.checkpoint().unwrap();
    fs.statfs().blocks_free
}

/// Names in a directory.
pub fn names(fs: &FileSystem, ino: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fs.readdir(ino, 0, &mut |entry| {
        names.push(entry.name.clone());
        true
    })
    .unwrap();
    names
}

/// Bytes that are different at every place and for every seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while bytes.len() < len {
        state = random(&mut state);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The next of a row of numbers that look random (xorshift64*).
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

/// Longest wait for an event that must come, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(120);

/// Runs `test` in a thread of its own and gives up on it after `limit`: a hang is a failure like
/// others, but one that no assertion sees.
pub fn watched<T: Send + 'static>(
    limit: Duration,
    what: &str,
    test: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::Builder::new().name(what.to_owned()).spawn(test).unwrap();
    let end = Instant::now() + limit;
    while !thread.is_finished() {
        assert!(Instant::now() < end, "{what}: still running after {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Writes, and where that can be in pieces of bytes that come by and by, with a checkpoint in
/// between; of seeds every other one is at once.
pub fn write_seeded(
    fs: &fs::FileSystem,
    handle: &fs::Handle,
    offset: u64,
    data: &[u8],
    seed: u64,
) -> fs::Result<usize> {
    let begun =
        seed.is_multiple_of(2).then(|| fs.begin_write(handle, offset, data.len())).flatten();
    let Some(mut arrival) = begun else { return fs.write(handle, offset, data) };
    let piece = [1 << 16, 4096, 5000, 12_345][(seed / 2 % 4) as usize];
    for (index, piece) in data.chunks(piece).enumerate() {
        let known = arrival.put(piece);
        assert!(known.is_none_or(|sum| sum == pmem::crc32c(0, piece)), "piece {index}");
        assert!(known.is_some() || !piece.len().is_multiple_of(4096), "those of blocks are known");
        if index == 0 && (seed / 8).is_multiple_of(4) {
            fs.checkpoint()?;
        }
    }
    fs.end_write(arrival)
}
