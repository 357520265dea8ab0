//! Regions over a network: what others commit, and what lost connections leave.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearside::{File, Isolation, OpenFlags, Pool, Region, RegionSettings};

use crate::served::{SOON, Served};
use crate::wire_cutter::{Cut, WireCutter};

pub const PAGE: usize = 4096;

pub fn opened(pool: &Pool, path: &str) -> File {
    pool.open_file(path, &OpenFlags::new().read(true).write(true).create(true)).unwrap()
}

pub fn mapped(pool: &Pool, path: &str, pages: usize) -> Region {
    pool.map(&opened(pool, path), 0, (pages * PAGE) as u64).unwrap()
}

pub fn put(pool: &Pool, region: &Region, at: usize, value: u64) {
    let mut tx = pool.begin().unwrap();
    tx.put(region, at, &value).unwrap();
    tx.commit().unwrap();
}

/// Adds one to words of two files in one step; gives what they are then.
fn count(pool: &Pool, regions: &[Region; 2]) -> u64 {
    let counted = pool.transact(Isolation::Serialisable, |tx| -> nearside::Result<u64> {
        let next = tx.get::<u64>(&regions[0], 0)? + 1;
        tx.put(&regions[0], 0, &next)?;
        tx.put(&regions[1], PAGE - 4, &next)?;
        Ok(next)
    });
    counted.unwrap()
}

pub fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
    (*state >> 33) as usize
}

/// Whoever makes a call, and has its answer, has all in his regions that had happened by then.
#[test]
fn what_one_commits_others_load_when_they_have_an_answer() {
    const PAGES: usize = 8;
    let served = Served::new();
    // the last one on this machine
    let pools = [served.attach(), served.attach(), Pool::attach(served.dir()).unwrap()];
    let regions = pools.each_ref().map(|pool| mapped(pool, "/f", PAGES));
    let files = pools.each_ref().map(|pool| opened(pool, "/f"));
    let (mut shadow, mut state) = (vec![0u8; PAGES * PAGE], 3);
    for round in 1..600u64 {
        let who = random(&mut state) % 3;
        let (pool, region, file) = (&pools[who], &regions[who], &files[who]);
        let len = [8, 8, 100, 5000][random(&mut state) % 4];
        let at = random(&mut state) % (PAGES * PAGE - len);
        let bytes = vec![round as u8; len];
        match random(&mut state) % 8 {
            0 => file.punch_hole(at as u64, len as u64).unwrap(),
            1 => {
                file.set_len(at as u64).unwrap();
                shadow[at..].fill(0);
            }
            2 | 3 => file.write_all_at(&bytes, at as u64).unwrap(),
            _ => {
                let mut tx = pool.begin().unwrap();
                tx.write(region, at, &bytes).unwrap();
                tx.commit().unwrap();
            }
        }
        let mut seen = vec![0; PAGES * PAGE];
        files[0].read_at(&mut seen, 0).unwrap();
        if seen[at..at + len] == bytes {
            shadow[at..at + len].copy_from_slice(&bytes);
        } else {
            shadow[at..at + len].fill(0);
        }
        for (pool, region) in pools.iter().zip(&regions) {
            pool.metadata("/").unwrap();
            let mut seen = vec![0; PAGES * PAGE];
            region.load(0, &mut seen).unwrap();
            assert!(seen == shadow, "round {round}: {who} changed {len} at {at}");
        }
    }
    drop((regions, files, pools));
    served.wait_for_sessions(0);
    assert_eq!(served.service.copied_bytes(), 0);
    served.finish();
}

#[test]
fn what_one_commits_comes_to_who_asks_for_nothing() {
    let served = Served::new();
    let (one, other) = (served.attach(), served.attach());
    let regions = [&one, &other].map(|pool| mapped(pool, "/f", 2));
    for round in 1..200u64 {
        assert!(regions[1].get::<u64>(PAGE).unwrap() < round);
        put(&one, &regions[0], PAGE, round);
        let until = Instant::now() + SOON;
        while regions[1].get::<u64>(PAGE).unwrap() != round {
            assert!(Instant::now() < until, "round {round} does not come");
        }
    }
    drop((regions, one, other));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn each_commit_is_made_once_while_connections_are_cut() {
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let pools = [served.attach_at(&network.address), served.attach_at(&network.address)];
    let both = pools.each_ref().map(|pool| ["/a", "/b"].map(|path| mapped(pool, path, 2)));
    let (is_over, counted) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let mut stuck = 0;
    std::thread::scope(|threads| {
        for who in [0, 0, 1, 1] {
            let (pool, regions) = (&pools[who], &both[who]);
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let now = count(pool, regions);
                    for at in [(0, 0), (1, PAGE - 4)] {
                        let seen = regions[at.0].get::<u64>(at.1).unwrap();
                        assert!(seen >= now, "{seen} is loaded after {now} was committed");
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        threads.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = both[1][0].get::<u64>(0).unwrap();
                assert!(now >= seen, "{now} after {seen}");
                seen = now;
            }
        });
        for round in 0..40 {
            std::thread::sleep(Duration::from_millis(10 + round % 7 * 9));
            network.cut(if round % 3 == 0 { Cut::Process } else { Cut::Both });
            // most are cut while they come back
            let (before, until) = (counted.load(Ordering::Relaxed), Instant::now() + SOON);
            let is_stuck = || round % 4 == 0 && counted.load(Ordering::Relaxed) == before;
            while is_stuck() && Instant::now() < until {
                std::thread::yield_now();
            }
            stuck += u64::from(is_stuck());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let counted = counted.load(Ordering::Relaxed);
    println!("{counted} transactions, each once");
    assert_eq!(stuck, 0, "nothing was committed any more");
    for (pool, regions) in pools.iter().zip(&both) {
        pool.metadata("/").unwrap();
        assert_eq!(regions[0].get::<u64>(0).unwrap(), counted);
        assert_eq!(regions[1].get::<u64>(PAGE - 4).unwrap(), counted);
    }
    drop((both, pools));
    served.wait_for_sessions(0);
    assert_eq!(served.service.copied_bytes(), 0);
    served.finish();
}

/// What was there before a connection was lost, others may have changed since.
#[test]
fn nothing_of_before_is_loaded_once_there_is_an_answer_over_another_connection() {
    const PAGES: usize = 16;
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let (pool, other) = (served.attach_at(&network.address), served.attach());
    let regions = [&pool, &other].map(|pool| mapped(pool, "/f", PAGES));
    let file = opened(&other, "/f");
    for round in 1..30u64 {
        regions[0].load(0, &mut vec![0; PAGES * PAGE]).unwrap();
        network.cut(if round % 3 == 0 { Cut::Process } else { Cut::Both });
        // told to nobody
        (0..PAGES).for_each(|page| put(&other, &regions[1], page * PAGE, round));
        file.punch_hole(PAGE as u64, PAGE as u64).unwrap();
        pool.metadata("/").unwrap();
        for page in 0..PAGES {
            let now = regions[0].get::<u64>(page * PAGE).unwrap();
            assert_eq!(now, if page == 1 { 0 } else { round }, "page {page}");
        }
    }
    assert_eq!(served.service.sessions(), 2);
    drop((regions, file, pool, other));
    served.wait_for_sessions(0);
    served.finish();
}

/// Several writers and many who look: counters in regions go up only, each by one.
#[test]
fn many_programs_count_in_one_region() {
    const WORDS: usize = 32;
    let served = Served::new();
    let pools: Vec<Pool> = (0..4).map(|_| served.attach()).collect();
    let regions: Vec<Region> = pools.iter().map(|pool| mapped(pool, "/f", WORDS)).collect();
    let totals: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|threads| {
        for (who, (pool, region)) in pools.iter().zip(&regions).enumerate() {
            let totals = &totals;
            threads.spawn(move || {
                let (mut state, mut seen) = (who as u64, [0; WORDS]);
                for _ in 0..400 {
                    let word = random(&mut state) % WORDS;
                    let at = word * PAGE + 16 * word;
                    let isolation = Isolation::Serialisable;
                    let next = pool.transact(isolation, |tx| -> nearside::Result<u64> {
                        let next = tx.get::<u64>(region, at)? + 1;
                        tx.put(region, at, &next)?;
                        Ok(next)
                    });
                    let (next, now) = (next.unwrap(), region.get::<u64>(at).unwrap());
                    assert!(now >= next && next > seen[word], "{now}, {next}, {}", seen[word]);
                    seen[word] = now;
                    totals[word].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    for (pool, region) in pools.iter().zip(&regions) {
        pool.metadata("/").unwrap();
        for (word, total) in totals.iter().enumerate() {
            let now = region.get::<u64>(word * PAGE + 16 * word).unwrap();
            assert_eq!(now, total.load(Ordering::Relaxed), "word {word}");
        }
    }
    drop((regions, pools));
    served.wait_for_sessions(0);
    served.finish();
}

/// Pages of regions take no more of this process's memory than it says.
#[test]
fn no_more_pages_are_kept_than_is_set() {
    const PAGES: usize = 2048;
    let served = Served::new();
    let pool = served.attach();
    let settings = RegionSettings { memory_bytes: 1 << 20, ..RegionSettings::default() };
    pool.set_region_settings(&settings).unwrap();
    let file = opened(&pool, "/f");
    for page in 0..PAGES {
        file.write_all_at(&(page as u64 + 1).to_ne_bytes(), (page * PAGE) as u64).unwrap();
    }
    let region = pool.map(&file, 0, (PAGES * PAGE) as u64).unwrap();
    for round in 0..3 {
        for page in (0..PAGES).map(|page| if round == 1 { PAGES - 1 - page } else { page }) {
            assert_eq!(region.get::<u64>(page * PAGE).unwrap(), page as u64 + 1);
        }
        let kept = kept_bytes();
        assert!(kept <= 1 << 20, "{kept} bytes");
    }
    drop((region, file, pool));
    served.wait_for_sessions(0);
    served.finish();
}

/// Bytes of memory that copies of this test's process have, those of all pools.
fn kept_bytes() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let of_copy = |place: &std::path::Path| {
        std::fs::read_link(place).is_ok_and(|it| it.to_string_lossy().contains("nearside-copy"))
    };
    let places = descriptors.map(|entry| entry.unwrap().path()).filter(|place| of_copy(place));
    places.map(|place| std::fs::metadata(place).map_or(0, |it| it.blocks() * 512)).sum()
}
