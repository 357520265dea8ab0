//! The items of a change record's payload.
//!
//! Each begins at a multiple of 8 bytes with its tag; numbers are little-endian.
//!
//! ```text
//! write one    tag 1, flags, count u16 = 1, crc u32 | ino | block | addr | end
//! write many   tag 2, flags, count u16, 0 | ino | block | end | count x (addr u64, crc u32)
//! patch        tag 3, flags, len u16, crc u32       | ino | offset | end | len bytes, padded
//! put          tag 4, kind, len u16, 0 u32          | object | index | len bytes, padded
//! delete       tag 5, kind, 0                       | object | index
//! truncate     tag 6, 0                             | ino | size
//! punch        tag 7, 0                             | ino | block | blocks
//! touch        tag 8, 0, 0 u16, links u32           | ino | entries
//! drop         tag 9, 0                             | ino
//! write inline tag 11, flags, 0 u16, crc u32        | ino | block | addr | end | 4096 bytes
//! request      tag 10, flags                        | client u128 | sequence | answer, with flag 1
//! share        tag 12, 0, 0 u16, blocks u32         | ino | block | end | from ino | from block
//! reserve      tag 13, 0, count u16, 0              | ino | count x (block, addr, blocks)
//! move         tag 14, 0, count u16, 0              | ino | count x (block, addr, blocks)
//! ```
//!
//! `crc` of a patch is the checksum of the whole block with the patch over it. `end` is where the
//! written bytes end in the file: the size becomes at least that.
//! The tag 0 is padding: no further item follows.

use crate::request::RequestId;
use crate::types::Ino;
use pool::{BLOCK_BYTES, BlockAddr, RecordBuffer};
use smallvec::SmallVec;
use std::ops::Range;

pub const WRITE_ONE: u8 = 1;
pub const WRITE_MANY: u8 = 2;
pub const PATCH: u8 = 3;
pub const PUT: u8 = 4;
pub const DELETE: u8 = 5;
pub const TRUNCATE: u8 = 6;
pub const PUNCH: u8 = 7;
pub const TOUCH: u8 = 8;
pub const DROP: u8 = 9;
pub const REQUEST: u8 = 10;
pub const WRITE_INLINE: u8 = 11;
pub const SHARE: u8 = 12;
pub const RESERVE: u8 = 13;
pub const MOVE: u8 = 14;

/// Bytes that the id of a request takes in a record, and its answer.
pub const REQUEST_BYTES: usize = 40;

/// Bytes that a record takes in the log for each block whose data it holds.
pub const INLINE_BYTES: usize = 40 + BLOCK_BYTES as usize;

/// Bytes that a record takes which writes one block and nothing else; then its line is filled.
pub const WRITE_ONE_RECORD_BYTES: usize = 64;

/// One block that a write put in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where its data is.
    pub addr: BlockAddr,
    /// The data's checksum.
    pub crc: u32,
}

/// The items of a record, of which most have one.
pub type Items = SmallVec<[Item; 1]>;

/// One item of a record, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Blocks `block..` of the file are now these.
    Write {
        /// The file.
        ino: Ino,
        /// Its first block written.
        block: u64,
        /// The blocks.
        placed: SmallVec<[Placed; 1]>,
        /// Where the written bytes end.
        end: u64,
    },
    /// A block of the file is now this one, and here is what it holds.
    Inline {
        /// The file.
        ino: Ino,
        /// Its block.
        block: u64,
        /// Where it is, and its checksum.
        placed: Placed,
        /// What it holds.
        data: Vec<u8>,
        /// Where the written bytes end.
        end: u64,
    },
    /// Bytes over a block.
    Patch {
        /// The file.
        ino: Ino,
        /// Where in the file.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Checksum of the block with them.
        crc: u32,
        /// Where the written bytes end.
        end: u64,
    },
    /// An entry of the tree is now this.
    Put {
        /// The object.
        object: u64,
        /// The kind.
        kind: u8,
        /// Which one.
        index: u64,
        /// The value.
        value: Vec<u8>,
    },
    /// An entry of the tree is gone.
    Delete {
        /// The object.
        object: u64,
        /// The kind.
        kind: u8,
        /// Which one.
        index: u64,
    },
    /// The file ends at `size`; what was behind is gone.
    Truncate {
        /// The file.
        ino: Ino,
        /// Its size, bytes.
        size: u64,
    },
    /// Whole blocks are holes now.
    Punch {
        /// The file.
        ino: Ino,
        /// First block.
        block: u64,
        /// How many.
        blocks: u64,
    },
    /// A directory changed: its times, and these counts.
    Touch {
        /// The directory.
        ino: Ino,
        /// Its links now.
        links: u32,
        /// Its entries now.
        entries: u64,
    },
    /// The inode and all that it had are gone.
    Drop {
        /// The inode.
        ino: Ino,
    },
    /// Blocks of a file are now those of another range, too.
    Share(Share),
    /// Blocks are set aside for holes of the file.
    Reserve {
        /// The file.
        ino: Ino,
        /// The holes, and the blocks for them.
        runs: Vec<BlockRun>,
    },
    /// Blocks of the file are now in these places, which hold what they held.
    Move {
        /// The file.
        ino: Ino,
        /// The blocks, and their places.
        runs: Vec<BlockRun>,
    },
    /// The change was made for this request. (In bytes, so that no item is aligned to 16.)
    Request {
        /// Who sent it.
        client: [u8; 16],
        /// Its number.
        sequence: u64,
        /// What there is to answer, if that is a number which nothing else tells.
        answer: Option<u64>,
    },
}

/// Bytes that a run of blocks takes in a record.
pub const BLOCK_RUN_BYTES: usize = 24;

/// Neighbouring blocks of a file, and neighbouring places for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRun {
    /// The first block in the file.
    pub block: u64,
    /// Its place.
    pub addr: BlockAddr,
    /// How many.
    pub blocks: u64,
}

/// Blocks of a file are now those of another range, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The file.
    pub ino: Ino,
    /// Its first block that changes.
    pub block: u64,
    /// How many.
    pub blocks: u32,
    /// Where the bytes end.
    pub end: u64,
    /// The file that has the blocks already; maybe the same.
    pub from: Ino,
    /// The first of them there.
    pub first: u64,
}

impl Share {
    /// The blocks that are shared.
    pub fn source(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.blocks.into())
    }

    /// Where they are shared to.
    pub fn target(&self) -> Range<u64> {
        self.block..self.block.saturating_add(self.blocks.into())
    }

    /// Where the block at this place of a file is shared to, if it is.
    pub fn leads_to(&self, (ino, block): (Ino, u64)) -> Option<(Ino, u64)> {
        let shared = ino == self.from && self.source().contains(&block);
        shared.then(|| (self.ino, self.block.saturating_add(block - self.first)))
    }
}

/// The first word of an item.
#[inline]
fn head_word(tag: u8, second: u8, short: u16, long: u32) -> u64 {
    u64::from(tag) | u64::from(second) << 8 | u64::from(short) << 16 | u64::from(long) << 32
}

fn head(record: &mut RecordBuffer, tag: u8, second: u8, short: u16, long: u32) {
    record.push(&head_word(tag, second, short, long).to_le_bytes());
}

/// Adds words in one piece.
#[inline]
fn push_words<const N: usize>(record: &mut RecordBuffer, words: [u64; N]) {
    record.push(words.map(u64::to_le_bytes).as_flattened());
}

/// Adds a write of one block.
#[inline]
pub fn push_write_one(record: &mut RecordBuffer, ino: Ino, block: u64, placed: Placed, end: u64) {
    push_block(record, (WRITE_ONE, 1), ino, block, placed, end);
}

/// Adds a write of one block with its data.
pub fn push_write_inline(
    record: &mut RecordBuffer,
    ino: Ino,
    block: u64,
    placed: Placed,
    data: &[u8],
    end: u64,
) {
    push_block(record, (WRITE_INLINE, 0), ino, block, placed, end);
    record.push(data);
}

#[inline]
fn push_block(
    record: &mut RecordBuffer,
    (tag, count): (u8, u8),
    ino: Ino,
    block: u64,
    placed: Placed,
    end: u64,
) {
    let head = head_word(tag, 0, u16::from(count), placed.crc);
    push_words(record, [head, ino.0, block, placed.addr.bits(), end]);
}

/// Adds a write of many blocks.
pub fn push_write(record: &mut RecordBuffer, ino: Ino, block: u64, placed: &[Placed], end: u64) {
    if let [one] = placed {
        return push_write_one(record, ino, block, *one, end);
    }
    head(record, WRITE_MANY, 0, placed.len() as u16, 0);
    push_words(record, [ino.0, block, end]);
    for block in placed {
        record.push(&block.addr.bits().to_le_bytes());
        record.push(&block.crc.to_le_bytes());
    }
    record.align();
}

/// Adds bytes over a block.
#[inline]
pub fn push_patch(
    record: &mut RecordBuffer,
    ino: Ino,
    offset: u64,
    data: &[u8],
    crc: u32,
    end: u64,
) {
    push_words(record, [head_word(PATCH, 0, data.len() as u16, crc), ino.0, offset, end]);
    record.push(data);
    record.align();
}

/// Adds a value of the tree.
pub fn push_put(record: &mut RecordBuffer, object: u64, kind: u8, index: u64, value: &[u8]) {
    push_put_parts(record, object, kind, index, &[value]);
}

/// Adds a value of the tree that lies in parts.
pub fn push_put_parts(
    record: &mut RecordBuffer,
    object: u64,
    kind: u8,
    index: u64,
    parts: &[&[u8]],
) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    head(record, PUT, kind, len as u16, 0);
    push_words(record, [object, index]);
    parts.iter().for_each(|part| record.push(part));
    record.align();
}

/// Adds the removal of a value.
pub fn push_delete(record: &mut RecordBuffer, object: u64, kind: u8, index: u64) {
    head(record, DELETE, kind, 0, 0);
    push_words(record, [object, index]);
}

/// Adds a truncation.
pub fn push_truncate(record: &mut RecordBuffer, ino: Ino, size: u64) {
    head(record, TRUNCATE, 0, 0, 0);
    push_words(record, [ino.0, size]);
}

/// Adds a hole.
pub fn push_punch(record: &mut RecordBuffer, ino: Ino, block: u64, blocks: u64) {
    head(record, PUNCH, 0, 0, 0);
    push_words(record, [ino.0, block, blocks]);
}

/// Adds a directory's new counts.
pub fn push_touch(record: &mut RecordBuffer, ino: Ino, links: u32, entries: u64) {
    head(record, TOUCH, 0, 0, links);
    push_words(record, [ino.0, entries]);
}

/// Adds the end of an inode.
pub fn push_drop(record: &mut RecordBuffer, ino: Ino) {
    head(record, DROP, 0, 0, 0);
    push_words(record, [ino.0]);
}

/// Adds a sharing.
pub fn push_share(record: &mut RecordBuffer, share: &Share) {
    head(record, SHARE, 0, 0, share.blocks);
    push_words(record, [share.ino.0, share.block, share.end, share.from.0, share.first]);
}

/// Adds blocks that are set aside for holes.
pub fn push_reserve(record: &mut RecordBuffer, ino: Ino, runs: &[BlockRun]) {
    push_runs(record, RESERVE, ino, runs);
}

/// Adds blocks that have new places.
pub fn push_move(record: &mut RecordBuffer, ino: Ino, runs: &[BlockRun]) {
    push_runs(record, MOVE, ino, runs);
}

fn push_runs(record: &mut RecordBuffer, tag: u8, ino: Ino, runs: &[BlockRun]) {
    head(record, tag, 0, runs.len() as u16, 0);
    push_words(record, [ino.0]);
    for run in runs {
        push_words(record, [run.block, run.addr.bits(), run.blocks]);
    }
}

/// Adds the id of the request that the change is made for, and its answer.
pub fn push_request(record: &mut RecordBuffer, id: RequestId, answer: Option<u64>) {
    let client = [id.client as u64, (id.client >> 64) as u64];
    let head = head_word(REQUEST, u8::from(answer.is_some()), 0, 0);
    push_words(record, [head, client[0], client[1], id.sequence]);
    if let Some(answer) = answer {
        push_words(record, [answer]);
    }
}
