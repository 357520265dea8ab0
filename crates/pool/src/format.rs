//! Making a pool.
//!
//! Order: root, then second superblock, then first superblock, each fenced and synced: a format
//! that is killed half-way leaves no first superblock, and so no pool.

use crate::calibration::CALIBRATION_BLOCK;
use crate::device::{DEVICE_BYTES_MIN, TABLE_BLOCK, Table};
use crate::error::{Error, Result};
use crate::members::{MEMBERS_BLOCK, Members};
use crate::options::{FormatOptions, SliceSpec};
use crate::plain_device::PlainDevice;
use crate::record::LINES_BYTES;
use crate::root::SliceRoot;
use crate::superblock::{
    BLOCK_BYTES, COPIES_MAX, FORMAT_VERSION, LOG_BLOCK, MAGIC, ROOT_BLOCKS, ROOT_COPY_BLOCKS,
    SLICE_BYTES_MIN, SLICES_MAX, STATE_BLOCK, STRIPE_BLOCKS, STRIPE_BLOCKS_MAX, SUPERBLOCK_BLOCK,
    Superblock, features,
};
use pmem::{Domain, MapOptions, Mapping};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Largest log that is chosen by itself, lines per slice: a small record takes one, and recovery
/// stays near a second.
const LOG_LINES_MAX: u64 = 3 << 19;
/// Bytes of a file that get their blocks at once.
const PIECE_BYTES: u64 = 64 << 20;

/// Log and chunk sizes for a slice of `bytes`, with lines of `line` bytes in its log.
fn log_layout(bytes: u64, line: usize, asked: Option<u64>) -> Result<(u64, u64)> {
    let wanted = asked.unwrap_or_else(|| (bytes / 32).min(LOG_LINES_MAX * line as u64));
    let chunk = if wanted >= 4 << 20 { 64 << 10 } else { 16 << 10 };
    let log = (wanted / chunk * chunk).max(4 * chunk);
    if (LOG_BLOCK + 2) * BLOCK_BYTES + log > bytes / 2 {
        return Err(Error::Size(format!(
            "a slice of {bytes} bytes has no room for a log of {log} bytes; \
             make the slice at least {} bytes",
            (2 * log + (LOG_BLOCK + 2) * BLOCK_BYTES).next_multiple_of(1 << 20)
        )));
    }
    Ok((log, chunk))
}

/// Bytes of a line of the log of a slice in this memory.
fn log_line(mapping: &Mapping, asked: Option<u32>) -> Result<usize> {
    let bytes = asked.map_or(mapping.line_bytes(), |bytes| bytes as usize);
    if LINES_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    let [short, long] = LINES_BYTES;
    Err(Error::Size(format!("a log has lines of {short} or {long} bytes, not {bytes}")))
}

/// Is told how many bytes of the slices' files have their blocks, of how many, and ends a format by
/// returning false: then what it made is removed.
pub type EachStep<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Makes a pool in directory `dir` (made if it is missing).
pub fn format(dir: &Path, options: &FormatOptions, each: EachStep<'_>) -> Result<()> {
    if options.slices.is_empty() || options.slices.len() > SLICES_MAX {
        return Err(Error::Size(format!(
            "a pool has 1 to {SLICES_MAX} slices, not {}",
            options.slices.len()
        )));
    }
    let is_new = !dir.exists();
    let formatted = format_in(dir, options, each);
    if formatted.is_err() && is_new {
        // Only if it is empty.
        let _ = std::fs::remove_dir(dir);
    }
    formatted
}

fn format_in(dir: &Path, options: &FormatOptions, each: EachStep<'_>) -> Result<()> {
    let io = |source| Error::Io { path: dir.to_path_buf(), source };
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(io)?;
    }
    // For its owner only: whoever reads the slices reads every file, whatever its mode.
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made.map_err(io)?,
    }
    let mut present = crate::directory::slice_paths(dir)?;
    present.extend(crate::directory::device_paths(dir)?);
    if let Some(path) = present.pop() {
        return Err(Error::Exists(path));
    }
    let mut made = Made::default();
    let specs = options.slices.iter().chain(&options.capacity);
    let bytes = specs.map(|it| it.bytes.unwrap_or(options.slice_bytes));
    let mut steps = Steps::new(each, bytes.fold(0, u64::saturating_add));
    let mut mappings = Vec::new();
    for (index, spec) in options.slices.iter().enumerate() {
        let path = dir.join(format!("slice.{index}"));
        place(&path, spec, options.slice_bytes, (&mut made, &mut steps))?;
        mappings.push(Mapping::open(
            &path,
            &MapOptions { process: options.process, ..MapOptions::default() },
        )?);
    }
    let mut options = options.clone();
    for (index, spec) in options.capacity.iter().enumerate() {
        let path = dir.join(format!("capacity.{index}"));
        place_device(&path, spec, (&mut made, &mut steps))?;
        options.devices.push(Arc::new(PlainDevice::open(&path, false)?));
    }
    format_mappings(&mappings, &options)?;
    // The slices' names are to be found after a power cut too.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    made.keep = true;
    Ok(())
}

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

/// Puts the file or link of one device of the capacity tier in its place.
fn place_device(
    path: &Path,
    spec: &SliceSpec,
    (made, steps): (&mut Made, &mut Steps<'_>),
) -> Result<()> {
    let target = spec.path.as_deref().unwrap_or(path);
    let is_there = std::fs::metadata(target).is_ok_and(|it| !it.is_file() || it.len() > 0);
    let bytes = match spec.bytes {
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
    place(path, spec, bytes, (made, steps))
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
    let mut options = FileOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&target);
    let file = file.map_err(|source| Error::Io { path: target.clone(), source })?;
    match before {
        Some(len) => made.grown.push((target.clone(), len)),
        None => made.paths.push(target.clone()),
    }
    allocate((&target, &file), bytes / BLOCK_BYTES * BLOCK_BYTES, steps)?;
    steps.next(bytes)
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

/// Makes a pool in memory that is already mapped, a slice each.
pub fn format_mappings(mappings: &[Mapping], options: &FormatOptions) -> Result<()> {
    let identity = |number: u64| match options.identity {
        Some(identity) => uuid::Uuid::from_u64_pair(identity, number),
        None => uuid::Uuid::new_v4(),
    };
    let pool_uuid = *identity(0).as_bytes();
    let weakest = mappings.iter().map(Mapping::domain).min_by_key(|domain| *domain as u8);
    let domain = weakest.unwrap_or(Domain::Sync);
    let copies = copies(mappings.len(), options.data_copies)?;
    let device_identity = |index: usize| *identity((1 + SLICES_MAX + index) as u64).as_bytes();
    let table = Table::new(pool_uuid, &options.devices, &device_identity)?;
    let has_capacity = table.len() > 0;
    if has_capacity && copies > 1 {
        return Err(Error::Size(
            "data in a capacity tier has one copy: choose either the tier or two copies".to_owned(),
        ));
    }
    let stripe = stripe(options.stripe_bytes)?;
    let mut superblocks = Vec::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let bytes = match copies {
            1 => mapping.len(),
            // a slice and the mirror of another one must fit into each file
            _ => mappings.iter().map(Mapping::len).min().unwrap_or(0) / u64::from(copies),
        };
        let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
        if bytes < SLICE_BYTES_MIN {
            return Err(Error::Size(format!(
                "a slice of {bytes} bytes is too small; the least is {SLICE_BYTES_MIN}"
            )));
        }
        let line = log_line(mapping, options.log_line_bytes)?;
        let (log, chunk) = log_layout(bytes, line, options.log_bytes)?;
        let mut superblock: Superblock = FromZeros::new_zeroed();
        superblock.magic = MAGIC;
        superblock.version = U32::new(FORMAT_VERSION);
        superblock.index = U32::new(index as u32);
        superblock.pool_uuid = pool_uuid;
        superblock.slice_uuid = *identity(1 + index as u64).as_bytes();
        superblock.slices = U32::new(mappings.len() as u32);
        superblock.block_bytes = U32::new(BLOCK_BYTES as u32);
        superblock.blocks = U64::new(bytes / BLOCK_BYTES);
        superblock.log_bytes = U64::new(log);
        superblock.chunk_bytes = U32::new(chunk as u32);
        superblock.domain = domain as u8;
        superblock.virtual_nodes = U32::new(options.virtual_nodes.unwrap_or(0));
        superblock.node = U32::new(mapping.node().unwrap_or(u32::MAX));
        superblock.data_copies = U32::new(copies);
        superblock.stripe_blocks = U32::new(stripe);
        superblock.log_line_bytes = U32::new(line as u32);
        superblock.features = U64::new(features(line, copies, has_capacity));
        superblocks.push(superblock.seal());
    }
    let mut places = Vec::new();
    for (index, superblock) in superblocks.iter().enumerate() {
        for copy in 0..copies as usize {
            let mapping = &mappings[(index + copy) % mappings.len()];
            places.push((Half { mapping, from: copy as u64 * superblock.bytes() }, superblock));
        }
    }
    places.iter().try_for_each(|(half, superblock)| write_slice(half, superblock))?;
    if has_capacity {
        table.write_headers(&options.devices)?;
        places.iter().try_for_each(|(half, _)| half.put(TABLE_BLOCK, &table.encode()))?;
    }
    let put = |(half, it): &(Half, &Superblock)| half.put(SUPERBLOCK_BLOCK, it.as_bytes());
    places.iter().try_for_each(put)
}

fn copies(slices: usize, asked: u32) -> Result<u32> {
    match asked {
        1 => Ok(1),
        COPIES_MAX if slices > 1 => Ok(COPIES_MAX),
        COPIES_MAX => Err(Error::Size(
            "two copies of the data lie on different slices: give the pool two or more".to_owned(),
        )),
        _ => Err(Error::Size(format!("data has 1 or {COPIES_MAX} copies, not {asked}"))),
    }
}

fn stripe(bytes: Option<u64>) -> Result<u32> {
    let Some(bytes) = bytes else { return Ok(STRIPE_BLOCKS) };
    let blocks = bytes / BLOCK_BYTES;
    let fits = bytes.is_power_of_two() && (1..=u64::from(STRIPE_BLOCKS_MAX)).contains(&blocks);
    match fits {
        true => Ok(blocks as u32),
        false => Err(Error::Size(format!(
            "a stripe has a power of two of bytes, {BLOCK_BYTES} or more, not {bytes}"
        ))),
    }
}

/// Where a copy of a slice lies.
pub(crate) struct Half<'m> {
    pub(crate) mapping: &'m Mapping,
    pub(crate) from: u64,
}

impl Half<'_> {
    /// Writes the first bytes of a block of it, durably.
    pub(crate) fn put(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let _ = pmem::fence(self.mapping.write(self.from + block * BLOCK_BYTES, bytes));
        Ok(self.mapping.sync()?)
    }
}

fn write_slice(half: &Half<'_>, superblock: &Superblock) -> Result<()> {
    // an old first superblock goes first: from here on this slice is nobody's
    half.put(SUPERBLOCK_BLOCK, &[0; 512])?;
    half.put(STATE_BLOCK, &[0; 512])?;
    half.put(CALIBRATION_BLOCK, &[0; 512])?;
    for block in [ROOT_BLOCKS[1], ROOT_COPY_BLOCKS[1]] {
        half.put(block, &[0; 512])?;
    }
    if superblock.is_mirrored() {
        half.put(MEMBERS_BLOCK, Members::new(superblock.pool_uuid).as_bytes())?;
    }
    // space that the file system only set aside costs it a change of its own at the first sync
    // after the first store: two to four times as much until the log has been round once
    let log = half.from + LOG_BLOCK * BLOCK_BYTES;
    half.mapping.settle(log, superblock.log_bytes.get() as usize)?;
    let mut root = SliceRoot::new(superblock.slice_uuid);
    root.generation = U64::new(1);
    root.log_floor = U64::new(1);
    root.inode_next = U64::new(1);
    root.blocks_free = U64::new(superblock.data_blocks());
    for block in [ROOT_BLOCKS[0], ROOT_COPY_BLOCKS[0]] {
        half.put(block, root.seal().as_bytes())?;
    }
    half.put(superblock.data_block_end(), superblock.as_bytes())
}
