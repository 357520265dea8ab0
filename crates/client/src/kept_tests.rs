//! Copies of a connection, and what is said of them.

use super::*;
use std::os::unix::fs::MetadataExt;

fn said(kept: &Kept, said: OfCopy, data: &[u8]) -> bool {
    kept.hear(&wire::encode(&said, Vec::new()).unwrap(), data)
}

fn pages(numbers: Range<u8>) -> Vec<u8> {
    numbers.flat_map(|number| vec![number; PAGE as usize]).collect()
}

/// The first byte of a page; none: it is not there.
fn first_of(memory: &File, page: u64) -> u8 {
    let mut byte = [0];
    memory.read_exact_at(&mut byte, page * PAGE).unwrap();
    byte[0]
}

fn there(memory: &File) -> u64 {
    memory.metadata().unwrap().blocks() * 512 / PAGE
}

#[test]
fn pages_come_change_and_go_as_it_is_said() {
    let kept = Kept::default();
    let memory = File::from(kept.make(1, 10 * PAGE - 5, 100 * PAGE).unwrap());
    assert_eq!(there(&memory), 0);
    assert!(said(&kept, OfCopy::Pages { copy: 1, page: 2 }, &pages(1..5)));
    assert_eq!((there(&memory), first_of(&memory, 2), first_of(&memory, 5)), (4, 1, 4));
    // of what is written, what has a page
    assert!(said(&kept, OfCopy::Written { copy: 1, at: 5 * PAGE - 3 }, &[9; 4 + 4096]));
    assert_eq!((there(&memory), first_of(&memory, 5), first_of(&memory, 6)), (4, 9, 0));
    let mut end = [0; 4];
    memory.read_exact_at(&mut end, 5 * PAGE - 4).unwrap();
    assert_eq!(end, [3, 9, 9, 9]);
    assert!(said(&kept, OfCopy::Gone { copy: 1, page: 3, pages: 2 }, &[]));
    assert_eq!((there(&memory), first_of(&memory, 3), first_of(&memory, 5)), (2, 0, 9));
    assert!(said(&kept, OfCopy::Gone { copy: 1, page: 0, pages: u64::MAX }, &[]));
    assert_eq!(there(&memory), 0);
    // nobody has it any more, and what is said of it is late
    kept.remove(1);
    assert!(said(&kept, OfCopy::Pages { copy: 1, page: 2 }, &pages(1..5)));
    assert!(said(&kept, OfCopy::Written { copy: 1, at: 0 }, &[1]));
    assert_eq!((there(&memory), kept.0.lock().present), (0, 0));
}

#[test]
fn what_makes_no_sense_is_told_and_changes_nothing() {
    let kept = Kept::default();
    let memory = File::from(kept.make(1, 10 * PAGE, 100 * PAGE).unwrap());
    let of = |page| OfCopy::Pages { copy: 1, page };
    let written = |at| OfCopy::Written { copy: 1, at };
    assert!(!said(&kept, of(9), &pages(1..3)) && !said(&kept, of(u64::MAX), &pages(1..2)));
    assert!(!said(&kept, of(0), &[1; 4097]));
    assert!(!said(&kept, written(10 * PAGE), &[1]) && !said(&kept, written(u64::MAX), &[1]));
    assert!(!kept.hear(&[200, 3], &[]) && !kept.hear(&[], &[]));
    assert_eq!(there(&memory), 0);
}

#[test]
fn no_more_is_kept_than_there_may_be() {
    let kept = Kept::default();
    let memories = [1, 2].map(|copy| File::from(kept.make(copy, 1000 * PAGE, 64 * PAGE).unwrap()));
    let both = || memories.iter().map(there).sum::<u64>();
    for round in 0..500u64 {
        let (copy, page) = (1 + round % 2, round * 13 % 990);
        assert!(said(&kept, OfCopy::Pages { copy, page }, &pages(1..9)));
        let memory = &memories[copy as usize - 1];
        assert!((page..page + 8).all(|page| first_of(memory, page) as u64 > 0));
        assert!(both() <= 64, "{}", both());
        if round % 7 == 0 {
            said(&kept, OfCopy::Gone { copy: 1, page: 0, pages: 500 }, &[]);
        }
        let state = kept.0.lock();
        assert_eq!(state.present as u64, both());
        assert!(state.queue.len() < 2000);
    }
}
