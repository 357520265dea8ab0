//! The log: its chunks, its records, and their replay over the base.
//!
//! The bytes are a number that says how the pool is used, then pieces, each of them one byte whose
//! lower three bits say what it is:
//!
//! ```text
//! 0      a chunk: place u8, lane u8, sequence u8 above the floor, generation i8 above the root's,
//!        link u8: 0 as it is, 1 none, others the lane's chunk before, u64, and its length, u32
//! 1      a record of any kind: kind u8, stamp u64, time i64, length u16, its payload
//! 2      bytes that are no record: length u8
//! 4      a change whose payload lies in blocks, its stamp as below: how u8, number u8 of the
//!        first, length u16, the payload; how: 1 its checksum is another one, 2 through a table of
//!        places, which lies behind, 4 what follows is what the record itself says
//! 7      a block of data: number u8, byte u8, how often u16; zeros follow
//! others a change, its stamp as far above the last one as the upper bits say: length u16, payload
//! ```

use super::arena::{Arena, on_one_cpu};
use super::input::Input;
use super::{ARENA, CHANGE, KILL, SYNC_ARENA, run_in, use_pool};
use crate::image::{BLOCK, Image, Kind, LOG_LINE_AT, SUPERBLOCK, UNIT};
use crate::place::Place;
use fs::{Creation, Fallocate, FileSystem, Ino, NewNode, RenameMode, RequestId, SetAttr};
use pmem::{Domain, crc32c};
use std::collections::BTreeMap;

const LOG_AT: usize = 16 * BLOCK;
const LONG_LINE: usize = 256;
/// In the number that says how the pool is used: the log's lines are long ones.
const LONG_LINES: u8 = 16;
/// The pool is one of the domain `sync`: what counts after a crash are whole epochs.
const SYNC: u8 = 32;

/// A log being written.
struct Writer {
    seed: u32,
    line: usize,
    chunk_bytes: usize,
    floor: u64,
    generation: u64,
    stamp: u64,
    /// By place.
    chunks: BTreeMap<usize, Chunk>,
    current: usize,
    /// Blocks of data, by number.
    data: BTreeMap<usize, [u8; BLOCK]>,
}

struct Chunk {
    bytes: Vec<u8>,
    lane: u16,
    sequence: u64,
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let how = input.byte();
    let arena = if how & SYNC == 0 { &ARENA } else { &SYNC_ARENA };
    run_in(arena, |arena| {
        let line = if how & LONG_LINES == 0 { UNIT } else { LONG_LINE };
        let mut writer = Writer::new(arena, line);
        while !input.is_empty() {
            writer.piece(&mut input);
        }
        if line == LONG_LINE {
            put_long_lines(arena);
        }
        // an address may be one that the slice does not have
        let data = LOG_AT + 4 * writer.chunk_bytes..arena.base().slices[0].len();
        for (block, bytes) in writer.data.iter().filter(|(it, _)| data.contains(&(**it * BLOCK))) {
            arena.put(block * BLOCK, bytes);
        }
        for (place, chunk) in &writer.chunks {
            arena.put(LOG_AT + place * writer.chunk_bytes, &chunk.bytes);
        }
        use_pool(arena, how)
    })
}

/// The superblocks say that the log's lines are long ones.
fn put_long_lines(arena: &mut Arena) {
    let mut bytes = arena.base().get(0, 0, SUPERBLOCK).unwrap_or_default().to_vec();
    bytes[96] = 1;
    bytes[LOG_LINE_AT..LOG_LINE_AT + 4].copy_from_slice(&(LONG_LINE as u32).to_le_bytes());
    let crc = crc32c(0, &bytes[..SUPERBLOCK - 8]);
    bytes[SUPERBLOCK - 8..SUPERBLOCK - 4].copy_from_slice(&crc.to_le_bytes());
    let last = arena.base().slices[0].len() - BLOCK;
    arena.put(0, &bytes);
    arena.put(last, &bytes);
}

impl Writer {
    fn new(arena: &Arena, line: usize) -> Writer {
        let (base, root) = (arena.base(), arena.root_at());
        Writer {
            seed: crc32c(0, &base.uuid(0)),
            line,
            chunk_bytes: base.number(0, 72, 4) as usize,
            floor: base.number(0, root + 32, 8),
            generation: base.number(0, root + 24, 8),
            stamp: base.number(0, root + 64, 8),
            chunks: BTreeMap::new(),
            current: 0,
            data: BTreeMap::new(),
        }
    }

    fn piece(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        match what & 7 {
            0 => self.chunk(input),
            1 => {
                let (kind, stamp, time) = (input.byte(), input.number(8), input.number(8));
                let payload = long(input);
                self.record((kind, 0), stamp, time, payload);
            }
            2 => {
                let len = usize::from(input.byte());
                self.append(input.take(len));
            }
            7 => {
                let (block, byte, len) = (input.byte(), input.byte(), input.number(2) as usize);
                let mut bytes = [0; BLOCK];
                bytes[..len.min(BLOCK)].fill(byte);
                self.data.insert(block.into(), bytes);
            }
            4 => {
                self.stamp = self.stamp.saturating_add(u64::from(what >> 3) + 1);
                let (how, first) = (input.byte(), u64::from(input.byte()));
                self.spilled(how, first, long(input));
            }
            _ => {
                self.stamp = self.stamp.saturating_add(u64::from(what >> 3) + 1);
                let payload = long(input);
                self.record((pool::KIND_CHANGE, 0), self.stamp, 1, payload);
            }
        }
    }

    fn chunk(&mut self, input: &mut Input<'_>) {
        let (place, lane) = (usize::from(input.byte() & 3), u16::from(input.byte()));
        let sequence = self.floor.saturating_add(input.byte().into());
        let generation = self.generation.wrapping_add(input.byte() as i8 as u64);
        let of_lane = self.chunks.values().filter(|chunk| chunk.lane == lane);
        let before = of_lane.max_by_key(|chunk| chunk.sequence);
        let (previous, used) = match input.byte() {
            0 => before.map_or((0, 0), |chunk| (chunk.sequence, chunk.bytes.len() as u32)),
            1 => (0, 0),
            _ => (input.number(8), input.number(4) as u32),
        };
        let mut bytes = vec![0; self.line];
        bytes[..4].copy_from_slice(b"NSCH");
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&previous.to_le_bytes());
        bytes[24..28].copy_from_slice(&used.to_le_bytes());
        bytes[28..30].copy_from_slice(&lane.to_le_bytes());
        bytes[32..40].copy_from_slice(&generation.to_le_bytes());
        let crc = crc32c(self.seed, &bytes[8..UNIT]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        self.chunks.insert(place, Chunk { bytes, lane, sequence });
        self.current = place;
    }

    fn spilled(&mut self, how: u8, first: u64, payload: &[u8]) {
        let mut says = payload.to_vec();
        if how & 4 == 0 {
            let mut place = self.put_blocks(first, payload, how & 1 != 0);
            if how & 2 != 0 {
                let behind = first + payload.len().div_ceil(BLOCK) as u64;
                place = self.put_blocks(behind, &place, how & 1 != 0);
            }
            let levels = 1 + u32::from(how >> 1 & 1);
            says = (payload.len() as u64).to_le_bytes().to_vec();
            says.extend([levels, 1].map(u32::to_le_bytes).as_flattened());
            says.extend(place);
        }
        self.record((pool::KIND_CHANGE, pool::FLAG_SPILLED), self.stamp, 1, &says);
    }

    /// Puts bytes into blocks; gives the place that a record names.
    fn put_blocks(&mut self, first: u64, bytes: &[u8], is_wrong: bool) -> Vec<u8> {
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().next_multiple_of(BLOCK), 0);
        for (number, block) in (first as usize..).zip(whole.chunks(BLOCK)) {
            let mut data = [0; BLOCK];
            data.copy_from_slice(block);
            self.data.insert(number, data);
        }
        let blocks = (whole.len() / BLOCK) as u32;
        let crc = crc32c(0, &whole) ^ u32::from(is_wrong);
        let addr = pool::BlockAddr::new(0, first).bits();
        [&addr.to_le_bytes()[..], &blocks.to_le_bytes(), &crc.to_le_bytes()].concat()
    }

    fn record(&mut self, (kind, flags): (u8, u8), stamp: u64, time: u64, payload: &[u8]) {
        let mut bytes = vec![0; (24 + payload.len()).next_multiple_of(self.line)];
        let units = (bytes.len() / UNIT) as u16;
        bytes[4..6].copy_from_slice(&units.to_le_bytes());
        (bytes[6], bytes[7]) = (kind, flags);
        bytes[8..16].copy_from_slice(&stamp.to_le_bytes());
        bytes[16..24].copy_from_slice(&time.to_le_bytes());
        bytes[24..24 + payload.len()].copy_from_slice(payload);
        let Some(chunk) = self.chunks.get(&self.current) else { return };
        let seed = crc32c(self.seed, &chunk.lane.to_le_bytes());
        let seed = crc32c(seed, &chunk.sequence.to_le_bytes());
        let crc = crc32c(seed, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        self.append(&bytes);
    }

    /// Adds it to the current chunk, if there is one and it has room.
    fn append(&mut self, bytes: &[u8]) {
        if let Some(chunk) = self.chunks.get_mut(&self.current)
            && chunk.bytes.len() + bytes.len() <= self.chunk_bytes
        {
            chunk.bytes.extend_from_slice(bytes);
        }
    }
}

/// Bytes behind their number.
fn long<'i>(input: &mut Input<'i>) -> &'i [u8] {
    let len = input.number(2) as usize;
    input.take(len)
}

/// Two blocks from the last one on that a slice could have.
const BEHIND_ALL: [u8; 16] = [255, 255, 255, 255, 255, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];

/// What the log holds after some calls.
pub fn seeds() -> Vec<Vec<u8>> {
    let stories: [fn(&FileSystem) -> fs::Result<()>; 4] = [names, data, values, requests];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for story in stories {
        let pieces = pieces_of(&Arena::new(), story);
        for how in [1, 2, 1 | CHANGE, 1 | CHANGE | KILL, 1 | LONG_LINES] {
            seeds.push([&[how][..], &pieces.concat()].concat());
        }
        // all of them with their payloads in blocks, and through a table
        for how in [0, 1, 2] {
            let spilled = pieces[1..].iter().enumerate().map(|(at, one)| match one[0] {
                3 => [&[4, how, 200 + at as u8 * 2][..], &one[1..]].concat(),
                _ => one.clone(),
            });
            let spilled: Vec<Vec<u8>> = spilled.collect();
            for kill in [1, 1 | CHANGE | KILL] {
                seeds.push([&[kill][..], &pieces[0], &spilled.concat()].concat());
            }
        }
        // a place behind all that there is
        let place = [&1u64.to_le_bytes()[..], &[1, 0, 0, 0, 1, 0, 0, 0], &BEHIND_ALL].concat();
        let what = [&[4, 4, 0, 32, 0][..], &place].concat();
        seeds.push([&[1][..], &pieces[0], &what].concat());
        // each change alone
        seeds.extend(pieces[1..].iter().map(|one| [&[1][..], &pieces[0], one].concat()));
        let pieces = pieces_of(&Arena::of(Domain::Sync), story).concat();
        for how in [1, 2, 2 | CHANGE] {
            seeds.push([&[how | SYNC][..], &pieces].concat());
        }
    }
    seeds
}

/// The pieces that make the log that `story` leaves: a chunk with the blocks of data, and records.
fn pieces_of(arena: &Arena, story: fn(&FileSystem) -> fs::Result<()>) -> Vec<Vec<u8>> {
    fs::stop_clock(Some(1));
    let tell = || arena.open(false).and_then(|fs| story(&fs).and_then(|()| fs.sync()));
    let told = on_one_cpu(tell);
    told.unwrap_or_else(|error| panic!("the base cannot be changed: {error}"));
    let (image, writer) = (arena.image(), Writer::new(arena, UNIT));
    let mut pieces = vec![vec![0; 6]];
    let data_at = LOG_AT + 4 * writer.chunk_bytes;
    let blocks = |image: &Image| -> Vec<Vec<u8>> {
        image.slices[0].chunks(BLOCK).map(<[u8]>::to_vec).collect()
    };
    let new = blocks(&image).into_iter().zip(blocks(arena.base())).enumerate();
    for (block, (bytes, _)) in new.skip(data_at / BLOCK).filter(|(_, (new, old))| new != old) {
        let len = BLOCK - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        pieces[0].extend([7, block as u8, bytes[0], len as u8, (len >> 8) as u8]);
    }
    for part in image.parts().iter().filter(|part| part.kind == Kind::Record) {
        let record = image.get(0, part.at, part.len).unwrap_or_default();
        let (head, mut payload) = (&record[..24], record[24..].to_vec());
        let len = (payload.len() as u16).to_le_bytes();
        if head[6] == pool::KIND_CHANGE {
            pieces.push([&[3][..], &len, &payload].concat());
            continue;
        }
        // where the lanes end: they are one here, in another chunk
        for tail in payload.chunks_exact_mut(16).take_while(|tail| tail[0] == 1) {
            tail[2..4].fill(0);
            tail[8..].copy_from_slice(&writer.floor.to_le_bytes());
        }
        let stamp = writer.stamp + 1 + pieces.len() as u64;
        let head = [&[1, head[6]][..], &stamp.to_le_bytes(), &head[16..]].concat();
        pieces.push([head, len.to_vec(), payload].concat());
    }
    pieces
}

const BY: Creation = Creation { mode: 0o640, umask: 0, uid: 1, gid: 2 };

fn names(fs: &FileSystem) -> fs::Result<()> {
    let dir = fs.create(Ino::ROOT, b"new", NewNode::Directory, BY)?.ino;
    let file = fs.create(dir, b"file", NewNode::File, BY)?.ino;
    fs.create(dir, b"link", NewNode::Symlink(b"target"), BY)?;
    fs.link(file, Ino::ROOT, b"more")?;
    fs.rename((dir, b"file"), (Ino::ROOT, b"other"), RenameMode::Replace)?;
    fs.rename((Ino::ROOT, b"again"), (dir, b"link"), RenameMode::Exchange)?;
    fs.unlink(dir, b"link")?;
    fs.unlink(Ino::ROOT, b"link")?;
    Ok(())
}

fn data(fs: &FileSystem) -> fs::Result<()> {
    let dir = fs.lookup(Ino::ROOT, b"dir")?.ino;
    let open = |name: &[u8]| fs.open(fs.lookup(dir, name)?.ino);
    let (file, small) = (open(b"file")?, open(b"small")?);
    fs.write(&file, 4096, &[1; 4096])?;
    fs.write(&file, 0, &[2; 9000])?;
    fs.write(&file, 100, b"in place")?;
    for byte in 5..8 {
        // in the domain `sync` the record of the last one has the data, too
        fs.write(&small, 8192, &[byte; 4096])?;
        fs.fsync(&small)?;
    }
    fs.append(&small, b"over a hole")?;
    fs.write(&small, 0, &[3; 4096])?;
    fs.fallocate(&file, Fallocate::PunchHole, 4096, 4096)?;
    fs.fallocate(&file, Fallocate::Allocate { keep_size: false }, 4096, 20_000)?;
    fs.copy((&file, 0), (&small, 12_288), 4096)?;
    let size = Some(5000);
    fs.setattr(file.ino(), &SetAttr { size, ..SetAttr::default() })?;
    Ok(())
}

fn values(fs: &FileSystem) -> fs::Result<()> {
    let dir = fs.lookup(Ino::ROOT, b"dir")?.ino;
    let small = fs.lookup(dir, b"small")?.ino;
    fs.setxattr(small, b"user.name", b"other", fs::XattrMode::Any)?;
    fs.setxattr(dir, b"user.long", &[4; 1500], fs::XattrMode::Any)?;
    fs.setattr(small, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
    fs.removexattr(small, b"user.name")?;
    fs.create(dir, b"inherits", NewNode::Directory, BY)?;
    let (_, unnamed) = fs.create_unnamed(dir, BY)?;
    fs.write(&unnamed, 0, b"open at the end")?;
    Ok(())
}

fn requests(fs: &FileSystem) -> fs::Result<()> {
    for id in crate::corpus::requests().take(2).chain([RequestId { client: 1, sequence: 2 }]) {
        let name = id.sequence.to_string();
        fs.with_request(id, || fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY))?;
    }
    Ok(())
}
