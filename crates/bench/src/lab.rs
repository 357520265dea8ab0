//! Where a row is measured: a pool with a large file in it, and the floor's mapping beside it.

use crate::clock;
use crate::error::{Error, Result, io};
use crate::options::Options;
use crate::scratch::Scratch;
use fs::{Creation, FileSystem, Handle, Ino, NewNode};
use pmem::{MapOptions, Mapping};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the pool, and of the floor's mapping.
const POOL_BYTES: u64 = 1 << 30;
/// The same for a quick look.
const QUICK_POOL_BYTES: u64 = 256 << 20;
/// Bytes that files are filled with at a time.
pub const PIECE_BYTES: u64 = 2 << 20;

/// Who makes the files.
pub const OWNER: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// What a pool is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of its one slice.
    pub bytes: u64,
    /// Bytes of log; `None`: the pool's own choice.
    pub log_bytes: Option<u64>,
    /// In the `process` domain; else `sync`.
    pub process: bool,
    /// A thread makes checkpoints.
    pub background: bool,
    /// DRAM that caches may use; `None`: the engine's own choice.
    pub memory_bytes: Option<u64>,
    /// Tree pages have no second copies.
    pub single_pages: bool,
}

impl Shape {
    /// The pool of most rows.
    pub fn usual(options: &Options) -> Shape {
        Shape {
            bytes: if options.quick { QUICK_POOL_BYTES } else { POOL_BYTES },
            log_bytes: None,
            process: true,
            background: true,
            memory_bytes: None,
            single_pages: false,
        }
    }

    fn format(&self, dir: &Path) -> Result<()> {
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: self.bytes,
            process: self.process,
            log_bytes: self.log_bytes,
            ..FormatOptions::default()
        };
        Ok(fs::format(dir, &options)?)
    }

    /// Opens the pool in `dir` with all pages of its mapping touched.
    fn open(&self, dir: &Path) -> Result<Arc<FileSystem>> {
        let candidate = opened_slice(&dir.join("slice.0"), self.process)?;
        let (memory_bytes, single_pages) = (self.memory_bytes, self.single_pages);
        let options = OpenOptions { memory_bytes, single_pages, ..OpenOptions::default() };
        Ok(Arc::new(FileSystem::open_candidates(vec![candidate], &options, self.background)?))
    }
}

fn mapped(path: &Path, process: bool) -> Result<Mapping> {
    Ok(Mapping::open(path, &MapOptions { process, ..MapOptions::default() })?)
}

/// A slice, opened; in the domain `process` with all pages of its mapping touched.
pub fn opened_slice(path: &Path, process: bool) -> Result<Candidate> {
    let mapping = mapped(path, process)?;
    if process {
        touch(&mapping)?;
    }
    Ok(Candidate::from_mapping(path, mapping, false)?)
}

/// Touches all pages of a slice that nobody has open: the kernel gives it their memory now.
pub fn touch_slice(path: &Path) -> Result<()> {
    touch(&mapped(path, true)?)
}

/// A new file of so many bytes, mapped, all pages touched.
pub fn touched_file(path: &Path, bytes: u64) -> Result<Mapping> {
    let file = std::fs::File::create(path).map_err(io(path))?;
    file.set_len(bytes).map_err(io(path))?;
    let mapping = mapped(path, true)?;
    touch(&mapping)?;
    Ok(mapping)
}

/// Reads and writes every page, and changes none: no page fault is left for the measurement.
fn touch(mapping: &Mapping) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES as usize];
    for offset in (0..mapping.len()).step_by(buffer.len()) {
        let len = buffer.len().min((mapping.len() - offset) as usize);
        mapping.read(offset, &mut buffer[..len])?;
        let _ = pmem::fence(mapping.write(offset, &buffer[..len]));
    }
    Ok(())
}

/// A pool in a scratch directory.
#[derive(Debug)]
pub struct Lab {
    /// The pool's file system. Dropped before the directory.
    pub fs: Arc<FileSystem>,
    shape: Shape,
    scratch: Scratch,
}

impl Lab {
    /// An empty pool in a new directory in `parent`.
    pub fn new(parent: &Path, shape: Shape) -> Result<Lab> {
        let scratch = Scratch::new(parent)?;
        shape.format(&scratch.path().join("pool"))?;
        let fs = shape.open(&scratch.path().join("pool"))?;
        Ok(Lab { fs, shape, scratch })
    }

    /// The scratch directory, for files beside the pool.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// The same pool opened again; `fs.close()` before it, or not.
    pub fn reopened(self, shape: Shape) -> Result<Lab> {
        Lab::open_in(self.into_scratch(), shape)
    }

    /// The pool in this directory.
    pub fn open_in(scratch: Scratch, shape: Shape) -> Result<Lab> {
        let fs = shape.open(&scratch.path().join("pool"))?;
        Ok(Lab { fs, shape, scratch })
    }

    /// The directory alone, the pool let go.
    pub fn into_scratch(self) -> Scratch {
        drop(self.fs);
        self.scratch
    }

    /// The floor's mapping: a file of the pool's size beside it, all pages touched.
    pub fn floor(&self) -> Result<Mapping> {
        touched_file(&self.scratch.path().join("floor"), self.shape.bytes)
    }

    /// A new file in the root directory.
    pub fn create(&self, name: &str) -> Result<Arc<Handle>> {
        let attr = self.fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, OWNER)?;
        Ok(self.fs.open(attr.ino)?)
    }

    /// Writes a file called `name` until the pool is `percent` full; gives its bytes.
    pub fn fill(&self, name: &str, percent: u32) -> Result<(Arc<Handle>, u64)> {
        let file = self.create(name)?;
        let piece = vec![0x5A; PIECE_BYTES as usize];
        let mut size = 0;
        while self.full_percent() < f64::from(percent) {
            self.fs.write(&file, size, &piece)?;
            size += PIECE_BYTES;
        }
        self.fs.checkpoint()?;
        clock::rest();
        Ok((file, size))
    }

    /// How full the pool is, as statfs says.
    pub fn full_percent(&self) -> f64 {
        let space = self.fs.statfs();
        100.0 - 100.0 * space.blocks_free as f64 / space.blocks as f64
    }

    /// Bytes of the log.
    pub fn log_bytes(&self) -> u64 {
        self.fs.info().slices.iter().map(|slice| slice.log_bytes).sum()
    }

    /// The pool's domain.
    pub fn domain(&self) -> &'static str {
        self.fs.info().domain
    }

    /// What the pool lies on.
    pub fn medium(&self) -> String {
        medium(self.scratch.path())
    }
}

/// The name of the file system at `path`.
pub fn medium(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|status| status.f_type as u64) {
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0xEF53) => "ext4".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683E) => "btrfs".to_owned(),
        Ok(0x794C_7630) => "overlayfs".to_owned(),
        Ok(other) => format!("file system {other:#x}"),
        Err(error) => format!("unknown ({error})"),
    }
}

/// Two threads at once, each pinned to a CPU of its own where the machine has as many; the longer
/// of their times counts.
pub fn both<T: Send>(run: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let cpus = topology::allowed_cpus().unwrap_or_default();
    let gate = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let start = |index: usize| {
            let (run, cpus, gate) = (&run, &cpus, &gate);
            move || {
                if let Some(cpu) = cpus.get(index) {
                    let _ = topology::pin_current_thread(&[*cpu]);
                }
                gate.wait();
                run(index)
            }
        };
        let threads = [scope.spawn(start(0)), scope.spawn(start(1))];
        threads.map(|thread| thread.join().map_err(|_| Error::Panicked)?).into_iter().collect()
    })
}
