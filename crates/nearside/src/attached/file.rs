//! A file that the service has open for this process.

use std::sync::Arc;

use client::{FileLeases, LeasedWrites, Pipeline};
use fs::{Ino, LockKind};
use wire::{DATA_BYTES_MAX, Reply, Request};

use super::{Attached, nonsense, told};
use crate::{Metadata, Result};

/// An open file.
#[derive(Debug)]
pub(crate) struct AttachedFile {
    attached: Attached,
    number: u64,
    ino: Ino,
    /// What this process writes of it by itself.
    leases: Arc<FileLeases>,
}

impl AttachedFile {
    pub(crate) fn new(attached: Attached, number: u64, ino: Ino) -> AttachedFile {
        let leases = attached.session.leases_of(ino.0);
        AttachedFile { attached, number, ino, leases }
    }

    /// Whose it is.
    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The number of its inode.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// Refuses a forked child.
    pub(crate) fn own(&self) -> Result<()> {
        self.attached.own()
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if buffer.len() > client::READ_MAX {
            return self.attached.read_at(self.number, buffer, offset);
        }
        self.own()?;
        fs::check_buffer(buffer)?;
        match self.attached.session.read((self.number, self.ino.0), offset, buffer)? {
            (Reply::Failed(failure), _) => Err(told(failure)),
            (_, read) => Ok(read),
        }
    }

    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        // no page of a region is waited for while a lane is held
        let own = fs::outside(if data.len() <= client::BYTES_MAX { data } else { &[] });
        if self.write_leased(&[(offset, &own)])? {
            return Ok(data.len());
        }
        let mut done = 0;
        for piece in data.chunks(DATA_BYTES_MAX) {
            let offset = offset.saturating_add(done as u64);
            let request = Request::Write { file: self.number, offset };
            match self.attached.number(&request, piece) {
                Ok(written) => {
                    done += written as usize;
                    if (written as usize) < piece.len() {
                        break;
                    }
                }
                // what was written before is, and is said
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// For writes that do not wait for each other, where there is a gain in that.
    pub(crate) fn pipeline(&self) -> Option<Pipeline<'_>> {
        Pipeline::new(&self.attached.session, self.number)
    }

    /// Writes under a lease, in one step; false: it is to go through the service.
    pub(crate) fn write_leased(&self, all: &[(u64, &[u8])]) -> Result<bool> {
        let writes = LeasedWrites { file: self.number, all };
        Ok(self.leases.write(&self.attached.session, &writes)?)
    }

    pub(crate) fn append(&self, data: &[u8]) -> Result<u64> {
        let mut pieces = data.chunks(DATA_BYTES_MAX);
        let first = pieces.next().unwrap_or_default();
        let offset = self.attached.number(&Request::Append(self.number), first)?;
        for piece in pieces {
            self.attached.number(&Request::Append(self.number), piece)?;
        }
        Ok(offset)
    }

    pub(crate) fn copy_to(
        &self,
        offset: u64,
        to: &AttachedFile,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        // the service copies a part, and is asked again
        let mut done = 0;
        while done < len {
            let from = (self.number, offset.saturating_add(done));
            let to = (to.number, to_offset.saturating_add(done));
            match self.attached.number(&Request::Copy { from, to, len: len - done }, &[]) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // what was copied before is, and is said
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(crate) fn metadata(&self) -> Result<Metadata> {
        match self.attached.ask(&Request::FileAttributes(self.number))? {
            Reply::Attributes(attributes) => Ok(attributes.into()),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> Result<()> {
        self.attached.act(&Request::SetLength(self.number, bytes))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.attached.sync()
    }

    pub(crate) fn punch_hole(&self, offset: u64, bytes: u64) -> Result<()> {
        self.attached.act(&Request::PunchHole(self.number, offset, bytes))
    }

    pub(crate) fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.attached.act(&Request::Allocate(self.number, offset, bytes))
    }

    pub(crate) fn seek(&self, offset: u64, to_data: bool) -> Result<u64> {
        self.attached.number(&Request::Seek(self.number, offset, to_data), &[])
    }

    /// Changes locks; false where another one's is in the way and it is not waited for.
    pub(crate) fn lock(
        &self,
        kind: LockKind,
        (start, end): (u64, u64),
        wait: bool,
    ) -> Result<bool> {
        let request = Request::Lock { file: self.number, kind, start, end, wait };
        Ok(self.attached.ask(&request)? != Reply::Nothing)
    }
}

impl Attached {
    /// Reads of the file of this number.
    pub(crate) fn read_at(&self, file: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        for piece in buffer.chunks_mut(DATA_BYTES_MAX) {
            let offset = offset.saturating_add(done as u64);
            let request = Request::Read { file, offset, len: piece.len() as u32 };
            let read = self.exchange(&request, &[], piece)?.1;
            done += read;
            if read < piece.len() {
                break;
            }
        }
        Ok(done)
    }
}

impl Drop for AttachedFile {
    fn drop(&mut self) {
        if self.own().is_ok() {
            if Arc::strong_count(&self.leases) == 1 {
                self.leases.give_back(&self.attached.session);
            }
            // where the service is gone, it is closed
            let _ = self.attached.act(&Request::Close(self.number));
        }
    }
}
