//! A check of a pool that is in use: what is damaged behind its back is found, and what changes
//! meanwhile is not.

use crate::common::{BY, TestPool, find, make, pattern};
use fs::{CheckReport, FileSystem, Ino, NewNode};
use std::fs::File;
use std::os::unix::fs::FileExt;

const BLOCK: usize = 4096;
const SLICE_BYTES: u64 = 16 << 20;
/// Leaves of the large file: more than a page of the tree holds.
const LEAVES: u64 = 300;
const LEAF_BYTES: u64 = 128 * BLOCK as u64;

/// A file with a block in each of many leaves, and bytes over holes.
fn plant(fs: &FileSystem) {
    let large = make(fs, "large");
    for leaf in 0..LEAVES {
        fs.write(&large, leaf * LEAF_BYTES, &pattern(leaf, BLOCK)).unwrap();
        fs.write(&large, leaf * LEAF_BYTES + 9000, b"over a hole").unwrap();
    }
    for number in 0..100 {
        let name = format!("{number:03}-{}", "x".repeat(70));
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    }
}

fn planted() -> (TestPool, FileSystem) {
    let pool = TestPool::new(1, SLICE_BYTES);
    let fs = pool.start_alone();
    plant(&fs);
    fs.checkpoint().unwrap();
    (pool, fs)
}

fn checked(fs: &FileSystem) -> CheckReport {
    fs.check(&mut |_, _| true).unwrap().expect("nobody ended it")
}

fn slice(pool: &TestPool) -> File {
    File::options().read(true).write(true).open(pool.dir().join("slice.0")).unwrap()
}

/// Flips a bit of each of these blocks.
fn flip(pool: &TestPool, blocks: &[u64]) {
    let (file, mut byte) = (slice(pool), [0]);
    for block in blocks {
        let at = block * BLOCK as u64 + 100;
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

/// Blocks that hold these bytes: of a page of a tree there are two.
fn blocks(pool: &TestPool, is_it: impl Fn(&[u8]) -> bool) -> Vec<(Vec<u8>, u64)> {
    let image = std::fs::read(pool.dir().join("slice.0")).unwrap();
    let all = image.chunks(BLOCK).zip(0u64..).filter(|(bytes, _)| is_it(bytes));
    all.map(|(bytes, number)| (bytes.to_vec(), number)).collect()
}

#[test]
fn a_whole_pool_is_checked_to_its_end_and_changes_meanwhile_are_none_of_its_business() {
    let (_pool, fs) = planted();
    let (mut last, mut rounds) = ((0, 0), 0);
    // four leaves each
    let report = fs.check(&mut |done, of| {
        assert!(done >= last.0 && done <= of, "{done} of {of}");
        (last, rounds) = ((done, of), rounds + 1);
        match rounds {
            5 => drop(fs.write(&find(&fs, "large"), 250 * LEAF_BYTES, b"new").unwrap()),
            // what it still has to look at is gone
            50 => fs.unlink(Ino::ROOT, b"large").map(drop).unwrap(),
            _ => {}
        }
        true
    });
    let report = report.unwrap().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(last, (LEAVES * LEAF_BYTES, LEAVES * LEAF_BYTES));
    assert_eq!(report.inodes, 102);
    assert!((150..LEAVES).contains(&report.blocks), "{} blocks", report.blocks);
}

#[test]
fn a_check_ends_when_it_is_told() {
    let (_pool, fs) = planted();
    let mut rounds = 0;
    let report = fs.check(&mut |_, _| {
        rounds += 1;
        rounds < 5
    });
    assert!(report.unwrap().is_none());
    assert_eq!(rounds, 5);
}

#[test]
fn data_that_is_damaged_under_a_pool_in_use_is_found_with_its_place() {
    let (pool, fs) = planted();
    let at = blocks(&pool, |bytes| bytes == pattern(7, BLOCK));
    assert_eq!(at.len(), 1);
    flip(&pool, &[at[0].1]);
    let ino = find(&fs, "large").ino().0;
    let found = checked(&fs).findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].place, format!("inode {ino}, file offset {}", 7 * LEAF_BYTES));
    flip(&pool, &[at[0].1]);
    assert!(checked(&fs).findings.is_empty());
}

/// Both copies of each page of the trees, of a pool that is opened with the damage: it says so, and
/// finds nothing that is not. Where the page is not read at all, nobody has it any more.
#[test]
fn pages_of_the_trees_that_are_lost_are_found() {
    let (pool, fs) = planted();
    fs.close().unwrap();
    drop(fs);
    let mut pages = blocks(&pool, |bytes| bytes.starts_with(b"NSTP"));
    pages.sort();
    let mut found = 0;
    for pair in pages.chunk_by(|one, other| one.0 == other.0).filter(|pair| pair.len() == 2) {
        let pair = [pair[0].1, pair[1].1];
        flip(&pool, &pair);
        let candidates = crate::common::candidates(&pool.dir(), true).unwrap();
        let options = pool::OpenOptions { read_only: true, ..Default::default() };
        if let Ok(fs) = FileSystem::open_candidates(candidates, &options, false) {
            let report = checked(&fs);
            let damaged = |finding: &&fs::Finding| finding.what.contains("checksum does not fit");
            let told = report.findings.iter().filter(damaged).count();
            assert!(told > 0 || report.findings.is_empty(), "{:?}", report.findings);
            found += u64::from(told > 0);
        }
        flip(&pool, &pair);
    }
    assert!(found >= 5, "{found} pages");
    pool.assert_clean();
}

/// The page of the free-space tree is read when the pool is opened; then it is damaged.
#[test]
fn a_page_of_the_free_space_tree_that_is_lost_is_found() {
    let (pool, fs) = planted();
    let mut pages = blocks(&pool, |bytes| bytes.starts_with(b"NSTP"));
    pages.sort();
    let mut told = Vec::new();
    for pair in pages.chunk_by(|one, other| one.0 == other.0).filter(|pair| pair.len() == 2) {
        let pair = [pair[0].1, pair[1].1];
        flip(&pool, &pair);
        told.extend(checked(&fs).findings.into_iter().map(|finding| finding.place));
        flip(&pool, &pair);
    }
    let is_space = |place: &&String| *place == "slice 0, free-space tree";
    assert!(told.iter().any(|place| is_space(&place)), "{told:?}");
    assert!(checked(&fs).findings.is_empty());
}

/// A page of the tree that is lost hides what lay in it, and nothing else: the check goes on behind
/// it, tells each name whose inode is gone with its path, and no other.
#[test]
fn a_lost_page_hides_nothing_but_what_lay_in_it() {
    let pool = TestPool::new(1, SLICE_BYTES);
    let fs = pool.start_alone();
    for number in 0..600 {
        fs.write(&make(&fs, &format!("file {number}")), 0, &pattern(number, 3 * BLOCK)).unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    let mut pages = blocks(&pool, |bytes| bytes.starts_with(b"NSTP") && bytes[5] == 0);
    pages.sort();
    let (mut lost, mut clean) = (0, 0);
    for pair in pages.chunk_by(|one, other| one.0 == other.0).filter(|pair| pair.len() == 2) {
        let pair = [pair[0].1, pair[1].1];
        flip(&pool, &pair);
        let candidates = crate::common::candidates(&pool.dir(), true).unwrap();
        let options = pool::OpenOptions { read_only: true, ..Default::default() };
        if let Ok(fs) = FileSystem::open_candidates(candidates, &options, false)
            && let Some(gone) = names_without_inode(&fs)
        {
            let report = checked(&fs);
            let findings = &report.findings;
            let told = |finding: &&fs::Finding| {
                finding.what.contains("its inode lay in a page of the tree that cannot be read")
            };
            let told: Vec<_> = findings.iter().filter(told).collect();
            assert_eq!(told.len(), gone.len(), "{findings:?}");
            for name in &gone {
                let entry = format!("entry {name:?}: ");
                assert!(told.iter().any(|finding| finding.what.starts_with(&entry)), "{name}");
            }
            assert!(told.iter().all(|finding| finding.path.as_deref() == Some("/")));
            let contradicts = ["does not exist", "has no name", "link count", "entry count"];
            let contradicts = |what: &str| contradicts.iter().any(|it| what.contains(it));
            assert!(findings.iter().all(|it| !contradicts(&it.what)), "{findings:?}");
            assert!(report.inodes + gone.len() as u64 >= 601, "{} inodes", report.inodes);
            lost += u64::from(!gone.is_empty());
            clean += u64::from(findings.is_empty());
        }
        flip(&pool, &pair);
    }
    assert!(lost >= 5, "{lost} pages with inodes, {clean} that no tree has any more");
    pool.assert_clean();
}

/// Names in the root directory whose inodes cannot be read; none if the directory cannot be.
fn names_without_inode(fs: &FileSystem) -> Option<Vec<String>> {
    let mut entries = Vec::new();
    let listed = fs.readdir(Ino::ROOT, 0, &mut |entry| {
        entries.push((String::from_utf8(entry.name.clone()).unwrap(), entry.ino));
        true
    });
    listed.ok()?;
    let gone = entries.into_iter().filter(|(_, ino)| fs.getattr(*ino).is_err());
    Some(gone.map(|(name, _)| name).collect())
}
