//! Space that is set aside where the slices have none.

use crate::common::{make, pattern};
use crate::tier::larger::Shadow;
use crate::tier::{MIB, pool};
use fs::{Error, Fallocate, FileSystem, Handle};

const ALLOCATE: Fallocate = Fallocate::Allocate { keep_size: false };

/// Writes a file, by pieces, until there is no room.
fn fill(fs: &FileSystem, file: &Handle, piece: usize) -> usize {
    let mut filled = 0;
    loop {
        match fs.write(file, filled as u64, &pattern(filled as u64, piece)) {
            Ok(len) => filled += len,
            Err(Error::NoSpace) => return filled,
            Err(error) => panic!("{error}"),
        }
    }
}

/// More than the slices hold can be reserved, and what is reserved can be written, be the rest of
/// the pool as full as it can be.
#[test]
fn what_is_reserved_on_the_tier_can_be_written() {
    for slices in [1, 2] {
        let mut pool = pool(slices, 16 * MIB, &[60 * MIB]);
        let fs = pool.start();
        let mut shadow = Shadow::make(&fs, "reserved");
        fs.fallocate(&shadow.file, ALLOCATE, 0, 40 * MIB).unwrap();
        shadow.bytes.resize(40 * MIB as usize, 0);
        let stats = fs.tier_stats().unwrap();
        assert_eq!(stats.device_blocks - stats.device_blocks_free, 40 * MIB / 4096);
        assert_eq!(stats.written_blocks, 0, "nothing is written for it");
        let rest = make(&fs, "rest");
        let filled = fill(&fs, &rest, MIB as usize) + fill(&fs, &rest, 4096);
        assert!(filled as u64 > 20 * MIB, "{filled}");
        for piece in 0..40 {
            shadow.write(&fs, piece << 20, &pattern(piece as u64, 1 << 20));
        }
        shadow.assert_all(&fs);
        // and again, over what lies on the tier
        for piece in (0..40).rev() {
            shadow.write(&fs, (piece << 20) + 5000, &pattern(piece as u64 + 50, 700_000));
        }
        shadow.assert_all(&fs);
        drop(rest);
        let fs = pool.killed(fs);
        let shadow = shadow.found(&fs, "reserved");
        shadow.assert_all(&fs);
        fs.close().unwrap();
        drop((shadow, fs));
        pool.assert_clean();
    }
}

/// What was reserved while the tier was full goes there when it is not.
#[test]
fn what_is_reserved_in_slices_moves() {
    let mut pool = pool(1, 32 * MIB, &[16 * MIB]);
    let fs = pool.start_alone();
    let full = make(&fs, "full");
    fs.fallocate(&full, ALLOCATE, 0, 15 * MIB).unwrap();
    let mut near = Shadow::make(&fs, "near");
    fs.fallocate(&near.file, ALLOCATE, 0, 12 * MIB).unwrap();
    near.bytes.resize(12 * MIB as usize, 0);
    let before = fs.tier_stats().unwrap();
    fs.fallocate(&full, Fallocate::PunchHole, 0, 15 * MIB).unwrap();
    assert!(fs.write_back_all().unwrap() > 2800);
    let after = fs.tier_stats().unwrap();
    assert!(after.slice_blocks_used + 2800 < before.slice_blocks_used, "{before:?} {after:?}");
    assert_eq!(after.written_blocks, 0);
    near.write(&fs, 70_000, &pattern(1, 500_000));
    near.assert_all(&fs);
    drop(full);
    let fs = pool.killed(fs);
    let near = near.found(&fs, "near");
    near.assert_all(&fs);
    fs.close().unwrap();
    drop((near, fs));
    pool.assert_clean();
}
