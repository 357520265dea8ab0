//! Tests of the free blocks.

use super::*;
use crate::bitmap::{bits_from_bytes, bits_to_bytes};

#[test]
fn every_block_is_given_out_once_and_comes_back() {
    let space = Space::new(10, 3 * GROUP_BLOCKS - 5, 16);
    let all = space.blocks();
    let mut runs = Vec::new();
    assert_eq!(space.take(u64::MAX, Purpose::Data, &mut runs), all - 16);
    assert_eq!(space.take(1, Purpose::Data, &mut Vec::new()), 0, "the reserve is kept back");
    assert_eq!(space.take(u64::MAX, Purpose::Exchange, &mut runs), 2, "an eighth of it is lent");
    assert_eq!(space.take(u64::MAX, Purpose::Checkpoint, &mut runs), 14);
    let mut blocks: Vec<u64> = runs.iter().flat_map(|r| r.first..r.first + r.count).collect();
    blocks.sort_unstable();
    assert_eq!(blocks, (10..3 * GROUP_BLOCKS - 5).collect::<Vec<_>>());
    space.give(&blocks);
    assert_eq!(space.free(), all);
}

#[test]
fn an_empty_slice_gives_one_run() {
    let space = Space::new(0, GROUP_BLOCKS, 0);
    let mut runs = Vec::new();
    space.take(512, Purpose::Data, &mut runs);
    assert_eq!(runs, [Run { first: 0, count: 512 }]);
}

/// Bitmaps in DRAM, of groups.
fn bitmaps(space: &Space) -> usize {
    space.groups.lock().groups.iter().filter(|group| group.used.is_some()).count()
}

#[test]
fn a_group_all_used_or_all_free_has_no_bitmap() {
    // the first group has no block of data, the second some, the last not all
    let space = Space::new(GROUP_BLOCKS + 3, 5 * GROUP_BLOCKS - 7, 0);
    assert_eq!(bitmaps(&space), 0);
    let mut runs = Vec::new();
    space.take(u64::MAX, Purpose::Data, &mut runs);
    assert_eq!((space.free(), bitmaps(&space)), (0, 0), "all used");
    let last = 5 * GROUP_BLOCKS - 8;
    space.give(&[2 * GROUP_BLOCKS, last]);
    assert_eq!((space.free(), bitmaps(&space)), (2, 2));
    assert!(!space.mark_used(2 * GROUP_BLOCKS + 1), "the others are used as before");
    space.give(&[0, last + 1]);
    assert!(space.freed_twice(), "no block of data");
    space.give(&[1 << 39]);
    assert_eq!(space.free(), 2);
    assert!(space.mark_used(last) && space.mark_used(2 * GROUP_BLOCKS));
    assert_eq!((space.free(), bitmaps(&space)), (0, 0), "all used again");
    let all: Vec<u64> = (GROUP_BLOCKS + 3..5 * GROUP_BLOCKS - 7).collect();
    space.give(&all);
    assert_eq!((space.free(), bitmaps(&space)), (space.blocks(), 0), "all free");
    assert!(space.mark_used(last), "free as before");
}

#[test]
fn a_bitmap_round_trips_and_a_claimed_block_is_not_claimed_again() {
    let mut bits = [0u64; WORDS];
    bits[3] = 0b1010;
    assert_eq!(bits_from_bytes(&bits_to_bytes(&bits)), Some(bits));
    assert_eq!(bits_from_bytes(&[0; 3]), None);
    let space = Space::new(0, GROUP_BLOCKS, 0);
    let mut twice = Vec::new();
    assert!(space.load_group(0, &bits, &mut twice) && twice.is_empty());
    assert!(!space.mark_used(3 * 64 + 1));
    assert!(space.mark_used(3 * 64));
    assert!(space.load_group(0, &bits, &mut twice));
    assert!(!twice.is_empty(), "two owners of one block");
    assert_eq!(space.free(), GROUP_BLOCKS - 3);
    let outside = Space::new(3 * 64 + 2, GROUP_BLOCKS, 0);
    assert!(!outside.load_group(0, &bits, &mut twice), "no block of data");
    assert!(!outside.load_group(1, &bits, &mut twice), "no group");
}

#[test]
fn a_block_given_back_twice_is_noticed_and_not_free_twice() {
    let space = Space::new(0, GROUP_BLOCKS, 0);
    let mut runs = Vec::new();
    space.take(1, Purpose::Data, &mut runs);
    space.give(&[0]);
    assert!(!space.freed_twice());
    space.give(&[0]);
    assert!(space.freed_twice());
    assert_eq!(space.free(), GROUP_BLOCKS);
}
