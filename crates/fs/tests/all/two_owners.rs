//! A block that a change freed after the cut of a checkpoint may have become a page of that
//! checkpoint, whose bitmap says that it holds data. The log says that it is free: that is no
//! damage.

use crate::common::{TestPool, find, make, pattern, slices};
use fs::SetAttr;

const BLOCK: usize = 4096;
/// Where a root names its tree, and the bytes before its checksum (docs/FORMAT.md).
const TREE: usize = 72;
const CHECKED: usize = 248;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Puts the top of the tree where the block of data lies that holds `data`.
fn move_page(pool: &TestPool, data: &[u8]) {
    let path = &slices(&pool.dir())[0];
    let mut image = std::fs::read(path).unwrap();
    let place = image.chunks(BLOCK).position(|block| block == data).unwrap();
    let roots = [[1, 4], [2, 5]];
    let generation = |root: &[usize; 2]| number(&image[root[0] * BLOCK + 24..]);
    let newest = roots.into_iter().max_by_key(generation).unwrap();
    let page = number(&image[newest[0] * BLOCK + TREE..]) as usize * BLOCK;
    assert!(image[page..].starts_with(b"NSTP"));
    image.copy_within(page..page + BLOCK, place * BLOCK);
    for block in newest {
        let root = &mut image[block * BLOCK..][..256];
        root[TREE..TREE + 8].copy_from_slice(&(place as u64).to_le_bytes());
        let crc = pmem::crc32c(0, &root[..CHECKED]);
        root[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(path, image).unwrap();
}

/// A pool with a file of one block in the tree, and what it holds; then `act`, and a kill.
fn killed_after(act: impl FnOnce(&fs::FileSystem)) -> (TestPool, Vec<u8>) {
    let mut pool = TestPool::new(1, 8 << 20);
    let fs = pool.start_alone();
    let data = pattern(9, BLOCK);
    fs.write(&make(&fs, "file"), 0, &data).unwrap();
    make(&fs, "other");
    fs.checkpoint().unwrap();
    act(&fs);
    pool.kill();
    drop(fs);
    (pool, data)
}

#[test]
fn a_page_on_a_block_that_the_log_frees_is_fine() {
    let (pool, data) = killed_after(|fs| {
        let change = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr(find(fs, "file").ino(), &change).unwrap();
    });
    move_page(&pool, &data);
    pool.assert_clean();
    let fs = pool.start_alone();
    assert_eq!(fs.getattr(find(&fs, "file").ino()).unwrap().size, 0);
    fs.write(&find(&fs, "other"), 0, &data).unwrap();
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn a_page_on_a_block_that_is_used_is_damage() {
    let (pool, data) = killed_after(|_| ());
    move_page(&pool, &data);
    let said = fs::check(&pool.dir()).unwrap_err().to_string();
    assert!(said.contains("another owner"), "{said}");
    let opened = fs::FileSystem::open_pool(&pool.dir(), &pool.open).map(|_| ());
    let said = opened.unwrap_err().to_string();
    assert!(said.contains("another owner"), "{said}");
}

/// The log says nothing of the block: its file's data is what is damaged.
#[test]
fn a_page_on_a_block_that_the_log_leaves_is_damaged_data() {
    let (pool, data) = killed_after(|fs| {
        fs.write(&find(fs, "other"), 0, &pattern(3, BLOCK)).unwrap();
    });
    move_page(&pool, &data);
    let found = pool.check().findings;
    assert!(found.iter().all(|finding| finding.what.starts_with("the data at")), "{found:?}");
    assert_eq!(found.len(), 1);
    let fs = pool.start_alone();
    assert!(fs.read(&find(&fs, "file"), 0, &mut [0; BLOCK]).is_err());
    assert!(crate::common::content(&fs, &find(&fs, "other")) == pattern(3, BLOCK));
}
