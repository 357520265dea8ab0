//! Blocks that several places have, on the tier.

use crate::common::{TestPool, make, pattern, random};
use crate::tier::faulty::write_back_all;
use crate::tier::larger::Shadow;
use crate::tier::{MIB, pool, tiered};
use fs::{FileSystem, Ino};
use pool::FormatOptions;

fn clone(fs: &FileSystem, of: &Shadow, name: &str) -> Shadow {
    let file = make(fs, name);
    let len = of.bytes.len() as u64;
    let mut done = 0;
    while done < len {
        done += fs.copy((&of.file, done), (&file, done), len - done).unwrap();
    }
    Shadow { file, bytes: of.bytes.clone() }
}

/// Blocks of the tier that are in use, and blocks of slices.
fn used(fs: &FileSystem) -> (u64, u64) {
    let stats = fs.tier_stats().unwrap();
    (stats.device_blocks - stats.device_blocks_free, stats.slice_blocks_used)
}

#[test]
fn a_block_with_many_places_takes_one_on_the_tier() {
    for slices in [1, 3] {
        let mut pool = pool(slices, 16 * MIB, &[32 * MIB, 32 * MIB]);
        let fs = pool.start_alone();
        let mut first = Shadow::make(&fs, "first");
        first.write(&fs, 0, &pattern(1, 6 * MIB as usize));
        let second = clone(&fs, &first, "second");
        let third = clone(&fs, &first, "third");
        let moved = fs.write_back_all().unwrap();
        assert_eq!(moved, 3 * 1536, "each place names the tier");
        let (below, near) = used(&fs);
        assert_eq!(below, 1536, "and all of them name the same blocks");
        assert!(near < 600, "{near} blocks are still in slices");
        assert_eq!(fs.tier_stats().unwrap().written_blocks, 1536, "written once");
        let fs = pool.killed(fs);
        let mut first = first.found(&fs, "first");
        let (second, third) = (second.found(&fs, "second"), third.found(&fs, "third"));
        first.assert_all(&fs);
        first.write(&fs, MIB as usize - 100, &pattern(2, MIB as usize));
        for shadow in [&first, &second, &third] {
            shadow.assert_all(&fs);
        }
        fs.close().unwrap();
        drop((first, second, third, fs));
        pool.assert_clean();
        let fs = pool.start();
        for name in ["first", "second", "third"] {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
        let fs = pool.start();
        assert_eq!(used(&fs).0, 0, "every place came back");
    }
}

/// Also where its places are looked at together, before any of them has moved.
#[test]
fn a_block_with_many_places_is_written_once_for_those_of_one_batch() {
    let mut pool = pool(1, 16 * MIB, &[32 * MIB]);
    let fs = pool.start_alone();
    let mut first = Shadow::make(&fs, "first");
    let some = pattern(1, 30 * 4096);
    first.write(&fs, 0, &some);
    // in the same leaf
    let again = (&*first.file, some.len() as u64);
    fs.copy((&first.file, 0), again, 10 * 4096).unwrap();
    first.bytes.extend_from_slice(&some[..10 * 4096]);
    let second = clone(&fs, &first, "second");
    assert_eq!(fs.write_back_all().unwrap(), 80, "each place names the tier");
    assert_eq!((used(&fs).0, fs.tier_stats().unwrap().written_blocks), (30, 30));
    let fs = pool.killed(fs);
    for (shadow, name) in [(first, "first"), (second, "second")] {
        shadow.found(&fs, name).assert_all(&fs);
    }
}

/// One for all places: it is read for each of them, counts once, and ends with the last.
#[test]
fn a_block_with_many_places_leaves_one_clean_copy() {
    let pool = pool(2, 32 * MIB, &[64 * MIB]);
    let fs = pool.start();
    let before = fs.statfs();
    let mut first = Shadow::make(&fs, "first");
    first.write(&fs, 0, &pattern(1, 4 * MIB as usize));
    let mut second = clone(&fs, &first, "second");
    let third = clone(&fs, &second, "third");
    write_back_all(&fs, 3 * 1024);
    let stats = || fs.tier_stats().unwrap();
    assert_eq!((used(&fs).0, stats().slice_blocks_clean), (1024, 1024), "{:?}", stats());
    let taken = before.blocks_free - fs.statfs().blocks_free;
    assert!((1024..1400).contains(&taken), "{taken} blocks: the copies are as good as free");
    [&first, &second, &third].iter().for_each(|shadow| shadow.assert_all(&fs));
    assert_eq!((stats().read_blocks, stats().cached_bytes), (0, 0), "{:?}", stats());
    second.write(&fs, 0, &pattern(2, MIB as usize));
    assert_eq!(stats().slice_blocks_clean, 1024, "others have those still");
    drop((first, third));
    for name in ["first", "third"] {
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(stats().slice_blocks_clean, 768, "nobody has what 256 are copies of");
    second.assert_all(&fs);
    drop(second);
    fs.unlink(Ino::ROOT, b"second").unwrap();
    assert_eq!(stats().slice_blocks_clean, 0);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
    let fs = pool.start();
    assert_eq!(used(&fs).0, 0, "every place came back");
}

/// Copies on a pool whose slices could not hold one of them; where they are forgotten to be the
/// same, each has its own.
#[test]
fn copies_larger_than_the_slices_move() {
    let pool = pool(2, 16 * MIB, &[64 * MIB]);
    let fs = pool.start();
    let mut first = Shadow::make(&fs, "first");
    first.write(&fs, 0, &pattern(1, 20 * MIB as usize));
    let mut shadows = vec![first];
    for number in 0..4 {
        let mut copy = clone(&fs, &shadows[number], &format!("copy{number}"));
        copy.write(&fs, number * MIB as usize, &pattern(number as u64 + 7, MIB as usize));
        shadows.push(copy);
    }
    // others need all of the slices
    let mut other = Shadow::make(&fs, "other");
    other.write(&fs, 0, &pattern(9, 30 * MIB as usize));
    other.assert_all(&fs);
    for shadow in &shadows {
        shadow.assert_all(&fs);
    }
    fs.close().unwrap();
    drop((shadows, other, fs));
    pool.assert_clean();
}

/// Places come and go while the blocks move; nothing is freed that somebody has, and nothing is
/// kept that nobody has.
#[test]
fn places_come_and_go_while_their_blocks_move() {
    for process in [true, false] {
        let options = FormatOptions { process, ..tiered(2, 16 * MIB, &[64 * MIB]) };
        let mut pool = TestPool::with(&options);
        let fs = std::sync::Arc::new(pool.start());
        let mover = {
            let fs = fs.clone();
            std::thread::spawn(move || {
                for _ in 0..150 {
                    fs.write_back_all().unwrap();
                }
            })
        };
        let mut shadows: Vec<(u64, Shadow)> = Vec::new();
        let (mut state, mut number) = (5, 0);
        while !mover.is_finished() {
            number += 1;
            let name = format!("file{number}");
            if shadows.len() < 2 {
                let mut shadow = Shadow::make(&fs, &name);
                shadow.write(&fs, 0, &pattern(number, 300_000));
                shadows.push((number, shadow));
                continue;
            }
            let which = random(&mut state) as usize % shadows.len();
            match random(&mut state) % 4 {
                0 => {
                    let copy = clone(&fs, &shadows[which].1, &name);
                    shadows.push((number, copy));
                }
                1 => {
                    let at = random(&mut state) as usize % 250_000;
                    shadows[which].1.write(&fs, at, &pattern(number, 9000));
                }
                2 => shadows[which].1.assert_all(&fs),
                _ => {
                    let (number, shadow) = shadows.swap_remove(which);
                    shadow.assert_all(&fs);
                    drop(shadow);
                    fs.unlink(Ino::ROOT, format!("file{number}").as_bytes()).unwrap();
                }
            }
        }
        mover.join().unwrap();
        fs.sync().unwrap();
        let fs = pool.killed(std::sync::Arc::into_inner(fs).unwrap());
        for (number, shadow) in shadows {
            shadow.found(&fs, &format!("file{number}")).assert_all(&fs);
            fs.unlink(Ino::ROOT, format!("file{number}").as_bytes()).unwrap();
        }
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
        let fs = pool.start();
        assert_eq!(used(&fs).0, 0, "every place came back");
    }
}
