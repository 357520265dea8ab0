//! The files and links of a new pool, with all their blocks; what is made is taken back where it
//! comes to nothing.

use crate::device::DEVICE_BYTES_MIN;
use crate::directory::as_url;
use crate::error::{Error, Result};
use crate::format::EachStep;
use crate::options::SliceSpec;
use crate::superblock::{BLOCK_BYTES, SLICE_BYTES_MIN};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that get their blocks at once.
const PIECE_BYTES: u64 = 64 << 20;

/// What a failed format takes back.
#[derive(Default)]
pub(crate) struct Made {
    /// Files and links that were not there.
    paths: Vec<PathBuf>,
    /// Files that were, and their lengths.
    grown: Vec<(PathBuf, u64)>,
    pub(crate) keep: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.keep {
            for path in &self.paths {
                let _ = std::fs::remove_file(path);
            }
            for (path, len) in &self.grown {
                let file = FileOptions::new().write(true).open(path);
                let _ = file.and_then(|file| file.set_len(*len));
            }
        }
    }
}

/// How far the files are.
pub(crate) struct Steps<'a> {
    each: EachStep<'a>,
    /// Bytes of the slices before this one.
    before: u64,
    of: u64,
}

impl<'a> Steps<'a> {
    /// Of so many bytes in all.
    pub(crate) fn new(each: EachStep<'a>, of: u64) -> Steps<'a> {
        Steps { each, before: 0, of }
    }

    /// So many bytes of this slice are done.
    fn told(&mut self, done: u64) -> Result<()> {
        match (self.each)(self.before.saturating_add(done), self.of) {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    }

    /// This slice is, with so many bytes; then comes the next one.
    fn next(&mut self, bytes: u64) -> Result<()> {
        self.told(bytes)?;
        self.before = self.before.saturating_add(bytes);
        Ok(())
    }
}

/// Puts the file or link of one device of the capacity tier in its place; gives how large it is
/// to be where it does not know that itself.
pub(crate) fn place_device(
    path: &Path,
    spec: &SliceSpec,
    (made, steps): (&mut Made, &mut Steps<'_>),
) -> Result<u64> {
    let target = spec.path.as_deref().unwrap_or(path);
    let is_object_store = as_url(target).is_some();
    let is_there = std::fs::metadata(target).is_ok_and(|it| !it.is_file() || it.len() > 0);
    let bytes = match spec.bytes {
        None if is_object_store => {
            return Err(Error::Size(format!(
                "{}: an object store has no size of its own; say how large the device is to be",
                target.display()
            )));
        }
        None if !is_there => {
            return Err(Error::Size(format!(
                "{}: is not there yet; say how large to make it",
                target.display()
            )));
        }
        Some(bytes) if bytes < DEVICE_BYTES_MIN => {
            return Err(Error::Size(format!(
                "{}: a device of the capacity tier has at least {DEVICE_BYTES_MIN} bytes, not \
                 {bytes}",
                target.display()
            )));
        }
        bytes => bytes.unwrap_or(DEVICE_BYTES_MIN),
    };
    if is_object_store {
        // the link says where it is, and leads nowhere
        std::os::unix::fs::symlink(target, path)
            .map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
        made.paths.push(path.to_path_buf());
        steps.next(bytes)?;
    } else {
        place(path, spec, bytes, (made, steps))?;
    }
    Ok(bytes)
}

/// Puts the file or link of one slice in its place.
pub(crate) fn place(
    path: &Path,
    spec: &SliceSpec,
    bytes: u64,
    (made, steps): (&mut Made, &mut Steps<'_>),
) -> Result<()> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let bytes = spec.bytes.unwrap_or(bytes);
    let target = match &spec.path {
        Some(target) => {
            let target = std::path::absolute(target).map_err(io)?;
            std::os::unix::fs::symlink(&target, path).map_err(io)?;
            made.paths.push(path.to_path_buf());
            target
        }
        None => path.to_path_buf(),
    };
    let existing = std::fs::metadata(&target);
    if existing.as_ref().is_ok_and(|m| !m.is_file()) {
        return steps.next(bytes);
    }
    let before = existing.map(|m| m.len()).ok();
    if spec.path.is_some() && before.is_some_and(|len| len > 0) && spec.bytes.is_none() {
        return steps.next(bytes);
    }
    if bytes < SLICE_BYTES_MIN {
        return Err(Error::Size(format!(
            "a slice of {bytes} bytes is too small; the least is {SLICE_BYTES_MIN}"
        )));
    }
    if before.is_none() && is_among_devices(&target) {
        const MISSING: &str = "there is no such device";
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, MISSING);
        return Err(Error::Io { path: target, source });
    }
    let mut options = FileOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&target);
    let file = file.map_err(|source| Error::Io { path: target.clone(), source })?;
    let lock = FlockOperation::NonBlockingLockExclusive;
    if before.is_some() && rustix::fs::flock(&file, lock) == Err(Errno::WOULDBLOCK) {
        // it keeps its length: who opens it next says that it is in use
        return steps.next(bytes);
    }
    let _held = Held(&file);
    match before {
        Some(len) => made.grown.push((target.clone(), len)),
        None => made.paths.push(target.clone()),
    }
    allocate((&target, &file), bytes / BLOCK_BYTES * BLOCK_BYTES, steps)?;
    steps.next(bytes)
}

/// Whether a file that is made there would lie beside the machine's devices, in memory.
fn is_among_devices(path: &Path) -> bool {
    let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
    let device_of = |dir: &Path| std::fs::metadata(dir).map(|it| it.dev()).ok();
    let (devices, shared) = (Path::new("/dev"), Path::new("/dev/shm"));
    dir.is_some_and(|dir| {
        let is_below = dir.starts_with(devices) && !dir.starts_with(shared);
        is_below && device_of(&dir) == device_of(devices)
    })
}

/// A file whose lock goes when this does, also where a process that is being started has a
/// duplicate of the descriptor.
struct Held<'f>(&'f File);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // without a lock nothing happens
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Gives the file all its blocks: a slice is never sparse, so that no store can find the disk full.
fn allocate((path, file): (&Path, &File), bytes: u64, steps: &mut Steps<'_>) -> Result<()> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    check_room(file, bytes).and_then(|()| file.set_len(bytes)).map_err(io)?;
    let (mut at, mut piece_max) = (0, PIECE_BYTES);
    while at < bytes {
        steps.told(at)?;
        let piece = piece_max.min(bytes - at);
        let allocated = match rustix::fs::fallocate(file, FallocateFlags::empty(), at, piece) {
            // tmpfs takes a piece back that a signal ended: a shorter one may be through before
            // the next signal
            Err(Errno::INTR) if piece_max > 1 << 20 => {
                piece_max /= 2;
                continue;
            }
            Err(Errno::OPNOTSUPP) => write_zeros(file, at..at + piece),
            allocated => allocated.map_err(std::io::Error::from),
        };
        allocated.map_err(io)?;
        at += piece;
    }
    Ok(())
}

/// Refuses what cannot fit before any of it is taken: on tmpfs that would be the machine's memory.
fn check_room(file: &File, bytes: u64) -> std::io::Result<()> {
    let has = file.metadata()?.blocks().saturating_mul(512);
    let room = rustix::fs::fstatvfs(file)?;
    let free = room.f_bfree.saturating_mul(room.f_frsize);
    // a file system without a limit says that it has no blocks at all
    match room.f_blocks > 0 && bytes.saturating_sub(has) > free {
        true => Err(Errno::NOSPC.into()),
        false => Ok(()),
    }
}

fn write_zeros(file: &File, mut range: std::ops::Range<u64>) -> std::io::Result<()> {
    let zeros = vec![0u8; 1 << 20];
    while !range.is_empty() {
        let len = zeros.len().min((range.end - range.start) as usize);
        file.write_all_at(&zeros[..len], range.start)?;
        range.start += len as u64;
    }
    Ok(())
}
