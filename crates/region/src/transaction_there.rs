//! Transactions of a pool that a service has: what they read and commit there.

use crate::error::{Error, Result};
use crate::region::Inner;
use crate::regions::Regions;
use crate::service::Bytes;
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

fn bytes_of<'r>(piece: &Piece, bytes: &'r [u8]) -> Result<Bytes<'r>> {
    let (file, offset) = (piece.region.there()?, piece.offset);
    Ok(Bytes { file, offset, data: &bytes[piece.at.clone()] })
}

impl Room {
    /// Reads bytes to `at`, and all that was read before again, at one moment. False: not all of
    /// that is there any more.
    pub(crate) fn see_there(
        &mut self,
        region: &Arc<Inner>,
        place: u64,
        at: Range<usize>,
        is_expected: bool,
    ) -> Result<bool> {
        let service = region.shared.service().ok_or(Error::OtherPool)?;
        let mut places = vec![(region.there()?, place, at.len())];
        for read in &self.reads {
            places.push((read.region.there()?, read.offset, read.at.len()));
        }
        let mut now = vec![0; places.iter().map(|(.., len)| len).sum()];
        service.read_together(&places, &mut now)?;
        let (new, mut again) = now.split_at(at.len());
        for read in &self.reads {
            let (one, rest) = again.split_at(read.at.len());
            if self.bytes[read.at.clone()] != *one {
                return Ok(false);
            }
            again = rest;
        }
        self.bytes.resize(at.end, 0);
        self.bytes[at.clone()].copy_from_slice(new);
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
        let writes = self.writes.iter().map(|it| bytes_of(it, &self.bytes));
        let expected = self.reads.iter().filter(|it| it.is_expected);
        let expected = expected.map(|it| bytes_of(it, &self.bytes));
        let writes: Vec<_> = writes.collect::<Result<_>>()?;
        service.commit(&writes, &expected.collect::<Result<Vec<_>>>()?)
    }
}
