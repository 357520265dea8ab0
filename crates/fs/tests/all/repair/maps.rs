//! Maps of files: blocks that several files name, and parts of a map that are lost.

use crate::common::{BY, TestPool, content, find, make, names, pattern};
use crate::repair::planted::{BLOCK, Images, candidates, damage, mended, pairs, read, told};
use crate::values::{MAP, PATCH, REFERENCES, SHARED, into_tree, of_tree, references};
use fs::{Fallocate, FileKind, FileSystem, Ino, repair_candidates};
use pool::OpenOptions;
use pool::tree::Key;

const BYTES: usize = 5 * BLOCK;

/// A closed pool of one slice with two files, made by `make_one`.
fn two_files(make_one: impl Fn(&FileSystem, &str, u64) -> Ino) -> (TestPool, [Ino; 2]) {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start_alone();
    let inos = [make_one(&fs, "one", 1), make_one(&fs, "two", 2)];
    fs.close().unwrap();
    drop(fs);
    (pool, inos)
}

fn written(fs: &FileSystem, name: &str, seed: u64) -> Ino {
    let handle = make(fs, name);
    fs.write(&handle, 0, &pattern(seed, BYTES)).unwrap();
    handle.ino()
}

fn reserved(fs: &FileSystem, name: &str, _: u64) -> Ino {
    let handle = make(fs, name);
    let mode = Fallocate::Allocate { keep_size: false };
    fs.fallocate(&handle, mode, 0, BYTES as u64).unwrap();
    handle.ino()
}

fn map(ino: Ino) -> Key {
    Key::new(ino.0, MAP, 0)
}

/// What is written to one of them does not show in the other, and nothing is in use at the end.
fn assert_apart(pool: &TestPool, fs: FileSystem, both: &[u8]) {
    let (one, two) = (find(&fs, "one"), find(&fs, "two"));
    assert!(content(&fs, &one) == both && content(&fs, &two) == both);
    fs.write(&two, 4096, b"two alone").unwrap();
    assert!(content(&fs, &one) == both && content(&fs, &two) != both);
    drop((one, two));
    fs.unlink(Ino::ROOT, b"two").unwrap();
    assert!(content(&fs, &find(&fs, "one")) == both);
    fs.unlink(Ino::ROOT, b"one").unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_eq!(pool.assert_clean().blocks, 0);
}

/// Both say that the blocks are their own; bytes over them are dropped, for nothing may change
/// bytes that two files have.
#[test]
fn files_that_have_the_same_blocks_share_them() {
    let (pool, [one, two]) = two_files(written);
    let leaf = of_tree(&pool.dir(), &map(one)).unwrap();
    let over = [&[7u8, 0, 3, 0][..], b"abc"].concat();
    into_tree(&pool.dir(), vec![(map(two), leaf), (Key::new(two.0, PATCH, 2), over)]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "has two owners"), 5, "{done:?}");
    assert_apart(&pool, fs, &pattern(1, BYTES));
}

#[test]
fn a_file_that_has_blocks_alone_which_another_shares_shares_them_too() {
    let (pool, [one, two]) = two_files(written);
    let mut leaf = of_tree(&pool.dir(), &map(one)).unwrap();
    assert_eq!(leaf[0], 1, "one run");
    leaf[2] |= SHARED;
    into_tree(&pool.dir(), vec![(map(two), leaf)]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "references to blocks: counted anew"), 1, "{done:?}");
    assert_apart(&pool, fs, &pattern(1, BYTES));
}

#[test]
fn what_two_files_reserve_is_reserved_for_none() {
    let (pool, [one, two]) = two_files(reserved);
    let leaf = of_tree(&pool.dir(), &map(one)).unwrap();
    into_tree(&pool.dir(), vec![(map(two), leaf)]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "has two owners"), 5, "{done:?}");
    assert_apart(&pool, fs, &[0; BYTES]);
}

#[test]
fn bytes_over_a_block_that_is_only_reserved_are_dropped() {
    let (pool, [one, _]) = two_files(reserved);
    let over = [&[7u8, 0, 3, 0][..], b"abc"].concat();
    into_tree(&pool.dir(), vec![(Key::new(one.0, PATCH, 2), over)]);
    let found = pool.check().findings;
    assert!(found.iter().any(|finding| finding.what == "is overlaid, but not written"));
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "holds what makes no sense: dropped"), 1, "{done:?}");
    assert_apart(&pool, fs, &[0; BYTES]);
}

#[test]
fn references_to_what_nobody_shares_are_dropped() {
    let (pool, _) = two_files(|fs, name, _| written(fs, name, 1));
    into_tree(&pool.dir(), vec![(Key::new(0, REFERENCES, 3), references(7, 0, 2))]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "references to blocks: counted anew in 1 places"), 1, "{done:?}");
    assert_apart(&pool, fs, &pattern(1, BYTES));
}

/// Leaves of the file, a block in each, and a last one so far away that what lies between is too
/// much to be marked.
const LEAVES: u64 = 700;
const LEAF_BYTES: u64 = 128 * BLOCK as u64;
const FAR: u64 = 1 << 40;

fn sparse() -> Images {
    let pool = TestPool::new(1, 16 << 20);
    let fs = pool.start_alone();
    let handle = make(&fs, "sparse");
    for at in places() {
        fs.write(&handle, at, &pattern(at, BLOCK)).unwrap();
        if at / LEAF_BYTES == LEAVES / 7 {
            fs.checkpoint().unwrap();
        }
    }
    drop(handle);
    fs.close().unwrap();
    drop(fs);
    read(&pool.dir())
}

fn places() -> impl Iterator<Item = u64> {
    (0..LEAVES).map(|leaf| leaf * LEAF_BYTES + leaf % 128 * BLOCK as u64).chain([FAR])
}

/// How many blocks of the file are errors, holes, and behind its end, if it is there.
fn looked_at(images: &Images) -> Option<[u64; 3]> {
    let options = OpenOptions::default();
    let fs = FileSystem::open_candidates(candidates(images), &options, false).unwrap();
    let ino = fs.lookup(Ino::ROOT, b"sparse").ok()?.ino;
    let handle = fs.open(ino).unwrap();
    let (mut errors, mut holes, mut behind) = (0, 0, 0);
    let mut bytes = vec![0; BLOCK];
    for at in places() {
        match fs.read(&handle, at, &mut bytes) {
            Err(_) => errors += 1,
            Ok(0) => behind += 1,
            Ok(_) => {
                let is_hole = bytes.iter().all(|byte| *byte == 0);
                assert!(is_hole || bytes == pattern(at, BLOCK), "at {at}");
                holes += u64::from(is_hole);
            }
        }
    }
    Some([errors, holes, behind])
}

/// Each page of the tree in turn: what lay in it is an error, and never a hole. A file of which too
/// much is lost to be marked is put aside. So it is with the page of the file's attributes: those
/// of the checkpoint before come back, when the file was shorter.
#[test]
fn a_part_of_a_map_that_is_lost_is_marked_or_told() {
    let good = sparse();
    assert_eq!(looked_at(&good), Some([0; 3]));
    let (mut marked, mut aside, mut older) = (0, 0, 0);
    for pair in pairs(&good) {
        let pool = TestPool::new(1, 16 << 20);
        let mut images = good.clone();
        let is_leaf = good[0][pair[0].1 * BLOCK + 5] == 0;
        pair.iter().for_each(|place| damage(&mut images, *place));
        std::fs::write(pool.dir().join("slice.0"), &images[0]).unwrap();
        let open = pool::Candidate::open(&pool.dir().join("slice.0"), false).unwrap();
        let report = repair_candidates(vec![open]).unwrap();
        let done = crate::repair::planted::said(&report.done);
        let too_large = told(&done, "in too large a range to be marked");
        assert_eq!(told(&done, "may be lost: too many to mark"), too_large, "{done:?}");
        older += told(&done, &format!("inode {}: size ", 1 << 8));
        let moved = told(&done, "what is known of it is /lost+found/older/#256")
            + told(&done, "it is /lost+found/#256");
        let Some([errors, holes, behind]) = looked_at(&read(&pool.dir())) else {
            aside += u64::from(moved > 0);
            assert!(moved > 0 || told(&done, "is dropped") > 0 || !is_leaf, "{done:?}");
            fs_is_usable(&pool);
            continue;
        };
        assert!(holes == 0 && too_large == 0, "{holes} holes: {done:?}");
        assert!(behind == 0 || !is_leaf, "{behind} blocks behind the end: {done:?}");
        marked += u64::from(errors > 50);
        fs_is_usable(&pool);
    }
    assert!(marked >= 2 && aside >= 2, "{marked} marked, {aside} put aside");
    assert_eq!(older, 1);
}

/// Removes all files below a directory.
fn empty(fs: &FileSystem, dir: Ino) {
    for name in names(fs, dir).into_iter().filter(|name| name != b"." && name != b"..") {
        let attr = fs.lookup(dir, &name).unwrap();
        match attr.kind {
            FileKind::Directory => empty(fs, attr.ino),
            _ => drop(fs.unlink(dir, &name).unwrap()),
        }
    }
}

fn fs_is_usable(pool: &TestPool) {
    let fs = pool.start_alone();
    fs.create(Ino::ROOT, b"new", fs::NewNode::File, BY).unwrap();
    let _ = fs.unlink(Ino::ROOT, b"sparse");
    if let Ok(above) = fs.lookup(Ino::ROOT, b"lost+found") {
        empty(&fs, above.ino);
    }
    fs.close().unwrap();
    drop(fs);
    assert_eq!(pool.assert_clean().blocks, 0);
}
