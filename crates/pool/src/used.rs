//! Whether somebody's bytes lie where a slice or a device is to be made.
//!
//! A slice has its superblock in its first block and again in its last one; a file of a mirrored
//! pool has those of two slices, each in a half of it. A device begins with its header. Anything
//! else that is no zeros may be a file system, a database's disk or somebody's thesis: it is looked
//! for in samples, for a device takes minutes to read.

use crate::device::DEVICE_MAGIC;
use crate::error::{Error, Result};
use crate::options::FormatOptions;
use crate::superblock::{BLOCK_BYTES, MAGIC, Superblock};
use pmem::{MapOptions, Mapping};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a superblock.
const HEAD_BYTES: usize = 512;
/// What is looked at whole, at the beginning and at the end: there file systems and tables of
/// partitions have their heads.
const ENDS_BYTES: u64 = 1 << 20;
/// Blocks that are looked at between these, in equal distances.
const SAMPLES: u64 = 256;

/// Reads at a place.
type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> Result<()>;

/// What is in a place.
#[derive(PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    /// Slices of the pool that it is to be of.
    Own,
    /// A slice or a device of another pool.
    OtherPool,
    /// Something else.
    Data,
}

/// An error if a file or device that the pool is to have is in use, or holds something, unless that
/// may be lost.
pub fn refuse_used(options: &FormatOptions) -> Result<()> {
    let specs = options.slices.iter().chain(&options.capacity);
    let mut paths = specs.filter_map(|spec| spec.path.as_deref());
    paths.try_for_each(|path| match found(path, None)? {
        _ if options.force => Ok(()),
        found => refuse(path, &found),
    })
}

/// The same for one place; what is of the pool `own` may be lost.
pub(crate) fn refuse_but(path: &Path, own: &[u8; 16]) -> Result<()> {
    refuse(path, &found(path, Some(own))?)
}

fn refuse(path: &Path, found: &Found) -> Result<()> {
    match found {
        Found::Nothing | Found::Own => Ok(()),
        Found::OtherPool => Err(Error::Used(path.to_path_buf())),
        Found::Data => Err(Error::HoldsData(path.to_path_buf())),
    }
}

/// What is there; an error if it is a device that the kernel uses.
fn found(path: &Path, own: Option<&[u8; 16]>) -> Result<Found> {
    // no slice and no device can be in what is none of these
    let Ok(kind) = std::fs::metadata(path).map(|it| it.file_type()) else {
        return Ok(Found::Nothing);
    };
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    if kind.is_char_device() {
        let look = MapOptions { read_only: true, process: true, ..MapOptions::default() };
        let mapping = Mapping::open(path, &look)?;
        return found_in(mapping.len(), own, &|at, head| Ok(mapping.read(at, head)?));
    }
    let mut file = match (kind.is_file(), kind.is_block_device()) {
        (true, _) => File::open(path).map_err(io)?,
        (_, true) => unused_device(path)?,
        _ => return Ok(Found::Nothing),
    };
    let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
    found_in(bytes, own, &|at, head| file.read_exact_at(head, at).map_err(io))
}

/// The device, if it is not mounted, nor a part of another one.
fn unused_device(path: &Path) -> Result<File> {
    let exclusive = OFlags::EXCL.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(exclusive).open(path);
    opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => Error::Busy(path.to_path_buf()),
        _ => Error::Io { path: path.to_path_buf(), source },
    })
}

fn found_in(bytes: u64, own: Option<&[u8; 16]>, read: Read<'_>) -> Result<Found> {
    let blocks = bytes / BLOCK_BYTES;
    let half = blocks / 2;
    let mut is_own = false;
    for block in [0, half.saturating_sub(1), half, blocks.saturating_sub(1)] {
        let mut head = [0; HEAD_BYTES];
        if block >= blocks {
            continue;
        }
        read(block * BLOCK_BYTES, &mut head)?;
        let superblock = || Superblock::decode(&head, u64::MAX);
        let is_of =
            |own: &[u8; 16]| superblock().is_ok_and(|superblock| superblock.pool_uuid == *own);
        match head.starts_with(&MAGIC) {
            true if own.is_some_and(is_of) => is_own = true,
            true => return Ok(Found::OtherPool),
            false if block == 0 && head.starts_with(&DEVICE_MAGIC) => return Ok(Found::OtherPool),
            false => {}
        }
    }
    match is_own {
        true => Ok(Found::Own),
        false if holds_data(bytes, read)? => Ok(Found::Data),
        false => Ok(Found::Nothing),
    }
}

/// Whether a sample of it is no zeros.
fn holds_data(bytes: u64, read: Read<'_>) -> Result<bool> {
    let step = (bytes / SAMPLES / BLOCK_BYTES * BLOCK_BYTES).max(BLOCK_BYTES);
    let ends = [0..bytes.min(ENDS_BYTES), bytes.saturating_sub(ENDS_BYTES)..bytes];
    let ends = ends.into_iter().flat_map(|end| end.step_by(BLOCK_BYTES as usize));
    let mut block = [0; BLOCK_BYTES as usize];
    for at in ends.chain((0..bytes).step_by(step as usize)) {
        let len = (bytes - at).min(BLOCK_BYTES) as usize;
        read(at, &mut block[..len])?;
        if block[..len].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_at(bytes: u64, data: &[(u64, u8)]) -> Found {
        let read = |at: u64, into: &mut [u8]| {
            into.fill(0);
            let end = at + into.len() as u64;
            for (place, byte) in data.iter().filter(|(place, _)| (at..end).contains(place)) {
                into[(place - at) as usize] = *byte;
            }
            Ok(())
        };
        found_in(bytes, None, &read).unwrap()
    }

    #[test]
    fn what_is_no_zeros_is_somebodys() {
        const GIB: u64 = 1 << 30;
        for bytes in [0, 1, 4095, 4097, 10 << 20, GIB + 5] {
            assert_eq!(found_at(bytes, &[]), Found::Nothing, "{bytes}");
        }
        // ext4's magic, a table of partitions, a copy of it in the last sector, a short note
        for (bytes, at) in [(GIB, 1080), (GIB, 510), (GIB, GIB - 512), (3, 2), (5000, 4999)] {
            assert_eq!(found_at(bytes, &[(at, 7)]), Found::Data, "{at} of {bytes}");
        }
        let all: Vec<(u64, u8)> = (0..GIB).step_by(1 << 20).map(|at| (at + 9, 1)).collect();
        assert_eq!(found_at(GIB, &all[300..700]), Found::Data);
    }
}
