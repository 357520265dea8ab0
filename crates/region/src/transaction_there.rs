//! Transactions of a pool that a service has: what they read and commit there.

use crate::error::{Error, Result};
use crate::region::Inner;
use crate::regions::Regions;
use crate::service::{Bytes, Seen};
use crate::transaction::{Piece, Room};
use std::ops::Range;
use std::sync::Arc;

impl Inner {
    /// Reads bytes of the file that are committed; gives how many there are before its end.
    pub(crate) fn read_there(&self, place: u64, buffer: &mut [u8]) -> Result<usize> {
        let service = self.shared.service().ok_or(Error::OtherPool)?;
        service.read(self.there()?, place, buffer)
    }
}

fn bytes_of<'r>(piece: &'r Piece, bytes: &'r [u8]) -> Result<Bytes<'r>> {
    let (file, offset) = (piece.region.served()?, piece.offset);
    Ok(Bytes { file, offset, data: &bytes[piece.at.clone()] })
}

/// The files that were read, and how far they had changed when all that was read was there.
#[derive(Debug, Default)]
pub(crate) struct SeenThere {
    /// Whose numbers they are.
    service: u64,
    files: Vec<u64>,
    changes: Vec<u64>,
}

impl SeenThere {
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.changes.clear();
    }

    /// Whether nothing of the files before the last one has changed since, nor did while it was
    /// read.
    fn is_as_it_was(&self, now: &Seen) -> bool {
        let known = self.changes.len();
        let is_same = |all: &[u64]| all.get(..known) == Some(&self.changes[..]);
        known == 0 || self.service == now.service && is_same(&now.before) && is_same(&now.after)
    }

    /// All that was read was there when this began to be read.
    fn note(&mut self, now: Seen) {
        (self.service, self.changes) = (now.service, now.before);
    }
}

impl Room {
    /// Reads bytes to `at`, at the moment of all that was read before. False: not all of that is
    /// there any more.
    pub(crate) fn see_there(
        &mut self,
        region: &Arc<Inner>,
        place: u64,
        at: Range<usize>,
        is_expected: bool,
    ) -> Result<bool> {
        let service = region.shared.service().ok_or(Error::OtherPool)?;
        let file = region.there()?;
        if !self.seen.files.contains(&file) {
            self.seen.files.push(file);
        }
        self.bytes.resize(at.end, 0);
        let (before, new) = self.bytes.split_at_mut(at.start);
        let one = [(file, place, at.len())];
        let seen = service.read_together(&one, &self.seen.files, new)?;
        if self.seen.is_as_it_was(&seen) {
            let known = self.seen.changes.len();
            self.seen.service = seen.service;
            self.seen.changes.extend_from_slice(&seen.before[known..]);
        } else {
            let place_of = |read: &Piece| Ok((read.region.there()?, read.offset, read.at.len()));
            let mut places = self.reads.iter().map(place_of).collect::<Result<Vec<_>>>()?;
            places.extend(one);
            let mut all = vec![0; places.iter().map(|(.., len)| len).sum()];
            let seen = service.read_together(&places, &self.seen.files, &mut all)?;
            self.seen.note(seen);
            let mut rest = &all[..];
            for read in &self.reads {
                let (again, others) = rest.split_at(read.at.len());
                if before[read.at.clone()] != *again {
                    return Ok(false);
                }
                rest = others;
            }
            new.copy_from_slice(rest);
        }
        self.reads.push(Piece { region: region.clone(), offset: place, at, is_expected });
        Ok(true)
    }

    /// Makes all that was written happen.
    pub(crate) fn commit_there(&self, regions: &Regions) -> Result<()> {
        if self.writes.is_empty() {
            // reads were of one moment
            return Ok(());
        }
        let service = regions.service().ok_or(Error::OtherPool)?;
        if let ([one], []) = (&self.writes[..], &self.reads[..]) {
            return service.commit(&[bytes_of(one, &self.bytes)?], &[]);
        }
        let writes = self.writes.iter().map(|it| bytes_of(it, &self.bytes));
        let expected = self.reads.iter().filter(|it| it.is_expected);
        let expected = expected.map(|it| bytes_of(it, &self.bytes));
        let writes: Vec<_> = writes.collect::<Result<_>>()?;
        service.commit(&writes, &expected.collect::<Result<Vec<_>>>()?)
    }
}
