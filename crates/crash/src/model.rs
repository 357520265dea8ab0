//! The model of the hardware: which images a power cut can leave.
//!
//! - A line holds 64 bytes, and a store may be torn between aligned words of 8 bytes.
//! - `cpu-flush`: of the stores made to one line, in order, a prefix is durable; lines are
//!   independent of each other. A store that was non-temporal, or flushed, is durable for certain
//!   after the next fence of the thread that streamed or flushed it; before that, and without that,
//!   it may be or not.
//! - `cpu-cache`: what has reached the caches is durable. A thread's ordinary stores reach them in
//!   order, so that a prefix of them is durable; non-temporal ones wait in buffers of their own, as
//!   above. A fence makes both certain.
//! - `sync`: as in `cpu-flush`, but a fence makes nothing certain, and only a sync does. So any
//!   part of any page may have been written at any time since: more than a disk can do, which
//!   writes sectors whole.
//!
//! What becomes durable in order is a *unit* (a line, or a thread's stores); its state is a number
//! of *steps*: how many of its pending 8-byte pieces are durable.

use crate::arena::{Arena, Files};
use crate::events::{Event, Kind};
use crate::images::{Images, Outcome};
use crate::rng::hash;
use pmem::Domain;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a line.
pub const LINE: usize = 64;
const WORD: usize = 8;

/// A line: slice and number.
pub type LineId = (u32, u64);

/// What becomes durable in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// The stores to a line.
    Line(LineId),
    /// The ordinary stores of a thread.
    Thread(u64),
}

/// One store's part in one line, not certainly durable.
#[derive(Clone, Debug)]
struct Piece {
    /// Number of the event.
    event: usize,
    line: LineId,
    /// Where in the line.
    at: usize,
    data: Vec<u8>,
    /// Threads whose next fence makes it durable.
    ordered_by: Vec<u64>,
    /// Words that it touches.
    words: usize,
}

/// The lines' contents and what is in flight.
#[derive(Debug)]
pub struct Model {
    domain: Domain,
    images: Images,
    /// The same bytes, to be opened; changed only during a look.
    arena: Arena,
    pending: BTreeMap<Unit, Vec<Piece>>,
    hash: u64,
    files: Files,
}

/// A unit in flight, as the selector sees it.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Which.
    pub unit: Unit,
    /// Event and first step after it, for each of its stores in order.
    pub stores: Vec<(usize, usize)>,
    /// Steps in all.
    pub steps: usize,
}

/// A line as one image has it.
pub type Changed = (LineId, [u8; LINE]);

impl Model {
    /// These images, all durable.
    pub fn new(domain: Domain, images: Images) -> Outcome<Model> {
        let (arena, pending) = (Arena::new(domain, &images)?, BTreeMap::new());
        Ok(Model { domain, arena, images, pending, hash: 0, files: Files::All })
    }

    /// The same with these files.
    pub fn with_files(self, files: Files) -> Model {
        Model { arena: self.arena.with(files), files, ..self }
    }

    /// The files that a crash leaves.
    pub fn files(&self) -> Files {
        self.files
    }

    /// The same anew, of images of the same sizes.
    pub fn renew(&mut self, images: &Images) {
        for (slice, image) in images.iter().enumerate() {
            for (number, line) in image.chunks(LINE).enumerate() {
                let at = number * LINE;
                if self.images[slice][at..at + line.len()] != *line {
                    self.images[slice][at..at + line.len()].copy_from_slice(line);
                    self.arena.settle(slice as u32, at, line);
                }
            }
        }
        self.pending.clear();
        self.hash = 0;
    }

    /// When stores are safe.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// What is certainly durable.
    pub fn images(&self) -> &[Vec<u8>] {
        &self.images
    }

    /// The memory to open images in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Whether an event of this kind makes anything certain.
    pub fn settles(domain: Domain, kind: &Kind) -> bool {
        match kind {
            Kind::Fence => domain != Domain::Sync,
            Kind::Sync { .. } => domain == Domain::Sync,
            _ => false,
        }
    }

    /// Takes one event.
    pub fn event(&mut self, index: usize, event: &Event) {
        match &event.kind {
            Kind::Store { slice, offset, data, streamed } => {
                let thread = event.thread;
                let (by, ordered) = match self.domain {
                    Domain::CpuCache => (streamed.then_some(thread), vec![thread]),
                    Domain::Sync => (Some(thread), Vec::new()),
                    _ => (Some(thread), streamed.then_some(thread).into_iter().collect()),
                };
                let unit = |line| by.map_or(Unit::Thread(thread), |_| Unit::Line(line));
                self.store((index, *slice), *offset as usize, data, &unit, &ordered);
            }
            Kind::Flush { slice, offset, len } => {
                let (first, end) = lines(*offset as usize, *len);
                let (first, end) = (Unit::Line((*slice, first)), Unit::Line((*slice, end)));
                for (_, pieces) in self.pending.range_mut(first..end) {
                    pieces.iter_mut().for_each(|p| p.ordered_by.push(event.thread));
                }
            }
            Kind::Fence => self.commit(&|piece| piece.ordered_by.contains(&event.thread)),
            Kind::Sync { slice } => self.commit(&|piece| piece.line.0 == *slice),
            Kind::Begin(_) | Kind::End(_) => {}
        }
    }

    fn store(
        &mut self,
        (event, slice): (usize, u32),
        mut offset: usize,
        data: &[u8],
        unit: &dyn Fn(LineId) -> Unit,
        ordered_by: &[u64],
    ) {
        let mut rest = data;
        while !rest.is_empty() {
            let at = offset % LINE;
            let line = (slice, (offset / LINE) as u64);
            let (part, more) = rest.split_at(rest.len().min(LINE - at));
            let words = (at + part.len()).div_ceil(WORD) - at / WORD;
            let (data, ordered_by) = (part.to_vec(), ordered_by.to_vec());
            let piece = Piece { event, line, at, data, ordered_by, words };
            self.pending.entry(unit(line)).or_default().push(piece);
            offset += part.len();
            rest = more;
        }
    }

    /// Makes durable, of each unit, everything up to its last store that `ordered` names.
    fn commit(&mut self, ordered: &dyn Fn(&Piece) -> bool) {
        let mut done = Vec::new();
        self.pending.retain(|_, pieces| {
            let count = pieces.iter().rposition(ordered).map_or(0, |last| last + 1);
            done.extend(pieces.drain(..count));
            !pieces.is_empty()
        });
        done.sort_by_key(|piece| (piece.line, piece.event));
        for pieces in done.chunk_by(|a, b| a.line == b.line) {
            let line = pieces[0].line;
            let mut content = self.line(line);
            let before = hash(place(line), &content);
            pieces.iter().for_each(|piece| piece.apply(&mut content, usize::MAX));
            self.hash = self.hash.wrapping_sub(before);
            self.hash = self.hash.wrapping_add(hash(place(line), &content));
            let (slice, at) = (line.0, line.1 as usize * LINE);
            self.images[slice as usize][at..at + LINE].copy_from_slice(&content);
            self.arena.settle(slice, at, &content);
        }
    }

    /// What is certainly in a line.
    pub fn line(&self, (slice, number): LineId) -> [u8; LINE] {
        let mut content = [0; LINE];
        let at = number as usize * LINE;
        content.copy_from_slice(&self.images[slice as usize][at..at + LINE]);
        content
    }

    /// The units in flight, in order.
    pub fn in_flight(&self) -> Vec<InFlight> {
        let unit = |(unit, pieces): (&Unit, &Vec<Piece>)| {
            let mut steps = 0;
            let stores = pieces.iter().map(|piece| {
                steps += piece.words;
                (piece.event, steps)
            });
            InFlight { unit: *unit, stores: stores.collect(), steps }
        };
        self.pending.iter().map(unit).collect()
    }

    /// The lines that may be other than they certainly are.
    pub fn uncertain(&self) -> BTreeSet<LineId> {
        self.pending.values().flatten().map(|piece| piece.line).collect()
    }

    /// The lines that are not as in the durable images when each unit in flight has made as many
    /// steps as `steps` says (in the order of `in_flight`); in order.
    pub fn changed(&self, steps: &[u16]) -> Vec<Changed> {
        let mut done: Vec<(&Piece, usize)> = Vec::new();
        for (pieces, steps) in self.pending.values().zip(steps) {
            let mut left = usize::from(*steps);
            for piece in pieces {
                if left == 0 {
                    break;
                }
                done.push((piece, left));
                left = left.saturating_sub(piece.words);
            }
        }
        if self.domain == Domain::CpuCache {
            done.sort_by_key(|(piece, _)| (piece.line, piece.event));
        }
        let mut changed = Vec::new();
        for pieces in done.chunk_by(|a, b| a.0.line == b.0.line) {
            let line = pieces[0].0.line;
            let before = self.line(line);
            let mut content = before;
            pieces.iter().for_each(|(piece, words)| piece.apply(&mut content, *words));
            if content != before {
                changed.push((line, content));
            }
        }
        changed
    }

    /// A hash of a line, with these lines changed.
    pub fn content(&self, changed: &[Changed], line: LineId) -> u64 {
        match changed.binary_search_by_key(&line, |(line, _)| *line) {
            Ok(index) => hash(0, &changed[index].1),
            Err(_) => hash(0, &self.line(line)),
        }
    }

    /// A hash of the images with these lines changed.
    pub fn hash(&self, changed: &[Changed]) -> u64 {
        changed.iter().fold(self.hash, |sum, (line, content)| {
            let before = hash(place(*line), &self.line(*line));
            sum.wrapping_sub(before).wrapping_add(hash(place(*line), content))
        })
    }

    /// A copy of the images with these lines changed.
    pub fn images_with(&self, changed: &[Changed]) -> Images {
        let mut images = self.images.clone();
        for ((slice, number), content) in changed {
            let at = *number as usize * LINE;
            images[*slice as usize][at..at + LINE].copy_from_slice(content);
        }
        images
    }

    /// Runs `look` on memory that holds the images with these lines changed. What it opens there it
    /// drops; what that stored is taken back.
    pub fn with<T>(&self, changed: &[Changed], look: impl FnOnce(&Arena) -> T) -> T {
        for ((slice, number), content) in changed {
            self.arena.put(*slice, *number as usize * LINE, content);
        }
        let result = look(&self.arena);
        self.arena.restore(&self.images);
        result
    }
}

impl Piece {
    /// Puts its first `words` words into the line.
    fn apply(&self, content: &mut [u8; LINE], words: usize) {
        let end = (self.at / WORD).saturating_add(words).min(LINE / WORD) * WORD;
        let len = end.saturating_sub(self.at).min(self.data.len());
        content[self.at..self.at + len].copy_from_slice(&self.data[..len]);
    }
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unit::Line((slice, number)) => write!(f, "{slice}:{:#x}", number * LINE as u64),
            Unit::Thread(thread) => write!(f, "stores of thread {thread}"),
        }
    }
}

fn place((slice, number): LineId) -> u64 {
    u64::from(slice) << 48 | number
}

/// First line, and the one after the last.
pub fn lines(offset: usize, len: usize) -> (u64, u64) {
    ((offset / LINE) as u64, (offset + len).div_ceil(LINE) as u64)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
