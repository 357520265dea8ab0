//! What a transaction writes, put in order: pieces of each file that do not touch each other.

use crate::commit::Write;
use crate::inode::Inode;
use crate::write::blocks_of;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where in a file bytes go, and the bytes.
pub type Piece<'d> = (u64, Cow<'d, [u8]>);

/// What a transaction writes to one file: pieces that do not touch, in their order.
pub struct Part<'d> {
    pub inode: &'d Arc<Inode>,
    pub pieces: Vec<Piece<'d>>,
}

impl<'d> Part<'d> {
    /// Its pieces, each with the part.
    pub fn each(&self) -> impl Iterator<Item = (&Part<'d>, &Piece<'d>)> {
        self.pieces.iter().map(move |piece| (self, piece))
    }
}

/// The blocks of one file that are held.
pub struct Hull<'d> {
    pub inode: &'d Arc<Inode>,
    pub first: u64,
    pub last: u64,
}

impl<'d> Hull<'d> {
    pub fn of(inode: &'d Arc<Inode>, offset: u64, len: usize) -> Hull<'d> {
        let (first, last) = blocks_of(offset, len);
        Hull { inode, first, last }
    }

    /// One for each file, in the order of their numbers.
    pub fn join(mut all: Vec<Hull<'d>>) -> Vec<Hull<'d>> {
        all.sort_by_key(|it| it.inode.ino);
        let mut joined: Vec<Hull<'d>> = Vec::new();
        for it in all {
            match joined.last_mut().filter(|last| last.inode.ino == it.inode.ino) {
                Some(last) => {
                    last.first = last.first.min(it.first);
                    last.last = last.last.max(it.last);
                }
                None => joined.push(it),
            }
        }
        joined
    }
}

/// What is written to each file, in the order of their numbers: later writes over earlier ones.
pub fn parts_of<'d>(writes: &[Write<'d>]) -> Vec<Part<'d>> {
    let mut sorted: Vec<&Write<'d>> = writes.iter().filter(|it| !it.data.is_empty()).collect();
    // stable: those of one file stay in the order in which they were made
    sorted.sort_by_key(|write| write.file.inode.ino);
    let mut parts: Vec<Part<'d>> = Vec::new();
    for group in sorted.chunk_by(|a, b| a.file.inode.ino == b.file.inode.ino) {
        let mut pieces = Pieces::default();
        group.iter().for_each(|write| pieces.put(write.offset, write.data));
        parts.push(Part { inode: &group[0].file.inode, pieces: pieces.0.into_iter().collect() });
    }
    parts
}

/// Pieces of a file that do not touch each other, by where they begin.
#[derive(Default)]
struct Pieces<'d>(BTreeMap<u64, Cow<'d, [u8]>>);

impl<'d> Pieces<'d> {
    /// Puts bytes over what is there. What goes on where a piece ends makes it longer: that costs
    /// as much as the bytes, however long the piece is.
    fn put(&mut self, offset: u64, data: &'d [u8]) {
        let end = offset + data.len() as u64;
        // only the last of those that begin in it can reach further
        let mut behind = None;
        while let Some((&start, _)) = self.0.range(offset + 1..=end).next_back() {
            let piece = self.0.remove(&start).unwrap_or_default();
            if behind.is_none() && start + piece.len() as u64 > end {
                behind = Some((end - start, piece));
            }
        }
        let before = self.0.range_mut(..=offset).next_back();
        let before = before.filter(|(start, piece)| **start + piece.len() as u64 >= offset);
        match (before, behind) {
            (None, None) => drop(self.0.insert(offset, Cow::Borrowed(data))),
            (Some((start, piece)), behind) => {
                let at = (offset - start) as usize;
                let piece = piece.to_mut();
                piece.resize(piece.len().max(at + data.len()), 0);
                piece[at..at + data.len()].copy_from_slice(data);
                if let Some((from, rest)) = behind {
                    piece.extend_from_slice(&rest[from as usize..]);
                }
            }
            (None, Some((from, rest))) => {
                let mut piece = data.to_vec();
                piece.extend_from_slice(&rest[from as usize..]);
                self.0.insert(offset, Cow::Owned(piece));
            }
        }
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
