//! Roots that are lost or say what is not so, and logs over trees that are lost.

use crate::common::{BY, TestPool, content, find, make, names, pattern};
use crate::repair::planted::{
    ALL, BLOCK, Images, SLICE_BYTES, SLICES, candidates, damage, mended, pairs, plant, read,
    repaired, said, told,
};
use fs::{FileSystem, Ino, NewNode, SetAttr, repair, undo};
use pool::{KIND_CHANGE, OpenOptions, Pool, RecordBuffer};

/// Blocks of the roots, and of their copies.
const ROOTS: [usize; 4] = [1, 2, 4, 5];
/// Where in a root the main tree is named.
const TREE: std::ops::Range<usize> = 72..104;

/// Changes what the roots of a slice say of its main tree; their checksums fit.
fn reroot(image: &mut [u8], change: impl Fn(&mut [u8])) {
    for number in ROOTS {
        let root = &mut image[number * BLOCK..][..256];
        change(&mut root[TREE]);
        let crc = pmem::crc32c(0, &root[..248]);
        root[248..252].copy_from_slice(&crc.to_le_bytes());
    }
}

fn put(pool: &TestPool, images: &Images) {
    for (path, image) in crate::common::slices(&pool.dir()).iter().zip(images) {
        std::fs::write(path, image).unwrap();
    }
}

#[test]
fn a_tree_whose_root_counts_wrong_is_written_anew() {
    let mut images = crate::repair::planted::images(true);
    reroot(&mut images[0], |tree| tree[24] ^= 3);
    let (report, came) = repaired(&images);
    assert!(came.is_all(), "{came:?}");
    let done = said(&report.done);
    let is_told = |line: &String| line.contains(" entries, and says ");
    assert!(done.iter().any(|line| is_told(line) && line.ends_with("written anew")), "{done:?}");
}

/// The root of one slice names the tree of another: what lies there is the other's.
#[test]
fn a_tree_that_lies_on_anothers_pages_is_not_believed() {
    let good = crate::repair::planted::images(true);
    for (from, to) in [(0, 1), (1, 0)] {
        let mut images = good.clone();
        let root = &good[from][BLOCK..][..256];
        assert!(root.starts_with(b"NSROOT01"));
        let newest = ROOTS.iter().max_by_key(|number| good[from][**number * BLOCK + 24]).unwrap();
        let tree = good[from][newest * BLOCK..][TREE].to_vec();
        reroot(&mut images[to], |own| own.copy_from_slice(&tree));
        let (report, came) = repaired(&images);
        let done = said(&report.done);
        assert_eq!(told(&done, "is not its own: written anew"), 1, "{done:?}");
        let back = came.files.len() as u64;
        assert!((ALL / 4..ALL).contains(&back), "{back} of {ALL} files");
    }
}

/// What the log held belongs to trees that nobody finds any more.
#[test]
fn a_pool_without_any_root_is_empty_and_its_log_counts_no_more() {
    let pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    plant(&fs);
    fs.checkpoint().unwrap();
    (0..100).for_each(|number| drop(make(&fs, &format!("later {number}"))));
    fs.close().unwrap();
    drop(fs);
    let mut images = read(&pool.dir());
    for slice in 0..SLICES {
        ROOTS.iter().for_each(|number| damage(&mut images, (slice, *number)));
    }
    put(&pool, &images);
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap();
    let found = said(&tried.report().found);
    assert!(found.len() == 1 && found[0].starts_with("the pool: "), "{found:?}");
    let file = pool.dir().join("repair.undo");
    tried.write(&file).unwrap();
    pool.assert_clean();
    let after = read(&pool.dir());
    let log = 16 * BLOCK..80 * BLOCK;
    assert!(images.iter().zip(&after).any(|(one, other)| one[log.clone()] != other[log.clone()]));
    let mut left = names(&pool.start_alone(), Ino::ROOT);
    left.retain(|name| name != b"." && name != b"..");
    assert_eq!(left, Vec::<Vec<u8>>::new());
    put(&pool, &after);
    undo(&pool.dir(), &file).unwrap();
    assert_eq!(read(&pool.dir()), images);
}

/// A log that changes what the trees have, and files that were open without a name.
fn killed_over_trees() -> Images {
    let mut pool = TestPool::new(1, 8 << 20);
    let fs = pool.start_alone();
    plant(&fs);
    let open: Vec<_> = (0..3).map(|number| make(&fs, &format!("open {number}"))).collect();
    for number in 0..3 {
        fs.unlink(Ino::ROOT, format!("open {number}").as_bytes()).unwrap();
    }
    fs.checkpoint().unwrap();
    let all = names(&fs, fs.lookup(Ino::ROOT, b"dir0").unwrap().ino);
    let dir = fs.lookup(Ino::ROOT, b"dir0").unwrap().ino;
    for name in all.iter().filter(|name| name.len() > 90).step_by(7) {
        let ino = fs.lookup(dir, name).unwrap().ino;
        fs.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    }
    let dir = fs.lookup(Ino::ROOT, b"dir3").unwrap().ino;
    for name in names(&fs, dir).iter().filter(|name| name.len() > 90).step_by(7) {
        let handle = fs.open(fs.lookup(dir, name).unwrap().ino).unwrap();
        fs.write(&handle, 1 << 20, &pattern(1, BLOCK)).unwrap();
    }
    pool.kill();
    drop((open, fs));
    read(&pool.dir())
}

/// What the log says cannot be done to what is lost: the pool is refused, with an error of the
/// medium's, or opened with all that it does not touch.
#[test]
fn a_log_over_a_tree_that_is_lost_is_refused() {
    let good = killed_over_trees();
    let (mut refused, mut opened) = (0, 0);
    for pair in pairs(&good) {
        let mut images = good.clone();
        pair.iter().for_each(|place| damage(&mut images, *place));
        let options = OpenOptions::default();
        match FileSystem::open_candidates(candidates(&images), &options, false) {
            Ok(_) => opened += 1,
            Err(error) => {
                assert_eq!(error.errno(), libc::EIO, "{error}");
                refused += 1;
            }
        }
        let report = fs::check_candidates(candidates(&images), &options);
        assert!(report.map_or(true, |report| opened > 0 || !report.findings.is_empty()));
    }
    assert!(refused >= 5 && opened >= 1, "{refused} refused, {opened} opened");
}

/// A pool of the domain `sync` whose log holds the data of a file that is synced often; the last
/// write is not synced. With the file's content.
fn synced(open: OpenOptions) -> (TestPool, Vec<u8>) {
    let mut pool = TestPool::synced(1, 4 << 20);
    pool.open = open;
    let fs = pool.start_alone();
    let handle = make(&fs, "file");
    for round in 0..6u64 {
        fs.write(&handle, round * 4096, &pattern(round, 4096)).unwrap();
        fs.fsync(&handle).unwrap();
    }
    let all = content(&fs, &handle);
    fs.create(Ino::ROOT, b"not synced", NewNode::File, BY).unwrap();
    pool.kill();
    drop((handle, fs));
    pool.open = OpenOptions::default();
    // something to repair: the second superblock
    let mut images = read(&pool.dir());
    let last = images[0].len() / BLOCK - 1;
    damage(&mut images, (0, last));
    put(&pool, &images);
    (pool, all)
}

const OTHER_BOOT: Option<[u8; 16]> = Some([7; 16]);

#[test]
fn data_that_only_the_log_holds_comes_back() {
    for boot in [None, OTHER_BOOT] {
        let (pool, all) = synced(OpenOptions { boot, ..OpenOptions::default() });
        let (_, fs) = mended(&pool);
        assert_eq!(content(&fs, &find(&fs, "file")), all);
        // after a restart of the machine what was not synced is not believed
        assert_eq!(fs.lookup(Ino::ROOT, b"not synced").is_ok(), boot.is_none());
    }
}

/// After a restart all of an epoch counts or nothing: one with a record that makes no sense is left
/// out, and that is told.
#[test]
fn an_epoch_with_a_record_that_makes_no_sense_is_left_out() {
    let pool = TestPool::synced(1, 4 << 20);
    let fs = pool.start_alone();
    fs.write(&make(&fs, "file"), 0, &pattern(1, 9000)).unwrap();
    fs.close().unwrap();
    drop(fs);
    // one lane: its stamps ascend
    crate::repair::planted::pin(0);
    topology::refresh_cpu();
    let options = OpenOptions { boot: OTHER_BOOT, ..OpenOptions::default() };
    let (log, _) = Pool::open(&pool.dir(), &options).unwrap();
    log.write_state(true).unwrap();
    let mut record = RecordBuffer::new(KIND_CHANGE, 0);
    record.push(&[99; 16]);
    {
        let (mut lane, slice) = log.lane();
        let done = lane.append(&slice.mapping, &mut record, 1 << 20, pmem::InFlight::none());
        assert!(done.is_ok());
    }
    log.sync_epoch().unwrap();
    drop(log);
    let found = said(&pool.check().findings);
    assert!(found.len() == 1 && found[0].starts_with("log: "), "{found:?}");
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "left out: what came after the last checkpoint: "), 1, "{done:?}");
    assert_eq!(content(&fs, &find(&fs, "file")), pattern(1, 9000));
}
