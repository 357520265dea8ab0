//! Writes that do not wait for each other.

use client::{Answered, Pipeline};
use fs::Error as FsError;
use wire::{DATA_BYTES_MAX, Reply};

use crate::attached::told;
use crate::file::Open;
use crate::{Error, File, Result};

/// Writes to a file that do not wait for each other: see [`File::pipelined`].
#[derive(Debug)]
pub struct Pipelined<'f> {
    file: &'f File,
    there: Option<Pipeline<'f>>,
    /// The first of those that failed.
    failed: Option<Error>,
}

impl File {
    /// Writes, one behind the other, that wait for none of each other where the pool is on another
    /// machine: many of them share an exchange. They are done in order, each at most once, and are
    /// durable when [`finish`](Pipelined::finish) has returned; until then any of them may be.
    /// Where the pool is on this machine each is done at once, and a long one may be where its
    /// answer comes soon.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = nearside::FormatOptions { process: true, ..Default::default() };
    /// # nearside::Pool::format(dir.path(), &options)?;
    /// # let pool = nearside::Pool::open(dir.path())?;
    /// let file = pool.create_file("/records")?;
    /// let mut writes = file.pipelined();
    /// for number in 0..1000u64 {
    ///     writes.write_all_at(&number.to_le_bytes(), number * 8)?;
    /// }
    /// writes.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pipelined(&self) -> Pipelined<'_> {
        let there = match &self.open {
            Open::There(file) => file.pipeline(),
            Open::Here(_) => None,
        };
        Pipelined { file: self, there, failed: None }
    }
}

impl Pipelined<'_> {
    /// Writes all of `data` at `offset`, now or later.
    ///
    /// # Errors
    /// This one cannot be done; or one before it could not, and this one is not.
    pub fn write_all_at(&mut self, data: &[u8], offset: u64) -> Result<()> {
        self.file.need(self.file.flags.write, "writing")?;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let fits = data.len() <= DATA_BYTES_MAX;
        let Some(pipeline) = self.there.as_mut().filter(|_| fits) else {
            self.await_all()?;
            return self.file.write_all_at(data, offset);
        };
        let failed = &mut self.failed;
        let own = fs::outside(data);
        pipeline.begin(&own, offset, &mut |answered| note(failed, answered))?;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Waits until all are durable.
    ///
    /// # Errors
    /// One of them could not be done: those before it were, of those behind it any may have been.
    pub fn finish(mut self) -> Result<()> {
        self.await_all()
    }

    fn await_all(&mut self) -> Result<()> {
        if let Some(pipeline) = &mut self.there {
            while let Some(answered) = pipeline.await_first()? {
                note(&mut self.failed, answered);
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}

/// Notes what became of a write.
fn note(failed: &mut Option<Error>, (reply, len): Answered) {
    let error = match reply {
        Reply::Number(written) if written == len as u64 => return,
        Reply::Number(_) => Error::Files(FsError::NoSpace),
        Reply::Failed(failure) => told(failure),
        _ => Error::Files(FsError::Invalid("an answer that is none")),
    };
    failed.get_or_insert(error);
}
