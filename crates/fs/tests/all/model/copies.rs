//! Copies inside the file system, in the reference and against it.

use crate::model::compare;
use crate::model::content::{BLOCK, Content};
use crate::model::harness::{Harness, Verdict, same};
use crate::model::ops::{Pick, Place};
use crate::model::reference::{ANY_ERROR, Answer, Model};
use fs::{FileKind, Ino};

impl Content {
    /// Takes over a part of one block at most, from `source`, whose bytes lie alike in theirs.
    /// Holes stay holes.
    fn share(&mut self, source: &Content, from: u64, to: u64, bytes: u64) {
        let ends = from + bytes == source.size && self.size <= to + bytes;
        let whole = to.is_multiple_of(BLOCK) && (bytes == BLOCK || ends);
        match source.blocks.get(&(from / BLOCK)) {
            None => {
                self.punch(to, to + bytes);
                self.size = self.size.max(to + bytes);
            }
            Some(block) if whole => {
                self.blocks.insert(to / BLOCK, block.clone());
                self.size = self.size.max(to + bytes);
            }
            Some(_) => self.write(to, &source.read(from, bytes as usize)),
        }
    }
}

impl Model {
    /// Copies; returns how many bytes.
    fn copy(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Answer<u64> {
        let source = self.node(from.0)?;
        match source.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(libc::EISDIR),
            _ => return Err(ANY_ERROR),
        }
        let source = source.content.clone();
        if self.node(to.0)?.kind != FileKind::File {
            return Err(ANY_ERROR);
        }
        let len = len.min(source.size.saturating_sub(from.1));
        match to.1.checked_add(len) {
            Some(end) if end <= fs::FILE_BYTES_MAX => {}
            _ => return Err(libc::EFBIG),
        }
        if from.0 == to.0 && len > 0 && from.1.abs_diff(to.1) < len {
            return Err(libc::EINVAL);
        }
        let node = self.node_mut(to.0)?;
        node.modified = None;
        if from.1 % BLOCK != to.1 % BLOCK {
            node.content.write(to.1, &source.read(from.1, len as usize));
            return Ok(len);
        }
        node.content.copied(to.1, to.1 + len);
        let mut done = 0;
        while done < len {
            let (from, to) = (from.1 + done, to.1 + done);
            let bytes = (len - done).min(BLOCK - from % BLOCK);
            node.content.share(&source, from, to, bytes);
            done += bytes;
        }
        Ok(len)
    }
}

impl Harness {
    pub fn step_copy(&mut self, from: (Pick, Place), to: (Pick, Place), len: u64) -> Verdict {
        let (Some(source), Some(target)) = (self.handle(from.0), self.handle(to.0)) else {
            return Ok(());
        };
        let from = (source.0, self.offset(source.0, from.1));
        let to = (target.0, self.offset(target.0, to.1));
        let size = self.model.nodes[&source.0].content.size;
        // the reference goes from block to block, and holds what is written
        let len = len.min(4 << 20);
        let blocks = len.min(size.saturating_sub(from.1)) / BLOCK;
        if self.model.blocks() + blocks > self.blocks_max {
            return Ok(());
        }
        let copied = self.fs().copy((&source.1, from.1), (&target.1, to.1), len);
        same("copy", copied, self.model.copy(from, to, len))?;
        [source.0, target.0]
            .iter()
            .try_for_each(|ino| compare::node(self.fs(), *ino, &self.model.nodes[ino]))
    }
}
