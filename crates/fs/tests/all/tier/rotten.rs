//! Blocks that are damaged on their devices: found in few calls, and written elsewhere where there
//! is a whole copy.

use crate::common::{SOON, content, find, make, pattern, scratch, snapshot, watched};
use crate::tier::MIB;
use crate::tier::faulty::{Fault, Faulty, opened, reopened, write_back_all};
use fs::{CheckReport, ExtentOn, FileSystem, Handle, Ino, ScrubReport};
use pool::{BLOCK_BYTES, Device, Transfer};
use std::sync::Arc;

fn check(fs: &FileSystem) -> CheckReport {
    fs.check(&mut |_, _| true).unwrap().unwrap()
}

fn scrub(fs: &FileSystem) -> ScrubReport {
    fs.scrub(None, &mut |_, _| true).unwrap().unwrap()
}

/// Where a block of a file lies on its device.
fn place(fs: &FileSystem, file: &Handle, block: u64) -> u64 {
    let (extents, _) = fs.extents(file.ino(), block * BLOCK_BYTES, 1).unwrap();
    assert_eq!((extents[0].on, extents[0].offset), (ExtentOn::Device(0), block * BLOCK_BYTES));
    extents[0].at / BLOCK_BYTES
}

/// Flips a bit of a block where it lies.
fn rot(device: &Faulty, at: u64) {
    let mut block = vec![0; BLOCK_BYTES as usize];
    device.plain.transfer(&mut [Transfer::Read(at, &mut block)]).unwrap();
    block[99] ^= 8;
    device.plain.transfer(&mut [Transfer::Write(at, &block)]).unwrap();
}

/// A file that lies on the device.
fn written_back(fs: &FileSystem, bytes: u64) -> (Arc<Handle>, Vec<u8>) {
    let file = make(fs, "file");
    let data = pattern(1, bytes as usize);
    fs.write(&file, 0, &data).unwrap();
    write_back_all(fs, bytes / BLOCK_BYTES);
    (file, data)
}

#[test]
fn a_check_asks_for_many_blocks_at_once() {
    let scratch = scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let (file, data) = written_back(&fs, 8 * MIB);
    device.take_reads();
    let report = check(&fs);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    // 16 leaves of 128 blocks, 4 of them at a time
    assert_eq!((report.blocks, device.take_reads()), (2048, 4));
    let report = scrub(&fs);
    assert!(report.findings.is_empty() && report.repaired.is_empty(), "{report:?}");
    assert_eq!((report.blocks, device.take_reads()), (2048, 4));
    rot(&device, place(&fs, &file, 700));
    let report = check(&fs);
    assert_eq!((report.findings.len(), report.blocks), (1, 2048), "{:?}", report.findings);
    assert_eq!(device.take_reads(), 5, "what did not fit is read once more");
    assert!(report.findings[0].place.contains("file offset 2867200"), "{:?}", report.findings);
    assert!(report.findings[0].what.contains("capacity device 0"), "{:?}", report.findings);
    assert!(content(&fs, &file) == data, "from the copy in the slice");
}

#[test]
fn what_cannot_be_read_is_told_block_by_block() {
    let scratch = scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    written_back(&fs, MIB);
    fs.evict_caches();
    device.set(Fault::Reads);
    let report = check(&fs);
    assert_eq!(report.findings.len(), 256);
    assert!(report.findings[0].what.contains("Input/output error"), "{:?}", report.findings[0]);
    device.set(Fault::None);
    assert!(check(&fs).findings.is_empty());
}

/// From the clean copy in a slice, and from what is cached in DRAM.
#[test]
fn a_damaged_block_is_written_elsewhere_from_a_whole_copy() {
    for is_in_slice in [true, false] {
        let scratch = scratch();
        let dir = scratch.path().join("pool");
        let (fs, device) = opened(&dir);
        let (file, data) = written_back(&fs, 2 * MIB);
        if !is_in_slice {
            fs.evict_caches();
            assert!(content(&fs, &file) == data);
        }
        let clean = fs.tier_stats().unwrap().slice_blocks_clean;
        assert_eq!(clean > 0, is_in_slice);
        let old: Vec<u64> = [5, 6, 300].map(|block| place(&fs, &file, block)).to_vec();
        old.iter().for_each(|at| rot(&device, *at));
        let free = fs.tier_stats().unwrap().device_blocks_free;
        let report = scrub(&fs);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(report.repaired.len(), 3, "{:?}", report.repaired);
        assert!(report.repaired[0].contains("written to another place"), "{:?}", report.repaired);
        let new: Vec<u64> = [5, 6, 300].map(|block| place(&fs, &file, block)).to_vec();
        assert!(new.iter().all(|at| !old.contains(at)), "{old:?} {new:?}");
        fs.evict_caches();
        assert!(content(&fs, &file) == data);
        assert!(scrub(&fs).repaired.is_empty());
        fs.sync().unwrap();
        // a crash: the record of the move is replayed
        let crashed = scratch.path().join("crashed");
        std::fs::create_dir(&crashed).unwrap();
        snapshot(&dir, &crashed);
        assert!(fs::check(&crashed).unwrap().findings.is_empty());
        let (fs, _device) = reopened(&crashed);
        assert_eq!(fs.tier_stats().unwrap().device_blocks_free, free, "the old places are free");
        assert!(content(&fs, &find(&fs, "file")) == data);
    }
}

#[test]
fn without_a_whole_copy_it_stays_damaged() {
    let scratch = scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let (file, data) = written_back(&fs, MIB);
    fs.evict_caches();
    let at = place(&fs, &file, 9);
    rot(&device, at);
    let report = scrub(&fs);
    assert_eq!((report.findings.len(), report.repaired.len()), (1, 0), "{report:?}");
    assert_eq!(place(&fs, &file, 9), at);
    let error = fs.read(&file, 9 * BLOCK_BYTES, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.errno(), libc::EIO, "{error}");
    fs.write(&file, 9 * BLOCK_BYTES, &data[9 * 4096..10 * 4096]).unwrap();
    assert!(scrub(&fs).findings.is_empty());
    assert!(content(&fs, &file) == data);
}

/// Not until the pool is opened anew.
#[test]
fn a_damaged_place_is_not_used_again() {
    for by_scrub in [false, true] {
        let scratch = scratch();
        let dir = scratch.path().join("pool");
        let (fs, device) = opened(&dir);
        let (file, data) = written_back(&fs, MIB);
        fs.evict_caches();
        let at = place(&fs, &file, 9);
        rot(&device, at);
        match by_scrub {
            true => assert_eq!(scrub(&fs).findings.len(), 1),
            false => drop(fs.read(&file, 9 * BLOCK_BYTES, &mut [0; 4096]).unwrap_err()),
        }
        let stats = || fs.tier_stats().unwrap();
        assert_eq!((stats().blocks_withdrawn, fs.info().devices[0].blocks_withdrawn), (1, 1));
        drop(file);
        fs.unlink(Ino::ROOT, b"file").unwrap();
        // all that the device has, whoever had it before
        let full = make(&fs, "full");
        let (mut written, mut moved) = (0, 1);
        while moved > 0 {
            fs.write(&full, written, &data).unwrap();
            written += MIB;
            moved = fs.write_back_all().unwrap();
        }
        let (extents, _) = fs.extents(full.ino(), 0, usize::MAX).unwrap();
        let below = extents.iter().filter(|extent| extent.on == ExtentOn::Device(0));
        let below: Vec<_> =
            below.map(|it| it.at / BLOCK_BYTES..(it.at + it.bytes) / BLOCK_BYTES).collect();
        let count: u64 = below.iter().map(|blocks| blocks.end - blocks.start).sum();
        assert_eq!(count, stats().device_blocks - 1, "all others");
        assert!(!below.iter().any(|blocks| blocks.contains(&at)), "by scrub: {by_scrub}");
        fs.close().unwrap();
        drop((full, fs, device));
        assert!(fs::check(&dir).unwrap().findings.is_empty());
        let (fs, _device) = reopened(&dir);
        let stats = fs.tier_stats().unwrap();
        assert_eq!((stats.blocks_withdrawn, stats.device_blocks_free), (0, 1), "it is free");
    }
}

/// Each of the places of a block gets a whole one.
#[test]
fn a_damaged_block_that_files_share_is_mended_for_all() {
    let scratch = scratch();
    let dir = scratch.path().join("pool");
    let (fs, device) = opened(&dir);
    let (file, data) = written_back(&fs, MIB);
    let copy = make(&fs, "copy");
    fs.copy((&file, 0), (&copy, 0), MIB).unwrap();
    let at = place(&fs, &file, 77);
    assert_eq!(place(&fs, &copy, 77), at);
    rot(&device, at);
    let report = scrub(&fs);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.repaired.len(), 2, "{:?}", report.repaired);
    fs.evict_caches();
    for file in [&file, &copy] {
        assert!(place(&fs, file, 77) != at && content(&fs, file) == data);
    }
    drop((file, copy));
    fs.close().unwrap();
    drop((fs, device));
    assert!(fs::check(&dir).unwrap().findings.is_empty());
}

/// While a scrub waits for a device, nobody waits for the scrub.
#[test]
fn a_scrub_that_waits_holds_nobody_up() {
    let scratch = scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let fs = Arc::new(fs);
    let (file, _) = written_back(&fs, MIB);
    fs.checkpoint().unwrap();
    device.take_reads();
    device.set(Fault::Hangs);
    let scrubbing = {
        let fs = fs.clone();
        std::thread::spawn(move || scrub(&fs))
    };
    device.await_reads(1);
    let (other, same) = (fs.clone(), file.clone());
    watched(SOON, "a writer", move || {
        other.write(&same, 0, &pattern(2, MIB as usize / 2)).unwrap();
    });
    assert!(!scrubbing.is_finished());
    device.set(Fault::None);
    let report = scrubbing.join().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.blocks, 256);
    assert!(content(&fs, &file)[..MIB as usize / 2] == pattern(2, MIB as usize / 2));
}
