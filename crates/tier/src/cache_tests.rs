use super::*;
use pool::BLOCK_BYTES;

fn addr(block: u64) -> BlockAddr {
    BlockAddr::on_device(0, block)
}

fn page(byte: u8) -> Arc<Page> {
    Arc::new(Page::new(&[byte; BLOCK_BYTES as usize]))
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
    cache.loaded(addr(block), number, Some(&page(block as u8)));
}

#[test]
fn a_block_is_read_once_and_found_then() {
    let cache = Cache::new(64);
    let first = number(&cache, 7);
    assert!(matches!(cache.look(addr(7)), Found::Loading));
    cache.loaded(addr(7), first, Some(&page(7)));
    cache.wait(addr(7));
    assert_eq!(cache.get(addr(7)).map(|page| page.bytes()[0]), Some(7));
}

#[test]
fn a_read_that_failed_can_be_tried_again() {
    let cache = Cache::new(64);
    let first = number(&cache, 7);
    cache.loaded(addr(7), first, None);
    assert!(cache.get(addr(7)).is_none());
    load(&cache, 7);
    assert!(cache.get(addr(7)).is_some());
}

/// The place of a block is given away while it is read: what was read is not what is there now.
#[test]
fn what_was_read_of_a_place_that_was_given_away_is_thrown_away() {
    let cache = Cache::new(64);
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
    let cache = Cache::new(64);
    (0..1000).for_each(|block| load(&cache, block));
    assert!(cache.pages() <= 64, "{}", cache.pages());
}

#[test]
fn pages_that_are_looked_at_stay_longer() {
    let cache = Cache::new(256);
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
    let cache = Cache::new(16);
    load(&cache, 1);
    let held = cache.get(addr(1)).unwrap();
    (10..500).for_each(|block| load(&cache, block));
    cache.forget(addr(1));
    assert!(held.is_dead(), "the cache knows it still");
}

#[test]
fn all_pages_but_those_in_use_can_be_let_go_at_once() {
    let cache = Cache::new(1024);
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
