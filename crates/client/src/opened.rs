//! What a process has open, to be opened again by the next service.

use std::collections::BTreeMap;

use fs::LockKind;
use wire::{Flags, Held, Proof, Reply, Request};

/// A file or a directory that is open.
#[derive(Clone, Debug)]
struct One {
    ino: u64,
    /// None: a directory.
    flags: Option<Flags>,
    proof: Proof,
    /// Its locks: apart from each other, and in order.
    locks: Vec<Held>,
}

/// What a process has open, by number.
#[derive(Debug, Default)]
pub struct Opened(BTreeMap<u64, One>);

impl Opened {
    /// Notes what an answer means for what is open.
    pub fn note(&mut self, request: &Request<'_>, reply: &Reply) {
        match (request, reply) {
            (Request::Open(_, flags), Reply::Opened(number, attr, proof)) => {
                self.add(*number, attr.ino.0, Some(*flags), *proof);
            }
            (Request::OpenDirectory(_), Reply::Opened(number, attr, proof)) => {
                self.add(*number, attr.ino.0, None, *proof);
            }
            (Request::Close(number), _) => {
                self.0.remove(number);
            }
            (Request::Lock { file, kind, start, end, .. }, Reply::Done) => {
                let held = Held { kind: *kind, start: *start, end: *end };
                if let Some(one) = self.0.get_mut(file) {
                    set_lock(&mut one.locks, held);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, number: u64, ino: u64, flags: Option<Flags>, proof: Proof) {
        self.0.insert(number, One { ino, flags, proof, locks: Vec::new() });
    }

    /// How all of it is opened again.
    pub fn requests(&self) -> impl Iterator<Item = Request<'static>> + '_ {
        self.0.iter().map(|(number, one)| Request::Restore {
            number: *number,
            ino: one.ino,
            // to make or empty it was the first time's
            flags: one.flags,
            proof: one.proof,
            locks: one.locks.clone(),
        })
    }
}

/// Changes what is held of a range.
fn set_lock(locks: &mut Vec<Held>, new: Held) {
    let mut rest = Vec::with_capacity(locks.len() + 2);
    for held in locks.drain(..) {
        if held.end < new.start || held.start > new.end {
            rest.push(held);
            continue;
        }
        if held.start < new.start {
            rest.push(Held { end: new.start - 1, ..held });
        }
        if held.end > new.end {
            rest.push(Held { start: new.end + 1, ..held });
        }
    }
    if new.kind != LockKind::Unlock {
        rest.push(new);
    }
    rest.sort_by_key(|held| held.start);
    for held in rest {
        match locks.last_mut() {
            Some(last) if last.kind == held.kind && last.end.checked_add(1) == Some(held.start) => {
                last.end = held.end;
            }
            _ => locks.push(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same of 64 bytes, byte by byte.
    #[test]
    fn locks_are_what_they_are_byte_by_byte() {
        let mut random = 1u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        let kinds = [LockKind::Read, LockKind::Write, LockKind::Unlock];
        let (mut locks, mut bytes) = (Vec::new(), [LockKind::Unlock; 64]);
        for _ in 0..10_000 {
            let (start, len) = (below(64), below(64));
            let (kind, end) = (kinds[below(3) as usize], (start + len).min(63));
            set_lock(&mut locks, Held { kind, start, end });
            bytes[start as usize..=end as usize].fill(kind);
            let mut seen = [LockKind::Unlock; 64];
            for held in &locks {
                seen[held.start as usize..=held.end as usize].fill(held.kind);
            }
            assert_eq!(seen, bytes);
            let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0] != LockKind::Unlock);
            assert_eq!(locks.len(), runs.count(), "none is longer than it has to be");
        }
        set_lock(&mut locks, Held { kind: LockKind::Write, start: 0, end: u64::MAX });
        assert_eq!(locks.len(), 1);
        set_lock(&mut locks, Held { kind: LockKind::Unlock, start: 5, end: u64::MAX });
        assert_eq!(locks, [Held { kind: LockKind::Write, start: 0, end: 4 }]);
    }
}
