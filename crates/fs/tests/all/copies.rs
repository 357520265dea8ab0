//! Copies that share blocks: what each of the files shows, what space they take, and what a kill
//! leaves.

use crate::common::{TestPool, content, find, free, make, pattern};
use fs::{ATOMIC_WRITE_BYTES_MAX, Fallocate, FileSystem, Ino, SetAttr};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A pool with a file of so many bytes and its copy.
fn copied(bytes: usize) -> (TestPool, FileSystem, Vec<u8>) {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let data = pattern(5, bytes);
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    fs.write(&one, 0, &data).unwrap();
    assert_eq!(fs.copy((&one, 0), (&two, 0), u64::MAX).unwrap(), bytes as u64);
    drop((one, two));
    (pool, fs, data)
}

fn size(fs: &FileSystem, name: &str, size: u64) {
    let change = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(find(fs, name).ino(), &change).unwrap();
}

#[track_caller]
fn holds(fs: &FileSystem, name: &str, data: &[u8]) {
    assert!(content(fs, &find(fs, name)) == data, "{name} holds something else");
}

/// What a kill now leaves.
fn killed(pool: &mut TestPool, fs: FileSystem) -> FileSystem {
    pool.kill();
    drop(fs);
    pool.assert_clean();
    pool.start_alone()
}

#[test]
fn a_copy_takes_no_blocks_and_each_file_counts_its_own() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    let data = pattern(5, (MIB + 700) as usize);
    fs.write(&one, 0, &data).unwrap();
    let before = fs.statfs().blocks_free;
    let log = fs.log_bytes_written();
    assert_eq!(fs.copy((&one, 0), (&two, 0), 1 << 40).unwrap(), data.len() as u64);
    assert_eq!(fs.log_bytes_written() - log, 128, "one record for all of it");
    assert_eq!(fs.statfs().blocks_free, before);
    let sectors = |name| fs.getattr(find(&fs, name).ino()).unwrap().sectors;
    assert_eq!(sectors("one"), (data.len() as u64).div_ceil(BLOCK) * 8);
    assert_eq!(sectors("two"), sectors("one"));
    holds(&fs, "two", &data);
}

#[test]
fn a_change_of_either_leaves_the_other() {
    for folded in [false, true] {
        for changed in ["one", "two"] {
            let (mut pool, fs, mut data) = copied(300 * 4096 + 50);
            let before = data.clone();
            if folded {
                fs.checkpoint().unwrap();
            }
            let file = find(&fs, changed);
            for (offset, len) in [(100, 64), (5000, 1000), (3 * 4096, 4096), (77_777, 30_000)] {
                let new = pattern(9, len);
                fs.write(&file, offset as u64, &new).unwrap();
                data[offset..offset + len].copy_from_slice(&new);
            }
            fs.append(&file, b"more").unwrap();
            data.extend_from_slice(b"more");
            fs.fallocate(&file, Fallocate::PunchHole, 40 * BLOCK + 9, 9 * BLOCK).unwrap();
            data[40 * 4096 + 9..49 * 4096 + 9].fill(0);
            size(&fs, changed, 250 * BLOCK + 100);
            data.truncate(250 * 4096 + 100);
            drop(file);
            let other = if changed == "one" { "two" } else { "one" };
            holds(&fs, changed, &data);
            holds(&fs, other, &before);
            let fs = killed(&mut pool, fs);
            holds(&fs, changed, &data);
            holds(&fs, other, &before);
        }
    }
}

/// The second small write goes in place only if the first gave the file a block of its own.
#[test]
fn a_block_is_the_files_own_again_after_its_first_write() {
    let (_pool, fs, _) = copied(4 * 4096);
    let two = find(&fs, "two");
    let before = fs.statfs().blocks_free;
    fs.write(&two, 50, b"first").unwrap();
    assert_eq!(fs.statfs().blocks_free, before - 1);
    let log = fs.log_bytes_written();
    fs.write(&two, 90, b"second").unwrap();
    assert_eq!(fs.statfs().blocks_free, before - 1);
    assert_eq!(fs.log_bytes_written() - log, 64, "the bytes went into the record");
}

#[test]
fn blocks_are_free_when_the_last_file_that_has_them_is_gone_and_not_before() {
    for kills in [false, true] {
        let mut pool = TestPool::new(2, 32 << 20);
        let mut fs = pool.start_alone();
        let empty = free(&fs);
        let data = pattern(3, 3 * MIB as usize);
        let one = make(&fs, "one");
        fs.write(&one, 0, &data).unwrap();
        for copy in ["two", "three"] {
            fs.copy((&one, 0), (&make(&fs, copy), 0), 3 * MIB).unwrap();
            fs.checkpoint().unwrap();
        }
        drop(one);
        for gone in ["two", "one", "three"] {
            holds(&fs, "three", &data);
            fs.unlink(Ino::ROOT, gone.as_bytes()).unwrap();
            if kills {
                fs = killed(&mut pool, fs);
            }
            // what was freed would be used again here
            let scribble = make(&fs, "scribble");
            fs.write(&scribble, 0, &pattern(8, 20 * MIB as usize)).unwrap();
            drop(scribble);
            if gone != "three" {
                holds(&fs, "three", &data);
            }
            fs.unlink(Ino::ROOT, b"scribble").unwrap();
            fs.checkpoint().unwrap();
        }
        assert_eq!(free(&fs), empty, "kills: {kills}");
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

/// A small write is in the log, and perhaps not in the block: the copy must have it after a crash,
/// also when the source went on.
#[test]
fn bytes_that_lie_in_the_log_go_along() {
    for source_goes_on in [false, true] {
        let mut pool = TestPool::new(1, 16 << 20);
        let fs = pool.start_alone();
        let (one, two) = (make(&fs, "one"), make(&fs, "two"));
        let mut data = pattern(1, 3 * 4096);
        fs.write(&one, 0, &data).unwrap();
        fs.checkpoint().unwrap();
        fs.write(&one, 5000, b"small").unwrap();
        data[5000..5005].copy_from_slice(b"small");
        fs.copy((&one, 0), (&two, 0), u64::MAX).unwrap();
        if source_goes_on {
            fs.write(&one, 0, &pattern(2, 3 * 4096)).unwrap();
        }
        drop((one, two));
        pool.kill();
        drop(fs);
        // as if the bytes had not left the caches before the power went
        let dir = pool.dir();
        let path = &crate::common::slices(&dir)[0];
        let mut image = std::fs::read(path).unwrap();
        let found = image.windows(4096).position(|window| window == &data[4096..8192]).unwrap();
        image[found + 5000 - 4096..found + 5005 - 4096]
            .copy_from_slice(&pattern(1, 9000)[5000..5005]);
        std::fs::write(path, image).unwrap();
        let fs = pool.start_alone();
        holds(&fs, "two", &data);
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

#[test]
fn what_is_not_alike_is_copied_and_holes_stay_holes() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    let data = pattern(4, 9 * 4096);
    fs.write(&one, 2 * BLOCK, &data).unwrap();
    fs.write(&one, 700 * BLOCK, &data).unwrap();
    fs.write(&one, 1000 * BLOCK + 9, b"over a hole").unwrap();
    fs.copy((&one, 0), (&two, 0), u64::MAX).unwrap();
    assert_eq!(content(&fs, &two), content(&fs, &one));
    let sectors = |ino| fs.getattr(ino).unwrap().sectors;
    assert_eq!(sectors(two.ino()), sectors(one.ino()));
    for offset in [0, 12 * BLOCK, 800 * BLOCK] {
        let found = |file, data| fs.seek(file, offset, data).unwrap();
        assert_eq!(found(&two, true), found(&one, true), "data from {offset}");
        assert_eq!(found(&two, false), found(&one, false), "holes from {offset}");
    }
    let three = make(&fs, "three");
    assert_eq!(fs.copy((&one, 100), (&three, 7), 30_000).unwrap(), 30_000);
    assert_eq!(content(&fs, &three)[7..], content(&fs, &one)[100..30_100]);
}

#[test]
fn ranges_of_one_file_may_not_overlap() {
    let (pool, fs, data) = copied(8 * 4096);
    let one = find(&fs, "one");
    for (from, to, len) in [(0, 0, 1), (0, BLOCK, 2 * BLOCK), (2 * BLOCK, BLOCK, BLOCK + 1)] {
        let error = fs.copy((&one, from), (&one, to), len).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{from} to {to}, {len}");
    }
    // what is behind the end is not copied, and so in nobody's way
    assert_eq!(fs.copy((&one, 6 * BLOCK), (&one, 8 * BLOCK), 9 * BLOCK).unwrap(), 2 * BLOCK);
    assert_eq!(fs.copy((&one, 99 * BLOCK), (&one, 0), BLOCK).unwrap(), 0);
    let expected = [&data[..], &data[6 * 4096..]].concat();
    assert_eq!(content(&fs, &one), expected);
    drop(one);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// A block with very many places, all in one file.
#[test]
fn a_file_that_is_doubled_again_and_again_takes_one_block() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let empty = free(&fs);
    let one = make(&fs, "one");
    let data = pattern(6, 4096);
    fs.write(&one, 0, &data).unwrap();
    let before = fs.statfs().blocks_free;
    for doubling in 0..17u64 {
        let size = BLOCK << doubling;
        assert_eq!(fs.copy((&one, 0), (&one, size), size).unwrap(), size);
    }
    let size = BLOCK << 17;
    assert_eq!(fs.getattr(one.ino()).unwrap().sectors, size / 512);
    let mut block = vec![0; 4096];
    fs.read(&one, size - BLOCK, &mut block).unwrap();
    assert!(block == data);
    assert!(before - fs.statfs().blocks_free < 4000, "leaves, but no data");
    drop(one);
    fs.unlink(Ino::ROOT, b"one").unwrap();
    assert_eq!(free(&fs), empty);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn copies_in_both_directions_at_once_end() {
    let pool = TestPool::new(2, 64 << 20);
    let fs = std::sync::Arc::new(pool.start());
    let names = ["one", "two", "three"];
    for (seed, name) in (0..).zip(names) {
        fs.write(&make(&fs, name), 0, &pattern(seed, ATOMIC_WRITE_BYTES_MAX)).unwrap();
    }
    let run = {
        let fs = fs.clone();
        move || {
            std::thread::scope(|scope| {
                for thread in 0..6u64 {
                    let fs = &fs;
                    scope.spawn(move || copy_and_write(fs, names, thread));
                }
            });
        }
    };
    crate::common::watched(std::time::Duration::from_secs(120), "copies", run);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

fn copy_and_write(fs: &FileSystem, names: [&str; 3], thread: u64) {
    let mut random = thread + 1;
    for round in 0..150 {
        let mut pick = |below: u64| crate::common::random(&mut random) % below;
        let (from, to) = (find(fs, names[pick(3) as usize]), find(fs, names[pick(3) as usize]));
        let at = (pick(400) * BLOCK, pick(400) * BLOCK);
        match fs.copy((&from, at.0), (&to, at.1), pick(300) * BLOCK + 1) {
            Err(fs::Error::Invalid(_)) => {}
            copied => drop(copied.unwrap()),
        }
        let data = pattern(round, 1 + pick(9000) as usize);
        fs.write(&to, pick(400 * BLOCK), &data).unwrap();
        if round % 40 == 9 {
            fs.checkpoint().unwrap();
        }
    }
}
