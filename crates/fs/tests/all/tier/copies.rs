//! Clean copies: what lies on the tier, and in slices, too, for as long as nobody needs the room.

use crate::common::{SOON, TestPool, pattern, random};
use crate::tier::larger::Shadow;
use crate::tier::{MIB, pool, tiered};
use fs::{FileSystem, Ino, TierStats};
use pool::{FormatOptions, OpenOptions};

fn stats(fs: &FileSystem) -> TierStats {
    fs.tier_stats().unwrap()
}

#[test]
fn what_was_written_back_is_read_from_its_slice() {
    let pool = pool(2, 16 * MIB, &[64 * MIB]);
    let fs = pool.start();
    let mut shadow = Shadow::make(&fs, "file");
    shadow.write(&fs, 0, &pattern(1, 10 * MIB as usize));
    fs.write_back_all().unwrap();
    let after = stats(&fs);
    assert_eq!(after.slice_blocks_clean, 2560);
    assert!(after.slice_blocks_used < 400, "{after:?}");
    shadow.assert_all(&fs);
    shadow.write(&fs, 5000, &pattern(2, 100));
    shadow.assert_all(&fs);
    let after = stats(&fs);
    assert_eq!((after.read_blocks, after.cached_bytes), (0, 0), "{after:?}");
    assert_eq!(after.slice_blocks_clean, 2559, "the block that was written anew has none");
    // as free as if they were not there
    let space = fs.statfs();
    let mut all = Shadow::make(&fs, "all");
    all.write(&fs, 0, &pattern(3, 21 * MIB as usize));
    assert!(fs.statfs().blocks_free + 21 * 256 <= space.blocks_free + 300);
    all.assert_all(&fs);
    shadow.assert_all(&fs);
    drop((all, shadow));
    for name in ["file", "all"] {
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(stats(&fs).slice_blocks_clean, 0, "nobody has what they are copies of");
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
    let fs = pool.start();
    let after = stats(&fs);
    assert!(after.slice_blocks_used < 400 && after.slice_blocks_clean == 0, "{after:?}");
}

/// They are let go of before files have to wait for a device.
#[test]
fn copies_make_room() {
    let pool = pool(1, 16 * MIB, &[64 * MIB]);
    let fs = pool.start_alone();
    let mut shadow = Shadow::make(&fs, "file");
    shadow.write(&fs, 0, &pattern(1, 9 * MIB as usize));
    fs.write_back_all().unwrap();
    let before = stats(&fs);
    assert!(before.slice_blocks_clean > 1500, "{before:?}");
    let mut more = Shadow::make(&fs, "more");
    more.write(&fs, 0, &pattern(2, 12 * MIB as usize));
    let after = stats(&fs);
    assert_eq!(after.written_blocks, before.written_blocks, "nothing was written back for it");
    assert!(after.slice_blocks_clean < before.slice_blocks_clean);
    shadow.assert_all(&fs);
    more.assert_all(&fs);
}

/// A copy never outlives what it is one of: places of the tier are used again all the time here,
/// with other bytes, while readers read what lies there.
#[test]
fn copies_end_with_what_they_are_of() {
    for process in [true, false] {
        let options = FormatOptions { process, ..tiered(2, 16 * MIB, &[24 * MIB]) };
        let mut pool = TestPool::with(&options);
        let fs = pool.start();
        let fs = std::sync::Arc::new(fs);
        let mover = {
            let fs = fs.clone();
            std::thread::spawn(move || {
                for round in 0..150 {
                    fs.write_back_all().unwrap();
                    if round % 7 == 0 {
                        fs.evict_caches();
                    }
                }
            })
        };
        let mut shadows: Vec<Shadow> =
            (0..4).map(|number| Shadow::make(&fs, &format!("file{number}"))).collect();
        let mut state = 11;
        while !mover.is_finished() {
            let shadow = &mut shadows[random(&mut state) as usize % 4];
            let at = random(&mut state) as usize % (3 * MIB as usize);
            let len = 1 + random(&mut state) as usize % 200_000;
            match random(&mut state) % 3 {
                0 => shadow.write(&fs, at, &pattern(state, len)),
                1 => shadow.assert_part(&fs, at.min(shadow.bytes.len()), len),
                _ => shadow.assert_all(&fs),
            }
        }
        mover.join().unwrap();
        fs.sync().unwrap();
        let fs = pool.killed(std::sync::Arc::into_inner(fs).unwrap());
        for (number, shadow) in shadows.into_iter().enumerate() {
            shadow.found(&fs, &format!("file{number}")).assert_all(&fs);
        }
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

/// What lies over a block moves with it: what is left in the slice is not the same.
#[test]
fn what_lies_under_patches_is_no_copy() {
    let options = FormatOptions { process: false, ..tiered(1, 16 * MIB, &[24 * MIB]) };
    let fs = TestPool::with(&options).start_alone();
    let mut shadow = Shadow::make(&fs, "file");
    shadow.write(&fs, 0, &pattern(1, MIB as usize));
    fs.checkpoint().unwrap();
    shadow.write(&fs, 40_000, &pattern(2, 60));
    assert_eq!(fs.write_back_all().unwrap(), 256);
    assert_eq!(stats(&fs).slice_blocks_clean, 255);
    shadow.assert_all(&fs);
}

/// What is read often, and too much for the cache in DRAM, is in slices before long.
#[test]
fn what_is_read_often_comes_back_to_the_slices() {
    let pool = pool(2, 32 * MIB, &[64 * MIB]);
    let options = OpenOptions { tier_cache_bytes: Some(MIB), ..OpenOptions::default() };
    let fs = FileSystem::open_pool(&pool.dir(), &options).unwrap();
    let mut shadow = Shadow::make(&fs, "file");
    shadow.write(&fs, 0, &pattern(1, 24 * MIB as usize));
    fs.write_back_all().unwrap();
    fs.evict_caches();
    assert_eq!(stats(&fs).slice_blocks_clean, 0);
    let begun = std::time::Instant::now();
    let mut state = 3;
    loop {
        let before = stats(&fs).read_blocks;
        for _ in 0..2000 {
            // a tenth of the file, in no order
            let at = random(&mut state) as usize % (2 * MIB as usize + MIB as usize / 2);
            shadow.assert_part(&fs, at, 1 + at % 9000);
        }
        let after = stats(&fs);
        if after.read_blocks == before {
            assert!(after.slice_blocks_clean > 100, "{after:?}");
            break;
        }
        assert!(begun.elapsed() < SOON, "{after:?}");
    }
    shadow.assert_all(&fs);
    shadow.write(&fs, 0, &pattern(2, 5 * MIB as usize));
    shadow.assert_all(&fs);
    fs.close().unwrap();
    drop((shadow, fs));
    pool.assert_clean();
}
