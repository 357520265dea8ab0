//! The sequence number under every order of two writers' and a reader's steps that the memory
//! model allows: a reader never takes half of a publication, and never reads under a dead number.
//!
//! The source file is the engine's own; only the atomics are loom's.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../src/sequence.rs"]
mod sequence;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub fn pause(_tries: &mut u32) {
        loom::thread::yield_now();
    }
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use sequence::Sequence;

#[derive(Default)]
struct Guarded {
    sequence: Sequence,
    a: AtomicU64,
    b: AtomicU64,
}

fn publish(guarded: &Guarded, value: u64) {
    let lock = guarded.sequence.lock().unwrap();
    guarded.a.store(value, Ordering::Relaxed);
    guarded.b.store(value, Ordering::Relaxed);
    drop(lock);
}

#[test]
fn a_reader_takes_all_or_nothing_of_a_publication() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::default());
        let writer = guarded.clone();
        let thread = loom::thread::spawn(move || publish(&writer, 1));
        let before = guarded.sequence.begin_read().unwrap();
        let seen = (guarded.a.load(Ordering::Relaxed), guarded.b.load(Ordering::Relaxed));
        if guarded.sequence.still(before) {
            assert_eq!(seen.0, seen.1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn two_writers_exclude_each_other() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::default());
        let writer = guarded.clone();
        let thread = loom::thread::spawn(move || publish(&writer, 1));
        publish(&guarded, 2);
        thread.join().unwrap();
        let seen = (guarded.a.load(Ordering::Relaxed), guarded.b.load(Ordering::Relaxed));
        assert_eq!(seen.0, seen.1);
    });
}

#[test]
fn nothing_is_read_or_stored_under_a_dead_number() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::default());
        let killer = guarded.clone();
        let thread = loom::thread::spawn(move || killer.sequence.lock().unwrap().kill());
        if let Some(before) = guarded.sequence.begin_read()
            && guarded.sequence.still(before)
        {
            assert_eq!(guarded.a.load(Ordering::Relaxed), 0);
        }
        thread.join().unwrap();
        assert!(guarded.sequence.lock().is_none());
        assert!(guarded.sequence.begin_read().is_none());
    });
}
