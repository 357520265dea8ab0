//! Requests about open files and their bytes.

use std::cell::RefCell;

use nearside::files::{Attr, Call, Error as FsError, Fallocate, Handle, Ino, SetAttr};

use super::{Caller, Errno, May, Mode, OpenFile, Served, Service, stale};
use crate::settings::PAGE_BYTES;

/// Bytes that one request reads or writes at most, and so the mount's atomic limit.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Bytes that one copy_file_range request copies at most: the caller asks again for the rest, and
/// can be interrupted in between.
const COPY_BYTES_MAX: u64 = 16 << 20;

thread_local! {
    /// What a read is read into; kept, for zeroing a megabyte costs as much as reading it.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Service {
    /// Opens a file; `flags` are those of open(2).
    pub(crate) fn open(&self, ino: Ino, flags: i32) -> Served<u64> {
        let may = self.permit_open(ino, flags)?;
        let handle = self.fs.open(ino).map_err(stale)?;
        if flags & libc::O_TRUNC != 0 {
            self.empty(ino)?;
        }
        self.keep(handle, may, flags)
    }

    /// Makes a file and opens it; one that appeared since the kernel looked is opened as it is,
    /// unless `flags` forbid that.
    pub(crate) fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: Mode,
        flags: i32,
        caller: Caller,
    ) -> Served<(Attr, u64)> {
        // Until what is there was not taken away again, or replaced, before it was open.
        loop {
            let by = caller.creates(mode);
            match self.checked(|fs| fs.create_open(parent, name, by)) {
                Ok((attr, handle)) => return Ok((attr, self.keep(handle, May::of(flags), flags)?)),
                Err(FsError::Exists) if flags & libc::O_EXCL == 0 => {}
                Err(error) => return Err(error.into()),
            }
            let found = self.fs.lookup(parent, name);
            match found.and_then(|attr| self.fs.open(attr.ino)) {
                Ok(handle) => {
                    let may = self.permit_open(handle.ino(), flags)?;
                    if flags & libc::O_TRUNC != 0 {
                        self.empty(handle.ino())?;
                    }
                    let attr = self.fs.getattr(handle.ino())?;
                    return Ok((attr, self.keep(handle, may, flags)?));
                }
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes a file without a name and opens it.
    pub(crate) fn create_unnamed(
        &self,
        parent: Ino,
        mode: Mode,
        caller: Caller,
    ) -> Served<(Attr, u64)> {
        let made = self.checked(|fs| fs.create_unnamed(parent, caller.creates(mode)));
        let (attr, handle) = made.map_err(stale)?;
        Ok((attr, self.keep(handle, May::ALL, libc::O_RDWR)?))
    }

    /// Opens the file that an earlier server made for such a request.
    pub(crate) fn reopen(&self, parent: Ino, name: &[u8], flags: i32) -> Served<(Attr, u64)> {
        self.permit_search(parent)?;
        let attr = self.fs.lookup(parent, name)?;
        Ok((attr, self.open(attr.ino, flags & !libc::O_TRUNC)?))
    }

    /// Opens the file without a name that an earlier server made for request `unique`. The kernel
    /// knows one that is not kept any more: nobody waits for the answer.
    pub(crate) fn reopen_unnamed(&self, unique: u64) -> Served<(Attr, u64)> {
        let made = self.fs.made_unnamed(self.id(unique));
        let handle = made.map_or(Err(FsError::NotFound), |ino| self.fs.open(ino))?;
        let attr = self.fs.getattr(handle.ino())?;
        Ok((attr, self.keep(handle, May::ALL, libc::O_RDWR)?))
    }

    fn empty(&self, ino: Ino) -> Served<()> {
        let change = SetAttr { size: Some(0), ..SetAttr::default() };
        self.fs.setattr(ino, &change).map_err(stale)?;
        Ok(())
    }

    /// Reads into a buffer of the thread's own and shows it to `show`. `for_pages`: it fills pages
    /// of the kernel.
    pub(crate) fn read<T>(
        &self,
        file: OpenFile,
        (offset, bytes): (u64, usize),
        for_pages: bool,
        show: impl FnOnce(&[u8]) -> T,
    ) -> Served<T> {
        let handle = self.handle(file, May::READ)?;
        with_buffer(bytes, |buffer| {
            let bytes = match for_pages {
                true => self.pages.read(&handle, offset, buffer)?,
                false => self.fs.read(&handle, offset, buffer)?,
            };
            self.fs.meter().moved(Call::Read, bytes);
            Ok(show(&buffer[..bytes]))
        })
    }

    /// Writes pages back: what was stored to them, and nothing behind the file's end.
    pub(crate) fn write_back(&self, file: OpenFile, offset: u64, data: &[u8]) -> Served<usize> {
        let handle = self.handle(file, May::WRITE)?;
        self.pages.write_back(&handle, offset, data)?;
        self.fs.meter().moved(Call::Write, data.len());
        Ok(data.len())
    }

    /// The kernel's pages have what is about to be written, and are kept.
    pub(crate) fn writes_through(&self, file: OpenFile, offset: u64, data: &[u8]) -> Served<()> {
        let handle = self.handle(file, May::WRITE)?;
        self.pages.writes_through(&handle, offset, data);
        Ok(())
    }

    /// A write is about to come past the kernel's pages.
    pub(crate) fn writes_past(&self, file: OpenFile) -> Served<()> {
        let handle = self.handle(file, May::WRITE)?;
        self.pages.writes_past(&handle);
        Ok(())
    }

    /// The server before has made a write: where that came out of pages, these are known by it.
    pub(crate) fn write_came_back(&self, file: OpenFile, offset: u64, data: &[u8]) {
        if let Ok(handle) = self.handle(file, May::NOTHING) {
            self.pages.came_back(&handle, offset, data);
        }
    }

    /// Writes at `offset`.
    pub(crate) fn write(&self, file: OpenFile, offset: u64, data: &[u8]) -> Served<usize> {
        let handle = self.handle(file, May::WRITE)?;
        let bytes = self.fs.write(&handle, offset, data)?;
        self.fs.meter().moved(Call::Write, bytes);
        Ok(bytes)
    }

    /// Writes at the end, wherever that is by now.
    pub(crate) fn append(&self, file: OpenFile, data: &[u8]) -> Served<usize> {
        let handle = self.handle(file, May::WRITE)?;
        self.fs.append(&handle, data)?;
        self.fs.meter().moved(Call::Write, data.len());
        Ok(data.len())
    }

    /// Makes a file durable. Pages that were written back before are seen by those who map the file
    /// at other doors.
    pub(crate) fn fsync(&self, file: OpenFile) -> Served<()> {
        let handle = self.handle(file, May::NOTHING)?;
        self.pages.keeping_up(&handle);
        Ok(self.fs.fsync(&handle)?)
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self) -> Served<()> {
        Ok(self.fs.sync()?)
    }

    /// Reserves, punches or zeroes, as the flags of fallocate(2) say.
    pub(crate) fn fallocate(
        &self,
        file: OpenFile,
        flags: i32,
        offset: u64,
        len: u64,
    ) -> Served<()> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEPING_SIZE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let mode = match flags {
            0 => Fallocate::Allocate { keep_size: false },
            libc::FALLOC_FL_KEEP_SIZE => Fallocate::Allocate { keep_size: true },
            PUNCH => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::Zero { keep_size: false },
            ZERO_KEEPING_SIZE => Fallocate::Zero { keep_size: true },
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        Ok(self.fs.fallocate(&*self.handle(file, May::WRITE)?, mode, offset, len)?)
    }

    /// Finds data or a hole; the other ways of lseek(2) are the kernel's own. Before it says that
    /// there is a hole where somebody may have stored to a mapping, it has the kernel bring what it
    /// has of that range; where that does not come it is taken for data.
    pub(crate) fn seek(&self, file: OpenFile, offset: i64, whence: i32) -> Served<i64> {
        let data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
        let handle = self.handle(file, May::NOTHING)?;
        let find = || self.fs.seek(&handle, offset, data);
        let mut found = find();
        if self.may_be_stored_to(file, &handle) {
            let size = handle.size();
            let hole = match &found {
                Ok(at) if data => offset..*at,
                Ok(at) => *at..self.fs.seek(&handle, *at, true).unwrap_or(size),
                Err(_) => offset..size,
            };
            if !hole.is_empty() {
                found = match self.pages.settle_stores(&handle, hole) {
                    true => find(),
                    false => Ok(if data { offset } else { handle.size() }),
                };
            }
        }
        i64::try_from(found?).map_err(|_| Errno(libc::EOVERFLOW))
    }

    /// Copies between two files; returns the bytes copied, which may be fewer than asked for.
    /// What somebody may have stored to a mapping of the source the kernel brings first; where that
    /// does not come it is to copy by itself. So it is where a page of the target is copied over in
    /// part, and somebody may store to the rest of it: when the copy has been made the kernel drops
    /// its pages there, whole ones, with what was stored to them meanwhile (Linux 6.1 to 6.18,
    /// `fuse_copy_file_range`).
    pub(crate) fn copy(&self, from: (OpenFile, u64), to: (OpenFile, u64), len: u64) -> Served<u32> {
        let (source, target) = (self.handle(from.0, May::READ)?, self.handle(to.0, May::WRITE)?);
        let mut len = len.min(COPY_BYTES_MAX);
        if self.may_be_mapped_for_stores(to.0, &target) {
            let there = source.size().saturating_sub(from.1);
            let whole = without_parts_of_pages(&target, to.1, len.min(there));
            len = whole.ok_or(Errno(libc::EOPNOTSUPP))?;
        }
        let range = from.1..from.1.saturating_add(len);
        let is_settled = |range| {
            !self.may_be_stored_to(from.0, &source) || self.pages.settle_stores(&source, range)
        };
        if !range.is_empty() && !is_settled(range) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let bytes = self.fs.copy((&source, from.1), (&target, to.1), len)?;
        self.fs.meter().moved(Call::CopyFileRange, bytes as usize);
        Ok(bytes as u32)
    }
}

/// How much of a copy to this place leaves no part of a page of the file as it was; none: nothing.
fn without_parts_of_pages(target: &Handle, offset: u64, len: u64) -> Option<u64> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let end = offset.saturating_add(len);
    let whole = match end >= target.size() {
        // nobody stores behind the end of a file
        true => len,
        false => (end - end % PAGE).saturating_sub(offset),
    };
    (len == 0 || offset.is_multiple_of(PAGE) && whole > 0).then_some(whole)
}

fn with_buffer<T>(bytes: usize, work: impl FnOnce(&mut [u8]) -> Served<T>) -> Served<T> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes.max(REQUEST_BYTES_MAX), 0);
        }
        work(&mut buffer[..bytes])
    })
}
