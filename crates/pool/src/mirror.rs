//! Mirrored pools: each slice once in its own file, and once in the file of the next one.
//!
//! A slice is read in its own file, and in its mirror where that file is missing, stale or fails.
//! What is stored goes to both, under one fence. A crash may leave them different only in what was
//! under way: recovery reads one of them, and what it takes for done it makes the same in both.

use crate::error::{Error, Result};
use crate::members::{Members, Past};
use crate::open::Recovery;
use crate::options::OpenOptions;
use crate::pool::Pool;
use crate::root::SliceRoot;
use crate::scrub::Scrubbed;
use crate::slice::{Candidate, Slice, superblock_of_half};
use crate::state::{Left, State};
use crate::superblock::{ROOT_BLOCKS, ROOT_COPY_BLOCKS, Superblock};
use locks::Mutex;
use pmem::Mapping;
use std::path::{Path, PathBuf};

/// Whose files are current, of an open pool.
#[derive(Debug)]
pub struct Mirrors {
    members: Mutex<Members>,
    /// The file of each slice, where it is there.
    paths: Vec<Option<PathBuf>>,
    /// Whether the files are still to be told.
    untold: bool,
}

/// A file with its two halves.
struct File {
    path: PathBuf,
    superblock: Superblock,
    own: Option<Mapping>,
    mirror: Option<Mapping>,
    /// What its halves say.
    said: [Option<Members>; 2],
    note: Option<String>,
    current: bool,
}

impl File {
    fn new(candidate: Candidate) -> File {
        let Candidate { path, superblock, mapping, note, .. } = candidate;
        let bytes = superblock.bytes();
        let (own, rest) = mapping.split_at(bytes);
        let (mirror, _) = rest.split_at(bytes);
        let said = [&own, &mirror].map(|half| Members::read(half, &superblock.pool_uuid));
        let (own, mirror) = (Some(own), Some(mirror));
        File { path, superblock, own, mirror, said, note, current: false }
    }

    fn newest(&self) -> Option<&Members> {
        self.said.iter().flatten().max_by_key(|said| said.changes.get())
    }

    /// Whether it has all that one has that said `newest`; an error if it has what that one lacks.
    fn is_current(&self, index: usize, newest: &Members) -> Result<bool> {
        let Some(said) = self.newest() else { return Ok(false) };
        if newest.past(said) != Past::Known {
            return Err(Error::Slices(format!(
                "{} was changed without the others, and they without it; take away either it or \
                 them, and what was changed there is lost",
                self.path.display()
            )));
        }
        // a change of members that was interrupted is known to some only
        let last = said.changes.get() + 1 >= newest.changes.get();
        Ok(last && !newest.is_stale(index))
    }
}

/// Generations of the roots that can be read in a half of a file: the first and the last.
fn generations(half: &Mapping, slice_uuid: &[u8; 16]) -> Option<(u64, u64)> {
    let read = |block| Some(SliceRoot::read(half, block, slice_uuid)?.generation.get());
    let found = || ROOT_BLOCKS.into_iter().chain(ROOT_COPY_BLOCKS).filter_map(read);
    Some((found().min()?, found().max()?))
}

/// A file that is an older copy of itself is behind: its roots are older than both that the other
/// copy of a slice has. A crash leaves every copy with the last complete one at least.
fn take_older(files: &mut [Option<File>]) {
    for index in 0..files.len() {
        let next = (index + 1) % files.len();
        let current = |index: usize| files[index].as_ref().filter(|file| file.current);
        let (Some(file), Some(other)) = (current(index), current(next)) else { continue };
        let of = |half: &Option<Mapping>| generations(half.as_ref()?, &file.superblock.slice_uuid);
        let (Some(own), Some(mirror)) = (of(&file.own), of(&other.mirror)) else { continue };
        let behind = match () {
            () if own.1 < mirror.0 => index,
            () if mirror.1 < own.0 => next,
            () => continue,
        };
        if let Some(file) = &mut files[behind] {
            file.current = false;
        }
    }
}

/// A file that was left open on another medium may lack what was not synced: where the other copies
/// of its two slices lie on their own media still, they have all, and it is brought up to date.
fn take_elsewhere(files: &mut [Option<File>], boot: [u8; 16]) {
    let count = files.len();
    let is_elsewhere = |file: &File| {
        let mut halves = [&file.own, &file.mirror].into_iter().flatten();
        halves.any(|half| State::is_elsewhere(half, boot))
    };
    let elsewhere: Vec<bool> =
        files.iter().map(|file| file.as_ref().is_some_and(is_elsewhere)).collect();
    for index in 0..count {
        let current = |index: usize| files[index].as_ref().is_some_and(|file| file.current);
        let mut others = [(index + 1) % count, (index + count - 1) % count].into_iter();
        if elsewhere[index]
            && others.all(|other| current(other) && !elsewhere[other])
            && let Some(file) = &mut files[index]
        {
            file.current = false;
        }
    }
}

/// The slices that the files found make, each with its mirror, and who is current; or what was
/// found, where the pool is not mirrored.
pub fn join(
    found: Vec<Candidate>,
    options: &OpenOptions,
) -> Result<(Vec<Candidate>, Option<Mirrors>)> {
    if !found.iter().any(|candidate| candidate.superblock.is_mirrored()) {
        return Ok((found, None));
    }
    let mut files = sort(found)?;
    let newest = files.iter().flatten().filter_map(File::newest).max_by_key(|it| it.changes.get());
    let Some(newest) = newest.copied() else {
        return Err(Error::Slices("no file says which of them are current".to_owned()));
    };
    let mut members = newest;
    for (index, file) in files.iter_mut().enumerate() {
        if let Some(file) = file {
            file.current = file.is_current(index, &newest)?;
        }
    }
    take_older(&mut files);
    take_elsewhere(&mut files, options.boot());
    for (index, file) in files.iter().enumerate() {
        members.set_stale(index, !file.as_ref().is_some_and(|file| file.current));
    }
    if members.stale != newest.stale {
        members = members.changed();
    }
    let told = |file: &File| file.said.iter().all(|said| *said == Some(members));
    let mirrors = Mirrors {
        // the stale ones, too: alone they must not be taken for current
        untold: !files.iter().flatten().all(told),
        members: Mutex::new(members),
        paths: files.iter().map(|it| it.as_ref().map(|file| file.path.clone())).collect(),
    };
    let slices = (0..files.len()).map(|index| slice(&mut files, index, options.read_only));
    Ok((slices.collect::<Result<_>>()?, Some(mirrors)))
}

/// The files by the slice that is theirs.
fn sort(found: Vec<Candidate>) -> Result<Vec<Option<File>>> {
    let Some(first) = found.first().map(|candidate| candidate.superblock) else {
        return Ok(Vec::new());
    };
    let mut files: Vec<Option<File>> = Vec::new();
    files.resize_with(first.slices.get() as usize, || None);
    for candidate in found {
        let superblock = &candidate.superblock;
        if !alike(superblock, &first) {
            return Err(Error::Slices(format!(
                "{} is of another kind than the others",
                candidate.path.display()
            )));
        }
        let index = superblock.index.get() as usize;
        match files.get_mut(index) {
            Some(file @ None) => *file = Some(File::new(candidate)),
            _ => return Err(Error::twice(index)),
        }
    }
    Ok(files)
}

fn alike(one: &Superblock, other: &Superblock) -> bool {
    one.pool_uuid == other.pool_uuid
        && one.slices == other.slices
        && one.blocks == other.blocks
        && one.data_copies == other.data_copies
}

/// One slice, from the halves of the two files that have it.
fn slice(files: &mut [Option<File>], index: usize, read_only: bool) -> Result<Candidate> {
    let next = (index + 1) % files.len();
    let mut half = |index: usize, is_own: bool| {
        let file = files[index].as_mut()?;
        let half = if is_own { file.own.take() } else { file.mirror.take() };
        Some((half?, file.path.clone(), file.current))
    };
    let (own, mirror) = (half(index, true), half(next, false));
    let has_own = own.as_ref().is_some_and(|(.., current)| *current);
    let path = own.as_ref().map(|(_, path, _)| path.clone());
    let (first, second) = if has_own { (own, mirror) } else { (mirror, own) };
    let Some((mut mapping, first_path, _)) = first.filter(|(.., current)| *current) else {
        return Err(Error::Slices(format!(
            "slice {index} is lost: neither its file nor that of slice {next}, which has its \
             mirror, is there with all that was written; put one of them back"
        )));
    };
    let file = files[index].as_mut();
    let note = match &path {
        None => Some(format!(
            "slice {index} is missing: the pool is degraded, its mirror in {} is used; put its \
             file back, or make it anew with nearside resilver",
            first_path.display()
        )),
        Some(path) if !has_own => Some(away(path, read_only)),
        Some(_) => file.as_ref().and_then(|file| file.note.clone()),
    };
    let superblock = match file.filter(|_| has_own) {
        Some(file) => file.superblock,
        None => superblock_of_half(&first_path, &mapping, index)?,
    };
    let mirror = second.as_ref().map(|(_, path, _)| path.clone());
    if let Some((second, _, current)) = second {
        mapping.set_mirror(second, current);
    }
    Ok(Candidate { path: first_path, mirror, superblock, mapping, note })
}

fn away(path: &Path, read_only: bool) -> String {
    let then = match read_only {
        true => "it is brought up to date when the pool is next open for writing",
        false => "it is being brought up to date",
    };
    format!("{} {IS_STALE}: {then}", path.display())
}

const IS_STALE: &str = "is stale, as it was away while the pool was changed";

impl Slice {
    /// Its copies: where each lies, and its memory; the stale one, too.
    pub fn copies(&self) -> impl Iterator<Item = (&Path, &Mapping)> {
        let mirror = self.mapping.mirror().or(self.mapping.stale_mirror());
        let mirror = self.mirror.as_deref().zip(mirror);
        std::iter::once((self.path.as_path(), &self.mapping)).chain(mirror)
    }
}

impl Mirrors {
    /// Tells the files who is current, one half at a time, so that each has a whole one.
    fn tell(&self, members: &Members, slices: &[Slice]) -> Result<()> {
        let mut halves = slices.iter().flat_map(Slice::copies);
        Ok(halves.try_for_each(|(_, half)| members.write(half))?)
    }
}

impl Pool {
    /// Tells the files of a mirrored pool who is current, if that is not what they know: before
    /// anything else is written.
    pub(crate) fn tell_members(&self) -> Result<()> {
        let Some(mirrors) = self.mirrors.as_ref().filter(|it| it.untold && !self.read_only())
        else {
            return Ok(());
        };
        mirrors.tell(&mirrors.members.lock(), &self.slices)
    }

    /// A crash may leave the last root in some of its copies only, though nothing follows it in the
    /// log: before anything does, all of them have it.
    pub(crate) fn settle_roots(&self, recovery: &Recovery) -> Result<()> {
        let is_settled = recovery.left == Some(Left::Closed);
        if self.mirrors.is_none() || self.read_only() || is_settled {
            return Ok(());
        }
        self.scrub_heads(&mut Scrubbed::default())?;
        self.sync()
    }

    /// Whether slices have mirrors.
    pub fn has_mirrors(&self) -> bool {
        self.mirrors.is_some()
    }

    /// Slices with a second copy that lacks what was written while its file was away.
    pub fn stale_slices(&self) -> Vec<usize> {
        let stale = |index: &usize| self.slices[*index].mapping.stale_mirror().is_some();
        (0..self.slices.len()).filter(stale).collect()
    }

    /// Makes a part of a stale copy what the other one is. What is stored there at the same time
    /// may be taken back: it is for sure only when nobody stores. Gives the bytes that were copied.
    pub fn copy_to_stale(&self, slice: usize, offset: u64, len: usize) -> Result<usize> {
        let copied = self.slices[slice].mapping.copy_to_mirror(offset, len)?;
        Ok(copied.map_or(0, |written| {
            // what others store there later must not be overtaken by it
            let _ = pmem::fence(written);
            len
        }))
    }

    /// All that is in one copy is in the other, and nobody stores: from now on the files that are
    /// there are current.
    pub fn all_copied(&self) -> Result<()> {
        let Some(mirrors) = &self.mirrors else { return Ok(()) };
        self.sync()?;
        let mut members = mirrors.members.lock();
        let mut now = *members;
        for (index, path) in mirrors.paths.iter().enumerate() {
            now.set_stale(index, path.is_none());
        }
        now = now.changed();
        mirrors.tell(&now, &self.slices)?;
        *members = now;
        self.slices.iter().for_each(|slice| slice.mapping.mirror_is_current());
        self.forget_notes(&|note| note.contains(IS_STALE));
        Ok(())
    }
}
