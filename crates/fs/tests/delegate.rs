//! Copies by workers: what is written and read is the same, whoever copies.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "all/common/mod.rs"]
mod common;

use common::{SOON, TestPool, content, find, make, pattern, random};
use fs::{FileSystem, Handle, Layout, Policy, Side};
use pool::{BLOCK_BYTES, OpenOptions};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SLICES: usize = 4;
const BLOCK: u64 = BLOCK_BYTES;
const MIB: usize = 1 << 20;

/// Pieces on other nodes are delegated from `from` bytes on; so many may copy at one time.
fn options(from: u64, limit: Option<u32>) -> OpenOptions {
    let side = Side {
        limit: limit.unwrap_or(placement::NO_LIMIT),
        delegate_remote: from,
        ..Side::default()
    };
    let policy = Some(Policy { read: side, write: side });
    OpenOptions { policy, workers: Some(2), ..OpenOptions::default() }
}

fn pool(open: OpenOptions) -> TestPool {
    let mut pool = TestPool::new(SLICES, 32 << 20);
    pool.open = open;
    pool
}

fn striped(fs: &FileSystem, name: &str) -> std::sync::Arc<Handle> {
    let file = make(fs, name);
    fs.set_layout(file.ino(), Layout::Stripe).unwrap();
    file
}

fn delegated(fs: &FileSystem) -> (u64, u64) {
    let slices = fs.stats().slices;
    let sum = |of: fn(&fs::WorkerStats) -> u64| slices.iter().map(|slice| of(&slice.workers)).sum();
    (sum(|it| it.read_bytes), sum(|it| it.written_bytes))
}

#[test]
fn what_workers_copy_is_what_was_written() {
    for (number, open) in
        [options(0, None), options(0, Some(1)), options(64 << 10, Some(3))].into_iter().enumerate()
    {
        let mut pool = pool(open);
        let fs = pool.start();
        let file = striped(&fs, "file");
        let mut shadow = vec![0; 6 * MIB];
        let mut state = 77 + number as u64;
        for round in 0..120u64 {
            let offset = random(&mut state) as usize % (5 * MIB);
            let len = 1 + random(&mut state) as usize % [9000, 300_000, MIB][round as usize % 3];
            let offset = if round % 2 == 0 { offset / 4096 * 4096 } else { offset };
            let data = pattern(round, len);
            assert_eq!(fs.write(&file, offset as u64, &data).unwrap(), len);
            shadow[offset..offset + len].copy_from_slice(&data);
            let (from, want) = (random(&mut state) as usize % (5 * MIB), MIB);
            let mut read = vec![0xA5; want];
            let size = fs.getattr(file.ino()).unwrap().size as usize;
            let seen = fs.read(&file, from as u64, &mut read).unwrap();
            assert_eq!(seen, want.min(size.saturating_sub(from)));
            assert!(read[..seen] == shadow[from..from + seen], "round {round}");
        }
        let (read, written) = delegated(&fs);
        assert!(read > MIB as u64 && written > MIB as u64, "{read} {written}");
        let size = fs.getattr(file.ino()).unwrap().size as usize;
        drop(file);
        let fs = pool.killed(fs);
        // the first read after an open verifies, block by block
        assert!(content(&fs, &find(&fs, "file")) == shadow[..size]);
        assert!(content(&fs, &find(&fs, "file")) == shadow[..size]);
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

/// A version of a range: every block says which.
fn version(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(len / 8)
}

/// The one version that a range has; none if there are several.
fn version_of(bytes: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    (bytes == version(first, bytes.len())).then_some(first)
}

#[test]
fn a_read_sees_one_version_of_a_write_that_workers_copy() {
    let pool = pool(options(0, Some(1)));
    let fs = pool.start();
    let file = striped(&fs, "file");
    fs.write(&file, 0, &version(1, MIB)).unwrap();
    let ends = AtomicBool::new(false);
    let (since, reads) = (Instant::now(), AtomicU32::new(0));
    // Readers run for two seconds, and on until they have read enough.
    let goes_on = || {
        let is_enough = reads.load(Ordering::Relaxed) > 10;
        since.elapsed() < if is_enough { Duration::from_secs(2) } else { SOON }
    };
    std::thread::scope(|threads| {
        for writer in 1..3u64 {
            let (fs, file, ends) = (&fs, &file, &ends);
            threads.spawn(move || {
                for round in 1.. {
                    fs.write(file, 0, &version(writer << 32 | round, MIB)).unwrap();
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(|| {
                    let (mut read, mut last) = (vec![0; MIB], [0; 3]);
                    while goes_on() {
                        assert_eq!(fs.read(&file, 0, &mut read).unwrap(), MIB);
                        let seen = version_of(&read).expect("one version");
                        let writer = (seen >> 32) as usize;
                        // a writer's versions come in their order
                        assert!(seen >= last[writer], "{seen:#x} after {:#x}", last[writer]);
                        last[writer] = seen;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        ends.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|reader| reader.unwrap());
    });
    assert!(reads.load(Ordering::Relaxed) > 10, "{reads:?}");
    // a machine that had no CPU for them for a while makes callers go on without them, for a while
    let rests = |slice: &fs::SliceStats| !slice.workers.stalled && slice.workers.active == [0, 0];
    let limit = Instant::now() + SOON;
    while !fs.stats().slices.iter().all(rests) {
        assert!(Instant::now() < limit, "{:?}", fs.stats().slices);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_kill_between_leaves_one_version() {
    let mut pool = pool(options(0, None));
    for round in 0..6u64 {
        let fs = pool.start();
        let file = if round == 0 { striped(&fs, "file") } else { find(&fs, "file") };
        fs.write(&file, 0, &version(round << 32 | 1, MIB)).unwrap();
        let acknowledged = std::sync::atomic::AtomicU64::new(1);
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut number = 2;
                while !ends.load(Ordering::Relaxed) {
                    fs.write(&file, 0, &version(round << 32 | number, MIB)).unwrap();
                    acknowledged.store(number, Ordering::SeqCst);
                    number += 1;
                }
            });
            std::thread::sleep(Duration::from_millis(3 + round));
            let before = acknowledged.load(Ordering::SeqCst);
            // a copy of files that change is no state that they ever had: hold the writer at rest
            ends.store(true, Ordering::SeqCst);
            assert!(before >= 1);
        });
        drop(file);
        pool.kill();
        drop(fs);
        pool.assert_clean();
        let fs = pool.start_alone();
        let bytes = content(&fs, &find(&fs, "file"));
        let seen = version_of(&bytes).expect("one version");
        assert_eq!(seen, round << 32 | acknowledged.load(Ordering::SeqCst));
    }
}

/// `workers: Some(0)`: nobody is asked, and no thread is started.
#[test]
fn without_workers_callers_copy() {
    let pool = pool(OpenOptions { workers: Some(0), ..options(0, Some(1)) });
    let fs = pool.start();
    let file = striped(&fs, "file");
    let data = pattern(5, 3 * MIB);
    fs.write(&file, BLOCK, &data).unwrap();
    let mut read = vec![0; data.len()];
    assert_eq!(fs.read(&file, BLOCK, &mut read).unwrap(), data.len());
    assert!(read == data);
    assert_eq!(delegated(&fs), (0, 0));
    assert!(fs.stats().slices.iter().all(|slice| slice.workers.workers == 0));
}

/// Who copies for himself is counted by where he is; workers are where the memory is. Callers copy
/// for themselves where no worker came in time, so with workers a round is made again until one
/// had its CPU: what is counted as a whole is right in every round.
#[test]
fn what_is_copied_from_elsewhere_is_counted() {
    let cpus = topology::allowed_cpus().unwrap();
    for workers in [0, 1] {
        let until = Instant::now() + SOON;
        while !copied_where_it_should_be(workers, cpus[0]) {
            assert!(workers > 0 && Instant::now() < until, "{workers} workers did not copy");
        }
    }
}

/// Writes and reads on both slices, from a CPU near one. Whether all that workers are for was
/// copied by them.
fn copied_where_it_should_be(workers: u16, cpu: u32) -> bool {
    let mut pool = TestPool::new(2, 32 << 20);
    pool.open = OpenOptions { workers: Some(workers), ..options(2 * BLOCK, None) };
    let fs = pool.start_alone();
    let near = fs.near_slices();
    let own = near.iter().find(|slice| slice.cpus.contains(&cpu)).unwrap().slice;
    let other = 1 - own;
    let before = topology::pin_current_thread(&[cpu]).unwrap();
    let mut read = vec![0; MIB];
    for slice in [own, other] {
        let file = make(&fs, &format!("on{slice}"));
        fs.set_layout(file.ino(), Layout::Node(u16::from(slice))).unwrap();
        fs.write(&file, 0, &pattern(1, MIB)).unwrap();
        fs.write(&file, 0, &pattern(2, 4096)).unwrap();
        fs.read(&file, 0, &mut read).unwrap();
        fs.read(&file, 5 << 12, &mut read[..100]).unwrap();
    }
    topology::pin_current_thread(&before).unwrap();
    let slices = fs.stats().slices;
    let (here, there) = (&slices[usize::from(own)], &slices[usize::from(other)]);
    let (read, written) = (MIB as u64 + 100, MIB as u64 + BLOCK);
    assert_eq!((here.copied.local_read, here.copied.local_written), (read, written));
    assert_eq!((here.copied.remote_read, here.copied.remote_written), (0, 0));
    assert_eq!((there.copied.local_read, there.copied.local_written), (0, 0));
    let by_workers = (there.workers.read_bytes, there.workers.written_bytes);
    let remote = (there.copied.remote_read, there.copied.remote_written);
    assert_eq!((by_workers.0 + remote.0, by_workers.1 + remote.1), (read, written));
    // what is small is copied from wherever
    assert!(by_workers.0 <= MIB as u64 && by_workers.1 <= MIB as u64, "{by_workers:?}");
    assert!(workers > 0 || by_workers == (0, 0));
    by_workers == if workers == 0 { (0, 0) } else { (MIB as u64, MIB as u64) }
}

/// Where workers are asked for all that others write, they are for a block, too; but not by who is
/// on the node himself.
#[test]
fn a_block_goes_the_long_way_from_elsewhere_alone() {
    let cpus = topology::allowed_cpus().unwrap();
    let until = Instant::now() + SOON;
    loop {
        let mut pool = TestPool::new(2, 32 << 20);
        pool.open = options(0, Some(3));
        let fs = pool.start_alone();
        let own = fs.near_slices().iter().find(|it| it.cpus.contains(&cpus[0])).unwrap().slice;
        let before = topology::pin_current_thread(&[cpus[0]]).unwrap();
        for slice in [own, 1 - own] {
            let file = make(&fs, &format!("on{slice}"));
            fs.set_layout(file.ino(), Layout::Node(u16::from(slice))).unwrap();
            for block in 0..4 {
                fs.write(&file, block * BLOCK, &pattern(block, 4096)).unwrap();
                fs.write(&file, block * BLOCK, &pattern(block + 9, 4096)).unwrap();
            }
        }
        topology::pin_current_thread(&before).unwrap();
        let slices = fs.stats().slices;
        let of = |slice: u8| slices[usize::from(slice)].workers.written_bytes;
        assert_eq!(of(own), 0);
        // callers copy for themselves where no worker came in time
        if of(1 - own) == 8 * BLOCK {
            return;
        }
        assert!(Instant::now() < until, "{} bytes", of(1 - own));
    }
}

/// What is read first after an open is verified on the way, by its caller, wherever it lies.
#[test]
fn a_first_read_is_counted_too() {
    let pool = pool(options(0, None));
    let fs = pool.start_alone();
    fs.write(&striped(&fs, "file"), 0, &pattern(3, MIB)).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start_alone();
    let file = find(&fs, "file");
    let by_callers = || {
        let slices = fs.stats().slices;
        slices.iter().map(|it| it.copied.local_read + it.copied.remote_read).sum::<u64>()
    };
    content(&fs, &file);
    assert_eq!((by_callers(), delegated(&fs)), (MIB as u64, (0, 0)));
    // where workers get no CPU in time, a caller copies for himself; not for ever
    let (mut reads, began) = (1, Instant::now());
    while delegated(&fs).0 == 0 {
        content(&fs, &file);
        reads += 1;
        assert_eq!(by_callers() + delegated(&fs).0, reads * MIB as u64);
        assert!(began.elapsed() < SOON, "{reads} reads, and no worker took one");
    }
}
