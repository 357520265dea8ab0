//! Ends: of processes, and of the service.

use nearside::{LockKind, OpenFlags, Pool};

use crate::child::{self, Running};
use crate::served::{Served, eventually};

fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

#[test]
fn a_killed_process_keeps_what_it_wrote_and_leaves_nothing_else() {
    const NAME: &str = "deaths::a_killed_process_keeps_what_it_wrote_and_leaves_nothing_else";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file("/locked", &reading_and_writing()).unwrap();
        file.lock(LockKind::Write, ..).unwrap();
        file.write_all_at(b"acknowledged", 0).unwrap();
        let unnamed = pool.create_file("/unnamed").unwrap();
        pool.remove_file("/unnamed").unwrap();
        unnamed.write_all_at(&[7; 8 << 20], 0).unwrap();
        child::say("ready");
        child::wait_for_the_end();
    }
    let served = Served::new();
    let pool = served.attach();
    let file = pool.open_file("/locked", &reading_and_writing()).unwrap();
    let free = pool.statfs().blocks_free;
    let mut other = Running::start(child::command(NAME, &served.dir));
    assert_eq!(other.hear(), "ready");
    served.wait_for_sessions(2);
    assert!(!file.try_lock(LockKind::Write, ..).unwrap());
    assert!(pool.statfs().blocks_free + 2000 < free);
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| file.lock(LockKind::Write, ..));
        std::thread::sleep(std::time::Duration::from_millis(20));
        other.kill();
        waits.join().unwrap().unwrap();
    });
    served.wait_for_sessions(1);
    eventually(|| pool.statfs().blocks_free + 100 > free);
    assert_eq!(pool.read("/locked").unwrap(), b"acknowledged");
    drop((file, pool));
    served.finish();
}

#[test]
fn a_process_that_waits_for_a_lock_and_is_killed_never_gets_it() {
    const NAME: &str = "deaths::a_process_that_waits_for_a_lock_and_is_killed_never_gets_it";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file("/f", &reading_and_writing()).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                child::say("waits");
            });
            file.lock(LockKind::Write, ..).unwrap();
            child::say("has it");
        });
        child::wait_for_the_end();
    }
    let served = Served::new();
    let pool = served.attach();
    let file = pool.open_file("/f", &reading_and_writing()).unwrap();
    file.lock(LockKind::Write, ..).unwrap();
    let mut other = Running::start(child::command(NAME, &served.dir));
    assert_eq!(other.hear(), "waits");
    other.kill();
    served.wait_for_sessions(1);
    file.unlock(..).unwrap();
    let third = pool.open_file("/f", &reading_and_writing()).unwrap();
    third.lock(LockKind::Write, ..).unwrap();
    drop((file, third, pool));
    served.finish();
}

/// A process by its number is another one in another namespace, and at another time.
#[test]
fn two_processes_of_the_same_number_are_two() {
    const NAME: &str = "deaths::two_processes_of_the_same_number_are_two";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file(child::role(), &reading_and_writing()).unwrap();
        file.lock(LockKind::Write, ..).unwrap();
        child::say(&format!("{}", std::process::id()));
        child::wait_for_the_end();
    }
    let in_namespace = |role: &str, dir: &std::path::Path| {
        let usual = child::command_as(role, NAME, dir);
        let mut command = child::piped("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(usual.get_program());
        child::pass_on(&usual, &mut command);
        command
    };
    let mut probe = std::process::Command::new("unshare");
    if !probe.args(["--pid", "--fork", "true"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: no namespaces can be made here");
        return;
    }
    let served = Served::new();
    let pool = served.attach();
    let mut both = ["/one", "/two"].map(|role| Running::start(in_namespace(role, &served.dir)));
    for process in &mut both {
        assert_eq!(process.hear(), "1");
    }
    served.wait_for_sessions(3);
    let [one, two] =
        ["/one", "/two"].map(|name| pool.open_file(name, &reading_and_writing()).unwrap());
    both[0].kill();
    served.wait_for_sessions(2);
    eventually(|| one.try_lock(LockKind::Write, ..).unwrap());
    assert!(!two.try_lock(LockKind::Write, ..).unwrap(), "the other one has it still");
    both[1].kill();
    served.wait_for_sessions(1);
    drop((one, two, pool));
    served.finish();
}

#[test]
fn the_end_of_the_service_is_told_to_all_who_wait() {
    let served = Served::new();
    let pool = served.attach();
    let (one, other) =
        (pool.create_file("/f").unwrap(), pool.open_file("/f", &reading_and_writing()).unwrap());
    one.lock(LockKind::Write, ..).unwrap();
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| other.lock(LockKind::Write, ..));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let Served { service, owned, .. } = &served;
        assert_eq!(service.sessions(), 1);
        owned.write("/kept", "kept").unwrap();
        end(served);
        let error = waits.join().unwrap().unwrap_err();
        // its wait ended before the service did, or with it
        let is_told = [libc::EINTR, libc::ENOTCONN].contains(&error.errno());
        assert!(is_told, "{error}");
    });
    let error = pool.read("/kept").unwrap_err();
    assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
    assert!(error.to_string().contains("attach again"), "{error}");
    assert!(!pool.info().uuid.is_empty(), "as it said before");
}

fn end(served: Served) {
    let Served { service, owned, .. } = served;
    drop(service);
    owned.close().unwrap();
}
