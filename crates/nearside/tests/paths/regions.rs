//! Files as transactional memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{Error, File, Isolation, OpenFlags, Region, RegionError};

use crate::scratch::Scratch;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len).map(|_| random(&mut state) as u8).collect()
}

fn loaded(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut seen = vec![0; len];
    region.load(at, &mut seen).unwrap();
    seen
}

fn content(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
fn a_region_shows_what_the_file_holds_and_what_is_committed() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let data = pattern(1, 3 * MIB);
    file.write_all_at(&data, 0).unwrap();
    let region = pool.map(&file, 0, 4 * MIB as u64).unwrap();
    assert!(loaded(&region, 0, 3 * MIB) == data);
    assert!(loaded(&region, 3 * MIB, MIB) == vec![0; MIB], "behind the end");

    let mut tx = pool.begin().unwrap();
    tx.write(&region, 5, b"hello").unwrap();
    tx.put(&region, 8192, &77u64).unwrap();
    let mut own = [0; 9];
    tx.read(&region, 3, &mut own).unwrap();
    assert_eq!((&own[..2], &own[2..7]), (&data[3..5], &b"hello"[..]));
    assert_eq!(region.get::<u64>(8192).unwrap().to_ne_bytes(), data[8192..8200]);
    tx.commit().unwrap();
    assert_eq!((region.get::<u64>(8192).unwrap(), &loaded(&region, 5, 5)[..]), (77, &b"hello"[..]));

    let mut tx = pool.begin().unwrap();
    tx.put(&region, 8192, &78u64).unwrap();
    tx.abort();
    let mut dropped = pool.begin().unwrap();
    dropped.put(&region, 8192, &79u64).unwrap();
    drop(dropped);
    assert_eq!(region.get::<u64>(8192).unwrap(), 77);

    // by an address; and behind the end of the file
    let mut tx = pool.begin().unwrap();
    tx.write_at(region.as_ptr().wrapping_add(8192), &80u64.to_ne_bytes()).unwrap();
    tx.put(&region, 4 * MIB - 8, &81u64).unwrap();
    tx.commit().unwrap();
    assert_eq!(region.get::<u64>(8192).unwrap(), 80);
    assert_eq!((file.len().unwrap(), region.get(4 * MIB - 8).unwrap()), (4 * MIB as u64, 81u64));
    assert_eq!(pool.regions_info().unwrap().regions, 1);
    drop((region, file));
    assert_eq!(pool.regions_info().unwrap().regions, 0);
    let pool = pool.dropped_and_opened();
    assert_eq!(pool.read("/f").unwrap()[8192..8200], 80u64.to_ne_bytes());
    pool.finish();
}

/// Against bytes in memory that go the same way: changes through every call, at the library and in
/// transactions, while two regions show the file.
#[test]
fn whatever_changes_the_file_its_regions_show_when_the_call_has_returned() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let region = pool.map(&file, 0, 2 * MIB as u64).unwrap();
    // a part of the same file, elsewhere
    let part = pool.map(&file, 16 * PAGE as u64, MIB as u64).unwrap();
    let mut shadow = vec![0; 2 * MIB];
    let mut state = 5;
    for round in 0..1500u64 {
        let at = random(&mut state) as usize % (MIB * 3 / 2);
        let data = pattern(round, 1 + random(&mut state) as usize % 9000);
        let end = at + data.len();
        match random(&mut state) % 6 {
            0 => {
                file.set_len(at as u64).unwrap();
                shadow[at..].fill(0);
            }
            1 => {
                file.punch_hole(at as u64, data.len() as u64).unwrap();
                shadow[at..end].fill(0);
            }
            2 | 3 => {
                file.write_all_at(&data, at as u64).unwrap();
                shadow[at..end].copy_from_slice(&data);
            }
            _ => {
                let mut tx = pool.begin().unwrap();
                tx.write(&region, at, &data).unwrap();
                tx.write(&region, at / 2, &data[..data.len() / 2]).unwrap();
                tx.commit().unwrap();
                shadow[at..end].copy_from_slice(&data);
                shadow[at / 2..at / 2 + data.len() / 2].copy_from_slice(&data[..data.len() / 2]);
            }
        }
        let look = random(&mut state) as usize % MIB;
        assert!(loaded(&region, look, 20_000) == shadow[look..look + 20_000], "round {round}");
        let (at, len) = (look % 900_000, 100);
        let from = 16 * PAGE + at;
        assert!(loaded(&part, at, len) == shadow[from..from + len], "round {round}, the part");
    }
    drop((region, part, file));
    pool.finish();
}

/// Words go up only, and who loads one never sees an older one, nor a half of it.
#[test]
fn loads_never_go_back_and_words_are_whole() {
    const PAGES: usize = 64;
    let pool = &Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let region = &pool.map(&file, 0, (PAGES * PAGE) as u64).unwrap();
    let done = &AtomicBool::new(false);
    /// A value whose halves tell of each other.
    fn value(round: u64) -> u64 {
        round << 32 | round
    }
    std::thread::scope(|threads| {
        let writers = [0, 1].map(|first| {
            threads.spawn(move || {
                let mut state = first as u64 + 9;
                for round in 1..3000u64 {
                    // each has pages of its own
                    let page = (random(&mut state) as usize % PAGES) & !1 | first;
                    let mut tx = pool.begin().unwrap();
                    tx.put(region, page * PAGE + 16, &value(round)).unwrap();
                    tx.commit().unwrap();
                    assert_eq!(region.get::<u64>(page * PAGE + 16).unwrap(), value(round));
                }
            })
        });
        threads.spawn(move || {
            let (mut seen, mut state) = ([0; PAGES], 77);
            while !done.load(Ordering::Relaxed) {
                let page = random(&mut state) as usize % PAGES;
                let now = region.get::<u64>(page * PAGE + 16).unwrap();
                assert!(now == value(now >> 32) && now >= seen[page], "{now:x}, {:x}", seen[page]);
                seen[page] = now;
                if state.is_multiple_of(64) {
                    // others go for it
                    file.punch_hole((page * PAGE) as u64 + 1024, 100).unwrap();
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
}

/// Money goes from account to account in two files; whoever looks at all of them sees all of it.
#[test]
fn transactions_are_as_if_one_came_after_the_other() {
    const ACCOUNTS: usize = 16;
    let pool = &Scratch::new();
    let files = ["/a", "/b"].map(|name| pool.create_file(name).unwrap());
    let regions = &files.each_ref().map(|file| pool.map(file, 0, PAGE as u64).unwrap());
    let place = |account: usize| (&regions[account % 2], account / 2 * 8);
    pool.transact(Isolation::Committed, |tx| {
        (0..ACCOUNTS).try_for_each(|account| {
            let (region, at) = place(account);
            tx.put(region, at, &100u64).map_err(Error::from)
        })
    })
    .unwrap();
    let moved = std::thread::scope(|threads| {
        let movers = [3u64, 4].map(|seed| {
            threads.spawn(move || {
                let mut state = seed;
                for _ in 0..300 {
                    let (from, to) = (random(&mut state) as usize, random(&mut state) as usize);
                    let (from, to) = (place(from % ACCOUNTS), place(to % ACCOUNTS));
                    pool.transact(Isolation::Serialisable, |tx| {
                        let has: u64 = tx.get(from.0, from.1)?;
                        tx.put(from.0, from.1, &(has - has.min(1)))?;
                        let gets: u64 = tx.get(to.0, to.1)?;
                        tx.put(to.0, to.1, &(gets + has.min(1)))?;
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                }
            })
        });
        let mut looks = 0;
        while looks < 50 || movers.iter().any(|mover| !mover.is_finished()) {
            let sum = pool.transact(Isolation::Snapshot, |tx| {
                let each = |account| {
                    let (region, at) = place(account);
                    tx.get::<u64>(region, at).map_err(Error::from)
                };
                (0..ACCOUNTS).map(each).sum::<Result<u64, Error>>()
            });
            assert_eq!(sum.unwrap(), 100 * ACCOUNTS as u64);
            looks += 1;
        }
        looks
    });
    assert!(moved >= 50);
}

#[test]
fn of_two_transactions_that_are_in_each_others_way_one_is_told() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let region = pool.map(&file, 0, PAGE as u64).unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serialisable] {
        let mut late = pool.begin_with(isolation).unwrap();
        let seen: u64 = late.get(&region, 0).unwrap();
        late.put(&region, 0, &(seen + 1)).unwrap();
        let mut early = pool.begin().unwrap();
        early.put(&region, 0, &(seen + 10)).unwrap();
        early.commit().unwrap();
        let error = late.commit().unwrap_err();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(region.get::<u64>(0).unwrap(), seen + 10);
        // not all that is read can be of one moment
        let mut reads = pool.begin_with(isolation).unwrap();
        let seen: u64 = reads.get(&region, 0).unwrap();
        pool.transact(Isolation::Committed, |tx| {
            tx.put(&region, 0, &(seen + 1)).map_err(Error::from)
        })
        .unwrap();
        let error = reads.get::<u64>(&region, 8).unwrap_err();
        assert!(error.is_conflict(), "{error}");
    }
}

/// What was read is not read again while nothing changes: else these were five billion reads.
#[test]
fn a_snapshot_of_many_reads_ends() {
    const READS: usize = 5000;
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let data = pattern(3, 10 * READS);
    file.write_all_at(&data, 0).unwrap();
    let region = pool.map(&file, 0, MIB as u64).unwrap();
    let mut tx = pool.begin_with(Isolation::Snapshot).unwrap();
    for at in (0..data.len()).step_by(10) {
        let mut seen = [0; 6];
        tx.read(&region, at, &mut seen).unwrap();
        assert_eq!(seen, data[at..at + 6]);
    }
    // a change elsewhere: all is read once more, and is as it was
    file.write_all_at(b"other", 9 * MIB as u64 / 10).unwrap();
    tx.read(&region, 0, &mut [0; 6]).unwrap();
    file.write_all_at(b"other", 30_000).unwrap();
    let error = tx.read(&region, 0, &mut [0; 6]).unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

/// Longer than a call of an attached process, in places and in bytes.
#[test]
fn long_transactions_happen_in_one_step() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let region = pool.map(&file, 0, 8 * MIB as u64).unwrap();
    let (mut shadow, mut state) = (pattern(1, 8 * MIB), 9);
    file.write_all_at(&shadow, 0).unwrap();
    let mut tx = pool.begin_with(Isolation::Serialisable).unwrap();
    for step in 0..20_000u64 {
        // over each other now and then
        let at = random(&mut state) as usize % (8 * MIB - 80);
        let data = pattern(step, 8 + step as usize % 64);
        tx.write(&region, at, &data).unwrap();
        shadow[at..at + data.len()].copy_from_slice(&data);
    }
    let large = pattern(7, 3 * MIB / 2);
    tx.write(&region, 12_345, &large).unwrap();
    shadow[12_345..12_345 + large.len()].copy_from_slice(&large);
    let mut seen = vec![0; 5 * MIB];
    tx.read(&region, 77, &mut seen).unwrap();
    assert!(seen == shadow[77..77 + 5 * MIB], "its own reads");
    tx.commit().unwrap();
    assert!(loaded(&region, 0, 8 * MIB) == shadow, "the region");
    assert!(content(&file) == shadow, "the file");
    drop((region, file));
    pool.finish();
}

#[test]
fn what_cannot_be_mapped_or_written_is_refused() {
    let (pool, other) = (Scratch::new(), Scratch::new());
    let file = pool.create_file("/f").unwrap();
    let map = |offset, bytes| match pool.map(&file, offset, bytes).map(drop).unwrap_err() {
        Error::Region(error) => error,
        other => panic!("{other}"),
    };
    assert!(matches!(map(0, 0), RegionError::Length));
    assert!(matches!(map(100, 4096), RegionError::Alignment));
    assert!(matches!(map(u64::MAX - 4095, 4096), RegionError::Length));
    assert!(matches!(map(4096, nearside::files::FILE_BYTES_MAX), RegionError::Length));
    let writes = pool.open_file("/f", &OpenFlags::new().write(true)).unwrap();
    assert_eq!(pool.map(&writes, 0, 4096).unwrap_err().errno(), libc::EBADF);

    let reads = pool.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    let (region, read_only) =
        (pool.map(&file, 0, 10_000).unwrap(), pool.map(&reads, 0, 4096).unwrap());
    let theirs = other.create_file("/f").unwrap();
    let foreign = other.map(&theirs, 0, 4096).unwrap();
    let mut tx = pool.begin().unwrap();
    assert!(matches!(tx.write(&region, 9_999, b"12"), Err(RegionError::Outside)));
    assert!(matches!(tx.write(&region, usize::MAX, b"12"), Err(RegionError::Outside)));
    assert!(matches!(tx.write(&foreign, 0, b"12"), Err(RegionError::OtherPool)));
    assert!(matches!(tx.write_at(foreign.as_ptr(), b"12"), Err(RegionError::Outside)));
    assert!(matches!(tx.write_at(std::ptr::null(), b"12"), Err(RegionError::Outside)));
    // behind the last byte that was asked for, though the page goes on
    let behind = region.as_ptr().wrapping_add(10_000);
    assert!(matches!(tx.write_at(behind, b"1"), Err(RegionError::Outside)));
    assert!(matches!(tx.write(&read_only, 0, b"1"), Err(RegionError::ReadOnly)));
    tx.write(&region, 9_998, b"12").unwrap();
    tx.commit().unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    // the file stays open for the region
    drop((file, writes, reads));
    pool.remove_file("/f").unwrap();
    assert_eq!(loaded(&region, 9_998, 2), b"12");
    drop((region, read_only, foreign, theirs));
    pool.finish();
    other.finish();
}

/// What another one committed is seen without a word, and at once.
#[test]
fn loads_take_no_calls() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    let region = pool.map(&file, 0, PAGE as u64).unwrap();
    assert_eq!(region.get::<u64>(0).unwrap(), 0);
    // A busy machine delays some of these runs. Calls to the service would delay all of them.
    let is_without_calls = || {
        let since = Instant::now();
        let sum: u64 =
            (0..1_000_000u64).map(|at| region.get::<u64>(at as usize % 512 * 8).unwrap()).sum();
        assert_eq!(sum, 0);
        since.elapsed() < Duration::from_secs(5)
    };
    assert!((0..5).any(|_| is_without_calls()), "a million loads take more than 5 s");
}
