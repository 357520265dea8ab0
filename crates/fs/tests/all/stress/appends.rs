//! Appends from several threads: every piece is there once and whole.

use crate::common::{self, TestPool, content, find, make, pattern};
use crate::stress::{Clock, pool};
use fs::{FileSystem, Ino, RenameMode, SetAttr, XattrMode};
use std::collections::BTreeMap;
use std::time::Duration;

/// A piece begins with its length and its seed; the rest follows from the seed.
const HEAD: usize = 16;

fn piece(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = pattern(seed, len);
    bytes[..8].copy_from_slice(&(len as u64).to_le_bytes());
    bytes[8..HEAD].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// The pieces of a file: seed and length by offset.
fn pieces(bytes: &[u8]) -> BTreeMap<u64, (u64, usize)> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (len, seed) = (word(at) as usize, word(at + 8));
        assert!((HEAD..8 << 20).contains(&len) && at + len <= bytes.len(), "no piece at {at}");
        assert!(bytes[at..at + len] == piece(seed, len)[..], "the piece at {at} is torn");
        found.insert(at as u64, (seed, len));
        at += len;
    }
    found
}

/// Appends pieces of the lengths that `len` gives, from three threads, `rounds` each at most;
/// gives what was acknowledged.
fn append_all(
    fs: &FileSystem,
    clock: &Clock,
    rounds: u64,
    len: fn(u64) -> usize,
) -> BTreeMap<u64, (u64, usize)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                scope.spawn(move || {
                    let handle = find(fs, "file");
                    let mut own = Vec::new();
                    for round in 0..rounds {
                        let seed = thread << 32 | round;
                        let len = len(seed);
                        let offset = fs.append(&handle, &piece(seed, len)).unwrap();
                        own.push((offset, (seed, len)));
                        if !clock.runs() {
                            break;
                        }
                    }
                    own
                })
            })
            .collect();
        scope.spawn(|| clock.checkpoints(fs, Duration::from_millis(20)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn small_appends_from_three_threads_are_all_there_once() {
    let mut pool = pool(None);
    let fs = pool.start();
    drop(make(&fs, "file"));
    let lens = |seed: u64| HEAD + (seed.wrapping_mul(7919) % 700) as usize;
    let acknowledged = append_all(&fs, &Clock::start(), 6000, lens);
    assert_eq!(pieces(&content(&fs, &find(&fs, "file"))), acknowledged);
    let fs = pool.killed(fs);
    assert_eq!(pieces(&content(&fs, &find(&fs, "file"))), acknowledged);
}

#[test]
fn appends_larger_than_a_record_are_all_there_once() {
    let mut pool = pool(None);
    let fs = pool.start();
    drop(make(&fs, "file"));
    let lens = |seed: u64| (2 << 20) + 1000 + (seed % 5000) as usize;
    let acknowledged = append_all(&fs, &Clock::start(), 4, lens);
    assert_eq!(pieces(&content(&fs, &find(&fs, "file"))), acknowledged);
    let fs = pool.killed(fs);
    assert_eq!(pieces(&content(&fs, &find(&fs, "file"))), acknowledged);
}

/// The record of a change of attributes carries the size: it must not carry it back in time. Each
/// file meets one append and one change at the same moment, and nothing after.
fn attributes_against_appends(change: impl Fn(&FileSystem, Ino, u64) + Sync) {
    const FILES: usize = 60;
    let mut options = common::options(1, 64 << 20);
    options.log_bytes = Some(8 << 20);
    let pool = TestPool::with(&options);
    for round in 0..30 {
        let fs = pool.start_alone();
        let name = |i: usize| format!("f{}", round * FILES + i);
        let files: Vec<_> = (0..FILES).map(|i| make(&fs, &name(i))).collect();
        fs.checkpoint().unwrap();
        crate::stress::meet(
            FILES,
            |i| {
                fs.append(&files[i], &piece(i as u64, 100)).unwrap();
            },
            |i| change(&fs, files[i].ino(), (round * FILES + i) as u64),
        );
        let inos: Vec<Ino> = files.iter().map(|handle| handle.ino()).collect();
        drop(files);
        drop(fs);
        pool.assert_clean();
        let fs = pool.start_alone();
        let replayed = fs.replayed();
        assert!(replayed >= 2 * FILES as u64, "only {replayed} records were not folded");
        let short: Vec<usize> =
            (0..FILES).filter(|i| fs.getattr(inos[*i]).unwrap().size != 100).collect();
        assert!(short.is_empty(), "round {round}: appends are lost in files {short:?}");
    }
}

#[test]
fn a_mode_changed_during_an_append_does_not_undo_it_after_a_kill() {
    attributes_against_appends(|fs, ino, _| {
        let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        fs.setattr(ino, &change).unwrap();
    });
}

#[test]
fn an_xattr_set_during_an_append_does_not_undo_it_after_a_kill() {
    attributes_against_appends(|fs, ino, _| {
        fs.setxattr(ino, b"user.x", b"value", XattrMode::Any).unwrap();
    });
}

#[test]
fn a_link_made_during_an_append_does_not_undo_it_after_a_kill() {
    attributes_against_appends(|fs, ino, _| {
        fs.link(ino, Ino::ROOT, format!("link{}", ino.0).as_bytes()).unwrap();
    });
}

#[test]
fn a_rename_during_an_append_does_not_undo_it_after_a_kill() {
    attributes_against_appends(|fs, _, i| {
        let (from, to) = (format!("f{i}"), format!("g{i}"));
        let ends = ((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()));
        fs.rename(ends.0, ends.1, RenameMode::Replace).unwrap();
    });
}
