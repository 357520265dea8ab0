//! Transactions, and reads at one moment.

use fs::{Error as FsError, Expected, Write};
use nearside::{Error, File};
use wire::{DATA_BYTES_MAX, Piece, Reply};

use crate::serve::{Answer, Call};

/// Most pieces of one call.
const PIECES_MAX: usize = 4096;

impl Call<'_> {
    /// The files of pieces, if they are open for that.
    fn files(
        &self,
        pieces: &[Piece],
        allowed: impl Fn(&File) -> nearside::Result<()>,
    ) -> nearside::Result<Vec<File>> {
        if pieces.len() > PIECES_MAX {
            return Err(Error::Files(FsError::TooLong));
        }
        let file = |piece: &Piece| {
            let file = self.file(piece.file)?;
            allowed(&file).map(|()| file)
        };
        pieces.iter().map(file).collect()
    }

    pub fn commit(self, writes: &[Piece], expected: &[Piece]) -> Answer {
        let written = self.files(writes, |file| file.check_writable())?;
        let read = self.files(expected, |file| file.check_readable())?;
        let mut rest = self.data;
        let mut next = |piece: &Piece| {
            let data = rest.split_off(..piece.len as usize);
            data.ok_or(Error::Files(FsError::Invalid("pieces are longer than their bytes")))
        };
        let mut all = Vec::with_capacity(writes.len());
        for (piece, file) in writes.iter().zip(&written) {
            let data = next(piece)?;
            all.push(Write { file: file.handle()?, offset: piece.offset, data });
        }
        let mut still = Vec::with_capacity(expected.len());
        for (piece, file) in expected.iter().zip(&read) {
            let data = next(piece)?;
            still.push(Expected { file: file.handle()?, offset: piece.offset, data });
        }
        let fs = self.session.pool.fs();
        fs.commit(&all, &still)?;
        fs.sync()?;
        Ok(Reply::Done)
    }

    pub fn read_together(self, pieces: &[Piece]) -> Answer {
        let files = self.files(pieces, |file| file.check_readable())?;
        let len: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        if len > DATA_BYTES_MAX as u64 {
            return Err(Error::Files(FsError::TooLong));
        }
        self.answer.resize(len as usize, 0);
        let mut rest = &mut self.answer[..];
        let mut reads = Vec::with_capacity(pieces.len());
        for (piece, file) in pieces.iter().zip(&files) {
            let (part, after) = rest.split_at_mut(piece.len as usize);
            rest = after;
            reads.push((&**file.handle()?, piece.offset, part));
        }
        self.session.pool.fs().read_together(&mut reads)?;
        Ok(Reply::Done)
    }
}
