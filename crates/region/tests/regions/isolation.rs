//! What transactions see of each other.

use super::{MIB, TestPool, make, pattern, random};
use region::{Error, Isolation, PAGE_BYTES, Region, Regions, Settings};
use std::sync::atomic::{AtomicBool, Ordering};

/// Two of three accounts are looked at, one is changed: where each change follows from what was
/// read, only serialisable transactions keep what must hold.
#[test]
fn conflicts_are_found_and_tried_again() {
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    let regions = &Regions::new(&fs, &Settings::default()).unwrap();
    let parts = &[
        Region::map(regions, &one, 0, 1 << 16).unwrap(),
        Region::map(regions, &two, 0, 1 << 16).unwrap(),
    ];
    for (level, total) in [(Isolation::Serialisable, 4000), (Isolation::Snapshot, 4000)] {
        let mut tx = regions.begin().unwrap();
        parts.iter().for_each(|part| tx.put(part, 0, &0u64).unwrap());
        tx.commit().unwrap();
        let step = move |seed: u64| {
            let mut state = seed;
            for _ in 0..1000 {
                let part = &parts[random(&mut state) as usize % 2];
                let done: Result<(), Error> = regions.transact(level, |tx| {
                    let value: u64 = tx.get(part, 0)?;
                    tx.put(part, 0, &(value + 1))
                });
                done.unwrap();
            }
        };
        std::thread::scope(|scope| {
            (1..5).for_each(|seed| drop(scope.spawn(move || step(seed))));
        });
        let sum: u64 = parts.iter().map(|part| part.get::<u64>(0).unwrap()).sum();
        assert_eq!(sum, total, "{level:?}: no addition is lost");
    }
    // write skew: a snapshot lets it happen, a serialisable transaction does not
    for (level, happens) in [(Isolation::Snapshot, true), (Isolation::Serialisable, false)] {
        let mut first = regions.begin_with(level).unwrap();
        let mut second = regions.begin_with(level).unwrap();
        let _: u64 = first.get(&parts[0], 64).unwrap();
        let _: u64 = second.get(&parts[1], 64).unwrap();
        first.put(&parts[1], 64, &random(&mut 5)).unwrap();
        second.put(&parts[0], 64, &random(&mut 6)).unwrap();
        first.commit().unwrap();
        let second = second.commit();
        assert_eq!(second.is_ok(), happens, "{level:?}: {second:?}");
        let mut tx = regions.begin().unwrap();
        parts.iter().for_each(|part| tx.put(part, 64, &0u64).unwrap());
        tx.commit().unwrap();
    }
    // what was read must be of one moment
    let mut reader = regions.begin_with(Isolation::Snapshot).unwrap();
    let _: u64 = reader.get(&parts[0], 0).unwrap();
    let mut tx = regions.begin().unwrap();
    parts.iter().for_each(|part| tx.put(part, 0, &u64::MAX).unwrap());
    tx.commit().unwrap();
    let error = reader.get::<u64>(&parts[1], 0).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(reader.commit().unwrap_err().is_conflict());
}

/// One word follows another one, which is written first: no snapshot has it ahead.
#[test]
fn a_snapshot_is_of_one_moment_while_others_go_on() {
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    let regions = &Regions::new(&fs, &Settings::default()).unwrap();
    let leader = &Region::map(regions, &one, 0, 1 << 16).unwrap();
    let followers = &[
        (Region::map(regions, &one, 0, 1 << 16).unwrap(), 8 * PAGE_BYTES),
        (Region::map(regions, &two, 0, 1 << 16).unwrap(), 0),
    ];
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut value = 0u64;
            while !done.load(Ordering::Relaxed) {
                value += 1;
                let mut tx = regions.begin().unwrap();
                tx.put(leader, 0, &value).unwrap();
                tx.commit().unwrap();
            }
        });
        for (region, at) in followers {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let mut tx = regions.begin().unwrap();
                    let value: u64 = tx.get(leader, 0).unwrap();
                    tx.put(region, *at, &value).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
        let (mut whole, mut state) = (0, 3);
        while whole < 20_000 {
            let (region, at) = &followers[random(&mut state) as usize % 2];
            let mut tx = regions.begin_with(Isolation::Snapshot).unwrap();
            let first: u64 = tx.get(leader, 0).unwrap();
            let Ok(second) = tx.get::<u64>(region, *at) else { continue };
            assert!(second <= first, "{second} follows {first}");
            whole += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// What was read is not read again while nothing changes: else these were five billion reads.
#[test]
fn a_snapshot_of_many_reads_ends() {
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    let data = pattern(3, MIB as usize);
    fs.write(&file, 0, &data).unwrap();
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let region = Region::map(&regions, &file, 0, MIB).unwrap();
    let mut tx = regions.begin_with(Isolation::Snapshot).unwrap();
    for at in (0..MIB as usize).step_by(10) {
        let mut seen = [0; 6];
        tx.read(&region, at, &mut seen).unwrap();
        assert_eq!(seen, data[at..at + 6]);
    }
    // then once more, and one of them is not there any more
    fs.write(&file, 500_000, b"other").unwrap();
    let error = tx.read(&region, 0, &mut [0; 6]).unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

/// One transaction over places all over a region, which reads its own writes meanwhile.
#[test]
fn a_transaction_may_write_a_hundred_thousand_places() {
    let pool = TestPool::new(512 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    let bytes: usize = 64 << 20;
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let region = Region::map(&regions, &file, 0, bytes as _).unwrap();
    let (mut shadow, mut state) = (pattern(1, bytes), 9);
    fs.write(&file, 0, &shadow).unwrap();
    let mut tx = regions.begin().unwrap();
    for step in 0..100_000u64 {
        // 8 bytes to 71, over each other now and then
        let at = random(&mut state) as usize % (bytes - 80);
        let data = pattern(step, 8 + step as usize % 64);
        tx.write(&region, at, &data).unwrap();
        shadow[at..at + data.len()].copy_from_slice(&data);
        if step % 10 == 0 {
            let from = at.saturating_sub(100);
            let mut seen = vec![0; 300.min(bytes - from)];
            tx.read(&region, from, &mut seen).unwrap();
            assert!(seen == shadow[from..from + seen.len()], "step {step}");
        }
    }
    tx.commit().unwrap();
    let mut read = vec![0; bytes];
    region.load(0, &mut read).unwrap();
    assert!(read == shadow, "in the region");
    assert_eq!(fs.read(&file, 0, &mut read).unwrap(), bytes);
    assert!(read == shadow, "in the file");
}

#[test]
fn a_commit_is_synced_where_that_is_what_keeps_it() {
    let pool = TestPool::synced(32 * MIB);
    let fs = pool.open();
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let files = [make(&fs, "one"), make(&fs, "other")];
    let [one, other] = files.each_ref().map(|file| Region::map(&regions, file, 0, MIB).unwrap());
    for round in 1..=20u64 {
        let before = fs.stats().syncs;
        let mut transaction = regions.begin().unwrap();
        transaction.write(&one, 0, &round.to_ne_bytes()).unwrap();
        if round % 2 == 0 {
            transaction.write(&other, 64, &round.to_ne_bytes()).unwrap();
        }
        assert_eq!(fs.stats().syncs, before, "nothing of it has happened");
        transaction.commit().unwrap();
        assert!(fs.stats().syncs > before, "round {round}");
    }
}
