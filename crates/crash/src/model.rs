//! The model of the hardware: which images a power cut can leave.
//!
//! - A line holds 64 bytes. Of the stores made to one line, in order, a prefix is durable; a store
//!   may be torn between aligned words of 8 bytes.
//! - Lines are independent of each other.
//! - A store that was non-temporal, or flushed, is durable for certain after the next fence of the
//!   thread that streamed or flushed it; before that, and without that, it may be or not.
//!
//! A line's state is a number of *steps*: how many of its pending 8-byte pieces are durable.

use crate::arena::Arena;
use crate::events::{Event, Kind};
use crate::images::{Images, Outcome};
use crate::rng::hash;
use std::collections::BTreeMap;

/// Bytes of a line.
pub const LINE: usize = 64;
const WORD: usize = 8;

/// One store's part in one line, not certainly durable.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Number of the event.
    pub event: usize,
    /// Where in the line.
    at: usize,
    data: Vec<u8>,
    /// Threads whose next fence makes it durable.
    ordered_by: Vec<u64>,
    /// Words that it touches.
    words: usize,
}

/// A line: slice and number.
pub type LineId = (u32, u64);

/// The lines' contents and what is in flight.
#[derive(Debug)]
pub struct Model {
    images: Images,
    /// The same bytes, to be opened; changed only during a look.
    arena: Arena,
    pending: BTreeMap<LineId, Vec<Pending>>,
    hash: u64,
}

/// A line in flight, as the selector sees it.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Which.
    pub line: LineId,
    /// Event and first step after it, for each of its stores in order.
    pub stores: Vec<(usize, usize)>,
    /// Steps in all.
    pub steps: usize,
}

impl Model {
    /// These images, all durable.
    pub fn new(images: Images) -> Outcome<Model> {
        Ok(Model { arena: Arena::new(&images)?, images, pending: BTreeMap::new(), hash: 0 })
    }

    /// The same anew, of images of the same sizes.
    pub fn renew(&mut self, images: &Images) {
        self.images.clone_from(images);
        for (slice, image) in images.iter().enumerate() {
            self.arena.settle(slice as u32, 0, image);
        }
        self.pending.clear();
        self.hash = 0;
    }

    /// What is certainly durable.
    pub fn images(&self) -> &[Vec<u8>] {
        &self.images
    }

    /// Takes one event.
    pub fn event(&mut self, index: usize, event: &Event) {
        match &event.kind {
            Kind::Store { slice, offset, data, streamed } => {
                let by = streamed.then_some(event.thread);
                self.store(index, *slice, *offset as usize, data, by);
            }
            Kind::Flush { slice, offset, len } => {
                let (first, end) = lines(*offset as usize, *len);
                for (_, pending) in self.pending.range_mut((*slice, first)..(*slice, end)) {
                    pending.iter_mut().for_each(|p| p.ordered_by.push(event.thread));
                }
            }
            Kind::Fence => self.commit(&|_, p| p.ordered_by.contains(&event.thread)),
            Kind::Sync { slice } => self.commit(&|line, _| line.0 == *slice),
            Kind::Begin(_) | Kind::End(_) => {}
        }
    }

    fn store(&mut self, event: usize, slice: u32, offset: usize, data: &[u8], by: Option<u64>) {
        let mut rest = data;
        let mut offset = offset;
        while !rest.is_empty() {
            let at = offset % LINE;
            let (part, more) = rest.split_at(rest.len().min(LINE - at));
            let words = (at + part.len()).div_ceil(WORD) - at / WORD;
            let ordered_by = by.into_iter().collect();
            let pending = Pending { event, at, data: part.to_vec(), ordered_by, words };
            self.pending.entry((slice, (offset / LINE) as u64)).or_default().push(pending);
            offset += part.len();
            rest = more;
        }
    }

    /// Makes durable, of each line, everything up to its last store that `ordered` names.
    fn commit(&mut self, ordered: &dyn Fn(LineId, &Pending) -> bool) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|line, stores| {
            let count = stores.iter().rposition(|p| ordered(*line, p)).map_or(0, |last| last + 1);
            if count > 0 {
                let mut content = self.line(*line);
                let before = hash(place(*line), &content);
                stores.drain(..count).for_each(|p| p.apply(&mut content, usize::MAX));
                self.hash = self.hash.wrapping_sub(before);
                self.hash = self.hash.wrapping_add(hash(place(*line), &content));
                self.put(*line, &content);
            }
            !stores.is_empty()
        });
        self.pending = pending;
    }

    fn line(&self, (slice, number): LineId) -> [u8; LINE] {
        let mut content = [0; LINE];
        let at = number as usize * LINE;
        content.copy_from_slice(&self.images[slice as usize][at..at + LINE]);
        content
    }

    fn put(&mut self, (slice, number): LineId, content: &[u8; LINE]) {
        let at = number as usize * LINE;
        self.images[slice as usize][at..at + LINE].copy_from_slice(content);
        self.arena.settle(slice, at, content);
    }

    /// The lines in flight, in order.
    pub fn in_flight(&self) -> Vec<InFlight> {
        let line = |(line, stores): (&LineId, &Vec<Pending>)| {
            let mut steps = 0;
            let stores = stores.iter().map(|p| {
                steps += p.words;
                (p.event, steps)
            });
            InFlight { line: *line, stores: stores.collect(), steps }
        };
        self.pending.iter().map(line).collect()
    }

    /// The lines that are not as in the durable images when each line in flight has made as many
    /// steps as `steps` says (in the order of `in_flight`).
    fn changed<'m>(&'m self, steps: &'m [u16]) -> impl Iterator<Item = (LineId, [u8; LINE])> + 'm {
        let kept = self.pending.iter().zip(steps).filter(|(_, steps)| **steps > 0);
        kept.map(|((line, stores), steps)| {
            let mut content = self.line(*line);
            let mut left = usize::from(*steps);
            for store in stores {
                store.apply(&mut content, left);
                left = left.saturating_sub(store.words);
            }
            (*line, content)
        })
    }

    /// A hash of the images with so many steps made.
    pub fn hash(&self, steps: &[u16]) -> u64 {
        self.changed(steps).fold(self.hash, |sum, (line, content)| {
            let before = hash(place(line), &self.line(line));
            sum.wrapping_sub(before).wrapping_add(hash(place(line), &content))
        })
    }

    /// A copy of the images with so many steps made.
    pub fn images_with(&self, steps: &[u16]) -> Images {
        let mut images = self.images.clone();
        for ((slice, number), content) in self.changed(steps) {
            let at = number as usize * LINE;
            images[slice as usize][at..at + LINE].copy_from_slice(&content);
        }
        images
    }

    /// Runs `look` on memory that holds the images with so many steps made. What it opens there it
    /// drops; what that stored is taken back.
    pub fn with<T>(&self, steps: &[u16], look: impl FnOnce(&Arena) -> T) -> T {
        for ((slice, number), content) in self.changed(steps) {
            self.arena.put(slice, number as usize * LINE, &content);
        }
        let result = look(&self.arena);
        self.arena.restore(&self.images);
        result
    }
}

impl Pending {
    /// Puts its first `words` words into the line.
    fn apply(&self, content: &mut [u8; LINE], words: usize) {
        let end = (self.at / WORD).saturating_add(words).min(LINE / WORD) * WORD;
        let len = end.saturating_sub(self.at).min(self.data.len());
        content[self.at..self.at + len].copy_from_slice(&self.data[..len]);
    }
}

fn place((slice, number): LineId) -> u64 {
    u64::from(slice) << 48 | number
}

/// First line, and the one after the last.
fn lines(offset: usize, len: usize) -> (u64, u64) {
    ((offset / LINE) as u64, (offset + len).div_ceil(LINE) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(thread: u64, offset: u64, data: &[u8], streamed: bool) -> Event {
        let kind = Kind::Store { slice: 0, offset, data: data.to_vec(), streamed };
        Event { thread, call: "", kind }
    }

    fn fence(thread: u64) -> Event {
        Event { thread, call: "", kind: Kind::Fence }
    }

    fn flush(thread: u64, offset: u64, len: usize) -> Event {
        Event { thread, call: "", kind: Kind::Flush { slice: 0, offset, len } }
    }

    fn model(events: &[Event]) -> Model {
        let mut model = Model::new(vec![vec![0; 256]]).unwrap();
        events.iter().enumerate().for_each(|(index, event)| model.event(index, event));
        model
    }

    #[test]
    fn a_fence_orders_only_what_its_thread_streamed_or_flushed() {
        let events = [
            store(1, 0, &[1; 64], true),
            store(2, 64, &[2; 64], true),
            store(1, 128, &[3; 8], false),
            store(1, 192, &[4; 8], false),
            flush(1, 192, 8),
            fence(1),
        ];
        let model = model(&events);
        let lines: Vec<u64> = model.in_flight().iter().map(|l| l.line.1).collect();
        assert_eq!(lines, [1, 2], "another thread's, and one without a flush");
        assert_eq!((model.images()[0][0], model.images()[0][192]), (1, 4));
    }

    #[test]
    fn a_flush_covers_what_was_stored_before_it_only() {
        let events =
            [store(1, 0, &[1; 8], false), flush(1, 0, 8), store(1, 0, &[2; 8], false), fence(1)];
        let model = model(&events);
        assert_eq!(model.images()[0][0], 1);
        assert_eq!(model.in_flight().len(), 1);
    }

    #[test]
    fn a_line_keeps_a_prefix_of_its_words_and_is_put_back_after() {
        let model = model(&[store(1, 4, &[7; 20], false), store(1, 0, &[9; 8], false)]);
        assert_eq!(model.in_flight()[0].stores, [(0, 3), (1, 4)]);
        let bytes = |arena: &Arena| arena.mappings(None).unwrap()[0].copy_image();
        let seen = |steps| {
            let seen = model.with(&[steps], |arena| {
                // what is stored during a look goes back, too
                let mapping = arena.mappings(None).unwrap().remove(0);
                let _ = pmem::fence(mapping.write(192, &[5; 9]));
                assert_eq!(mapping.copy_image()[192..201], [5; 9]);
                bytes(arena)[..32].to_vec()
            });
            assert_eq!(model.images_with(&[steps])[0][..32], seen);
            assert_eq!(model.with(&[0], bytes), vec![0; 256]);
            seen
        };
        let mut expected = vec![0; 32];
        assert_eq!(seen(0), expected);
        expected[4..8].fill(7);
        assert_eq!(seen(1), expected);
        expected[4..16].fill(7);
        assert_eq!(seen(2), expected);
        expected[4..24].fill(7);
        assert_eq!(seen(3), expected);
        expected[..8].fill(9);
        assert_eq!(seen(4), expected);
        assert_eq!(model.images()[0], vec![0; 256]);
    }

    #[test]
    fn equal_images_have_equal_hashes_whether_committed_or_in_flight() {
        let stores = [store(1, 0, &[1; 64], true), store(1, 64, &[2; 64], true)];
        let open = model(&stores);
        let closed = model(&[stores.as_slice(), &[fence(1)]].concat());
        assert_eq!(open.hash(&[8, 8]), closed.hash(&[]));
        assert_ne!(open.hash(&[8, 8]), open.hash(&[8, 0]));
        assert_eq!(open.images_with(&[8, 8]), closed.images_with(&[]));
    }
}
