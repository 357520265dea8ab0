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
//! request      tag 10, 0                            | client u128 | sequence
//! ```
//!
//! `crc` of a patch is the checksum of the whole block with the patch over it. `end` is where the
//! written bytes end in the file: the size becomes at least that.
//! The tag 0 is padding: no further item follows.

use crate::bytes::Bytes;
use crate::request::RequestId;
use crate::types::Ino;
use pool::{BLOCK_BYTES, BlockAddr, RecordBuffer};
use smallvec::{SmallVec, smallvec};

const WRITE_ONE: u8 = 1;
const WRITE_MANY: u8 = 2;
const PATCH: u8 = 3;
const PUT: u8 = 4;
const DELETE: u8 = 5;
const TRUNCATE: u8 = 6;
const PUNCH: u8 = 7;
const TOUCH: u8 = 8;
const DROP: u8 = 9;
const REQUEST: u8 = 10;
const WRITE_INLINE: u8 = 11;

/// Bytes that the id of a request takes in a record.
pub const REQUEST_BYTES: usize = 32;

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
    /// The change was made for this request. (In bytes, so that no item is aligned to 16.)
    Request {
        /// Who sent it.
        client: [u8; 16],
        /// Its number.
        sequence: u64,
    },
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

/// Adds the id of the request that the change is made for.
pub fn push_request(record: &mut RecordBuffer, id: RequestId) {
    let client = [id.client as u64, (id.client >> 64) as u64];
    push_words(record, [head_word(REQUEST, 0, 0, 0), client[0], client[1], id.sequence]);
}

/// The items of a payload; `None` if it makes no sense.
pub fn decode(payload: &[u8]) -> Option<Items> {
    let mut bytes = Bytes(payload);
    let mut items = Items::new();
    while !bytes.is_empty() {
        let tag = bytes.u8()?;
        if tag == 0 {
            break;
        }
        let kind = bytes.u8()?;
        let short = bytes.u16()?;
        let long = bytes.u32()?;
        items.push(decode_one(&mut bytes, tag, kind, short, long)?);
    }
    Some(items)
}

fn decode_one(bytes: &mut Bytes<'_>, tag: u8, kind: u8, short: u16, long: u32) -> Option<Item> {
    let first = bytes.u64()?;
    let ino = Ino(first);
    Some(match tag {
        WRITE_ONE => {
            let block = bytes.u64()?;
            let placed = Placed { addr: BlockAddr::from_bits(bytes.u64()?)?, crc: long };
            Item::Write { ino, block, placed: smallvec![placed], end: bytes.u64()? }
        }
        WRITE_MANY => {
            let (block, end) = (bytes.u64()?, bytes.u64()?);
            let mut placed = SmallVec::with_capacity(usize::from(short));
            for _ in 0..short {
                let addr = BlockAddr::from_bits(bytes.u64()?)?;
                placed.push(Placed { addr, crc: bytes.u32()? });
            }
            pad(bytes, usize::from(short) * 12)?;
            Item::Write { ino, block, placed, end }
        }
        WRITE_INLINE => {
            let block = bytes.u64()?;
            let placed = Placed { addr: BlockAddr::from_bits(bytes.u64()?)?, crc: long };
            let end = bytes.u64()?;
            let data = bytes.take(BLOCK_BYTES as usize)?.to_vec();
            Item::Inline { ino, block, placed, data, end }
        }
        PATCH => {
            let (offset, end) = (bytes.u64()?, bytes.u64()?);
            let data = bytes.take(usize::from(short))?.to_vec();
            pad(bytes, usize::from(short))?;
            Item::Patch { ino, offset, data, crc: long, end }
        }
        PUT => {
            let index = bytes.u64()?;
            let value = bytes.take(usize::from(short))?.to_vec();
            pad(bytes, usize::from(short))?;
            Item::Put { object: first, kind, index, value }
        }
        DELETE => Item::Delete { object: first, kind, index: bytes.u64()? },
        TRUNCATE => Item::Truncate { ino, size: bytes.u64()? },
        PUNCH => Item::Punch { ino, block: bytes.u64()?, blocks: bytes.u64()? },
        TOUCH => Item::Touch { ino, links: long, entries: bytes.u64()? },
        DROP => Item::Drop { ino },
        REQUEST => {
            let client = u128::from(first) | u128::from(bytes.u64()?) << 64;
            Item::Request { client: client.to_le_bytes(), sequence: bytes.u64()? }
        }
        _ => return None,
    })
}

fn pad(bytes: &mut Bytes<'_>, len: usize) -> Option<()> {
    bytes.take(len.next_multiple_of(8) - len).map(|_| ())
}
