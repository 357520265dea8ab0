//! An open file of either side, with the same calls for both.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// An open file.
pub enum Content {
    /// One of the machine's own.
    Outside(fs::File),
    /// One of a mounted pool.
    Mounted(fs::File),
    /// One of a pool that this process opened.
    Inside(nearside::File),
}

/// An error of the library without the path, which the caller names.
fn io(error: nearside::Error) -> io::Error {
    crate::inside::Failure::from(error).into()
}

/// What the kernel said of a mounted pool's file, in the engine's words.
fn told(error: io::Error) -> io::Error {
    crate::inside::Failure::of_kernel(Path::new(""), error).into()
}

/// The same call on a file of the kernel's or of the library's.
macro_rules! on_file {
    ($content:expr, $file:ident => $kernel:expr, $library:expr) => {
        match $content {
            Content::Outside($file) => $kernel,
            Content::Mounted($file) => $kernel.map_err(told),
            Content::Inside($file) => $library.map_err(io),
        }
    };
}

impl Content {
    /// Reads what comes next, which is at `offset`: a pipe outside knows no offsets.
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        on_file!(self, file => file.read(buffer), file.read_at(buffer, offset))
    }

    /// Writes what comes next, which is at `offset`.
    pub fn write(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        on_file!(self, file => file.write_all(data), file.write_all_at(data, offset))
    }

    /// Takes what `from` has at `offset` to the same place, without having it pass through here:
    /// within a pool both have one and the same blocks then. Gives the bytes, none at the end; no
    /// number where it has to be read and written.
    pub fn take_from(&self, from: &Content, offset: u64, bytes: u64) -> io::Result<Option<u64>> {
        match (from, self) {
            (Content::Inside(from), Content::Inside(to)) => {
                from.copy_to(offset, to, offset, bytes).map(Some).map_err(io)
            }
            (Content::Mounted(from), Content::Mounted(to)) => {
                let (mut at, mut to_at) = (offset, offset);
                let most = usize::try_from(bytes).unwrap_or(usize::MAX);
                match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), most) {
                    Ok(bytes) => Ok(Some(bytes as u64)),
                    // two mounts, or a kernel that does not
                    Err(rustix::io::Errno::XDEV | rustix::io::Errno::OPNOTSUPP) => Ok(None),
                    Err(error) => Err(told(error.into())),
                }
            }
            _ => Ok(None),
        }
    }

    /// Goes to `offset` for the next read or write.
    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        match self {
            Content::Outside(file) | Content::Mounted(file) => {
                file.seek(SeekFrom::Start(offset)).map(drop)
            }
            Content::Inside(_) => Ok(()),
        }
    }

    /// The first data at or after `offset`: where it begins, and where the hole behind it does.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let found = match self {
            Content::Outside(file) | Content::Mounted(file) => {
                let seek = |offset: u64, whence| {
                    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
                    lseek(file, offset, whence).map(i64::unsigned_abs).map_err(io::Error::from)
                };
                seek(offset, Whence::SeekData)
                    .and_then(|start| Ok((start, seek(start, Whence::SeekHole)?)))
            }
            Content::Inside(file) => file
                .seek_data(offset)
                .and_then(|start| Ok((start, file.seek_hole(start)?)))
                .map_err(|error| io::Error::from_raw_os_error(error.errno())),
        };
        match found {
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> io::Result<u64> {
        on_file!(self, file => file.metadata().map(|meta| meta.len()), file.len())
    }

    /// Cuts it to `bytes`, or extends it with a hole.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        on_file!(self, file => file.set_len(bytes), file.set_len(bytes))
    }

    /// Sets space aside for its first `bytes`; it is at least that long then.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        let kernel = |file: &fs::File| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, flags, 0, bytes).map_err(io::Error::from)
        };
        on_file!(self, file => kernel(file), file.allocate(0, bytes))
    }
}
