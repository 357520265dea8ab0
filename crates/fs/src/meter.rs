//! What calls cost: how many there were, how many failed, their bytes, and how long they took.
//!
//! Whoever serves calls counts them here. Counters lie apart by CPU, so that callers on different
//! CPUs write to no line in common; a count is a few relaxed additions. They are read without
//! stopping anybody: a sum is of some moment for each counter, not of one moment for all.
//!
//! Times fall into buckets that grow by an eighth to a quarter, from a nanosecond to 8 seconds;
//! what takes longer falls into the last.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use topology::place_of;

/// Buckets of times.
pub const BUCKETS: usize = 128;
/// Most groups of counters; each takes 36 KiB.
const SHARDS_MAX: usize = 256;

/// A call that a door serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Call {
    /// Find a name.
    Lookup,
    /// The kernel forgets an inode.
    Forget,
    /// Attributes.
    Getattr,
    /// Change attributes, truncate.
    Setattr,
    /// What a symbolic link says.
    Readlink,
    /// Make a special file.
    Mknod,
    /// Make a directory.
    Mkdir,
    /// Make a symbolic link.
    Symlink,
    /// Remove a name.
    Unlink,
    /// Remove a directory.
    Rmdir,
    /// Rename.
    Rename,
    /// One more name.
    Link,
    /// Open a file.
    Open,
    /// Make a file and open it.
    Create,
    /// Read.
    Read,
    /// Write.
    Write,
    /// Close a file.
    Release,
    /// Make a file durable.
    Fsync,
    /// Open a directory.
    Opendir,
    /// List a directory.
    Readdir,
    /// List a directory with attributes.
    Readdirplus,
    /// Make a directory durable.
    Fsyncdir,
    /// Close a directory.
    Releasedir,
    /// Space.
    Statfs,
    /// Set an extended attribute.
    Setxattr,
    /// Get one.
    Getxattr,
    /// List them.
    Listxattr,
    /// Remove one.
    Removexattr,
    /// Reserve, punch, zero.
    Fallocate,
    /// Find data or holes.
    Lseek,
    /// Copy between files.
    CopyFileRange,
    /// Take, let go of or ask about a lock; a wait is not in its time.
    Lock,
    /// One of a file's closes.
    Flush,
    /// All others.
    Other,
}

/// All calls with their names, in the order of their numbers.
const CALLS: [(Call, &str); 34] = [
    (Call::Lookup, "lookup"),
    (Call::Forget, "forget"),
    (Call::Getattr, "getattr"),
    (Call::Setattr, "setattr"),
    (Call::Readlink, "readlink"),
    (Call::Mknod, "mknod"),
    (Call::Mkdir, "mkdir"),
    (Call::Symlink, "symlink"),
    (Call::Unlink, "unlink"),
    (Call::Rmdir, "rmdir"),
    (Call::Rename, "rename"),
    (Call::Link, "link"),
    (Call::Open, "open"),
    (Call::Create, "create"),
    (Call::Read, "read"),
    (Call::Write, "write"),
    (Call::Release, "release"),
    (Call::Fsync, "fsync"),
    (Call::Opendir, "opendir"),
    (Call::Readdir, "readdir"),
    (Call::Readdirplus, "readdirplus"),
    (Call::Fsyncdir, "fsyncdir"),
    (Call::Releasedir, "releasedir"),
    (Call::Statfs, "statfs"),
    (Call::Setxattr, "setxattr"),
    (Call::Getxattr, "getxattr"),
    (Call::Listxattr, "listxattr"),
    (Call::Removexattr, "removexattr"),
    (Call::Fallocate, "fallocate"),
    (Call::Lseek, "lseek"),
    (Call::CopyFileRange, "copy_file_range"),
    (Call::Lock, "lock"),
    (Call::Flush, "flush"),
    (Call::Other, "other"),
];

impl Call {
    /// The call of this name. Where the name is known to the compiler, so is the call.
    #[inline(always)]
    pub fn named(name: &str) -> Call {
        let found = CALLS.iter().find(|(_, known)| *known == name);
        found.map_or(Call::Other, |(call, _)| *call)
    }
}

/// What one call has cost so far.
#[derive(Clone, Debug)]
pub struct CallCount {
    /// Its name.
    pub name: &'static str,
    /// How many were served, those included that failed.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time that they took, ns.
    pub nanos: u64,
    /// How many took how long; see [`bucket_end`].
    pub buckets: [u64; BUCKETS],
}

/// The counters.
#[derive(Debug)]
pub struct Meter {
    shards: Box<[CachePadded<[Counters; CALLS.len()]>]>,
}

#[derive(Debug)]
struct Counters {
    errors: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            errors: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

/// The bucket of a time.
#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < 4 {
        return nanos as usize;
    }
    // four buckets for each power of two
    let power = nanos.ilog2();
    let quarter = (nanos >> (power - 2)) & 3;
    (((power - 1) * 4) as usize + quarter as usize).min(BUCKETS - 1)
}

/// Times in the bucket `index` are below this many ns.
pub fn bucket_end(index: usize) -> u64 {
    match index {
        0..4 => index as u64 + 1,
        // the next bucket's first
        _ => {
            let next = index as u64 + 1;
            (4 + next % 4) << (next / 4 - 1)
        }
    }
}

/// The time that this part of all calls in `buckets` stayed below, ns; nothing when there were
/// none.
pub fn quantile(buckets: &[u64], part: f64) -> Option<u64> {
    let all: u64 = buckets.iter().sum();
    let wanted = ((all as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    let found = buckets.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    found.filter(|_| all > 0).map(bucket_end)
}

impl Meter {
    /// Nothing counted yet, on a machine with so many CPUs.
    pub fn new(cpus: usize) -> Meter {
        let shard = |_| CachePadded::new(std::array::from_fn(|_| Counters::default()));
        Meter { shards: (0..cpus.clamp(1, SHARDS_MAX)).map(shard).collect() }
    }

    #[inline]
    fn counters(&self, call: Call) -> &Counters {
        // of the CPU that this thread was last seen on: any is right, its own is the cheapest
        let shard = place_of(topology::recent_cpu() as usize, self.shards.len());
        &self.shards[shard][call as usize]
    }

    /// Serves a call and counts it.
    #[inline]
    pub fn call<T, E>(
        &self,
        call: Call,
        serve: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        topology::refresh_cpu();
        let began = Instant::now();
        let served = serve();
        self.took(call, began.elapsed(), served.is_err());
        served
    }

    /// Counts a call that took so long.
    #[inline]
    pub fn took(&self, call: Call, time: Duration, failed: bool) {
        let counters = self.counters(call);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // ordering: counters only, nothing is read by them
        counters.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        counters.nanos.fetch_add(nanos, Ordering::Relaxed);
        if failed {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes that a call moved.
    #[inline]
    pub fn moved(&self, call: Call, bytes: usize) {
        self.counters(call).bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What calls have cost so far that were served on CPUs for which `here` is true (those with
    /// numbers of 256 and more count as others); calls that nobody made there are left out.
    pub fn counts(&self, here: impl Fn(usize) -> bool) -> Vec<CallCount> {
        let shards: Vec<_> = (0..).zip(&self.shards).filter(|(cpu, _)| here(*cpu)).collect();
        let all = CALLS.iter().map(|&(call, name)| {
            let counters = shards.iter().map(|(_, shard)| &shard[call as usize]);
            Self::sum(name, counters)
        });
        all.filter(|call| call.count > 0).collect()
    }

    fn sum<'a>(name: &'static str, shards: impl Iterator<Item = &'a Counters>) -> CallCount {
        let buckets = [0; BUCKETS];
        let mut sum = CallCount { name, count: 0, errors: 0, bytes: 0, nanos: 0, buckets };
        for counters in shards {
            // errors first: they are never more than the calls that are read after them
            sum.errors += counters.errors.load(Ordering::Relaxed);
            sum.bytes += counters.bytes.load(Ordering::Relaxed);
            sum.nanos = sum.nanos.wrapping_add(counters.nanos.load(Ordering::Relaxed));
            for (sum, bucket) in sum.buckets.iter_mut().zip(&counters.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        sum.count = sum.buckets.iter().sum();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_place_and_name() {
        for (index, (call, name)) in CALLS.iter().enumerate() {
            assert_eq!(*call as usize, index, "{name}");
            assert_eq!(Call::named(name), *call);
        }
        assert_eq!(Call::named("no such call"), Call::Other);
    }

    #[test]
    fn a_time_lies_below_its_buckets_end_and_not_below_the_one_before() {
        let powers = (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, 3 << power]);
        for nanos in (0..5000).chain(powers) {
            let index = bucket(nanos);
            assert!(nanos < bucket_end(index) || index == BUCKETS - 1, "{nanos} in {index}");
            assert!(index == 0 || nanos >= bucket_end(index - 1), "{nanos} in {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let near = (4..BUCKETS).all(|it| bucket_end(it) as f64 <= bucket_end(it - 1) as f64 * 1.25);
        assert!(near, "a bucket is no wider than a quarter of its begin");
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(quantile(&buckets, 0.5), None);
        for nanos in 1..=1000u64 {
            buckets[bucket(nanos * 1000)] += 1;
        }
        for (part, nanos) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000), (0.0, 1000)] {
            let found = quantile(&buckets, part).unwrap();
            assert!((nanos..=nanos * 5 / 4 + 1).contains(&found), "{part}: {found}");
        }
    }

    #[test]
    fn calls_of_all_threads_are_counted() {
        let meter = Meter::new(2);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let meter = &meter;
                threads.spawn(move || {
                    topology::refresh_cpu();
                    for n in 0..1000 {
                        let fails = thread == 0 && n % 10 == 0;
                        let served: Result<(), ()> =
                            meter.call(Call::Read, || if fails { Err(()) } else { Ok(()) });
                        assert_eq!(served.is_err(), fails);
                        meter.moved(Call::Read, 3);
                    }
                });
            }
        });
        let counts = meter.counts(|_| true);
        assert_eq!(counts.len(), 1, "only what was called");
        let read = &counts[0];
        assert_eq!((read.name, read.count, read.errors, read.bytes), ("read", 4000, 100, 12_000));
        assert!(read.nanos > 0);
        assert_eq!(read.buckets.iter().sum::<u64>(), 4000);
        let by_cpu: Vec<u64> = (0..2)
            .map(|own| meter.counts(|cpu| cpu == own).first().map_or(0, |read| read.count))
            .collect();
        assert_eq!(by_cpu.iter().sum::<u64>(), 4000, "{by_cpu:?}");
    }
}
