use super::*;
use crate::evictor::Evictor;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

/// One for so many pages.
fn cache(pages_max: usize) -> Cache {
    Cache::new(pages_max, None)
}

fn addr(block: u64) -> BlockAddr {
    BlockAddr::on_device(0, block)
}

fn page(byte: u8) -> Arc<Page> {
    filled(Frame::on_heap(), byte)
}

fn filled(mut frame: Frame, byte: u8) -> Arc<Page> {
    frame.bytes_mut().fill(byte);
    Arc::new(Page::new(frame))
}

fn number(cache: &Cache, block: u64) -> u64 {
    match cache.look(addr(block)) {
        Found::ToLoad(number) => number,
        Found::There(_) => panic!("block {block} is there"),
        Found::Loading => panic!("block {block} is being read"),
    }
}

fn load(cache: &Cache, block: u64) {
    let number = number(cache, block);
    let frame = cache.frame().unwrap_or_else(Frame::on_heap);
    cache.loaded(addr(block), number, Some(&filled(frame, block as u8)));
}

#[test]
fn a_block_is_read_once_and_found_then() {
    let cache = cache(64);
    let first = number(&cache, 7);
    assert!(matches!(cache.look(addr(7)), Found::Loading));
    cache.loaded(addr(7), first, Some(&page(7)));
    cache.wait(addr(7));
    assert_eq!(cache.get(addr(7)).map(|page| page.bytes()[0]), Some(7));
}

#[test]
fn a_read_that_failed_can_be_tried_again() {
    let cache = cache(64);
    let first = number(&cache, 7);
    cache.loaded(addr(7), first, None);
    assert!(cache.get(addr(7)).is_none());
    load(&cache, 7);
    assert!(cache.get(addr(7)).is_some());
}

/// The place of a block is given away while it is read: what was read is not what is there now.
#[test]
fn what_was_read_of_a_place_that_was_given_away_is_thrown_away() {
    let cache = cache(64);
    let early = number(&cache, 7);
    cache.forget(addr(7));
    let late = number(&cache, 7);
    let (old, new) = (page(1), page(2));
    cache.loaded(addr(7), early, Some(&old));
    assert!(old.is_dead());
    assert!(cache.get(addr(7)).is_none(), "the later read is not done");
    cache.loaded(addr(7), late, Some(&new));
    assert_eq!(cache.get(addr(7)).map(|page| page.bytes()[0]), Some(2));
    cache.forget(addr(7));
    assert!(new.is_dead());
}

#[test]
fn there_are_never_more_pages_than_there_is_room_for() {
    let cache = cache(64);
    (0..1000).for_each(|block| load(&cache, block));
    assert!(cache.pages() <= 64, "{}", cache.pages());
}

#[test]
fn pages_that_are_looked_at_stay_longer() {
    let cache = cache(256);
    load(&cache, 5000);
    let mut found = 0;
    for block in 0..2000 {
        load(&cache, block);
        found += usize::from(cache.get(addr(5000)).is_some());
    }
    assert_eq!(found, 2000);
    assert!(cache.get(addr(0)).is_none());
}

#[test]
fn a_page_in_use_is_not_let_go() {
    let cache = cache(16);
    load(&cache, 1);
    let held = cache.get(addr(1)).unwrap();
    (10..500).for_each(|block| load(&cache, block));
    cache.forget(addr(1));
    assert!(held.is_dead(), "the cache knows it still");
}

#[test]
fn all_pages_but_those_in_use_can_be_let_go_at_once() {
    let cache = cache(1024);
    (0..300).for_each(|block| load(&cache, block));
    let held = cache.get(addr(7)).unwrap();
    let reading = number(&cache, 1000);
    assert_eq!(cache.evict_all(), 299);
    assert_eq!(cache.pages(), 1);
    assert_eq!(cache.get(addr(7)).map(|page| page.bytes()[0]), Some(7));
    drop(held);
    cache.loaded(addr(1000), reading, Some(&page(1)));
    assert_eq!(cache.evict_all(), 2, "what was being read is there, too");
    (0..300).for_each(|block| load(&cache, block));
    assert_eq!(cache.pages(), 300);
}

/// Waits until so many frames are free, in a cache that has an evictor.
fn wait_for_free(cache: &Cache, free: usize) {
    let began = Instant::now();
    while cache.frames.free() < free {
        assert!(began.elapsed() < Duration::from_secs(120), "{} are free", cache.frames.free());
        std::thread::yield_now();
    }
}

#[test]
fn callers_make_room_where_nobody_else_does() {
    let cache = cache(1024);
    (0..1024).for_each(|block| load(&cache, block));
    assert_eq!(cache.evicted_by_callers.load(Ordering::Relaxed), 0, "there was room");
    (1024..3000).for_each(|block| load(&cache, block));
    assert_eq!(cache.evicted_by_callers.load(Ordering::Relaxed), 3000 - 1024);
    assert_eq!(cache.pages(), 1024);
}

#[test]
fn room_is_made_for_what_is_to_be_free_and_no_more() {
    let cache = cache(1024);
    // not as many in each part
    let scattered = |count: u64| {
        let mut hash = std::hash::DefaultHasher::new();
        count.hash(&mut hash);
        hash.finish() >> 30
    };
    (0..1024).for_each(|count| load(&cache, scattered(count)));
    cache.make_room();
    assert_eq!((cache.pages(), cache.frames.free()), (960, 64));
    (2000..2030).for_each(|count| load(&cache, scattered(count)));
    cache.make_room();
    assert_eq!((cache.pages(), cache.frames.free()), (960, 64));
}

#[test]
fn an_evictor_keeps_frames_free_and_callers_make_no_room() {
    let cache = Arc::new(cache(1024));
    let evictor = Evictor::start(&cache, "ns-evict 0".to_owned(), Vec::new()).unwrap();
    for block in 0..8000 {
        load(&cache, block);
        if cache.frames.free() < 32 {
            wait_for_free(&cache, 64);
        }
    }
    assert_eq!(cache.evicted_by_callers.load(Ordering::Relaxed), 0);
    assert!((900..=1024).contains(&cache.pages()), "{}", cache.pages());
    assert!(cache.is_full());
    drop(evictor);
    assert_eq!(Arc::strong_count(&cache), 1, "the thread is gone");
    (8000..9000).for_each(|block| load(&cache, block));
    assert!(cache.evicted_by_callers.load(Ordering::Relaxed) > 0, "without it they do");
}

#[test]
fn an_evictor_leaves_what_somebody_has() {
    let cache = Arc::new(cache(1024));
    let _evictor = Evictor::start(&cache, "ns-evict 0".to_owned(), Vec::new()).unwrap();
    (0..992).for_each(|block| load(&cache, block));
    let held: Vec<_> = (0..992).filter_map(|block| cache.get(addr(block))).collect();
    let count = held.len();
    cache.bell().ring();
    (2000..6000).for_each(|block| load(&cache, block));
    for (block, page) in held.iter().enumerate() {
        assert!(page.bytes().iter().all(|byte| *byte == page.bytes()[0]), "{block}");
        assert!(!page.is_dead());
    }
    assert!(count > 900 && cache.pages() <= 1024, "{count} {}", cache.pages());
}

/// All frames are in use: what is needed all the same comes from the heap, is known while somebody
/// has it, and goes with him.
#[test]
fn what_finds_no_frame_is_known_until_it_is_let_go() {
    let cache = cache(16);
    (0..16).for_each(|block| load(&cache, block));
    let held: Vec<_> = (0..16).filter_map(|block| cache.get(addr(block))).collect();
    assert_eq!(held.len(), 16);
    assert!(cache.frame().is_none());
    load(&cache, 100);
    let spare = cache.get(addr(100)).unwrap();
    load(&cache, 101);
    assert_eq!((spare.is_on_heap(), cache.pages()), (true, 18));
    cache.let_go_of(addr(100));
    assert_eq!(cache.pages(), 18, "somebody has it");
    cache.let_go_of(addr(101));
    assert_eq!(cache.pages(), 17);
    cache.forget(addr(100));
    assert!(spare.is_dead());
    drop(held);
    (0..16).for_each(|block| cache.let_go_of(addr(block)));
    assert_eq!(cache.pages(), 16, "these have frames");
    assert!(cache.frame().is_some());
}
