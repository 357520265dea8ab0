//! A device that is read and written one call after the other: for headers, and where nothing
//! faster can be had.

use crate::device::{Device, Transfer};
use crate::error::{Error, Result};
use crate::scatter::Scatter;
use crate::superblock::BLOCK_BYTES;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Pieces of memory that the kernel takes in one call.
const PIECES_MAX: usize = 1024;

/// A file or block device.
#[derive(Debug)]
pub struct PlainDevice {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl PlainDevice {
    /// Opens the file or block device at `path`, exclusively; to write to it, too, unless
    /// `read_only`.
    pub fn open(path: &Path, read_only: bool) -> Result<PlainDevice> {
        let io = |source| Error::Io { path: path.to_path_buf(), source };
        let mut file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(io)?;
        let lock = match read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        if let Err(error) = rustix::fs::flock(&file, lock) {
            return Err(match error {
                Errno::WOULDBLOCK => Error::DeviceInUse(path.to_path_buf()),
                error => io(error.into()),
            });
        }
        // a block device has no length, but an end
        let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(PlainDevice { path: path.to_path_buf(), file, bytes })
    }
}

impl Device for PlainDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        transfers.iter_mut().try_for_each(|transfer| match transfer {
            Transfer::Read(block, bytes) => self.file.read_exact_at(bytes, *block * BLOCK_BYTES),
            Transfer::Write(block, bytes) => self.file.write_all_at(bytes, *block * BLOCK_BYTES),
        })
    }

    fn scatter(&self, runs: &mut [Scatter<'_>]) -> io::Result<()> {
        for run in runs {
            let mut offset = run.block * BLOCK_BYTES;
            let mut pieces: Vec<_> = run.into.iter_mut().map(|it| IoSliceMut::new(it)).collect();
            let mut rest = &mut pieces[..];
            while !rest.is_empty() {
                let most = rest.len().min(PIECES_MAX);
                match rustix::io::preadv(&self.file, &mut rest[..most], offset) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => {
                        offset += read as u64;
                        IoSliceMut::advance_slices(&mut rest, read);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn access(&self) -> &'static str {
        "calls, page cache"
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}
