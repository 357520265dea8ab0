//! Transactions, and reads at one moment.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fs::{Error as FsError, Expected, Ino, Write};
use nearside::{Error, File};
use parking_lot::Mutex;
use wire::{DATA_BYTES_MAX, Piece, Reply};

use crate::line::Line;
use crate::serve::{Answer, Call};

/// Most pieces of one call.
const PIECES_MAX: usize = 4096;
/// Most pieces of a transaction.
const ALL_PIECES_MAX: usize = 1 << 20;
/// Bytes that a process has staged, at most, and all processes have.
const OWN_BYTES_MAX: usize = 64 << 20;
const ALL_BYTES_MAX: usize = 512 << 20;
/// Transactions that a process has staged, at most.
const STAGED_MAX: usize = 256;
/// What a piece takes besides its bytes.
const PIECE_BYTES: usize = 64;

/// Pieces of a transaction, and where in its bytes theirs are.
#[derive(Debug, Default)]
struct Parts {
    writes: Vec<(File, u64, Range<usize>)>,
    expected: Vec<(File, u64, Range<usize>)>,
    bytes: Vec<u8>,
}

impl Parts {
    fn len(&self) -> usize {
        self.writes.len() + self.expected.len()
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.len() * PIECE_BYTES
    }
}

/// What the transactions of a session have staged.
#[derive(Debug)]
pub struct Stage {
    all: Mutex<HashMap<u64, Parts>>,
    /// Bytes of all sessions.
    taken: Arc<AtomicUsize>,
}

impl Stage {
    /// Nothing; `taken`: what all sessions have staged.
    pub fn new(taken: Arc<AtomicUsize>) -> Stage {
        Stage { all: Mutex::default(), taken }
    }

    fn take(&self, number: u64) -> Option<Parts> {
        let parts = self.all.lock().remove(&number)?;
        self.taken.fetch_sub(parts.size(), Ordering::Relaxed);
        Some(parts)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.all.lock());
        let size = all.values().map(Parts::size).sum();
        self.taken.fetch_sub(size, Ordering::Relaxed);
    }

    fn add(&self, number: u64, parts: Parts) -> Result<(), FsError> {
        let size = parts.size();
        let more = |taken: usize| (taken + size <= ALL_BYTES_MAX).then_some(taken + size);
        let mut all = self.all.lock();
        let own: usize = all.values().map(Parts::size).sum();
        let is_new = !all.contains_key(&number);
        let before = all.get(&number).map_or(0, Parts::len);
        if own + size > OWN_BYTES_MAX
            || is_new && all.len() >= STAGED_MAX
            || before + parts.len() > ALL_PIECES_MAX
        {
            return Err(FsError::TooLong);
        }
        let order = Ordering::Relaxed;
        if self.taken.fetch_update(order, order, more).is_err() {
            let words = "processes have staged as much as they may; try again".to_owned();
            let errno = rustix::io::Errno::NOMEM.raw_os_error();
            return Err(FsError::Elsewhere { errno, words });
        }
        let staged = all.entry(number).or_default();
        let from = staged.bytes.len();
        let moved = |(file, offset, at): (File, u64, Range<usize>)| {
            (file, offset, from + at.start..from + at.end)
        };
        staged.bytes.extend_from_slice(&parts.bytes);
        staged.writes.extend(parts.writes.into_iter().map(moved));
        staged.expected.extend(parts.expected.into_iter().map(moved));
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.clear();
    }
}

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

    /// Pieces with their bytes, which came with the call.
    fn parts(&self, writes: &[Piece], expected: &[Piece]) -> nearside::Result<Parts> {
        let written = self.files(writes, |file| file.check_writable())?;
        let read = self.files(expected, |file| file.check_readable())?;
        let mut at = 0;
        let mut part = |(piece, file): (&Piece, File)| {
            let range = at..at + piece.len as usize;
            at = range.end;
            match range.end <= self.data.bytes() {
                true => Ok((file, piece.offset, range)),
                false => Err(Error::Files(FsError::Invalid("pieces are longer than their bytes"))),
            }
        };
        Ok(Parts {
            writes: writes.iter().zip(written).map(&mut part).collect::<Result<_, _>>()?,
            expected: expected.iter().zip(read).map(&mut part).collect::<Result<_, _>>()?,
            bytes: Vec::new(),
        })
    }

    pub fn stage(self, number: u64, writes: &[Piece], expected: &[Piece]) -> Answer {
        let mut parts = self.parts(writes, expected)?;
        parts.bytes.extend_from_slice(self.data.here());
        self.session.stage.add(number, parts)?;
        if self.session.has_ended() {
            self.session.stage.clear();
        }
        Ok(Reply::Done)
    }

    pub fn unstage(self, number: u64) -> Answer {
        drop(self.session.stage.take(number));
        Ok(Reply::Done)
    }

    pub fn commit(
        self,
        (staged, pieces): (u64, u32),
        writes: &[Piece],
        expected: &[Piece],
    ) -> Answer {
        let own = self.parts(writes, expected)?;
        let before = if staged == 0 { None } else { self.session.stage.take(staged) };
        let before = before.unwrap_or_default();
        if before.len() != pieces as usize {
            return Ok(Reply::Nothing);
        }
        let all = [(&before, &before.bytes[..]), (&own, self.data.here())];
        let (mut changes, mut still) = (Vec::new(), Vec::new());
        for (parts, bytes) in all {
            for (file, offset, at) in &parts.writes {
                let data = &bytes[at.clone()];
                changes.push(Write { file: file.handle()?, offset: *offset, data });
            }
            for (file, offset, at) in &parts.expected {
                let data = &bytes[at.clone()];
                still.push(Expected { file: file.handle()?, offset: *offset, data });
            }
        }
        let fs = self.session.pool.fs();
        self.session.pool.changing(|| fs.commit(&changes, &still))?;
        fs.sync()?;
        Ok(Reply::Done)
    }

    pub fn read_together(self, pieces: &[Piece], watched: &[u64]) -> Answer {
        let session = self.session;
        let files = self.files(pieces, |file| file.check_readable())?;
        let len: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let counts_len = watched.len() * 2 * size_of::<u64>();
        if len + counts_len as u64 > DATA_BYTES_MAX as u64 || watched.len() > PIECES_MAX {
            return Err(Error::Files(FsError::TooLong));
        }
        let fs = session.pool.fs();
        let watch = |number: &u64| session.opened.watch(fs, *number);
        let watches = watched.iter().map(watch).collect::<nearside::Result<Vec<_>>>()?;
        self.answer.resize(counts_len + len as usize, 0);
        let (counts, mut rest) = self.answer.split_at_mut(counts_len);
        let mut count = |from: usize| {
            let places = counts.chunks_exact_mut(size_of::<u64>()).skip(from);
            for (place, watch) in places.zip(&watches) {
                place.copy_from_slice(&watch.changes().to_le_bytes());
            }
        };
        let mut reads = Vec::with_capacity(pieces.len());
        for (piece, file) in pieces.iter().zip(&files) {
            let (part, after) = rest.split_at_mut(piece.len as usize);
            rest = after;
            reads.push((&**file.handle()?, piece.offset, part));
        }
        let inos: BTreeSet<Ino> = reads.iter().map(|(file, ..)| file.ino()).collect();
        let closed = session.lane.close(inos.into_iter());
        count(0);
        fs.read_together(&mut reads)?;
        drop(closed);
        // what led to something that was read here is counted, though it lies in a lane
        for number in watched {
            fs.settle(session.opened.file(*number)?.handle()?);
        }
        count(watches.len());
        Ok(Reply::Number(session.service()))
    }

    /// Makes a copy for the process.
    pub fn map(self, number: u64, file: u64, bytes: (u64, u64)) -> Answer {
        let file = self.file(file)?;
        file.check_readable()?;
        let session = self.session;
        let user = session.user();
        if let Line::Stream(stream) = &session.line {
            let (fs, handle) = (session.pool.fs(), file.handle()?);
            session.copies.map_there(fs, (number, user), handle, bytes, stream)?;
            return Ok(Reply::Done);
        }
        let said = wire::Said::Copy { copy: number };
        let give = |memory: std::os::fd::BorrowedFd<'_>| session.send(&said, &[memory]);
        session.copies.map(session.pool.fs(), (number, user), file.handle()?, bytes, give)?;
        Ok(Reply::Done)
    }
}
