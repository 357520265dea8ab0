//! Making a pool.
//!
//! Order: root, then second superblock, then first superblock, each fenced and synced: a format
//! that is killed half-way leaves no first superblock, and so no pool.

use crate::calibration::CALIBRATION_BLOCK;
use crate::device::{TABLE_BLOCK, Table};
use crate::error::{Error, Result};
use crate::files::{Made, Steps, place, place_device};
use crate::members::{MEMBERS_BLOCK, Members};
use crate::options::FormatOptions;
use crate::plain_device::PlainDevice;
use crate::record::LINES_BYTES;
use crate::root::SliceRoot;
use crate::superblock::{
    BLOCK_BYTES, COPIES_MAX, FORMAT_VERSION, LOG_BLOCK, MAGIC, ROOT_BLOCKS, ROOT_COPY_BLOCKS,
    SLICE_BYTES_MIN, SLICES_MAX, STATE_BLOCK, STRIPE_BLOCKS, STRIPE_BLOCKS_MAX, SUPERBLOCK_BLOCK,
    Superblock, features,
};
use crate::used::refuse_used;
use pmem::{Domain, MapOptions, Mapping};
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Largest log that is chosen by itself, lines per slice: a small record takes one, and recovery
/// stays near a second.
const LOG_LINES_MAX: u64 = 3 << 19;

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
    refuse_used(options)?;
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
        let bytes = place_device(&path, spec, (&mut made, &mut steps))?;
        let url = spec.path.as_deref().and_then(crate::directory::as_url);
        options.devices.push(match (url, options.make_object_device) {
            (None, _) => Arc::new(PlainDevice::open(&path, false)?),
            (Some(url), Some(make)) => make(url, bytes)?,
            (Some(url), None) => {
                let what = format!("{url}: no device can be made of an object store here");
                return Err(Error::Device(what));
            }
        });
    }
    format_mappings(&mappings, &options)?;
    // The slices' names are to be found after a power cut too.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    made.keep = true;
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
