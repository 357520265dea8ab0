//! On a machine of several nodes, who comes over a network is served on the node of its card.

use std::time::{Duration, Instant};

use nearside::{OpenFlags, Pool};
use server::Options;

use crate::served::{SOON, Served};
use crate::two_nodes::two_nodes;

/// How often the threads of this name began to run, and the CPUs on which they may, by `/proc`.
fn threads(name: &str) -> (u64, Vec<String>) {
    let (mut runs, mut cpus) = (0, Vec::new());
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // one may have ended meanwhile
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        if field("Name:") == name {
            runs += field("voluntary_ctxt_switches:").parse::<u64>().unwrap();
            cpus.push(field("Cpus_allowed_list:"));
        }
    }
    (runs, cpus)
}

/// Makes some calls.
fn use_it(pool: &Pool, name: &str) {
    let flags = OpenFlags::new().read(true).write(true).create(true);
    let file = pool.open_file(name, &flags).unwrap();
    for at in 0..50 {
        file.write_at(&[7; 2048], at * 2048).unwrap();
        // the service's threads go to sleep
        std::thread::sleep(Duration::from_micros(500));
    }
    let mut long = vec![0; 1 << 20];
    file.write_at(&long, 1 << 20).unwrap();
    assert_eq!(file.read_at(&mut long, 1024).unwrap(), long.len());
    assert!(long[..2048].iter().all(|byte| *byte == 7));
}

#[test]
fn calls_are_served_on_the_node_of_the_card_by_which_they_come() {
    let sysfs = tempfile::tempdir().unwrap();
    let cpus = two_nodes(sysfs.path());
    if cpus[0] == cpus[1] {
        println!("skipped: this takes two CPUs");
        return;
    }
    let served =
        Served::with(Options { sysfs: Some(sysfs.path().to_owned()), ..Options::default() });
    let names = ["ns-service", "ns-service@0", "ns-service@1"];
    let runs = || names.map(|name| threads(name).0);
    for (cpu, name) in cpus.iter().zip(&names[1..]) {
        // they have just begun
        let until = Instant::now() + SOON;
        while threads(name).1 != [cpu.to_string()] {
            assert!(Instant::now() < until, "{name}: {:?}, not {cpu}", threads(name));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Makes calls until the threads of one name have woken 20 times, and says which names have. An
    // idle thread wakes now and then. On a busy machine a thread may get the next call before it
    // sleeps, so one round of calls may not be enough.
    let ran = |pool: &Pool, name: &str| {
        let (before, until) = (runs(), Instant::now() + SOON);
        loop {
            use_it(pool, name);
            let now = runs();
            let times = [0, 1, 2].map(|index: usize| now[index] - before[index]);
            if times.iter().any(|times| *times >= 20) {
                return times.map(|times| times >= 20);
            }
            assert!(Instant::now() < until, "no thread serves these calls: {times:?}");
        }
    };
    let pool = served.attach();
    assert_eq!(ran(&pool, "/by-the-card"), [false, false, true]);
    drop(pool);
    let pool = Pool::attach(served.dir()).unwrap();
    assert_eq!(ran(&pool, "/of-this-machine"), [true, false, false]);
    drop(pool);
    served.finish();
}
