//! What is counted for a slice is what lies there, and what was asked near it.

use crate::common::{BY, TestPool, make, pattern};
use fs::{Call, FileSystem, Ino, NewNode};

const SLICES: usize = 2;

/// The lowest byte of an inode's number is its slice.
fn slice_of(ino: Ino) -> usize {
    (ino.0 & 0xFF) as usize
}

/// Makes a file and calls on each CPU; how many inodes each slice has then, and calls near it.
fn on_each_cpu(fs: &FileSystem) -> ([u64; SLICES], [u64; SLICES]) {
    let (mut inodes, mut calls) = ([0; SLICES], [0; SLICES]);
    let everywhere = topology::allowed_cpus().unwrap();
    for (n, cpu) in everywhere.iter().enumerate() {
        topology::pin_current_thread(&[*cpu]).unwrap();
        let file = make(fs, &n.to_string());
        let near = slice_of(file.ino());
        fs.write(&file, 0, &pattern(n as u64, 9000)).unwrap();
        inodes[near] += 1;
        for call in 0..=n {
            let served = || if call == 0 { Err(()) } else { Ok(()) };
            assert_eq!(fs.meter().call(Call::Read, served).is_err(), call == 0);
            fs.meter().moved(Call::Read, 10);
            calls[near] += 1;
        }
    }
    topology::pin_current_thread(&everywhere).unwrap();
    (inodes, calls)
}

/// Entries are counted at the cut after the one that folded them.
fn settle(fs: &FileSystem) {
    for _ in 0..3 {
        make(fs, "one more");
        fs.unlink(Ino::ROOT, b"one more").unwrap();
        fs.checkpoint().unwrap();
    }
}

#[test]
fn calls_and_caches_are_counted_where_they_are() {
    let pool = TestPool::new(SLICES, 12 << 20);
    let fs = pool.start();
    let (mut inodes, calls) = on_each_cpu(&fs);
    // The root directory.
    inodes[0] += 1;
    settle(&fs);
    let stats = fs.stats();
    for (index, slice) in stats.slices.iter().enumerate() {
        assert_eq!(slice.cache.inodes, inodes[index], "{stats:?}");
        // A file has blocks, a directory has none.
        let files = inodes[index] - u64::from(index == 0);
        assert_eq!(slice.cache.map_bytes > 0, files > 0, "{stats:?}");
        assert_eq!(slice.cache.entry_bytes > 0, index == 0, "all entries are the root's");
        let read = slice.calls.iter().find(|call| call.name == "read");
        assert_eq!(read.map_or(0, |read| read.count), calls[index], "{stats:?}");
        assert_eq!(read.map_or(0, |read| read.bytes), calls[index] * 10);
    }
    let all = &stats.calls[0];
    assert_eq!((all.name, all.count), ("read", calls.iter().sum()));
    assert_eq!(all.errors, topology::allowed_cpus().unwrap().len() as u64);
    let errors: u64 = stats.slices.iter().flat_map(|it| &it.calls).map(|it| it.errors).sum();
    assert_eq!(errors, all.errors);
    fs.close().unwrap();
}

/// Entries and inodes that leave the caches leave the account of their slice, too.
#[test]
fn what_is_let_go_of_is_not_counted_any_more() {
    let pool = TestPool::new(SLICES, 12 << 20);
    let fs = pool.start();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    let held = |fs: &FileSystem| -> Vec<(u64, u64)> {
        fs.stats().slices.iter().map(|it| (it.cache.entry_bytes, it.cache.inodes)).collect()
    };
    for n in 0..50u8 {
        fs.create(dir, &[b'f', n + b'A'], NewNode::File, BY).unwrap();
    }
    settle(&fs);
    let full = held(&fs);
    for n in 0..50u8 {
        fs.unlink(dir, &[b'f', n + b'A']).unwrap();
    }
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    settle(&fs);
    let empty = held(&fs);
    let home = slice_of(dir);
    assert!(full[home].0 >= 50 * 128, "{full:?}");
    for (slice, (entries, inodes)) in empty.iter().enumerate() {
        assert!(*inodes <= 2, "slice {slice}: {empty:?}");
        assert!(*entries <= 3 * 128, "slice {slice}: {empty:?}");
    }
    fs.close().unwrap();
}

#[test]
fn a_check_tells_how_far_it_is() {
    let pool = TestPool::new(SLICES, 12 << 20);
    let fs = pool.start();
    fs.write(&make(&fs, "file"), 0, &pattern(7, 4 << 20)).unwrap();
    fs.close().unwrap();
    drop(fs);
    let mut told = Vec::new();
    let report = fs::check_watched(&pool.dir(), &mut |done, of| told.push((done, of))).unwrap();
    assert_eq!(report.blocks, 1024);
    assert!(told.is_sorted() && told.len() == 8, "{told:?}");
    let (done, of) = told[7];
    assert_eq!(done, 4 << 20);
    // The trees have some blocks, too.
    assert!(of >= done && of < done + (1 << 20), "{told:?}");
}
