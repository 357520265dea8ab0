//! Regions: the service keeps a copy of each for this process; or, over a network, says what is in
//! that which this process keeps.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use client::{Mapping, Refused};
use region::{
    Bytes, Error as RegionError, Region, Regions, Seen, ServedFile, Service, Settings, Shows,
};
use wire::{DATA_BYTES_MAX, Piece, Reply, Request};

use super::{Attached, AttachedFile, nonsense, told};
use crate::{Error, Result};

type Done<T> = region::Result<T>;

/// Pieces of one call, at most: their places fit into a message.
const PIECES_MAX: usize = 512;
/// How often a transaction is sent whole to one service after the other, each of which died before
/// it had all of it.
const STAGES_MAX: u32 = 16;

/// Memory for copies, at least: each of those who bring pages brings so many at a time.
const MEMORY_BYTES_MIN: u64 = 256 << 10;

const _: () = assert!(PIECES_MAX * 26 + 64 <= wire::MESSAGE_BYTES_MAX, "varints of each piece");

impl Attached {
    pub(crate) fn regions(&self, settings: &Settings) -> Result<Regions> {
        self.own()?;
        self.session.set_copies_bytes(settings.memory_bytes.max(MEMORY_BYTES_MIN));
        let service: Arc<dyn Service> = Arc::new(self.clone());
        Ok(Regions::served(&service, settings)?)
    }

    pub(crate) fn map(
        &self,
        regions: &Regions,
        file: &Arc<AttachedFile>,
        (offset, bytes): (u64, u64),
        is_writable: bool,
    ) -> Result<Region> {
        self.own()?;
        if !file.attached().is(self) {
            return Err(RegionError::OtherPool.into());
        }
        let served = ServedFile { number: file.number(), ino: file.ino().0, open: file.clone() };
        Ok(Region::map_served(regions, &served, offset, bytes, is_writable)?)
    }

    /// Makes a small transaction of one file happen under a lease. False: it is to go through the
    /// service.
    fn commit_leased(&self, writes: &[Bytes<'_>]) -> Result<bool> {
        let Some((first, rest)) = writes.split_first() else { return Ok(true) };
        let file = first.file.open.downcast_ref::<AttachedFile>();
        let Some(file) = file.filter(|_| writes.len() <= client::WRITES_MAX) else {
            return Ok(false);
        };
        self.own()?;
        if rest.is_empty() {
            return file.write_leased(&[(first.offset, first.data)]);
        }
        // a page of one file may be had by several numbers
        if rest.iter().any(|other| other.file.ino != first.file.ino) {
            return Ok(false);
        }
        let all: Vec<_> = writes.iter().map(|it| (it.offset, it.data)).collect();
        file.write_leased(&all)
    }

    /// Makes a transaction that is longer than a call happen: its parts are staged first. False:
    /// the service has not all of them, as it is another one than at first.
    fn commit_staged(&self, parts: &[Part<'_>], last: &Part<'_>) -> Result<bool> {
        let staged = self.session.number();
        let outcome = parts.iter().try_for_each(|part| -> Result<()> {
            let (writes, expected) = part.pieces();
            self.exchange(&Request::Stage { staged, writes, expected }, &part.data(), &mut [])?;
            Ok(())
        });
        if outcome.is_err() {
            // where the service is gone, so is what was staged
            let _ = self.act(&Request::Unstage(staged));
        }
        outcome?;
        let pieces = parts.iter().map(|part| part.0.len() as u32).sum();
        let (writes, expected) = last.pieces();
        let request = Request::Commit { staged, pieces, writes, expected };
        Ok(self.exchange(&request, &last.data(), &mut [])?.0 != Reply::Nothing)
    }
}

/// What goes with one call: pieces of a transaction, and whether each is written.
#[derive(Debug, Default)]
struct Part<'d>(Vec<(Bytes<'d>, bool)>);

impl<'d> Part<'d> {
    fn of(&self, is_written: bool) -> impl Iterator<Item = &Bytes<'d>> {
        self.0.iter().filter(move |(_, written)| *written == is_written).map(|(bytes, _)| bytes)
    }

    fn pieces(&self) -> (Vec<Piece>, Vec<Piece>) {
        let piece = |it: &Bytes<'_>| {
            let (file, offset, len) = (it.file.number, it.offset, it.data.len() as u32);
            Piece { file, offset, len }
        };
        (self.of(true).map(piece).collect(), self.of(false).map(piece).collect())
    }

    /// The bytes, in the order of the pieces.
    fn data(&self) -> Cow<'d, [u8]> {
        if let [(one, _)] = &self.0[..] {
            return one.data.into();
        }
        self.of(true).chain(self.of(false)).map(|it| it.data).collect::<Vec<_>>().concat().into()
    }
}

/// Cuts a transaction into parts, each of which goes with one call; one at least.
fn parts<'d>(writes: &[Bytes<'d>], expected: &[Bytes<'d>]) -> Vec<Part<'d>> {
    let mut parts = vec![Part::default()];
    let mut room = DATA_BYTES_MAX;
    let all = writes.iter().map(|it| (it, true)).chain(expected.iter().map(|it| (it, false)));
    for (bytes, is_written) in all {
        let Bytes { file, mut offset, mut data } = *bytes;
        while !data.is_empty() {
            if room == 0 || parts.last().is_some_and(|part| part.0.len() == PIECES_MAX) {
                parts.push(Part::default());
                room = DATA_BYTES_MAX;
            }
            let (now, rest) = data.split_at(data.len().min(room));
            if let Some(part) = parts.last_mut() {
                part.0.push((Bytes { file, offset, data: now }, is_written));
            }
            (offset, room, data) = (offset + now.len() as u64, room - now.len(), rest);
        }
    }
    parts
}

/// An error of the library's, as those of regions are.
fn as_regions(error: Error) -> RegionError {
    match error {
        Error::Region(error) => error,
        Error::Files(error) => RegionError::File(error),
        Error::Forked { .. } => RegionError::Forked,
        other => RegionError::File(fs::Error::Elsewhere {
            errno: other.errno(),
            words: other.to_string(),
        }),
    }
}

/// A reply of the service, if it is no failure.
fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Failed(failure) => Err(told(failure)),
        _ => Ok(()),
    }
}

/// What of a region is shown to those who load from it, as long as there is the region.
#[derive(Debug)]
struct Shown(Weak<dyn Shows>);

impl client::Shows for Shown {
    fn show(&self, memory: Option<OwnedFd>) {
        self.0.upgrade().inspect(|region| region.show(memory));
    }

    fn can_store(&self) -> bool {
        // nobody loads from one that is gone
        self.0.upgrade().is_none_or(|region| region.can_store())
    }

    fn store(&self, offset: u64, data: &[u8]) {
        self.0.upgrade().inspect(|region| region.store(offset, data));
    }

    fn expect(&self, page: u64, pages: u64) {
        self.0.upgrade().inspect(|region| region.expect(page, pages));
    }
}

impl Service for Attached {
    fn map(
        &self,
        file: &ServedFile,
        (offset, bytes): (u64, u64),
        make: &mut dyn FnMut(u64, OwnedFd) -> Done<Weak<dyn Shows>>,
    ) -> Done<()> {
        let (file, ino) = (file.number, file.ino);
        let made = self.session.map(Mapping { file, ino, offset, bytes }, |copy, memory| {
            let shows: Arc<dyn client::Shows> = Arc::new(Shown(make(copy, memory)?));
            Ok(shows)
        });
        match made.map_err(|error| as_regions(error.into()))? {
            Ok(()) => Ok(()),
            Err(Refused::Make(error)) => Err(error),
            Err(Refused::Service(reply)) => {
                Err(as_regions(done(reply).err().unwrap_or_else(nonsense)))
            }
        }
    }

    fn unmap(&self, copy: u64) {
        self.session.unmap(copy);
    }

    fn fill(&self, copy: u64, page: u64, pages: usize) -> Done<()> {
        let reply = self.session.fill(copy, page, u32::try_from(pages).unwrap_or(u32::MAX));
        reply.map_err(Error::from).and_then(done).map_err(as_regions)
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        self.read_at(file, buffer, offset).map_err(as_regions)
    }

    fn read_together(
        &self,
        places: &[(u64, u64, usize)],
        files: &[u64],
        buffer: &mut [u8],
    ) -> Done<Seen> {
        self.read_all(places, files, buffer).map_err(as_regions)
    }

    fn commit(&self, writes: &[Bytes<'_>], expected: &[Bytes<'_>]) -> Done<()> {
        if expected.is_empty() && self.commit_leased(writes).map_err(as_regions)? {
            return Ok(());
        }
        let parts = parts(writes, expected);
        let Some((last, first)) = parts.split_last() else { return Ok(()) };
        if first.is_empty() {
            let (writes, expected) = last.pieces();
            let request = Request::Commit { staged: 0, pieces: 0, writes, expected };
            let data = last.data();
            return self.exchange(&request, &data, &mut []).map(drop).map_err(as_regions);
        }
        for _ in 0..STAGES_MAX {
            if self.commit_staged(first, last).map_err(as_regions)? {
                return Ok(());
            }
        }
        Err(as_regions(client::Error::Lost.into()))
    }
}
