//! Content of a file in the reference model: blocks that are there, and a size.

use std::collections::BTreeMap;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// A file's bytes; blocks that are not there are holes.
#[derive(Clone, Default, Debug)]
pub struct Content {
    /// Size, bytes.
    pub size: u64,
    /// Blocks by number.
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Blocks that were set aside, by number; false where a copy may have let go of it.
    pub reserved: BTreeMap<u64, bool>,
}

impl Content {
    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % BLOCK) as usize;
            let (piece, more) = rest.split_at(rest.len().min(BLOCK as usize - inside));
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[inside..inside + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = more;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Reads.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset));
        let mut out = vec![0; len as usize];
        let end = offset + len;
        for (number, block) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let (low, high) = (start.max(offset), (start + BLOCK).min(end));
            if low < high {
                let bytes = &block[(low - start) as usize..(high - start) as usize];
                out[(low - offset) as usize..(high - offset) as usize].copy_from_slice(bytes);
            }
        }
        out
    }

    /// Cuts off or extends.
    pub fn truncate(&mut self, size: u64) {
        if size <= self.size {
            self.reserved.split_off(&size.div_ceil(BLOCK));
        }
        if size < self.size {
            self.blocks.split_off(&size.div_ceil(BLOCK));
            if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
                block[(size % BLOCK) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// Zeroes the bytes `offset..end`; whole blocks (the last one of the file counts as whole)
    /// become holes.
    pub fn punch(&mut self, offset: u64, end: u64) {
        let last = if end >= self.size { self.size.div_ceil(BLOCK) } else { 0 };
        let gone = offset.div_ceil(BLOCK)..last.max(end / BLOCK);
        self.reserved.retain(|number, _| !gone.contains(number));
        let end = end.min(self.size);
        if offset >= end {
            return;
        }
        let reach = if end == self.size { end.next_multiple_of(BLOCK) } else { end };
        let numbers: Vec<u64> =
            self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).map(|(n, _)| *n).collect();
        for number in numbers {
            let start = number * BLOCK;
            if offset <= start && start + BLOCK <= reach {
                self.blocks.remove(&number);
            } else if let Some(block) = self.blocks.get_mut(&number) {
                let low = offset.max(start) - start;
                let high = end.min(start + BLOCK) - start;
                block[low as usize..high as usize].fill(0);
            }
        }
    }

    /// Sets blocks aside.
    pub fn reserve(&mut self, offset: u64, end: u64) {
        self.reserved.extend((offset / BLOCK..end.div_ceil(BLOCK)).map(|number| (number, true)));
    }

    /// A copy went there.
    pub fn copied(&mut self, offset: u64, end: u64) {
        for (_, surely) in self.reserved.range_mut(offset / BLOCK..end.div_ceil(BLOCK)) {
            *surely = false;
        }
    }

    /// How many blocks it takes, at least and at most.
    pub fn takes(&self) -> (u64, u64) {
        let least = self.reserved.values().filter(|surely| **surely).count();
        let more = self.reserved.keys().filter(|number| !self.blocks.contains_key(number)).count();
        (least as u64, (self.blocks.len() + more) as u64)
    }

    /// First data or hole at or after `offset`; `None`: there is none.
    pub fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        if data {
            let (number, _) = self.blocks.range(offset / BLOCK..).next()?;
            return Some((number * BLOCK).max(offset)).filter(|at| *at < self.size);
        }
        let mut number = offset / BLOCK;
        while self.blocks.contains_key(&number) {
            number += 1;
        }
        Some((number * BLOCK).max(offset).min(self.size))
    }
}
