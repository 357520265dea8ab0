//! How much DRAM pages take.

use super::{MIB, TestPool, make, pattern, ways};
use region::{Faults, PAGE_BYTES, Region, Regions, RegionsInfo, Settings};
use std::time::{Duration, Instant};

/// Pages take no more than they may, but for one of each thread that brings them.
#[track_caller]
pub fn assert_within(info: &RegionsInfo) {
    let most = info.memory_bytes + 4 * PAGE_BYTES as u64;
    assert!(info.resident_bytes <= most, "{info:?}");
}

/// Whoever reads on is brought pages ahead, by several threads at one time.
#[test]
fn pages_take_no_more_than_they_may() {
    ways().into_iter().for_each(pages_are_within);
}

fn pages_are_within(faults: Option<Faults>) {
    const READERS: usize = 4;
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    let data = pattern(3, 8 * MIB as usize);
    fs.write(&file, 0, &data).unwrap();
    let regions = Regions::new(&fs, &Settings { memory_bytes: 0, faults }).unwrap();
    let region = &Region::map(&regions, &file, 0, data.len() as u64).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let part = reader * data.len() / READERS;
                let data = &data[part..part + data.len() / READERS];
                scope.spawn(move || {
                    for at in (0..data.len()).step_by(PAGE_BYTES) {
                        assert_eq!(region.get::<u8>(part + at).unwrap(), data[at]);
                    }
                })
            })
            .collect();
        while !readers.iter().all(|reader| reader.is_finished()) {
            assert_within(&regions.info());
        }
    });
    // in the end all room is of pages that came
    let started = Instant::now();
    let resident = || (region.resident_pages() * PAGE_BYTES) as u64;
    let is_told = |info: RegionsInfo| {
        info.resident_bytes == resident()
            && info.resident_bytes + info.evicted_bytes == info.brought_bytes
    };
    while !is_told(regions.info()) {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "{:?}, {}",
            regions.info(),
            resident()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let info = regions.info();
    assert!(info.brought_bytes >= data.len() as u64, "{info:?}");
    // whoever reads on waits for few of them
    let pages = info.brought_bytes / PAGE_BYTES as u64;
    assert!((READERS as u64..=pages).contains(&info.waits), "{info:?}");
}

/// Who loads from several pages brings all of them together, and not one part after the other.
#[test]
fn a_load_from_many_pages_waits_once() {
    for faults in ways() {
        let pool = TestPool::new(64 * MIB, None);
        let fs = pool.open();
        let file = make(&fs, "file");
        let data = pattern(3, 8 * MIB as usize);
        fs.write(&file, 0, &data).unwrap();
        let regions = Regions::new(&fs, &Settings { memory_bytes: 16 * MIB, faults }).unwrap();
        let region = &Region::map(&regions, &file, 0, data.len() as u64).unwrap();
        let load = |at: usize, bytes: usize| {
            let mut seen = vec![0; bytes];
            region.load(at, &mut seen).unwrap();
            assert!(seen == data[at..at + bytes], "{bytes} at {at}");
        };
        load(100 * PAGE_BYTES, 16 * PAGE_BYTES);
        let info = regions.info();
        assert_eq!((info.waits, info.brought_bytes), (1, 16 * PAGE_BYTES as u64), "{info:?}");
        // neither from where a page begins, nor up to where one ends; a part of it is there
        load(110 * PAGE_BYTES + 77, 9 * PAGE_BYTES);
        assert_eq!(regions.info().waits, 2);
        load(0, data.len());
        load(1, data.len() - 2);
        assert_within(&regions.info());
    }
}

/// A walk over more than there is room for takes nothing away; what is asked for again is brought.
#[test]
fn who_loads_many_pages_once_takes_none_away() {
    for faults in ways() {
        let pool = TestPool::new(64 * MIB, None);
        let fs = pool.open();
        let file = make(&fs, "file");
        let data = pattern(3, 16 * MIB as usize);
        fs.write(&file, 0, &data).unwrap();
        let regions = Regions::new(&fs, &Settings { memory_bytes: 2 * MIB, faults }).unwrap();
        // it goes on behind the file's end
        let len = data.len() as u64 + MIB;
        let region = &Region::map(&regions, &file, 0, len).unwrap();
        let load = |at: usize, bytes: usize| {
            let mut seen = vec![0xEE; bytes];
            region.load(at, &mut seen).unwrap();
            let here = &data[at.min(data.len())..data.len().min(at + bytes)];
            let (of_file, behind) = seen.split_at(here.len());
            assert!(of_file == here, "{bytes} at {at}");
            assert!(behind.iter().all(|byte| *byte == 0), "{bytes} at {at}");
        };
        let record = 16 * PAGE_BYTES;
        // from the end on: nothing is brought ahead
        (0..2 * MIB as usize).step_by(record).rev().for_each(|at| load(at, record));
        let full = regions.info();
        assert!(full.resident_bytes >= 15 * full.memory_bytes / 16, "{full:?}");
        // neither from where a page begins, nor up to where one ends, but for the last one
        let walk = (4 * MIB as usize..region.len() - record).step_by(record);
        walk.clone().for_each(|at| load(at + 5, record - 10));
        load(region.len() - record, record);
        let passed = regions.info();
        assert_eq!(passed.evicted_bytes, full.evicted_bytes, "{passed:?}");
        assert_eq!(passed.brought_bytes, full.brought_bytes, "{passed:?}");
        assert_eq!(passed.passed_bytes - full.passed_bytes, (walk.len() + 1) as u64 * 65_536);
        for _ in 0..2 {
            load(4 * MIB as usize, record);
        }
        let asked = regions.info();
        assert_eq!(asked.brought_bytes - passed.brought_bytes, record as u64, "{asked:?}");
        assert_within(&asked);
    }
}
