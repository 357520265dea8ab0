//! Scrub: what is kept twice comes back from its other copy while the pool is in use; what is not
//! is told.

use crate::common::{BY, TestPool, content, find, make, pattern};
use fs::{FileSystem, Ino, NewNode, ScrubReport};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const SLICES: usize = 2;
const SLICE_BYTES: u64 = 8 << 20;
const DATA: usize = 40 * BLOCK;

/// A block of a slice's file.
type Place = (usize, u64);

/// A pool with trees of several pages, all of them folded, that is in use.
fn planted() -> (TestPool, FileSystem) {
    let pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    fs.write(&make(&fs, "data"), 0, &pattern(3, DATA)).unwrap();
    for number in 0..600 {
        let name = format!("{number:03}-{}", "x".repeat(70));
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    }
    fs.checkpoint().unwrap();
    (pool, fs)
}

fn file(pool: &TestPool, slice: usize) -> File {
    let path = pool.dir().join(format!("slice.{slice}"));
    File::options().read(true).write(true).open(path).unwrap()
}

fn block(pool: &TestPool, (slice, number): Place) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    file(pool, slice).read_exact_at(&mut bytes, number * BLOCK as u64).unwrap();
    bytes
}

/// Flips a bit of a block, behind the back of who has the pool open.
fn flip(pool: &TestPool, at: Place) {
    let mut bytes = block(pool, at);
    bytes[100] ^= 4;
    file(pool, at.0).write_all_at(&bytes, at.1 * BLOCK as u64).unwrap();
}

/// Pages of the trees that are there twice, by what they hold.
fn pairs(pool: &TestPool) -> Vec<[Place; 2]> {
    let mut found: BTreeMap<Vec<u8>, Vec<Place>> = BTreeMap::new();
    for slice in 0..SLICES {
        for number in 0..SLICE_BYTES / BLOCK as u64 {
            let bytes = block(pool, (slice, number));
            if bytes.starts_with(b"NSTP") {
                found.entry(bytes).or_default().push((slice, number));
            }
        }
    }
    found.into_values().filter_map(|places| places.try_into().ok()).collect()
}

fn scrub(fs: &FileSystem) -> ScrubReport {
    fs.scrub(None, &mut |_, _| true).unwrap().expect("nobody ended it")
}

#[test]
fn a_whole_pool_is_verified_and_nothing_is_written() {
    let (pool, fs) = planted();
    let before: Vec<_> = pairs(&pool).iter().map(|pair| block(&pool, pair[0])).collect();
    let (mut last, mut calls) = ((0, 0), 0);
    let report = fs.scrub(None, &mut |done, of| {
        assert!(done >= last.0 && done <= of, "{done} of {of}");
        (last, calls) = ((done, of), calls + 1);
        true
    });
    let report = report.unwrap().unwrap();
    assert!(report.findings.is_empty() && report.repaired.is_empty(), "{report:?}");
    assert!(report.pages >= 20 && report.single_pages == 0, "{report:?}");
    assert_eq!(report.blocks, (DATA / BLOCK) as u64);
    assert!(calls > 2 && last.0 >= (report.blocks + report.pages) * BLOCK as u64, "{last:?}");
    assert_eq!(pairs(&pool).iter().map(|p| block(&pool, p[0])).collect::<Vec<_>>(), before);
}

#[test]
fn either_copy_of_every_page_comes_back_from_the_other() {
    let (pool, fs) = planted();
    let pages = pairs(&pool);
    let good: Vec<_> = pages.iter().map(|pair| block(&pool, pair[0])).collect();
    for which in [0, 1] {
        pages.iter().for_each(|pair| flip(&pool, pair[which]));
        let report = scrub(&fs);
        assert!(report.findings.is_empty(), "{report:?}");
        // pages that nobody has any more are there twice, too
        let back = pages.iter().zip(&good).filter(|(p, good)| block(&pool, p[which]) == **good);
        assert_eq!(back.count(), report.repaired.len(), "{report:?}");
        assert!(report.repaired.len() as u64 >= 20, "{report:?}");
        let again = scrub(&fs);
        assert!(again.repaired.is_empty() && again.findings.is_empty(), "{again:?}");
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn superblocks_and_roots_come_back_in_both_copies() {
    let (pool, fs) = planted();
    let last = SLICE_BYTES / BLOCK as u64 - 1;
    for slice in 0..SLICES {
        for heads in [[0, 1, 2], [last, 4, 5]] {
            let good: Vec<_> = heads.iter().map(|number| block(&pool, (slice, *number))).collect();
            heads.iter().for_each(|number| flip(&pool, (slice, *number)));
            let report = scrub(&fs);
            assert!(report.findings.is_empty(), "{report:?}");
            // the root that is not current is of no use: nobody writes it again
            assert_eq!(report.repaired.len(), 2, "{report:?}");
            let back = heads.iter().zip(&good).filter(|(at, g)| block(&pool, (slice, **at)) == **g);
            assert_eq!(back.count(), 2);
        }
    }
    drop(fs);
    pool.assert_clean();
}

/// Both copies of the current root: the pool in use knows it, and the next checkpoint writes
/// another.
#[test]
fn a_root_without_a_good_copy_is_told_until_the_next_checkpoint() {
    let (pool, fs) = planted();
    [1, 2, 4, 5].iter().for_each(|number| flip(&pool, (0, *number)));
    // the scrub makes a checkpoint first, of nothing: the roots stay
    let report = scrub(&fs);
    assert!(report.repaired.is_empty(), "{report:?}");
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].what.starts_with("both copies of the root are damaged"));
    drop(make(&fs, "later"));
    assert!(scrub(&fs).findings.is_empty());
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// More pages than are looked at in one go, written once each: damage to one is told, and nothing
/// can be written again.
#[test]
fn all_pages_of_large_trees_are_looked_at_also_those_that_have_no_copy() {
    let mut pool = TestPool::new(1, SLICE_BYTES);
    pool.open.single_pages = true;
    let fs = pool.start_alone();
    for number in 0..3000 {
        let name = format!("{number:04}-{}", "x".repeat(120));
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    }
    let report = scrub(&fs);
    assert!(report.pages > 150 && report.single_pages == report.pages, "{report:?}");
    assert!(report.findings.is_empty() && report.repaired.is_empty(), "{report:?}");
    let pages: Vec<Place> = (0..SLICE_BYTES / BLOCK as u64).map(|number| (0, number)).collect();
    let is_leaf = |bytes: &[u8]| bytes.starts_with(b"NSTP") && bytes[5] == 0;
    let leaves = pages.iter().filter(|at| is_leaf(&block(&pool, **at))).step_by(40);
    let mut told = 0;
    for at in leaves {
        flip(&pool, *at);
        let report = scrub(&fs);
        assert!(report.repaired.is_empty() && report.findings.len() <= 1, "{report:?}");
        told += report.findings.len();
        flip(&pool, *at);
    }
    assert!(told >= 3, "{told} of the pages are of a tree in use");
    assert!(scrub(&fs).findings.is_empty());
}

#[test]
fn what_has_no_good_copy_is_told_and_the_rest_is_looked_at() {
    let (pool, fs) = planted();
    let data = pattern(3, DATA);
    let holds = |at: &Place| block(&pool, *at) == data[3 * BLOCK..4 * BLOCK];
    let all =
        (0..SLICES).flat_map(|slice| (0..SLICE_BYTES / BLOCK as u64).map(move |n| (slice, n)));
    let place = all.into_iter().find(holds).unwrap();
    flip(&pool, place);
    let report = scrub(&fs);
    let ino = find(&fs, "data").ino().0;
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let told = format!("inode {ino}, file offset {}", 3 * BLOCK);
    assert_eq!(report.findings[0].place, told);
    assert_eq!(report.blocks, (DATA / BLOCK) as u64);
    flip(&pool, place);
    assert!(scrub(&fs).findings.is_empty());
    assert!(content(&fs, &find(&fs, "data")) == data);
    // both copies of a page in the middle
    let pages = pairs(&pool);
    let lost = pages.iter().find(|pair| {
        pair.iter().for_each(|at| flip(&pool, *at));
        let report = scrub(&fs);
        let found = !report.findings.is_empty();
        if found {
            assert_eq!(report.findings.len(), 1, "{report:?}");
            assert!(report.repaired.is_empty() && report.pages >= 2, "{report:?}");
        }
        pair.iter().for_each(|at| flip(&pool, *at));
        found
    });
    assert!(lost.is_some());
    assert!(scrub(&fs).findings.is_empty());
}

#[test]
fn it_goes_no_faster_than_it_is_told_and_ends_when_it_is_told() {
    let (_pool, fs) = planted();
    let began = Instant::now();
    let bytes = 30 * BLOCK as u64;
    let mut done = 0;
    let ended = fs.scrub(Some(10 * bytes), &mut |now, _| {
        done = now;
        now < 3 * bytes
    });
    assert!(ended.unwrap().is_none());
    assert!(done >= 3 * bytes);
    // what was done before the last step took its time
    assert!(began.elapsed() >= Duration::from_millis(1), "{:?}", began.elapsed());
    let mut rate = 0.0f64;
    let began = Instant::now();
    let of = scrub_at(&fs, 4 << 20, &mut rate);
    assert!(rate <= 4.5 * f64::from(1 << 20), "{rate} bytes/s of {of} in {:?}", began.elapsed());
}

/// Scrubs at this rate; gives the bytes, and how many a second.
fn scrub_at(fs: &FileSystem, bytes_per_s: u64, rate: &mut f64) -> u64 {
    let (began, mut bytes) = (Instant::now(), 0);
    let mut each = |done, _| {
        bytes = done;
        true
    };
    fs.scrub(Some(bytes_per_s), &mut each).unwrap().unwrap();
    *rate = bytes as f64 / began.elapsed().as_secs_f64();
    bytes
}

/// Scrubbed while it changes, again and again: nothing is found, and nothing is spoiled.
#[test]
fn a_pool_that_changes_is_scrubbed_without_harm() {
    let pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let (fs, stop) = (&fs, &stop);
            scope.spawn(move || {
                let name = format!("file{writer}");
                let file = make(fs, &name);
                for round in 0..u32::MAX {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let at = u64::from(round * 7919 % 300) * 1000;
                    fs.write(&file, at, &pattern(u64::from(writer), 5000)).unwrap();
                    let other = format!("{writer}-{}", round % 40);
                    let _ = fs.create(Ino::ROOT, other.as_bytes(), NewNode::File, BY);
                    let _ = fs.unlink(Ino::ROOT, format!("{writer}-{}", round % 37).as_bytes());
                }
            });
        }
        for _ in 0..20 {
            fs.checkpoint().unwrap();
            let report = scrub(&fs);
            if !report.findings.is_empty() || !report.repaired.is_empty() {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("{report:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// Pages that were written without a second copy, as on a pool that was all but full, get one.
#[test]
fn pages_without_a_second_copy_get_one() {
    let (mut pool, fs) = planted();
    fs.close().unwrap();
    drop(fs);
    pool.open.single_pages = true;
    let fs = pool.start_alone();
    for number in 0..600 {
        let name = format!("{number:03}-{}", "x".repeat(70));
        let ino = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino;
        fs.write(&fs.open(ino).unwrap(), 0, &pattern(number, 5000)).unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    let before = pool.check().findings;
    assert!(before.is_empty(), "{before:?}");
    pool.open.single_pages = false;
    let fs = pool.start_alone();
    let report = scrub(&fs);
    assert_eq!(report.single_pages, 0, "{report:?}");
    assert!(report.findings.is_empty(), "{report:?}");
    let [copied] = &report.repaired[..] else { panic!("{report:?}") };
    let count: u64 = copied.split(' ').next().unwrap().parse().unwrap();
    assert!(count > 20 && copied.contains("had no second copy"), "{copied}");
    let again = scrub(&fs);
    assert!(again.repaired.is_empty() && again.single_pages == 0, "{again:?}");
    for number in (0..600).step_by(37) {
        let name = format!("{number:03}-{}", "x".repeat(70));
        assert!(content(&fs, &find(&fs, &name)) == pattern(number, 5000), "{name}");
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
    assert!(pairs(&pool).len() as u64 >= count);
}
