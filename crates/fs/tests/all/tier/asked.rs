//! What is done when somebody asks for it: writing back, and emptying the caches.

use crate::common::{SOON, TestPool, content, make, pattern};
use crate::tier::faulty::write_back_all;
use crate::tier::{MIB, pool, tiered};
use fs::{ExtentOn, FileSystem, Ino};
use pool::FormatOptions;
use std::time::{Duration, Instant};

/// Bytes of a file on slices and on devices.
fn lies(fs: &FileSystem, ino: Ino) -> (u64, u64) {
    let (extents, next) = fs.extents(ino, 0, usize::MAX).unwrap();
    assert_eq!(next, None);
    extents.iter().fold((0, 0), |(slices, devices), extent| match extent.on {
        ExtentOn::Slice(slice) => {
            assert!(slice < 2, "{extent:?}");
            (slices + extent.bytes, devices)
        }
        ExtentOn::Device(device) => {
            assert!(device < 2, "{extent:?}");
            (slices, devices + extent.bytes)
        }
    })
}

#[test]
fn all_is_written_back_in_steps_that_can_be_ended() {
    for process in [true, false] {
        let options = FormatOptions { process, ..tiered(2, 64 * MIB, &[48 * MIB, 32 * MIB]) };
        let mut pool = TestPool::with(&options);
        let fs = pool.start();
        let file = make(&fs, "file");
        let data = pattern(1, 16 * MIB as usize);
        fs.write(&file, 0, &data).unwrap();
        assert_eq!(lies(&fs, file.ino()), (16 * MIB, 0), "less than is written back by itself");
        assert_eq!(fs.write_back_watched(&mut |_, _| false).unwrap(), None);
        assert_eq!(fs.tier_stats().unwrap().moved_blocks, 0);
        let mut steps = Vec::new();
        let ended = fs.write_back_watched(&mut |done, of| {
            steps.push((done, of));
            steps.len() < 3
        });
        assert_eq!(ended.unwrap(), None);
        assert!(steps.is_sorted() && steps[2].0 >= 4 * MIB, "{steps:?}");
        assert!(steps.iter().all(|(done, of)| done <= of && *of >= 16 * MIB), "{steps:?}");
        let (slices, devices) = lies(&fs, file.ino());
        assert!(slices > 0 && devices >= 4 * MIB && slices + devices == 16 * MIB);
        let moved = fs.write_back_watched(&mut |_, _| true).unwrap();
        assert_eq!(moved, Some(slices / 4096));
        assert_eq!(lies(&fs, file.ino()), (0, 16 * MIB));
        let stats = fs.tier_stats().unwrap();
        assert_eq!(stats.moved_blocks, 4096, "{stats:?}");
        assert_eq!(stats.device_blocks - stats.device_blocks_free, 4096, "{stats:?}");
        fs.sync().unwrap();
        drop(file);
        let fs = pool.killed(fs);
        let file = crate::common::find(&fs, "file");
        assert!(content(&fs, &file) == data);
        assert_eq!(lies(&fs, file.ino()), (0, 16 * MIB));
        fs.close().unwrap();
        drop((file, fs));
        pool.assert_clean();
    }
}

#[test]
fn caches_are_emptied_and_filled_again() {
    let pool = pool(1, 16 * MIB, &[48 * MIB]);
    let fs = pool.start();
    let file = make(&fs, "file");
    let data = pattern(1, 8 * MIB as usize);
    fs.write(&file, 0, &data).unwrap();
    write_back_all(&fs, 2048);
    assert_eq!(fs.evict_caches(), Some(8 * MIB), "copies in the slices");
    for round in 1..3 {
        assert!(content(&fs, &file) == data);
        let stats = fs.tier_stats().unwrap();
        assert_eq!((stats.cached_bytes, stats.read_blocks), (8 * MIB, round * 2048), "{stats:?}");
        assert_eq!(fs.evict_caches(), Some(8 * MIB));
        assert_eq!(fs.tier_stats().unwrap().cached_bytes, 0);
        assert_eq!(fs.evict_caches(), Some(0));
    }
    let without = TestPool::new(1, 16 * MIB);
    let fs = without.start();
    assert_eq!((fs.evict_caches(), fs.tier_stats()), (None, None));
    assert_eq!(fs.write_back_watched(&mut |_, _| true).unwrap(), Some(0));
}

/// Clean copies of what was written back stay in the slice: what counts is what has moved.
#[test]
fn so_much_of_a_slice_is_left_dirty_as_was_asked_for() {
    for (percent, left) in [(None, 30), (Some(60), 60), (Some(0), 0), (Some(10), 10)] {
        let mut pool = pool(1, 64 * MIB, &[96 * MIB]);
        pool.open.write_back_percent = percent;
        let fs = pool.start();
        let file = make(&fs, "file");
        fs.write(&file, 0, &pattern(1, 28 * MIB as usize)).unwrap();
        let blocks = fs.tier_stats().unwrap().slice_blocks;
        let used = || fs.tier_stats().unwrap().slice_blocks_used * 100 / blocks;
        // trees lie there, too, and stay
        let trees = 3;
        let deadline = Instant::now() + SOON;
        while used() > left + trees && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(used() <= left + trees, "{percent:?}: {} %", used());
        // it stops there, but for the batch that it was at: 256 blocks
        std::thread::sleep(Duration::from_millis(100));
        let written = 28 * MIB / 4096 * 100 / blocks;
        let least = left.min(written).saturating_sub(3);
        assert!(used() >= least, "{percent:?}: {} % of {blocks} blocks", used());
        assert_eq!(fs.tier_stats().unwrap().moved_blocks > 0, left < 60, "{percent:?}");
    }
}
