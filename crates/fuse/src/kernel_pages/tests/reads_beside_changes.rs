//! READs that fill pages beside a change: they wait for nobody, and may read what was before.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{BLOCK, scratch, scratch_of};

/// The page that such a READ brings is gone when the change returns.
#[test]
fn a_call_returns_when_what_was_read_beside_it_is_gone() {
    let scratch = scratch();
    scratch.other_writes(0, b"before");
    scratch.held.drop_pages(|| ());
    let file = scratch.kernel.file(&scratch.handle);
    let fill = file.begin_fill(0, BLOCK);
    let read = scratch.content()[..BLOCK].to_vec();
    let steps = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            scratch.fs().write(&scratch.handle, 0, b"behind").unwrap();
            steps.load(Ordering::SeqCst)
        });
        while scratch.content()[..6] != *b"behind" {
            std::thread::yield_now();
        }
        steps.store(1, Ordering::SeqCst);
        file.give_as_read(fill, 0, &read, BLOCK);
        steps.store(2, Ordering::SeqCst);
        // what is stored to that page by a mapping comes, and nothing else of it
        let mut page = read.clone();
        page[100] = b'B';
        scratch.held.drop_pages(|| {
            scratch.write_back(0, &page);
            steps.store(3, Ordering::SeqCst);
        });
        assert_eq!(writer.join().unwrap(), 3, "it has waited");
    });
    assert_eq!(&scratch.content()[..6], b"behind");
    assert_eq!(&scratch.content()[99..102], b"aBa");
    // one that gave the kernel nothing is waited for as long as it takes
    let fill = file.begin_fill(0, BLOCK);
    file.end_fill(fill);
    scratch.fs().write(&scratch.handle, 0, b"again").unwrap();
    scratch.close();
}

/// The kernel hears of the cut by itself, and makes zeros of what was cut.
#[test]
fn what_was_cut_beside_a_read_may_be_zeros() {
    let scratch = scratch();
    let file = scratch.kernel.file(&scratch.handle);
    let fill = file.begin_fill(0, BLOCK);
    let mut page = scratch.content()[..BLOCK].to_vec();
    scratch.cut(1000);
    file.give_as_read(fill, 0, &page, BLOCK);
    scratch.other_writes(1500, b"long again");
    page[1000..].fill(0);
    page[10] = b'B';
    scratch.write_back(0, &page[..1510]);
    let content = scratch.content();
    assert_eq!(&content[9..12], b"aBa");
    assert_eq!(&content[1500..], b"long again");
    scratch.close();
}

/// A write through pages waits for a READ of its own kernel that may lack it.
#[test]
fn a_write_returns_when_what_its_kernel_read_beside_it_is_gone() {
    let scratch = scratch_of(false, 2);
    scratch.other_writes(0, b"before");
    scratch.held.drop_pages(|| ());
    let file = scratch.kernel.file(&scratch.handle);
    let fill = file.begin_fill(0, BLOCK);
    let read = scratch.content()[..BLOCK].to_vec();
    let is_given = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            scratch.writes_through(0, b"own");
            is_given.load(Ordering::SeqCst)
        });
        while scratch.content()[..3] != *b"own" {
            std::thread::yield_now();
        }
        is_given.store(1, Ordering::SeqCst);
        file.give_as_read(fill, 0, &read, BLOCK);
        scratch.held.drop_pages(|| is_given.store(2, Ordering::SeqCst));
        assert_eq!(writer.join().unwrap(), 2, "it has waited");
    });
    assert!(scratch.fill()[..6] == *b"ownore");
    scratch.close();
}
