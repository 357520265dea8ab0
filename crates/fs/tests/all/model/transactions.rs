//! Writes to several files that happen together, and blocks that go to the tier in between.

use crate::common::pattern;
use crate::model::compare::expected_read;
use crate::model::harness::{Harness, Verdict, same};
use crate::model::ops::{Op, Pick, Place, place};
use fs::{Error, Expected, FileKind, Handle, Ino, Write};
use proptest::prelude::*;
use std::sync::Arc;

/// A write of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub handle: Pick,
    pub place: Place,
    pub len: usize,
    pub seed: u64,
}

/// What a transaction expects: the bytes that are there, or others.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    pub handle: Pick,
    pub place: Place,
    pub len: usize,
    pub is_met: bool,
}

/// A transaction: of small writes mostly, as they come in many.
pub fn commit() -> impl Strategy<Value = Op> {
    let len = || prop_oneof![6 => 1usize..300, 2 => Just(4096usize), 2 => 300usize..20_000];
    let written = (any::<Pick>(), place(), len(), any::<u64>())
        .prop_map(|(handle, place, len, seed)| Written { handle, place, len, seed });
    let expected = (any::<Pick>(), place(), len(), any::<bool>())
        .prop_map(|(handle, place, len, is_met)| Expectation { handle, place, len, is_met });
    (prop::collection::vec(written, 1..6), prop::option::weighted(0.3, expected))
        .prop_map(|(writes, expected)| Op::Commit { writes, expected })
}

/// Bytes at a place of a file.
struct Bytes {
    ino: Ino,
    handle: Arc<Handle>,
    offset: u64,
    data: Vec<u8>,
}

impl Harness {
    /// All of the writes are made, or none.
    pub fn step_commit(&mut self, writes: &[Written], expected: Option<Expectation>) -> Verdict {
        let blocks: u64 = writes.iter().map(|write| write.len as u64 / 4096 + 2).sum();
        if self.model.blocks() + blocks > self.blocks_max {
            return Ok(());
        }
        let writes: Vec<Bytes> = writes
            .iter()
            .filter_map(|&Written { handle, place, len, seed }| {
                let (ino, handle) = self.handle(handle)?;
                let offset = self.offset(ino, place);
                Some(Bytes { ino, handle, offset, data: pattern(seed, len) })
            })
            .collect();
        let met = expected.is_none_or(|expected| expected.is_met);
        let expected = expected.and_then(|expected| self.expectation(expected));
        let conflicts = !met && expected.is_some() && !writes.is_empty();
        let answer = writes
            .iter()
            .try_for_each(|it| self.model.may_write(it.ino, it.offset, it.data.len()))
            .and(if conflicts { Err(libc::EAGAIN) } else { Ok(()) });
        let all: Vec<Write<'_>> = writes
            .iter()
            .map(|it| Write { file: &it.handle, offset: it.offset, data: &it.data })
            .collect();
        let seen: Vec<Expected<'_>> = expected
            .iter()
            .map(|it| Expected { file: &it.handle, offset: it.offset, data: &it.data })
            .collect();
        match self.fs().commit(&all, &seen) {
            // more than a log so small holds: nothing happened
            Err(Error::TooLong) if answer.is_ok() => return Ok(()),
            done => same("commit", done, answer)?,
        }
        if answer.is_ok() {
            for it in &writes {
                same("write", Ok(()), self.model.write(it.ino, it.offset, &it.data))?;
            }
        }
        Ok(())
    }

    /// Bytes of a file, as they are or with one of them changed; zeros lie behind its end.
    fn expectation(&self, expected: Expectation) -> Option<Bytes> {
        let Expectation { handle, place, len, is_met } = expected;
        let (ino, handle) = self.handle(handle)?;
        let offset = self.offset(ino, place);
        let node = self.model.nodes.get(&ino).filter(|node| node.kind == FileKind::File)?;
        offset.checked_add(len as u64).filter(|end| *end <= fs::FILE_BYTES_MAX)?;
        let mut data = expected_read(node, offset, len).ok()?;
        data.resize(len, 0);
        data[len / 2] ^= u8::from(!is_met);
        Some(Bytes { ino, handle, offset, data })
    }

    /// What lies in slices goes to the tier, and perhaps is in DRAM no more.
    pub fn step_write_back(&self, evict: bool) -> Verdict {
        same("write back", self.fs().write_back_all().map(|_| ()), Ok(()))?;
        if evict {
            self.fs().evict_caches();
        }
        Ok(())
    }
}
