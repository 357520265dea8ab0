//! Reading the items of a record's payload.

use crate::bytes::Bytes;
use crate::item::*;
use crate::types::Ino;
use pool::{BLOCK_BYTES, BlockAddr};
use smallvec::{SmallVec, smallvec};

/// The items of a payload; `None` if it makes no sense.
pub fn decode(payload: &[u8]) -> Option<Items> {
    decode_some(payload, &|_| true)
}

/// The same; `None`, too, if there is one that is not to be.
pub fn decode_some(payload: &[u8], may_be: &dyn Fn(&Item) -> bool) -> Option<Items> {
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
        items.push(decode_one(&mut bytes, tag, kind, short, long).filter(|item| may_be(item))?);
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
        SHARE => {
            let (block, end) = (bytes.u64()?, bytes.u64()?);
            let (from, first) = (Ino(bytes.u64()?), bytes.u64()?);
            Item::Share(Share { ino, block, blocks: long, end, from, first })
        }
        RESERVE | MOVE => {
            let run = |bytes: &mut Bytes<'_>| {
                let (block, addr) = (bytes.u64()?, BlockAddr::from_bits(bytes.u64()?)?);
                Some(BlockRun { block, addr, blocks: bytes.u64()? })
            };
            let runs = (0..short).map(|_| run(bytes)).collect::<Option<Vec<BlockRun>>>()?;
            if tag == MOVE { Item::Move { ino, runs } } else { Item::Reserve { ino, runs } }
        }
        REQUEST => {
            let client = u128::from(first) | u128::from(bytes.u64()?) << 64;
            let sequence = bytes.u64()?;
            let answer = match kind {
                0 => None,
                1 => Some(bytes.u64()?),
                _ => return None,
            };
            Item::Request { client: client.to_le_bytes(), sequence, answer }
        }
        _ => return None,
    })
}

fn pad(bytes: &mut Bytes<'_>, len: usize) -> Option<()> {
    bytes.take(len.next_multiple_of(8) - len).map(|_| ())
}
