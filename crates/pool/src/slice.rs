//! One slice: its memory, superblock, free space and log.

use crate::error::{Error, Result};
use crate::log::SliceLog;
use crate::options::{MirrorInfo, MirrorState, SliceInfo};
use crate::root::{self, SliceRoot, Slots};
use crate::space::Space;
use crate::superblock::{BLOCK_BYTES, COPIES_MAX, Flaw, SUPERBLOCK_BLOCK, Superblock};
use pmem::{Domain, MapOptions, Mapping};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// One slice of an open pool.
#[derive(Debug)]
pub struct Slice {
    /// Where it is.
    pub path: PathBuf,
    /// Where its mirror is, if it has one.
    pub mirror: Option<PathBuf>,
    /// What it is.
    pub superblock: Superblock,
    /// Its memory.
    pub mapping: Mapping,
    /// Its free blocks; shared with what is freed later.
    pub space: Arc<Space>,
    /// Its log.
    pub log: SliceLog,
    /// Next counter for an inode number.
    pub inode_next: AtomicU64,
}

impl Slice {
    /// Inodes that were ever made here have counters below this.
    pub fn inodes_below(&self) -> u64 {
        // ordering: asked before anybody makes any
        self.inode_next.load(Ordering::Relaxed)
    }

    fn mirror_info(&self) -> MirrorInfo {
        let state = if self.mapping.mirror().is_some() {
            MirrorState::Current
        } else if self.mapping.stale_mirror().is_some() {
            MirrorState::Stale
        } else {
            MirrorState::Missing
        };
        MirrorInfo { path: self.mirror.clone(), state }
    }

    /// What it says about itself.
    pub fn info(&self) -> SliceInfo {
        let superblock = &self.superblock;
        let node = superblock.node.get();
        SliceInfo {
            path: self.path.clone(),
            index: superblock.index.get(),
            bytes: superblock.blocks.get() * BLOCK_BYTES,
            log_bytes: superblock.log_bytes.get(),
            log_line_bytes: superblock.log_line() as u32,
            node: (node != u32::MAX).then_some(node),
            medium: medium_name(self.mapping.medium()),
            domain: domain_of(superblock.domain).name(),
            unreadable: self.mapping.bad_ranges(),
            mirror: self.superblock.is_mirrored().then(|| self.mirror_info()),
            blocks: self.space.blocks(),
            blocks_free: self.space.free(),
        }
    }
}

fn medium_name(medium: pmem::Medium) -> &'static str {
    match medium {
        pmem::Medium::File => "file",
        pmem::Medium::Tmpfs => "tmpfs",
        pmem::Medium::Dax => "dax",
        pmem::Medium::DevDax => "devdax",
        pmem::Medium::Memory => "memory",
    }
}

/// A slice's memory with its superblock, before the pool is known to be whole.
#[derive(Debug)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Where its mirror is, if it has one that is known.
    pub mirror: Option<PathBuf>,
    /// Its superblock.
    pub superblock: Superblock,
    /// Its memory.
    pub mapping: Mapping,
    /// What was mended.
    pub note: Option<String>,
}

fn superblock_error(path: &Path, flaw: Flaw) -> Error {
    let path = path.to_path_buf();
    match flaw {
        Flaw::Version(found) => {
            Error::Version { path, found, known: crate::superblock::FORMAT_VERSION }
        }
        flaw => Error::Superblock { path, reason: flaw.to_string() },
    }
}

/// The superblock of a file that is not mapped yet, from either copy.
fn peek(path: &Path) -> Result<Superblock> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let mut bytes = [0u8; 512];
    // a device has no length here: the mapping checks the size again
    let len = if metadata.is_file() { metadata.len() } else { u64::MAX };
    let mut read = |offset: u64| -> std::result::Result<Superblock, Flaw> {
        file.read_exact_at(&mut bytes, offset).map_err(|_| Flaw::Foreign)?;
        Superblock::decode(&bytes, u64::MAX)
    };
    read(0)
        .or_else(|flaw| {
            let last = (len / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
            if metadata.is_file() { read(last).map_err(|_| flaw) } else { Err(flaw) }
        })
        .map_err(|flaw| superblock_error(path, flaw))
}

/// Asks nothing of the memory.
const PEEK: MapOptions = MapOptions { read_only: true, process: true, private: false };

/// The superblock of a device, seen through a mapping that asks nothing of its memory.
fn peek_device(path: &Path) -> Result<Superblock> {
    let mapping = Mapping::open(path, &PEEK)?;
    Ok(superblock_of(path, &mapping)?.0)
}

/// The superblock in this memory, and the block of the copy that is broken, if one is.
fn superblock_of(path: &Path, mapping: &Mapping) -> Result<(Superblock, Option<u64>)> {
    let mut bytes = [0u8; 512];
    let mut at = |offset: u64| -> std::result::Result<Superblock, Flaw> {
        mapping.read(offset, &mut bytes).map_err(|_| Flaw::Foreign)?;
        Superblock::decode(&bytes, mapping.len())
    };
    let first = at(SUPERBLOCK_BLOCK * BLOCK_BYTES);
    let last = match &first {
        Ok(superblock) => at(superblock.data_block_end() * BLOCK_BYTES),
        Err(_) => {
            let last = at((mapping.len() / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES);
            match last {
                // that of the slice before, whose mirror lies behind this one
                Ok(other) if other.is_mirrored() => at(other.data_block_end() * BLOCK_BYTES),
                last => last,
            }
        }
    };
    match (first, last) {
        (Ok(first), Ok(last)) if first == last => Ok((first, None)),
        (Ok(first), _) => Ok((first, Some(first.data_block_end()))),
        (Err(Flaw::Version(version)), _) => Err(superblock_error(path, Flaw::Version(version))),
        (Err(_), Ok(last)) => Ok((last, Some(SUPERBLOCK_BLOCK))),
        (Err(flaw), Err(_)) => Err(superblock_error(path, flaw)),
    }
}

/// The superblock of slice `index` in the half of a file that has it.
pub fn superblock_of_half(path: &Path, half: &Mapping, index: usize) -> Result<Superblock> {
    let mut bytes = [0u8; 512];
    let last = (half.len() / BLOCK_BYTES).saturating_sub(1);
    let mut flaw = Flaw::Foreign;
    for block in [SUPERBLOCK_BLOCK, last] {
        if half.read(block * BLOCK_BYTES, &mut bytes).is_err() {
            continue;
        }
        match Superblock::decode(&bytes, half.len() * u64::from(COPIES_MAX)) {
            Ok(superblock)
                if superblock.index.get() as usize == index
                    && superblock.bytes() == half.len()
                    && superblock.is_mirrored() =>
            {
                return Ok(superblock);
            }
            Ok(_) => flaw = Flaw::Field("index"),
            Err(found) => flaw = found,
        }
    }
    Err(superblock_error(path, flaw))
}

impl Candidate {
    /// Maps the slice at `path` and reads its superblock; repairs one copy from the other unless
    /// `read_only`.
    pub fn open(path: &Path, read_only: bool) -> Result<Candidate> {
        Candidate::open_with(path, MapOptions { read_only, ..MapOptions::default() })
    }

    /// The same, but what is stored is seen by this process alone, and the medium stays as it is.
    pub fn open_private(path: &Path) -> Result<Candidate> {
        Candidate::open_with(path, MapOptions { private: true, ..MapOptions::default() })
    }

    fn open_with(path: &Path, options: MapOptions) -> Result<Candidate> {
        let process = match peek(path) {
            Ok(superblock) => superblock.domain == Domain::Process as u8,
            // devdax has no read(2)
            Err(_) if is_device(path) => peek_device(path)?.domain == Domain::Process as u8,
            Err(error) => return Err(error),
        };
        let mapping = Mapping::open(path, &MapOptions { process, ..options })?;
        Candidate::from_mapping(path, mapping, options.read_only)
    }

    /// The slice in this memory.
    pub fn from_mapping(path: &Path, mapping: Mapping, read_only: bool) -> Result<Candidate> {
        let (superblock, broken) = superblock_of(path, &mapping)?;
        check_domain(path, &superblock, &mapping)?;
        let note = broken.map(|block| {
            let which = if block == 0 { "first" } else { "second" };
            if read_only {
                return format!("{}: the {which} superblock is damaged", path.display());
            }
            // an open ends with a fence
            let _ = mapping.write(block * BLOCK_BYTES, superblock.as_bytes());
            format!(
                "{}: the {which} superblock was damaged; repaired from the other",
                path.display()
            )
        });
        Ok(Candidate { path: path.to_path_buf(), mirror: None, superblock, mapping, note })
    }

    /// Both root slots, each from the newest of its copies that are whole. A crash may leave them
    /// different, in the slot that is not current.
    pub fn slots(&self) -> Slots {
        let uuid = &self.superblock.slice_uuid;
        let read = |mapping: &Mapping, block: u64| SliceRoot::read(mapping, block, uuid);
        let newest = |slot| {
            let roots = self
                .mapping
                .copies()
                .flat_map(|it| root::blocks(slot).map(|block| read(it, block)));
            roots.flatten().max_by_key(|root| root.generation.get())
        };
        [newest(0), newest(1)]
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device())
}

pub(crate) fn check_domain(path: &Path, superblock: &Superblock, mapping: &Mapping) -> Result<()> {
    let now = mapping.domain();
    if superblock.domain > now as u8 {
        return Err(Error::Domain(format!(
            "{}: was made in the durability domain {}, but lies now where only {} can be had; \
             put it back on such memory, or copy its files into a pool made here",
            path.display(),
            domain_of(superblock.domain).name(),
            now.name(),
        )));
    }
    Ok(())
}

/// The domain with this code; the superblock's validation knows no others.
pub fn domain_of(code: u8) -> Domain {
    match code {
        1 => Domain::Process,
        3 => Domain::CpuFlush,
        4 => Domain::CpuCache,
        _ => Domain::Sync,
    }
}
