//! Regions of attached processes: what others see, and what ends leave.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearside::{Isolation, OpenFlags, Pool, Region};
use nix::sys::signal::{Signal, kill};

use crate::child::{self, Running};
use crate::mortal::{Mortal, serve_if_told};
use crate::served::{Served, eventually};

pub const PAGE: usize = 4096;

pub fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

pub fn mapped(pool: &Pool, path: &str, pages: usize) -> Region {
    let file = pool.open_file(path, &reading_and_writing()).unwrap();
    pool.map(&file, 0, (pages * PAGE) as u64).unwrap()
}

pub fn put(pool: &Pool, region: &Region, at: usize, value: u64) {
    let mut tx = pool.begin().unwrap();
    tx.put(region, at, &value).unwrap();
    tx.commit().unwrap();
}

/// Adds one to words of two files in one step; gives what they were.
fn count(pool: &Pool, regions: &[Region; 2]) -> nearside::Result<u64> {
    pool.transact(Isolation::Serialisable, |tx| {
        let was: u64 = tx.get(&regions[0], 0)?;
        tx.put(&regions[0], 0, &(was + 1))?;
        tx.put(&regions[1], PAGE - 4, &(was + 1))?;
        Ok(was)
    })
}

#[test]
fn what_one_commits_all_doors_see_when_it_returns() {
    let served = Served::new();
    let (one, other) = (served.attach(), served.attach());
    let regions = [mapped(&one, "/f", 8), mapped(&other, "/f", 8), mapped(&served.owned, "/f", 8)];
    let pools = [&one, &other, &served.owned];
    for round in 1..300u64 {
        let (who, at) = (round as usize % 3, round as usize * 40 % (8 * PAGE - 8));
        match round % 4 {
            0 => {
                let file = pools[who].open_file("/f", &reading_and_writing()).unwrap();
                file.write_all_at(&round.to_ne_bytes(), at as u64).unwrap();
            }
            _ => put(pools[who], &regions[who], at, round),
        }
        for (region, pool) in regions.iter().zip(pools) {
            assert_eq!(region.get::<u64>(at).unwrap(), round);
            let content = pool.read("/f").unwrap();
            assert_eq!(content[at..at + 8], round.to_ne_bytes());
        }
        if round % 50 == 0 {
            served.owned.open_file("/f", &reading_and_writing()).unwrap().set_len(0).unwrap();
            assert!(regions.iter().all(|region| region.get::<u64>(at).unwrap() == 0));
        }
    }
    drop((regions, one, other));
    served.wait_for_sessions(0);
    eventually(|| served.service.copied_bytes() == 0);
    served.finish();
}

#[test]
fn a_process_that_is_killed_as_it_commits_keeps_what_it_committed_and_leaves_nothing_else() {
    const NAME: &str = "regions::a_process_that_is_killed_as_it_commits_keeps_what_it_committed_\
                        and_leaves_nothing_else";
    serve_if_told();
    count_if_told();
    keeps_what_it_committed(Mortal::new(NAME));
}

#[test]
fn a_process_over_a_network_that_is_killed_as_it_commits_keeps_what_it_committed() {
    const NAME: &str =
        "regions::a_process_over_a_network_that_is_killed_as_it_commits_keeps_what_it_committed";
    serve_if_told();
    count_if_told();
    keeps_what_it_committed(Mortal::on_a_network(NAME));
}

/// Commits until it is killed.
fn count_if_told() {
    let Some(place) = child::pool() else { return };
    let pool = Pool::attach(place).unwrap();
    let regions = [mapped(&pool, "/a", 64), mapped(&pool, "/b", 64)];
    regions.iter().for_each(|region| region.load(0, &mut vec![0; 64 * PAGE]).unwrap());
    loop {
        // this is never committed
        let mut left = pool.begin().unwrap();
        left.write(&regions[0], 8, &[7; 2 * PAGE]).unwrap();
        let was = count(&pool, &regions).unwrap();
        child::say(&format!("{was}"));
    }
}

fn keeps_what_it_committed(mortal: Mortal) {
    let kept = |copies| if mortal.is_on_a_network() { 0 } else { copies };
    let pool = mortal.attach();
    let regions = [mapped(&pool, "/a", 64), mapped(&pool, "/b", 64)];
    regions[0].load(0, &mut vec![0; 64 * PAGE]).unwrap();
    assert_eq!(mortal.copies(), kept(2));
    for round in 1..8u64 {
        let mut process = mortal.child("counts");
        for _ in 0..round * 5 {
            process.hear();
        }
        assert_eq!(mortal.copies(), kept(4));
        process.kill();
        let said = process.rest().last().map_or(0, |was| was.parse().unwrap());
        eventually(|| mortal.copies() == kept(2));
        // over a network with the next answer, and nobody asks for it
        pool.metadata("/").unwrap();
        let now = regions[0].get::<u64>(0).unwrap();
        assert!(now > said, "{now} after {said} was said");
        assert_eq!(regions[1].get::<u64>(PAGE - 4).unwrap(), now, "both or neither");
        assert_eq!(regions[0].get::<u64>(8).unwrap(), 0);
        assert_eq!(pool.read("/a").unwrap()[..8], now.to_ne_bytes());
    }
    drop((regions, pool));
    eventually(|| mortal.copies() == 0);
    mortal.finish();
}

#[test]
fn nobody_waits_for_a_process_that_is_stopped_and_it_goes_on_with_what_is_so() {
    const NAME: &str =
        "regions::nobody_waits_for_a_process_that_is_stopped_and_it_goes_on_with_what_is_so";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let region = mapped(&pool, "/f", 16);
        region.load(0, &mut vec![0; 16 * PAGE]).unwrap();
        child::say("loaded");
        child::wait_to_be_told();
        let words = (0..16).map(|page| region.get::<u64>(page * PAGE).unwrap().to_string());
        child::say(&words.collect::<Vec<_>>().join(" "));
        child::wait_for_the_end();
    }
    let served = Served::new();
    let region = mapped(&served.owned, "/f", 16);
    let since = Instant::now();
    (0..16).for_each(|page| put(&served.owned, &region, page * PAGE, 1));
    let usual = since.elapsed();
    let mut process = Running::start(child::command(NAME, &served.dir));
    assert_eq!(process.hear(), "loaded");
    kill(process.id(), Signal::SIGSTOP).unwrap();
    let since = Instant::now();
    for page in 0..16u64 {
        put(&served.owned, &region, page as usize * PAGE, page + 100);
    }
    let file = served.owned.open_file("/f", &reading_and_writing()).unwrap();
    file.punch_hole(0, 8 * PAGE as u64).unwrap();
    let took = since.elapsed();
    // A busy machine stretches both measurements.
    assert!(
        took < Duration::from_secs(5) + 20 * usual,
        "{took:?}, {usual:?} with no stopped reader"
    );
    process.tell();
    kill(process.id(), Signal::SIGCONT).unwrap();
    assert_eq!(process.hear(), "0 0 0 0 0 0 0 0 108 109 110 111 112 113 114 115");
    process.kill();
    served.wait_for_sessions(0);
    eventually(|| served.service.copied_bytes() == 0);
    drop((region, file));
    served.finish();
}

#[test]
fn regions_go_on_with_the_next_service_and_each_commit_is_made_once() {
    const NAME: &str = "regions::regions_go_on_with_the_next_service_and_each_commit_is_made_once";
    serve_if_told();
    go_on(Mortal::new(NAME));
}

#[test]
fn regions_over_a_network_go_on_with_the_next_service_and_each_commit_is_made_once() {
    const NAME: &str =
        "regions::regions_over_a_network_go_on_with_the_next_service_and_each_commit_is_made_once";
    serve_if_told();
    go_on(Mortal::on_a_network(NAME));
}

fn go_on(mut mortal: Mortal) {
    let is_remote = mortal.is_on_a_network();
    let kept = |copies| if is_remote { 0 } else { copies };
    let (pool, other) = (mortal.attach(), mortal.attach());
    let both = [&pool, &other].map(|pool| [mapped(pool, "/a", 8), mapped(pool, "/b", 8)]);
    let ([regions, theirs], is_over) = (&both, &AtomicBool::new(false));
    let all = &AtomicU64::new(0);
    let counted: u64 = std::thread::scope(|threads| {
        let counts = [(&pool, regions), (&other, theirs)].map(|(pool, regions)| {
            threads.spawn(move || {
                let mut counted = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let was = count(pool, regions).unwrap();
                    let now = regions[0].get::<u64>(0).unwrap();
                    assert!(now > was, "{now} is loaded after {} was written", was + 1);
                    counted += 1;
                    all.fetch_add(1, Ordering::Relaxed);
                }
                counted
            })
        });
        threads.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = theirs[0].get::<u64>(0).unwrap();
                assert!(now >= seen, "{now} after {seen}");
                seen = now;
            }
        });
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(60));
            mortal.replace(&pool);
        }
        eventually(|| all.load(Ordering::Relaxed) > 50);
        is_over.store(true, Ordering::Relaxed);
        counts.into_iter().map(|counts| counts.join().unwrap()).sum()
    });
    assert_eq!(counted, all.load(Ordering::Relaxed));
    for (pool, regions) in [(&pool, regions), (&other, theirs)] {
        pool.metadata("/").unwrap();
        assert_eq!(regions[0].get::<u64>(0).unwrap(), counted);
        assert_eq!(regions[1].get::<u64>(PAGE - 4).unwrap(), counted);
    }
    // of the last service
    eventually(|| mortal.copies() == kept(4));
    assert_eq!(pool.regions_info().unwrap().regions, 2);
    // what is mapped from now on is, too
    let new = mapped(&pool, "/new", 1);
    put(&pool, &new, 0, 5);
    mortal.replace(&pool);
    assert_eq!(new.get::<u64>(0).unwrap(), 5);
    eventually(|| mortal.copies() == kept(5));
    drop((new, both, pool, other));
    mortal.finish();
}

/// Longer than a call, so that services die before they have all of it.
#[test]
fn long_transactions_happen_once_however_many_services_come_and_go() {
    const NAME: &str = "regions::long_transactions_happen_once_however_many_services_come_and_go";
    serve_if_told();
    happen_once(Mortal::new(NAME));
}

#[test]
fn long_transactions_over_a_network_happen_once_however_many_services_come_and_go() {
    const NAME: &str =
        "regions::long_transactions_over_a_network_happen_once_however_many_services_come_and_go";
    serve_if_told();
    happen_once(Mortal::on_a_network(NAME));
}

fn happen_once(mut mortal: Mortal) {
    let (pool, other) = (mortal.attach(), mortal.attach());
    let (mapped, is_over) = (mapped(&pool, "/f", 1024), &AtomicBool::new(false));
    let (region, done) = (&mapped, &AtomicU64::new(0));
    let rounds = std::thread::scope(|threads| {
        let writes = threads.spawn(|| {
            let mut rounds = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                rounds += 1;
                let mut tx = pool.begin_with(Isolation::Serialisable).unwrap();
                let was: u64 = tx.get(region, 0).unwrap();
                assert_eq!(was, rounds - 1, "each once, and those before it");
                (0..1024).for_each(|page| tx.put(region, page * PAGE, &rounds).unwrap());
                tx.write(region, 8, &vec![rounds as u8; PAGE - 8]).unwrap();
                tx.write(region, 600 * PAGE + 8, &vec![rounds as u8; 300 * PAGE]).unwrap();
                tx.commit().unwrap();
                done.store(rounds, Ordering::Relaxed);
            }
            rounds
        });
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(50));
            mortal.replace(&other);
        }
        eventually(|| done.load(Ordering::Relaxed) > 3);
        is_over.store(true, Ordering::Relaxed);
        writes.join().unwrap()
    });
    let content = other.read("/f").unwrap();
    assert_eq!((&content[..8], content[PAGE - 1]), (&rounds.to_ne_bytes()[..], rounds as u8));
    assert_eq!(region.get::<u64>(599 * PAGE).unwrap(), rounds);
    drop((mapped, pool, other));
    mortal.finish();
}

/// There is no other answer to a load.
#[test]
fn who_loads_when_the_service_has_ended_in_order_is_ended_by_a_signal() {
    const NAME: &str =
        "regions::who_loads_when_the_service_has_ended_in_order_is_ended_by_a_signal";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let region = mapped(&pool, "/f", 1);
        region.get::<u64>(0).unwrap();
        child::say("loaded");
        child::wait_to_be_told();
        let mut tx = pool.begin().unwrap();
        tx.put(&region, 0, &1u64).unwrap();
        let error = tx.commit().unwrap_err();
        assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
        let error = pool.begin().unwrap().get::<u64>(&region, 0).unwrap_err();
        assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
        child::say("told");
        // what was, others may have changed since
        region.get::<u64>(0).unwrap();
        child::say("loaded what may not be so");
        child::wait_for_the_end();
    }
    let served = Served::new();
    let mut process = Running::start(child::command(NAME, &served.dir));
    assert_eq!(process.hear(), "loaded");
    served.finish();
    process.tell();
    assert_eq!(process.hear(), "told");
    assert_eq!(process.wait().signal(), Some(libc::SIGSEGV));
}
