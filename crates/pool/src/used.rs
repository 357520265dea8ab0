//! Whether another pool's bytes lie where one is to be made.
//!
//! A slice has its superblock in its first block and again in its last one; a file of a mirrored
//! pool has those of two slices, each in a half of it. A device begins with its header.

use crate::device::DEVICE_MAGIC;
use crate::error::{Error, Result};
use crate::options::FormatOptions;
use crate::superblock::{BLOCK_BYTES, MAGIC, Superblock};
use pmem::{MapOptions, Mapping};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Bytes of a superblock.
const HEAD_BYTES: usize = 512;

/// An error if a file or device that the pool is to have is another one's, unless that may be lost.
pub fn refuse_used(options: &FormatOptions) -> Result<()> {
    if options.force {
        return Ok(());
    }
    let specs = options.slices.iter().chain(&options.capacity);
    specs.filter_map(|spec| spec.path.as_deref()).try_for_each(|path| refuse_but(path, None))
}

/// The same for one place; what is of the pool `own` is not another one's.
pub(crate) fn refuse_but(path: &Path, own: Option<&[u8; 16]>) -> Result<()> {
    let Ok(kind) = std::fs::metadata(path).map(|it| it.file_type()) else { return Ok(()) };
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let is_used = if kind.is_char_device() {
        let look = MapOptions { read_only: true, process: true, ..MapOptions::default() };
        let mapping = Mapping::open(path, &look)?;
        is_used(mapping.len(), own, &|at, head| Ok(mapping.read(at, head)?))?
    } else if kind.is_file() || kind.is_block_device() {
        let mut file = File::open(path).map_err(io)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        is_used(bytes, own, &|at, head| file.read_exact_at(head, at).map_err(io))?
    } else {
        // no slice and no device can be there
        false
    };
    if is_used { Err(Error::Used(path.to_path_buf())) } else { Ok(()) }
}

fn is_used(
    bytes: u64,
    own: Option<&[u8; 16]>,
    read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
) -> Result<bool> {
    let blocks = bytes / BLOCK_BYTES;
    let half = blocks / 2;
    for block in [0, half.saturating_sub(1), half, blocks.saturating_sub(1)] {
        let mut head = [0; HEAD_BYTES];
        if block >= blocks {
            continue;
        }
        read(block * BLOCK_BYTES, &mut head)?;
        let is_slices = head.starts_with(&MAGIC);
        let is_own = || {
            let superblock = Superblock::decode(&head, u64::MAX);
            superblock.is_ok_and(|superblock| own == Some(&superblock.pool_uuid))
        };
        if is_slices && !is_own() || block == 0 && head.starts_with(&DEVICE_MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}
