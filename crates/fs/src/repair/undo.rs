//! The undo file: the pages that a repair replaces, and what replaces them.
//!
//! ```text
//!  0  "NSUNDO02"    8  pool UUID    24  u64 pages    32  u32 CRC-32C of bytes 0..32, 0 u32
//! then each page, with the slice whose file it lies in:
//!  0  u32 file       4  u32 sum of the new page     8  u64 offset     16  the old page
//!                 4112  u32 CRC-32C of all that, 0 u32
//! ```
//!
//! The pages are those that are replaced, and of each slice the blocks before its log, which no use
//! of the pool leaves as they are.

use super::Changed;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use pmem::{InFlight, Mapping};
use pool::{BLOCK_BYTES, Candidate, LOG_BLOCK, Pool};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Bytes of a page.
pub const PAGE: usize = 4096;
const MAGIC: &[u8; 8] = b"NSUNDO02";
const HEAD: usize = 40;
const ENTRY: usize = 16 + PAGE + 8;

/// Saves the pages of the media that are to be replaced, durably, to a new file.
pub(super) fn save(path: &Path, pool: &Pool, changed: &[Changed<'_>]) -> Result<()> {
    let io = |source| Error::from(pool::Error::Io { path: path.to_path_buf(), source });
    let file = File::options().write(true).create_new(true).open(path).map_err(io)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let with_heads = |it: &Changed<'_>| heads().chain(it.pages.iter().copied()).collect();
    let all: Vec<BTreeSet<u64>> = changed.iter().map(with_heads).collect();
    let pages: usize = all.iter().map(BTreeSet::len).sum();
    let mut head = MAGIC.to_vec();
    head.extend(pool.slices().first().map_or([0; 16], |slice| slice.superblock.pool_uuid));
    head.extend((pages as u64).to_le_bytes());
    out.write_all(&sealed(head)).map_err(io)?;
    for (Changed { file, copy, behind, .. }, pages) in changed.iter().zip(&all) {
        for page in pages {
            let (mut old, mut new) = ([0; PAGE], [0; PAGE]);
            // what cannot be read is nothing to go back to
            let _ = behind.read(*page, &mut old);
            copy.read_own(*page, &mut new).map_err(pool::Error::from)?;
            let mut entry = file.to_le_bytes().to_vec();
            entry.extend(sum(&new).to_le_bytes());
            entry.extend((copy.file_offset() + page).to_le_bytes());
            entry.extend(old);
            out.write_all(&sealed(entry)).map_err(io)?;
        }
    }
    let file = out.into_inner().map_err(|error| io(error.into_error()))?;
    file.sync_all().map_err(io)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all()).map_err(io)
}

/// The CRC-32C of a page from its last byte to its first. From first to last it would be the same
/// for all roots, as for all that ends with its own CRC-32C.
fn sum(page: &[u8; PAGE]) -> u32 {
    let mut reversed = *page;
    reversed.reverse();
    pmem::crc32c(0, &reversed)
}

/// Offsets of the pages before the log.
fn heads() -> impl Iterator<Item = u64> {
    (0..LOG_BLOCK).map(|block| block * BLOCK_BYTES)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = pmem::crc32c(0, &bytes);
    bytes.extend(crc.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn is_sealed(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<8>().is_some_and(|(rest, seal)| {
        pmem::crc_fits(
            pmem::crc32c(0, rest),
            u32::from_le_bytes([seal[0], seal[1], seal[2], seal[3]]),
        ) && seal[4..] == [0; 4]
    })
}

/// One page of the file.
struct Entry {
    file: u32,
    new: u32,
    offset: u64,
    old: Vec<u8>,
}

/// Puts back what a repair replaced. The pool must be as the repair left it, or as it was before
/// it, or between: then nothing of what came later is lost. Gives the number of pages that it took.
pub fn undo(dir: &Path, file: &Path) -> Result<u64> {
    let (candidates, _) = pool::candidates(dir, &|path| Candidate::open(path, false))?;
    // all of it is looked at before anything is written
    let mut count = 0;
    for write in [false, true] {
        let mut written = InFlight::none();
        entries(file, &candidates, &mut |entry, mapping| {
            let mut found = [0; PAGE];
            let read = mapping.read(entry.offset, &mut found).is_ok();
            let is_known = pmem::crc_fits(sum(&found), entry.new) || found == *entry.old;
            if write && (!read || found != *entry.old) {
                count += 1;
                written = std::mem::replace(&mut written, InFlight::none())
                    .and(mapping.write(entry.offset, &entry.old));
            } else if read && !is_known {
                return Err(wrong("the pool was changed since the repair: nothing was put back"));
            }
            Ok(())
        })?;
        let _ = pmem::fence(written);
        for candidate in &candidates {
            candidate.mapping.sync().map_err(pool::Error::from)?;
        }
    }
    Ok(count)
}

type EachEntry<'a> = &'a mut dyn FnMut(&Entry, &Mapping) -> Result<()>;

fn entries(path: &Path, candidates: &[Candidate], each: EachEntry<'_>) -> Result<()> {
    let io = |source| Error::from(pool::Error::Io { path: path.to_path_buf(), source });
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let mut head = [0; HEAD];
    file.read_exact(&mut head).map_err(io)?;
    let uuid = candidates.first().map(|candidate| candidate.superblock.pool_uuid);
    if head[..8] != *MAGIC || !is_sealed(&head) {
        return Err(wrong("it is no undo file of a repair, or is damaged"));
    }
    if uuid.is_none_or(|uuid| head[8..24] != uuid) {
        return Err(wrong("the undo file is of another pool"));
    }
    let pages = Bytes(&head[24..]).u64().unwrap_or(0);
    for _ in 0..pages {
        let mut bytes = vec![0; ENTRY];
        file.read_exact(&mut bytes).map_err(io)?;
        let entry = entry(&bytes).ok_or_else(|| wrong("the undo file is damaged"))?;
        let file = candidates.iter().find(|it| it.superblock.index.get() == entry.file);
        let file = file.map(|candidate| &candidate.mapping);
        let inside = |mapping: &&Mapping| {
            let end = entry.offset.checked_add(PAGE as u64);
            end.is_some_and(|end| end <= mapping.len())
        };
        let mapping = file.filter(inside).ok_or_else(|| wrong("the undo file is damaged"))?;
        each(&entry, mapping)?;
    }
    Ok(())
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let mut rest = Bytes(bytes);
    let (file, new, offset) = (rest.u32()?, rest.u32()?, rest.u64()?);
    let old = rest.take(PAGE)?.to_vec();
    is_sealed(bytes).then_some(Entry { file, new, offset, old })
}

fn wrong(what: &str) -> Error {
    Error::Damaged(what.to_owned())
}
