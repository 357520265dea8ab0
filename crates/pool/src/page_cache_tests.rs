//! The cache of tree pages, alone and in a pool.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::tree::{Change, Key, PAGE_BYTES};
use crate::{Candidate, DataBlocks, FormatOptions, OpenOptions, Pool, SliceBatch, SliceSpec};
use pmem::{Domain, Mapping};
use std::collections::BTreeMap;
use std::path::Path;

fn page(block: u64, crc: u32) -> Arc<PageCopy> {
    let ptr = PagePtr { addr: BlockAddr::new(0, block), copy: BlockAddr::NONE, crc };
    Arc::new(PageCopy { ptr, bytes: [crc as u8; PAGE_BYTES] })
}

#[test]
fn a_page_is_given_for_its_own_checksum_only() {
    let cache = PageCache::new(1 << 20, 1000);
    cache.put(&page(7, 1));
    assert!(cache.get(&page(7, 1).ptr).is_some());
    assert!(cache.get(&page(7, 2).ptr).is_none(), "another page at the same address");
    assert!(cache.get(&page(8, 1).ptr).is_none());
    cache.forget(BlockAddr::new(0, 8));
    assert!(cache.get(&page(7, 1).ptr).is_some());
    cache.forget(BlockAddr::new(0, 7));
    assert!(cache.get(&page(7, 1).ptr).is_none());
}

#[test]
fn pages_take_no_more_memory_than_they_may() {
    for bytes in [0, 4000, 100_000, 1 << 20] {
        let cache = PageCache::new(bytes, 200);
        (1..2000).for_each(|block| cache.put(&page(block, block as u32)));
        let pages = cache.pages();
        let used = pages.iter().map(|page| size_of_val(&**page) as u64).sum::<u64>();
        assert!(used <= bytes, "{used} of {bytes} bytes");
        assert_eq!(pages.len() as u64, (bytes / 4144).min(200), "addresses spread over all places");
        for page in pages {
            assert_eq!(page.bytes, [page.ptr.crc as u8; PAGE_BYTES]);
        }
    }
}

#[derive(Debug)]
struct NoBlocks;

impl DataBlocks for NoBlocks {
    fn data_blocks(&self, _: &Key, _: &[u8], _: &mut dyn FnMut(BlockAddr)) {}
}

fn open(mapping: Mapping, memory_bytes: u64) -> Pool {
    let candidate = Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap();
    let options = OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() };
    Pool::open_candidates(vec![candidate], &options).unwrap().0
}

fn pool(memory_bytes: u64) -> Pool {
    let mappings = [Mapping::memory(4 << 20, Domain::Process).unwrap()];
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 4 << 20,
        process: true,
        ..FormatOptions::default()
    };
    crate::format_mappings(&mappings, &options).unwrap();
    let [mapping] = mappings;
    open(mapping, memory_bytes)
}

fn key(number: u64) -> Key {
    Key::new(number, 1, 0)
}

/// Puts values of 500 bytes, then frees the pages of the tree before.
fn commit(pool: &Pool, keys: impl Iterator<Item = u64>, value: u8) {
    let changes = keys.map(|number| (key(number), Change::Put(vec![value; 500]))).collect();
    let closed = pool.close_gate();
    let cut = pool.cut(&closed, 1);
    drop(closed);
    let batch = [SliceBatch { changes, ..SliceBatch::default() }];
    let written = pool.commit(cut, &batch, &NoBlocks).unwrap();
    pool.reclaim().retire(&written.freed);
    pool.reclaim().gather_all();
}

/// A page of an older tree would answer for a newer one that lies at its address.
#[test]
fn no_page_is_here_that_is_not_on_the_medium_however_often_its_block_is_used_again() {
    let pool = pool(1 << 30);
    commit(&pool, 0..400, 0);
    let mut used_again = 0;
    let mut checksums = BTreeMap::new();
    let mut model = vec![0u8; 400];
    for round in 1..=60u8 {
        let changed = (u64::from(round) * 37 % 300, u64::from(round) * 37 % 300 + 90);
        commit(&pool, changed.0..changed.1, round);
        model[changed.0 as usize..changed.1 as usize].fill(round);
        for page in pool.page_cache.pages() {
            assert_eq!(pool.crc(page.ptr.addr).unwrap(), page.ptr.crc, "round {round}");
        }
        // a part only: what lies in the other pages' places stays there
        for (number, value) in model.iter().enumerate().skip(usize::from(round) % 7).step_by(7) {
            let found = pool.get(0, &key(number as u64)).unwrap();
            assert_eq!(found, Some(vec![*value; 500]), "round {round}, key {number}");
        }
        for ptr in pool.page_cache.pages().iter().map(|page| page.ptr) {
            let before = checksums.insert(ptr.addr, ptr.crc);
            used_again += u32::from(before.is_some_and(|crc| crc != ptr.crc));
        }
    }
    assert!(used_again > 100, "blocks are used again: {used_again}");
}

#[test]
fn a_page_is_read_and_verified_once_while_it_stays() {
    for (memory_bytes, kept) in [(1 << 30, true), (0, false)] {
        let pool = pool(memory_bytes);
        commit(&pool, 0..400, 5);
        let all = |pool: &Pool| (0..400).try_for_each(|n| pool.get(0, &key(n)).map(drop));
        all(&pool).unwrap();
        for page in pool.page_cache.pages() {
            let at = page.ptr.addr.block() * crate::BLOCK_BYTES + 2000;
            let _ = pmem::fence(pool.slices()[0].mapping.write(at, &[99]));
        }
        assert_eq!(!pool.page_cache.pages().is_empty(), kept);
        assert!(all(&pool).is_ok(), "DRAM answers");
    }
}

/// A pool of some pages, opened again, and what names the leaf with key 7.
fn reopened() -> (Pool, PagePtr) {
    let before = pool(1 << 30);
    commit(&before, 0..400, 5);
    before.get(0, &key(7)).unwrap();
    // the leaf with key 7 is the one that the look-up read last
    let level = |page: &Arc<PageCopy>| page.bytes[5];
    let leaf = before.page_cache.pages().into_iter().find(|page| level(page) == 0).unwrap();
    let image = before.slices()[0].mapping.copy_image();
    (open(Mapping::memory_from(&image, Domain::Process).unwrap(), 1 << 30), leaf.ptr)
}

fn write(pool: &Pool, addr: BlockAddr, byte: u8) {
    let at = addr.block() * crate::BLOCK_BYTES + 2000;
    let _ = pmem::fence(pool.slices()[0].mapping.write(at, &[byte]));
}

#[test]
fn damage_is_found_at_the_first_read_and_at_every_one_after_until_it_is_gone() {
    let (pool, leaf) = reopened();
    leaf.blocks().for_each(|addr| write(&pool, addr, 99));
    for _ in 0..3 {
        let error = pool.get(0, &key(7)).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
    }
    let scanned = pool.scan(0, Key::MIN, Key::MAX, &mut |_, _| true);
    assert!(scanned.unwrap_err().to_string().contains("checksum"));
    leaf.blocks().for_each(|addr| write(&pool, addr, 5));
    assert_eq!(pool.get(0, &key(7)).unwrap(), Some(vec![5; 500]));
}

#[test]
fn a_damaged_page_is_read_from_its_second_copy_and_written_again() {
    let (pool, leaf) = reopened();
    assert_eq!(leaf.blocks().count(), 2);
    assert!(matches!(pool.second_copy(&leaf), Some(Ok(()))));
    write(&pool, leaf.addr, 99);
    assert_eq!(pool.get(0, &key(7)).unwrap(), Some(vec![5; 500]));
    assert_eq!(pool.crc(leaf.addr).unwrap(), leaf.crc, "written again");
    let notes = pool.info().notes;
    assert!(notes.len() == 1 && notes[0].ends_with("repaired from its second copy"), "{notes:?}");
    write(&pool, leaf.copy, 99);
    assert!(matches!(pool.second_copy(&leaf), Some(Err(_))));
    assert_eq!(pool.get(0, &key(8)).unwrap(), Some(vec![5; 500]));
}
