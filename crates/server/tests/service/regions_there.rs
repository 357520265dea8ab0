//! Regions of processes over a network that are stopped, or whose service ends.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use nearside::{File, Pool};
use nix::sys::signal::{Signal, kill};

use crate::child;
use crate::mortal::{Mortal, serve_if_told};
use crate::regions::{PAGE, mapped, put, reading_and_writing};

/// Writes more than the service keeps for a process that reads nothing.
fn write_much(file: &File) {
    for round in 0..4000u64 {
        file.write_all_at(&[round as u8; 4000], 8 * PAGE as u64 + 8).unwrap();
    }
}

#[test]
fn nobody_waits_for_a_process_that_is_stopped_and_it_has_all_when_it_has_an_answer() {
    const NAME: &str = "regions_there::nobody_waits_for_a_process_that_is_stopped_and_it_has_all_\
                        when_it_has_an_answer";
    serve_if_told();
    if let Some(place) = child::pool() {
        let pool = Pool::attach(place).unwrap();
        let region = mapped(&pool, "/f", 16);
        region.load(0, &mut vec![0; 16 * PAGE]).unwrap();
        child::say("loaded");
        child::wait_to_be_told();
        pool.metadata("/").unwrap();
        let words = (0..16).map(|page| region.get::<u64>(page * PAGE).unwrap().to_string());
        child::say(&words.collect::<Vec<_>>().join(" "));
        child::wait_for_the_end();
    }
    let mortal = Mortal::on_a_network(NAME);
    let pool = mortal.attach();
    let region = mapped(&pool, "/f", 16);
    put(&pool, &region, 0, 1);
    let since = Instant::now();
    write_much(&pool.open_file("/f", &reading_and_writing()).unwrap());
    let usual = since.elapsed();
    let mut process = mortal.child("loads");
    assert_eq!(process.hear(), "loaded");
    kill(process.id(), Signal::SIGSTOP).unwrap();
    let since = Instant::now();
    for page in 0..16u64 {
        put(&pool, &region, page as usize * PAGE, page + 100);
    }
    let file = pool.open_file("/f", &reading_and_writing()).unwrap();
    file.punch_hole(0, 8 * PAGE as u64).unwrap();
    write_much(&file);
    let took = since.elapsed();
    // A busy machine stretches both measurements.
    assert!(
        took < Duration::from_secs(20) + 4 * usual,
        "{took:?}, {usual:?} with no stopped reader"
    );
    process.tell();
    kill(process.id(), Signal::SIGCONT).unwrap();
    assert_eq!(process.hear(), "0 0 0 0 0 0 0 0 108 109 110 111 112 113 114 115");
    process.kill();
    drop((region, file, pool));
    mortal.finish();
}

/// There is no other answer to a load.
#[test]
fn who_loads_when_the_service_has_ended_in_order_is_ended_by_a_signal() {
    const NAME: &str =
        "regions_there::who_loads_when_the_service_has_ended_in_order_is_ended_by_a_signal";
    serve_if_told();
    if let Some(place) = child::pool() {
        let pool = Pool::attach(place).unwrap();
        let region = mapped(&pool, "/f", 1);
        region.get::<u64>(0).unwrap();
        child::say("loaded");
        child::wait_to_be_told();
        let mut tx = pool.begin().unwrap();
        tx.put(&region, 0, &1u64).unwrap();
        let error = tx.commit().unwrap_err();
        assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
        child::say("told");
        // what was, others may have changed since
        region.get::<u64>(0).unwrap();
        child::say("loaded what may not be so");
        child::wait_for_the_end();
    }
    let mortal = Mortal::on_a_network(NAME);
    let mut process = mortal.child("loads");
    assert_eq!(process.hear(), "loaded");
    mortal.finish();
    process.tell();
    assert_eq!(process.hear(), "told");
    assert_eq!(process.wait().signal(), Some(libc::SIGSEGV));
}

/// A load waits for the next service, and shows what is so then.
#[test]
fn who_loads_while_there_is_no_service_waits_for_the_next_one() {
    const NAME: &str = "regions_there::who_loads_while_there_is_no_service_waits_for_the_next_one";
    serve_if_told();
    let mut mortal = Mortal::on_a_network(NAME);
    let (pool, here) = (mortal.attach(), Pool::attach(&mortal.dir).unwrap());
    let (region, theirs) = (mapped(&pool, "/f", 4), mapped(&here, "/f", 4));
    for round in 1..6u64 {
        put(&pool, &region, 2 * PAGE, round);
        mortal.kill();
        std::thread::scope(|threads| {
            // it is hidden as soon as it is known that the service has gone
            let call = threads.spawn(|| pool.metadata("/").unwrap());
            mortal.start(None);
            put(&here, &theirs, 2 * PAGE, 100 * round);
            call.join().unwrap();
            pool.metadata("/").unwrap();
            assert_eq!(region.get::<u64>(2 * PAGE).unwrap(), 100 * round);
        });
    }
    drop((region, theirs, pool, here));
    mortal.finish();
}

/// A process of the service's machine commits under leases; one over a network loads what it did.
#[test]
fn what_is_committed_under_leases_is_loaded_over_a_network() {
    const NAME: &str = "regions_there::what_is_committed_under_leases_is_loaded_over_a_network";
    serve_if_told();
    let mortal = Mortal::on_a_network(NAME);
    let (pool, here) = (mortal.attach(), Pool::attach(&mortal.dir).unwrap());
    let (region, theirs) = (mapped(&pool, "/f", 4), mapped(&here, "/f", 4));
    let mut back = 0;
    for round in 1..1500u64 {
        let at = round as usize % 4 * PAGE;
        put(&here, &theirs, at, round);
        assert_eq!(theirs.get::<u64>(at).unwrap(), round);
        if round % 29 == 0 {
            // nothing of it went through the service, perhaps
            pool.metadata("/").unwrap();
            assert_eq!(region.get::<u64>(at).unwrap(), round);
            assert_eq!(region.get::<u64>((at + PAGE) % (4 * PAGE)).unwrap(), round - 3);
            put(&pool, &region, at + 8, round);
            back = round;
        }
        let page = back as usize % 4 * PAGE;
        assert_eq!(theirs.get::<u64>(page + 8).unwrap(), back);
    }
    drop((region, theirs, pool, here));
    mortal.finish();
}
