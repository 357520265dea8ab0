//! A new file in the place of one that a mirrored pool lost.

use crate::directory;
use crate::error::{Error, Result};
use crate::files::{Made, Steps, place};
use crate::format::{EachStep, Half};
use crate::members::MEMBERS_BLOCK;
use crate::mirror;
use crate::options::{OpenOptions, SliceSpec};
use crate::slice::{Candidate, check_domain};
use crate::superblock::{COPIES_MAX, SUPERBLOCK_BLOCK, Superblock};
use crate::used::refuse_but;
use pmem::{Domain, MapOptions, Mapping};
use std::fs::File;
use std::path::Path;
use zerocopy::IntoBytes;

/// Makes the file of slice `index` anew, in the pool's directory or where `path` says: a stale one,
/// which gets everything when the pool is next open for writing. Nobody has the pool open.
pub fn replace_file(
    dir: &Path,
    index: usize,
    path: Option<&Path>,
    each: EachStep<'_>,
) -> Result<()> {
    let (found, _) = directory::candidates(dir, &|path| Candidate::open(path, true))?;
    if found.iter().all(|there| !there.superblock.is_mirrored()) {
        return Err(Error::OneCopy);
    }
    let link = dir.join(format!("slice.{index}"));
    let slice_of = |there: &Candidate| there.superblock.index.get();
    let in_the_way = |it: &&Candidate| it.path == link || slice_of(it) as usize == index;
    if let Some(there) = found.iter().find(in_the_way) {
        return Err(Error::Slices(format!(
            "{} is there, the file of slice {}; take it away first",
            there.path.display(),
            slice_of(there)
        )));
    }
    let reads = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (slices, mirrors) = mirror::join(found, &reads)?;
    let slice = slices.get(index).filter(|_| mirrors.is_some()).ok_or_else(|| {
        Error::Slices(format!("slice {index} is none of a mirrored pool's: nothing can be in it"))
    })?;
    let superblock = slice.superblock;
    path.map_or(Ok(()), |path| refuse_but(path, &superblock.pool_uuid))?;
    if link.is_symlink() {
        // it leads to what is lost: a new file there would be none of this directory's
        std::fs::remove_file(&link).map_err(|source| Error::Io { path: link.clone(), source })?;
    }
    let mut made = Made::default();
    let bytes = superblock.bytes() * u64::from(COPIES_MAX);
    let spec = SliceSpec { path: path.map(Path::to_path_buf), bytes: Some(bytes) };
    let mut steps = Steps::new(each, bytes);
    place(&link, &spec, bytes, (&mut made, &mut steps))?;
    write_heads(&link, &superblock)?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| Error::Io { path: dir.to_path_buf(), source })?;
    made.keep = true;
    Ok(())
}

/// It is this slice's, and says nothing of who is current: so it is stale.
fn write_heads(path: &Path, superblock: &Superblock) -> Result<()> {
    let process = superblock.domain == Domain::Process as u8;
    let mapping = Mapping::open(path, &MapOptions { process, ..MapOptions::default() })?;
    check_domain(path, superblock, &mapping)?;
    let bytes = superblock.bytes();
    if mapping.len() < bytes * u64::from(COPIES_MAX) {
        return Err(Error::Size(format!(
            "{} has {} bytes; the slice and its neighbour's mirror take {}",
            path.display(),
            mapping.len(),
            bytes * u64::from(COPIES_MAX)
        )));
    }
    let [own, mirror] = [0, bytes].map(|from| Half { mapping: &mapping, from });
    own.put(SUPERBLOCK_BLOCK, &[0; 512])?;
    for half in [&own, &mirror] {
        half.put(MEMBERS_BLOCK, &[0; 512])?;
    }
    for block in [superblock.data_block_end(), SUPERBLOCK_BLOCK] {
        own.put(block, superblock.as_bytes())?;
    }
    Ok(())
}
