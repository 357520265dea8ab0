//! Commits to regions that attached processes make by themselves, under leases.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use nearside::{Pool, Region};

use crate::child;
use crate::lanes::in_lanes;
use crate::mortal::{Mortal, Times, serve_if_told};
use crate::regions::{PAGE, mapped, put, reading_and_writing};
use crate::served::{SOON, Served, eventually};

/// Words of a region that are written together.
const WORDS: [usize; 3] = [8, PAGE - 4, 5 * PAGE];

fn put_all(pool: &Pool, region: &Region, value: u64) {
    let mut tx = pool.begin().unwrap();
    WORDS.iter().for_each(|at| tx.put(region, *at, &value).unwrap());
    tx.commit().unwrap();
}

fn loaded(region: &Region) -> [u64; 3] {
    WORDS.map(|at| region.get(at).unwrap())
}

/// Commits until a commit goes to the process's lane in this directory: then the process has a
/// lease. Returns the last value.
fn get_lease(dir: &Path, pool: &Pool, region: &Region) -> u64 {
    let value = AtomicU64::new(0);
    eventually(|| {
        let before = in_lanes(dir);
        let next = value.fetch_add(1, Ordering::Relaxed) + 1;
        put_all(pool, region, next);
        next >= 20 && in_lanes(dir) > before
    });
    value.into_inner()
}

#[test]
fn who_has_a_lease_commits_while_the_service_does_nothing() {
    const NAME: &str = "leased_regions::who_has_a_lease_commits_while_the_service_does_nothing";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    let (pool, other) = (mortal.attach(), mortal.attach());
    let (region, theirs) = (mapped(&pool, "/f", 8), mapped(&other, "/f", 8));
    let last = get_lease(&mortal.dir, &pool, &region);
    assert_eq!(loaded(&region), [last; 3], "its pages are there");
    mortal.stop();
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        for value in 100..200 {
            put_all(&pool, &region, value);
            assert_eq!(loaded(&region), [value; 3]);
        }
        tell.send(()).unwrap();
        let file = pool.open_file("/other", &reading_and_writing()).unwrap();
        tell.send(()).unwrap();
        (file, pool, region)
    });
    told.recv_timeout(SOON).expect("commits that need no service");
    let opened = told.recv_timeout(Duration::from_millis(100));
    assert!(opened.is_err(), "a call that needs it");
    // what is committed under a lease outlives the service
    mortal.kill();
    mortal.start(None);
    told.recv_timeout(SOON).unwrap();
    let (file, pool, region) = thread.join().unwrap();
    assert_eq!((loaded(&theirs), loaded(&region)), ([199; 3], [199; 3]));
    put_all(&other, &theirs, 300);
    assert_eq!((loaded(&theirs), loaded(&region)), ([300; 3], [300; 3]));
    drop((file, region, theirs, pool, other));
    mortal.finish();
}

/// Each in turn has the lease; who loads, or reads, ends it.
#[test]
fn leases_go_from_one_to_the_other_and_all_see_what_was_committed() {
    let served = Served::new();
    let pools = [served.attach(), served.attach()];
    let regions = pools.each_ref().map(|pool| mapped(pool, "/f", 8));
    let mut value = 0;
    for round in 0..12 {
        let who = round % 2;
        for _ in 0..30 {
            value += 1;
            put_all(&pools[who], &regions[who], value);
            assert_eq!(loaded(&regions[who]), [value; 3]);
        }
        std::thread::sleep(Duration::from_millis(4));
        match round % 3 {
            0 => assert_eq!(loaded(&regions[1 - who]), [value; 3]),
            1 => {
                let content = served.owned.read("/f").unwrap();
                assert!(WORDS.iter().all(|at| content[*at..*at + 8] == value.to_ne_bytes()));
            }
            _ => {
                // through the library, the file's own call
                let file = pools[who].open_file("/f", &reading_and_writing()).unwrap();
                value += 1;
                file.write_all_at(&value.to_ne_bytes(), WORDS[0] as u64).unwrap();
                assert_eq!(regions[who].get::<u64>(WORDS[0]).unwrap(), value);
                assert_eq!(regions[1 - who].get::<u64>(WORDS[0]).unwrap(), value);
                served.owned.open_file("/f", &reading_and_writing()).unwrap().set_len(0).unwrap();
                assert_eq!((loaded(&regions[0]), loaded(&regions[1])), ([0; 3], [0; 3]));
            }
        }
    }
    drop((regions, pools));
    served.finish();
}

/// Nobody loads what is older than what was acknowledged before he loaded.
#[test]
fn loads_and_commits_at_one_time_never_go_back() {
    let served = Served::new();
    let pools = &[served.attach(), served.attach(), served.attach()];
    let regions = &pools.each_ref().map(|pool| mapped(pool, "/f", 8));
    let acknowledged = &[AtomicU64::new(0), AtomicU64::new(0)];
    let is_over = &AtomicBool::new(false);
    let place = |who: usize| who * 16 + 64;
    std::thread::scope(|threads| {
        let writes = [0, 1].map(|who| {
            threads.spawn(move || {
                for value in 1..4000u64 {
                    put(&pools[who], &regions[who], place(who), value);
                    acknowledged[who].store(value, Ordering::SeqCst);
                    assert_eq!(regions[who].get::<u64>(place(who)).unwrap(), value);
                    if value % 500 == 0 {
                        // the other one gets a lease meanwhile
                        std::thread::sleep(Duration::from_millis(8 * (1 + who as u64)));
                    }
                }
            })
        });
        for (reader, region) in regions.iter().enumerate() {
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for who in [0, 1] {
                        let before = acknowledged[who].load(Ordering::SeqCst);
                        let now = region.get::<u64>(place(who)).unwrap();
                        assert!(now >= before, "{reader}: {now} after {before}");
                    }
                    std::thread::sleep(Duration::from_micros(300 * (reader as u64 + 1)));
                }
            });
        }
        writes.into_iter().for_each(|writes| writes.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    let content = served.owned.read("/f").unwrap();
    for who in [0, 1] {
        assert_eq!(content[place(who)..place(who) + 8], 3999u64.to_ne_bytes());
    }
}

#[test]
fn a_process_that_is_killed_under_its_lease_keeps_all_that_it_was_told() {
    const NAME: &str =
        "leased_regions::a_process_that_is_killed_under_its_lease_keeps_all_that_it_was_told";
    serve_if_told();
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let region = mapped(&pool, "/f", 8);
        let mut value = region.get::<u64>(WORDS[0]).unwrap();
        loop {
            value += 1;
            put_all(&pool, &region, value);
            assert_eq!(loaded(&region), [value; 3]);
            child::say(&format!("{value}"));
        }
    }
    let mut mortal = Mortal::new(NAME);
    let pool = mortal.attach();
    let region = mapped(&pool, "/f", 8);
    for round in 0..10u64 {
        let mut process = mortal.child("commits");
        (0..200 + round * 7).for_each(|_| drop(process.hear()));
        process.kill();
        if round % 3 == 2 {
            // the next service folds what he left
            mortal.kill();
            mortal.start(None);
        }
        let said = process.rest().last().map_or(0, |value| value.parse().unwrap());
        let now = loaded(&region);
        assert!(now[0] >= said && now == [now[0]; 3], "{now:?} after {said} was said");
        eventually(|| mortal.copies() == 1);
    }
    drop((region, pool));
    // who did not come back is forgotten
    mortal.kill();
    mortal.start(Some(Times::of(Duration::from_millis(1))));
    eventually(|| mortal.has_forgotten());
    mortal.finish();
}
