//! An open file: positional reads and writes from many threads.

use std::sync::Arc;

use fs::{Arrival, Caller, Error as FsError, Fallocate, FileSystem, Handle};

use crate::attached::{AttachedFile, owners_alone};
use crate::pool_door::Owned;
use crate::{Error, Metadata, OpenFlags, Result, owner};

/// Bytes that are copied at once between two pools.
const COPY_BYTES: u64 = 1 << 20;

/// An open file. It stays readable and writable also when its name is removed.
///
/// There is no position: every call says its offset, so that threads can share a file without a
/// lock. Every write of up to [`fs::ATOMIC_WRITE_BYTES_MAX`] bytes is atomic: a crash leaves all
/// of it or nothing, and a reader sees all of it or nothing. A larger one is a row of such pieces.
///
/// ```
/// # fn main() -> nearside::Result<()> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let options = nearside::FormatOptions {
/// #     slices: vec![nearside::SliceSpec::default()], slice_bytes: 32 << 20,
/// #     process: true, ..nearside::FormatOptions::default() };
/// # nearside::Pool::format(scratch.path(), &options)?;
/// # let pool = nearside::Pool::open(scratch.path())?;
/// let file = pool.create_file("/data")?;
/// std::thread::scope(|threads| {
///     for part in 0..4u8 {
///         let file = &file;
///         threads.spawn(move || file.write_all_at(&[part; 4096], u64::from(part) * 4096));
///     }
/// });
/// let mut block = [0; 4096];
/// file.read_exact_at(&mut block, 2 * 4096)?;
/// assert_eq!(block, [2; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) open: Open,
    pub(crate) flags: OpenFlags,
}

/// Where it is open.
#[derive(Clone, Debug)]
pub(crate) enum Open {
    /// In this process.
    Here(OpenHere),
    /// In the process that owns the pool.
    There(Arc<AttachedFile>),
}

/// A file of a pool that this process has open.
#[derive(Clone, Debug)]
pub(crate) struct OpenHere {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) handle: Arc<Handle>,
    /// For whom it was opened; his rights were looked at then.
    caller: Option<Arc<Caller>>,
}

impl File {
    pub(crate) fn here(pool: &Owned, handle: Arc<Handle>, flags: OpenFlags) -> File {
        let (fs, caller) = (pool.fs.clone(), pool.caller.clone());
        File { open: Open::Here(OpenHere { fs, handle, caller }), flags }
    }

    pub(crate) fn there(file: AttachedFile, flags: OpenFlags) -> File {
        File { open: Open::There(Arc::new(file)), flags }
    }

    /// Reads at `offset`; returns the bytes read, fewer than asked for only at the end.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.need(self.flags.read, "reading")?;
        match &self.open {
            Open::Here(file) => Ok(file.fs.read(&file.handle, offset, buffer)?),
            Open::There(file) => file.read_at(buffer, offset),
        }
    }

    /// Fills `buffer` from `offset` on, or fails with [`Error::UnexpectedEnd`].
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.read_at(buffer, offset)?;
        match buffer.len() - bytes {
            0 => Ok(()),
            missing => Err(Error::UnexpectedEnd { missing }),
        }
    }

    /// Writes at `offset`; returns the bytes written, fewer than given only when the pool filled
    /// up between two atomic pieces.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.need(self.flags.write, "writing")?;
        match &self.open {
            Open::Here(file) => Ok(file.changing(|| file.fs.write(&file.handle, offset, data))?),
            Open::There(file) => file.write_at(data, offset),
        }
    }

    /// Begins a write of so many bytes that come by and by, in their order; `None`: they are to be
    /// collected, and written when all are there. For services, which get them so.
    #[doc(hidden)]
    pub fn begin_write_at(&self, offset: u64, len: usize) -> Option<Arrival> {
        match &self.open {
            Open::Here(file) if self.flags.write => file.fs.begin_write(&file.handle, offset, len),
            _ => None,
        }
    }

    /// Ends such a write of this file, all of whose bytes have come: it happens as one.
    #[doc(hidden)]
    pub fn end_write(&self, arrival: Arrival) -> Result<usize> {
        self.need(self.flags.write, "writing")?;
        match &self.open {
            Open::Here(file) => Ok(file.changing(|| file.fs.end_write(arrival))?),
            Open::There(_) => Err(FsError::Unsupported("bytes that come by and by").into()),
        }
    }

    /// Writes all of `data` at `offset`, or fails; on failure a first part may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_at(&data[done..], offset.saturating_add(done as u64))? {
                0 => return Err(FsError::NoSpace.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Writes at the end, atomically against all others who append; returns the offset where the
    /// data went.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.need(self.flags.changes(), "appending")?;
        match &self.open {
            Open::Here(file) => Ok(file.changing(|| file.fs.append(&file.handle, data))?),
            Open::There(file) => file.append(data),
        }
    }

    /// Copies `bytes` from `offset` on to `to`, at `to_offset` there; returns the bytes copied,
    /// fewer than asked for at the end of this file, or when what came then failed.
    ///
    /// Within a pool whole blocks are shared, where both offsets lie alike in blocks of 4 KiB: they
    /// take no space until one of the files changes, and holes stay holes. Each step is atomic, of
    /// up to 16 MiB that are shared, and the copy as a whole is not. Two ranges of one file may not
    /// overlap.
    ///
    /// ```
    /// # fn main() -> nearside::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let options = nearside::FormatOptions {
    /// #     slices: vec![nearside::SliceSpec::default()], slice_bytes: 32 << 20,
    /// #     process: true, ..nearside::FormatOptions::default() };
    /// # nearside::Pool::format(scratch.path(), &options)?;
    /// # let pool = nearside::Pool::open(scratch.path())?;
    /// let (file, copy) = (pool.create_file("/data")?, pool.create_file("/copy")?);
    /// file.write_all_at(&[7; 1 << 20], 0)?;
    /// let free = pool.statfs().blocks_free;
    /// assert_eq!(file.copy_to(0, &copy, 0, u64::MAX)?, 1 << 20);
    /// assert_eq!(pool.statfs().blocks_free, free);
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_to(&self, offset: u64, to: &File, to_offset: u64, bytes: u64) -> Result<u64> {
        self.need(self.flags.read, "reading")?;
        to.need(to.flags.write, "writing")?;
        match (&self.open, &to.open) {
            (Open::Here(from), Open::Here(to)) if Arc::ptr_eq(&from.fs, &to.fs) => {
                let (source, target) = ((&*from.handle, offset), (&*to.handle, to_offset));
                return Ok(to.changing(|| from.fs.copy(source, target, bytes))?);
            }
            (Open::There(from), Open::There(to)) if from.attached().is(to.attached()) => {
                return from.copy_to(offset, to, to_offset, bytes);
            }
            _ => {}
        }
        let mut buffer = vec![0; bytes.min(COPY_BYTES) as usize];
        let mut done = 0;
        while done < bytes {
            let most = (bytes - done).min(COPY_BYTES) as usize;
            let read = self.read_at(&mut buffer[..most], offset.saturating_add(done))?;
            if read == 0 {
                break;
            }
            to.write_all_at(&buffer[..read], to_offset.saturating_add(done))?;
            done += read as u64;
        }
        Ok(done)
    }

    /// Size in bytes.
    pub fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Whether the file has no byte.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file to `bytes`, or extends it with zeros that occupy no space.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.need(self.flags.write, "writing")?;
        match &self.open {
            Open::Here(file) => {
                file.fs.for_caller(file.caller.as_deref()).resize(&file.handle, bytes)?;
                Ok(())
            }
            Open::There(file) => file.set_len(bytes),
        }
    }

    /// Everything that was written to the file before is durable when this returns. Only the
    /// `sync` domain needs it; elsewhere every write is durable when it returns.
    pub fn sync(&self) -> Result<()> {
        self.own()?;
        match &self.open {
            Open::Here(file) => Ok(file.fs.fsync(&file.handle)?),
            Open::There(file) => file.sync(),
        }
    }

    /// Frees a range, which reads as zeros from then on; the size stays.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<()> {
        self.need(self.flags.write, "writing")?;
        match &self.open {
            Open::Here(file) => file.fallocate(Fallocate::PunchHole, offset, bytes),
            Open::There(file) => file.punch_hole(offset, bytes),
        }
    }

    /// Reserves space for a range, extending the size if the range ends beyond it.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.need(self.flags.write, "writing")?;
        match &self.open {
            Open::Here(file) => {
                file.fallocate(Fallocate::Allocate { keep_size: false }, offset, bytes)
            }
            Open::There(file) => file.allocate(offset, bytes),
        }
    }

    /// Offset of the first data at or after `offset`; ENXIO when there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, true)
    }

    /// Offset of the first hole at or after `offset`; the end of the file counts as one.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek(offset, false)
    }

    /// Attributes.
    pub fn metadata(&self) -> Result<Metadata> {
        self.own()?;
        match &self.open {
            Open::Here(file) => Ok(Metadata(file.fs.getattr(file.handle.ino())?)),
            Open::There(file) => file.metadata(),
        }
    }

    fn seek(&self, offset: u64, to_data: bool) -> Result<u64> {
        self.own()?;
        match &self.open {
            Open::Here(file) => Ok(file.fs.seek(&file.handle, offset, to_data)?),
            Open::There(file) => file.seek(offset, to_data),
        }
    }

    /// The engine's handle of it, for doors that do not speak paths.
    ///
    /// # Errors
    /// This process is attached, and has no engine.
    pub fn handle(&self) -> Result<&Arc<Handle>> {
        Ok(&self.open_here()?.handle)
    }

    /// The file, if this process has its pool open.
    pub(crate) fn open_here(&self) -> Result<&OpenHere> {
        match &self.open {
            Open::Here(file) => Ok(file),
            Open::There(_) => Err(owners_alone()),
        }
    }

    /// Whether it may be read; an error if not.
    pub fn check_readable(&self) -> Result<()> {
        self.need(self.flags.read, "reading")
    }

    /// Whether it may be written at any offset; an error if not.
    pub fn check_writable(&self) -> Result<()> {
        self.need(self.flags.write, "writing")
    }

    /// Refuses a forked child.
    #[inline]
    pub(crate) fn own(&self) -> Result<()> {
        match &self.open {
            Open::Here(file) => owner::check(&file.fs),
            Open::There(file) => file.own(),
        }
    }

    /// The same, and whoever did not open the file for this.
    pub(crate) fn need(&self, allowed: bool, what: &'static str) -> Result<()> {
        self.own()?;
        if allowed { Ok(()) } else { Err(Error::NotOpenedFor(what)) }
    }
}

impl OpenHere {
    fn fallocate(&self, mode: Fallocate, offset: u64, bytes: u64) -> Result<()> {
        Ok(self.changing(|| self.fs.fallocate(&self.handle, mode, offset, bytes))?)
    }

    /// Changes the file's content for its caller.
    #[inline]
    fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        fs::changing_by(self.caller.as_ref(), change)
    }
}
