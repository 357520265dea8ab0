//! A FUSE server with nothing behind it: one file in memory, whose bytes are copied. What it takes
//! is what the door costs.

use nearside_fuse::wire::{
    AttrAnswer, EntryAnswer, NodeAttr, Operation, Reply, Request, open_flags,
};
use nearside_fuse::{Server, Wishes};
use std::cell::RefCell;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Bytes under one lock: one request, so that a lock is one uncontended instruction for it.
const PIECE_BYTES: usize = 1 << 20;
/// The name of the file.
pub const FILE_NAME: &str = "file";
const FILE: u64 = 2;
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

    fn attr(&self, number: u64) -> NodeAttr {
        let is_file = number == FILE;
        NodeAttr {
            ino: number,
            size: if is_file { (self.pieces.len() * PIECE_BYTES) as u64 } else { 0 },
            mode: if is_file { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 },
            links: 1,
            block_bytes: 4096,
            ..NodeAttr::default()
        }
    }

    fn read(&self, offset: u64, len: usize, reply: Reply<'_>) {
        let Some((piece, at)) = self.piece(offset, len) else { return reply.error(libc::EINVAL) };
        let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = &piece[at..at + len];
        if self.reads == Reads::Lent {
            return reply.bytes(bytes);
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(PIECE_BYTES, 0);
            buffer[..len].copy_from_slice(bytes);
            reply.bytes(&buffer[..len]);
        });
    }

    fn write(&self, offset: u64, data: &[u8], reply: Reply<'_>) {
        let Some((piece, at)) = self.piece(offset, data.len()) else {
            return reply.error(libc::EINVAL);
        };
        let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
        piece[at..at + data.len()].copy_from_slice(data);
        drop(piece);
        reply.size(data.len() as u32);
    }
}

impl Server for Bare {
    fn wishes(&self) -> Wishes {
        Wishes { sole_door: true, ..Wishes::default() }
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        match request.operation {
            Operation::Lookup { name } if name == FILE_NAME.as_bytes() => {
                reply.entry(&EntryAnswer::new(self.attr(FILE), FOR_EVER));
            }
            Operation::Lookup { .. } => reply.error(libc::ENOENT),
            Operation::Getattr { .. } => {
                reply.attributes(&AttrAnswer::new(self.attr(request.head.node), FOR_EVER));
            }
            Operation::Open { .. } => {
                reply.opened(1, open_flags::KEEP_CACHE);
            }
            Operation::Read { offset, size, .. } => self.read(offset, size as usize, reply),
            Operation::Write { offset, data, .. } => self.write(offset, data, reply),
            Operation::Release { .. } => reply.done(),
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.nothing(),
            _ => reply.error(libc::ENOSYS),
        }
    }
}
