//! Every read against the set of versions that it may see: of a write that was acknowledged before
//! the read began nothing older is seen, of one that had not begun when it ended nothing, and what
//! one read saw is not older than what an earlier one did.

use crate::common::{find, make};
use crate::stress::pool;
use fs::FileSystem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Blocks that each write covers: more than one, so that a version is no word.
const BLOCKS: usize = 5;
const BYTES: usize = BLOCKS * 4096;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// Reads, at least, and how often each reader is to see another version than before; on a machine
/// that is so busy that it does not, it ends.
const READS: usize = 10_000;
const CHANGES: u32 = 50;
const LONGEST: Duration = Duration::from_secs(20);

/// A call, from when to when, in steps of a clock that all share; and the version that it wrote or
/// saw.
#[derive(Clone, Copy, Debug)]
struct Call {
    began: u64,
    ended: u64,
    version: u64,
}

/// One of those who read, until it is dropped, also by a failure: writers end with the last.
struct Reads<'r>(&'r AtomicU64);

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The version that all words of a read have.
fn version(bytes: &[u8]) -> u64 {
    let words = || bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let first = words().next().unwrap();
    assert!(words().all(|word| word == first), "a half of version {first:x}");
    first
}

/// Writes for as long as anybody reads.
fn write(fs: &FileSystem, clock: &AtomicU64, readers: &AtomicU64, writer: u64) -> Vec<Call> {
    let file = find(fs, "file");
    let write = |number: u64| {
        let version = writer << 32 | number;
        let data = version.to_le_bytes().repeat(BYTES / 8);
        let began = clock.fetch_add(1, Ordering::SeqCst);
        fs.write(&file, 0, &data).unwrap();
        Call { began, ended: clock.fetch_add(1, Ordering::SeqCst), version }
    };
    (1..).take_while(|_| readers.load(Ordering::SeqCst) > 0).map(write).collect()
}

fn read(fs: &FileSystem, clock: &AtomicU64, readers: &AtomicU64) -> Vec<Call> {
    let file = find(fs, "file");
    let mut bytes = vec![0; BYTES];
    let mut read = || {
        let began = clock.fetch_add(1, Ordering::SeqCst);
        assert_eq!(fs.read(&file, 0, &mut bytes).unwrap(), BYTES);
        let version = version(&bytes);
        Call { began, ended: clock.fetch_add(1, Ordering::SeqCst), version }
    };
    let _reads = Reads(readers);
    let (mut calls, mut changes) = (vec![read()], 0);
    let began = Instant::now();
    while calls.len() < READS || (changes < CHANGES && began.elapsed() < LONGEST) {
        let call = read();
        if calls.last().is_some_and(|last: &Call| last.version != call.version) {
            changes += 1;
        } else {
            // nothing was written meanwhile: a writer may want this CPU
            std::thread::yield_now();
        }
        calls.push(call);
    }
    calls
}

/// The write that made this version.
fn made(writes: &[Vec<Call>], version: u64) -> &Call {
    let (writer, number) = ((version >> 32) as usize, (version as u32) as usize);
    &writes[writer][number]
}

/// The last moment at which a write began that had ended by `then`: none older may be seen since.
fn latest_begun(writes: &[Vec<Call>], then: u64) -> u64 {
    let of = |all: &Vec<Call>| {
        let ended = all.partition_point(|write| write.ended < then);
        ended.checked_sub(1).map_or(0, |last| all[last].began)
    };
    writes.iter().map(of).max().unwrap_or(0)
}

#[test]
fn a_read_sees_a_version_that_is_legal_when_it_runs() {
    for cached in [None, Some(1 << 20)] {
        let pool = pool(cached);
        let fs = pool.start();
        let file = make(&fs, "file");
        fs.write(&file, 0, &[0; BYTES]).unwrap();
        let (clock, readers) = (AtomicU64::new(1), AtomicU64::new(READERS));
        let (fs, clock, readers) = (&fs, &clock, &readers);
        let (mut writes, reads) = std::thread::scope(|scope| {
            let write = |writer| scope.spawn(move || write(fs, clock, readers, writer));
            let writers: Vec<_> = (1..=WRITERS).map(write).collect();
            let read = |_| scope.spawn(move || read(fs, clock, readers));
            let readers: Vec<_> = (0..READERS).map(read).collect();
            let reads: Vec<_> = readers.into_iter().map(|it| it.join().unwrap()).collect();
            let writes: Vec<_> = writers.into_iter().map(|it| it.join().unwrap()).collect();
            (writes, reads)
        });
        // version 0 was there before, and is the first of each writer
        let zero = Call { began: 0, ended: 0, version: 0 };
        writes.iter_mut().for_each(|all| all.insert(0, zero));
        writes.insert(0, vec![zero]);
        for read in reads.iter().flatten() {
            let write = made(&writes, read.version);
            assert!(write.began < read.ended, "{read:?} saw what had not begun: {write:?}");
            let newest = latest_begun(&writes, read.began);
            assert!(write.ended >= newest, "{read:?} saw what was overwritten: {write:?}");
        }
        // of reads one after the other, by whomever, none goes back
        let mut all: Vec<Call> = reads.into_iter().flatten().collect();
        all.sort_unstable_by_key(|read| read.ended);
        let mut seen = 0;
        let mut newest_by = Vec::new();
        for read in &all {
            seen = seen.max(made(&writes, read.version).began);
            newest_by.push((read.ended, seen));
        }
        for read in &all {
            let before = newest_by.partition_point(|(ended, _)| *ended < read.began);
            let seen = before.checked_sub(1).map_or(0, |last| newest_by[last].1);
            let write = made(&writes, read.version);
            assert!(write.ended >= seen, "{read:?} is older than what was seen: {write:?}");
        }
        let versions: std::collections::BTreeSet<u64> = all.iter().map(|it| it.version).collect();
        assert!(versions.len() > 5, "{} versions were seen", versions.len());
    }
}
