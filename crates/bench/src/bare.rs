//! A FUSE server with nothing behind it: one file in memory, whose bytes are copied. What it takes
//! is what the door costs.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

/// Bytes under one lock: one request, so that a lock is one uncontended instruction for it.
const PIECE_BYTES: usize = 1 << 20;
/// The name of the file.
pub const FILE_NAME: &str = "file";
const FILE: INodeNo = INodeNo(2);
/// As long as a pool's mount trusts what only it can change.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How a read's bytes reach the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Through a buffer of the thread's.
    Copied,
    /// Out of the file's memory.
    Lent,
}

/// The server.
pub struct Bare {
    pieces: Vec<RwLock<Vec<u8>>>,
    reads: Reads,
}

impl Bare {
    /// A file of this size, rounded down to whole requests, all pages touched.
    pub fn new(bytes: u64, reads: Reads) -> Bare {
        let piece = || RwLock::new(vec![0x5A; PIECE_BYTES]);
        Bare { pieces: (0..bytes as usize / PIECE_BYTES).map(|_| piece()).collect(), reads }
    }

    /// The piece that a request is about and the place in it; none if it passes its end.
    fn piece(&self, offset: u64, len: usize) -> Option<(&RwLock<Vec<u8>>, usize)> {
        let (index, at) = (offset as usize / PIECE_BYTES, offset as usize % PIECE_BYTES);
        self.pieces.get(index).filter(|_| at + len <= PIECE_BYTES).map(|piece| (piece, at))
    }

    fn attr(&self, number: INodeNo) -> FileAttr {
        let directory = number != FILE;
        FileAttr {
            ino: number,
            size: if directory { 0 } else { (self.pieces.len() * PIECE_BYTES) as u64 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Bare {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        nearside_fuse::negotiate(config, true);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE_NAME {
            reply.entry(&FOR_EVER, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attr(number));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = size as usize;
        let Some((piece, at)) = self.piece(offset, len) else { return reply.error(Errno::EINVAL) };
        let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = &piece[at..at + len];
        if self.reads == Reads::Lent {
            return reply.data(bytes);
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(PIECE_BYTES, 0);
            buffer[..len].copy_from_slice(bytes);
            reply.data(&buffer[..len]);
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some((piece, at)) = self.piece(offset, data.len()) else {
            return reply.error(Errno::EINVAL);
        };
        let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
        piece[at..at + data.len()].copy_from_slice(data);
        drop(piece);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
