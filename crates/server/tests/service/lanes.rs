//! Processes that write by themselves: every door agrees with every other one, whoever ends when.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearside::{File, OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};

use crate::child::{self, Running};
use crate::mortal::{Mortal, serve_if_told};
use crate::served::{Served, eventually};

fn flags() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true).mode(0o666)
}

/// The sum of bytes that are stored in lanes.
pub fn in_lanes(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir.join("lanes")) else { return 0 };
    let lanes = entries.map(|entry| entry.unwrap().path());
    let lanes = lanes.filter(|path| path.extension().is_some_and(|it| it == "lane"));
    lanes.map(|path| std::fs::read(path).unwrap().iter().filter(|byte| **byte != 0).count()).sum()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit
    }
}

/// What a file of each door was told, byte by byte.
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, at: usize, data: &[u8]) {
        if self.0.len() < at + data.len() {
            self.0.resize(at + data.len(), 0);
        }
        self.0[at..at + data.len()].copy_from_slice(data);
    }
}

/// One call after the other, each at any door: each sees all before it.
#[test]
fn all_doors_see_what_any_has_written() {
    const FILES: usize = 3;
    let served = Served::new();
    let doors = [&served.attach(), &served.attach(), &*served.owned];
    let names = ["/a", "/b", "/c"];
    let files: Vec<[File; FILES]> = doors
        .iter()
        .map(|door| names.map(|name| door.open_file(name, &flags()).unwrap()))
        .collect();
    let mut models: Vec<Model> = (0..FILES).map(|_| Model(Vec::new())).collect();
    let mut random = Random(4711);
    let mut by_lane = 0;
    for step in 0..12_000u64 {
        // one door is at it for a while, so that it gets leases
        let door = match random.below(10) {
            0 => random.below(doors.len()),
            _ => (step / 40) as usize % doors.len(),
        };
        let which = random.below(FILES);
        let (file, model) = (&files[door][which], &mut models[which]);
        let (at, seed) = (random.below(40_000), random.below(255) as u8);
        match random.below(24) {
            0..=13 => {
                let most = [32, 4096, 20_000][random.below(3)];
                let len = 1 + random.below(most);
                let at = if random.below(2) == 0 { at / 4096 * 4096 } else { at };
                let data: Vec<u8> = (0..len).map(|it| (it as u8).wrapping_mul(seed)).collect();
                file.write_all_at(&data, at as u64).unwrap();
                model.write(at, &data);
            }
            14 => {
                let len = random.below(60_000);
                file.set_len(len as u64).unwrap();
                model.0.resize(len, 0);
            }
            15 => {
                let data = [seed; 100];
                let end = file.append(&data).unwrap();
                assert_eq!(end, model.0.len() as u64, "step {step}");
                model.0.extend_from_slice(&data);
            }
            16 => {
                file.punch_hole(at as u64, 5000).unwrap();
                let end = model.0.len();
                let (from, to) = (at.min(end), (at + 5000).min(end));
                model.0[from..to].fill(0);
            }
            17 => {
                let other = (which + 1) % FILES;
                let copied = file.copy_to(0, &files[door][other], 4096, 8192).unwrap();
                let bytes = models[which].0[..copied as usize].to_vec();
                models[other].write(4096, &bytes);
            }
            18..=19 => {
                let len = doors[random.below(doors.len())].metadata(names[which]).unwrap().len();
                assert_eq!(len, model.0.len() as u64, "step {step}");
            }
            _ => {
                let mut seen = vec![1; 1 + random.below(30_000)];
                let read = file.read_at(&mut seen, at as u64).unwrap();
                let expected = &model.0[at.min(model.0.len())..];
                let expected = &expected[..expected.len().min(seen.len())];
                assert!(seen[..read] == *expected, "step {step}, door {door}, {at}");
            }
        }
        by_lane += u64::from(step % 1000 == 999 && in_lanes(&served.dir) > 0);
    }
    assert!(by_lane > 6, "lanes are used: seen {by_lane} times");
    for (name, model) in names.iter().zip(&models) {
        assert!(served.owned.read(name).unwrap() == model.0, "{name}");
    }
    drop(files);
    served.finish();
}

/// Threads of three doors write the same blocks, each all of a block: nobody sees a mixture.
#[test]
fn who_writes_the_same_at_once_leaves_one_of_it() {
    let served = Served::new();
    let doors = [&served.attach(), &served.attach(), &*served.owned];
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    served.owned.write("/f", [0; 3 * 4096]).unwrap();
    std::thread::scope(|threads| {
        for (number, door) in doors.into_iter().enumerate() {
            let (is_over, reads) = (&is_over, &reads);
            threads.spawn(move || {
                let file = door.open_file("/f", &flags()).unwrap();
                let mut random = Random(number as u64);
                let mut mine = 1u64;
                while !is_over.load(Ordering::Relaxed) {
                    let at = random.below(3) as u64 * 4096;
                    mine += 1;
                    let word = (mine << 2 | number as u64).to_le_bytes();
                    file.write_all_at(&word.repeat(512), at).unwrap();
                    let mut seen = [0; 4096];
                    file.read_exact_at(&mut seen, at).unwrap();
                    assert!(seen.chunks(8).all(|chunk| chunk == &seen[..8]), "one write's");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        eventually(|| reads.load(Ordering::Relaxed) > 100);
        is_over.store(true, Ordering::Relaxed);
    });
    served.finish();
}

const RECORD: usize = 64;

/// A record that says its number, and where it belongs.
fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

#[test]
fn what_a_killed_process_had_committed_is_there() {
    const NAME: &str = "lanes::what_a_killed_process_had_committed_is_there";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file("/f", &flags()).unwrap();
        for number in 1.. {
            file.write_all_at(&record(number), number % 1000 * RECORD as u64).unwrap();
            if number % 100 == 0 {
                child::say(&number.to_string());
            }
        }
    }
    let served = Served::new();
    for round in 1..=6 {
        let mut other = Running::start(child::command(NAME, &served.dir));
        let mut last = 0u64;
        while last < 700 * round {
            last = other.hear().parse().unwrap();
        }
        other.kill();
        served.wait_for_sessions(0);
        let bytes = served.owned.read("/f").unwrap();
        let number = |at: usize| {
            let bytes = &bytes[at * RECORD..][..RECORD];
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, record(number), "whole");
            number
        };
        // what was said is there, or what came after it in the same place
        for said in last.saturating_sub(999).max(1)..=last {
            let found = number((said % 1000) as usize);
            assert!(found >= said && found % 1000 == said % 1000, "{found} for {said}");
        }
    }
    served.finish();
}

/// Who is stopped with a lease delays nobody, and does no harm when it goes on.
#[test]
fn a_stopped_process_delays_nobody() {
    const NAME: &str = "lanes::a_stopped_process_delays_nobody";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file("/f", &flags()).unwrap();
        for number in 1..=100 {
            file.write_all_at(&record(number), 0).unwrap();
        }
        child::say("ready");
        child::wait_to_be_told();
        let mut seen = [0; RECORD];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, *record(7), "what came while it was stopped");
        file.write_all_at(&record(8), 0).unwrap();
        child::say("done");
        child::wait_for_the_end();
    }
    let served = Served::new();
    let pool = served.attach();
    let mut other = Running::start(child::command(NAME, &served.dir));
    assert_eq!(other.hear(), "ready");
    assert!(in_lanes(&served.dir) > 0, "it writes by itself");
    kill(other.id(), Signal::SIGSTOP).unwrap();
    let file = pool.open_file("/f", &flags()).unwrap();
    let mut seen = [0; RECORD];
    let since = Instant::now();
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, *record(100));
    file.write_all_at(&record(7), 0).unwrap();
    println!("read and written past a stopped process in {:?}", since.elapsed());
    kill(other.id(), Signal::SIGCONT).unwrap();
    other.tell();
    assert_eq!(other.hear(), "done");
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, *record(8));
    drop(other);
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
}

/// A service is killed, and the next one too: who writes by himself loses nothing, and no call
/// fails.
#[test]
fn nothing_committed_is_lost_with_the_service() {
    serve_if_told();
    let mut mortal = Mortal::new("lanes::nothing_committed_is_lost_with_the_service");
    let pool = mortal.attach();
    let is_over = AtomicBool::new(false);
    let numbers = [AtomicU64::new(0), AtomicU64::new(0)];
    let written = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (pool, is_over, numbers) = (&pool, &is_over, &numbers);
                threads.spawn(move || {
                    let name = format!("/{writer}");
                    let file = pool.open_file(name, &flags()).unwrap();
                    let mut number = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        number += 1;
                        let at = number % 500 * RECORD as u64;
                        file.write_all_at(&record(number), at).unwrap();
                        numbers[writer as usize].store(number, Ordering::Relaxed);
                    }
                    number
                })
            })
            .collect();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(60));
            let away = mortal.replace(&pool);
            println!("answered after {away:?}");
        }
        // The writers go on.
        eventually(|| numbers.iter().all(|number| number.load(Ordering::Relaxed) > 1000));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u64>>()
    });
    for (writer, last) in written.into_iter().enumerate() {
        let bytes = pool.read(format!("/{writer}")).unwrap();
        for number in last - 499..=last {
            let at = (number % 500) as usize * RECORD;
            assert_eq!(bytes[at..at + RECORD], record(number), "{number} of {last}");
        }
    }
    drop(pool);
    mortal.finish();
}

/// The words are the service's alone to store, and the lane is nobody else's: a process of another
/// user who opens what he was given anew gets no more than that.
#[test]
fn what_a_process_is_given_can_be_opened_for_no_more() {
    const NAME: &str = "lanes::what_a_process_is_given_can_be_opened_for_no_more";
    if let Some(dir) = child::pool() {
        nix::unistd::setgid(nix::unistd::Gid::from_raw(4321)).unwrap();
        nix::unistd::setuid(nix::unistd::Uid::from_raw(4321)).unwrap();
        let pool = Pool::attach(dir).unwrap();
        let file = pool.open_file("/f", &flags()).unwrap();
        let (mut lanes, mut words) = (0, 0);
        for number in 1..=100 {
            file.write_all_at(&record(number), 0).unwrap();
        }
        for open in std::fs::read_dir("/proc/self/fd").unwrap() {
            let link = open.unwrap().path();
            let Ok(target) = std::fs::read_link(&link) else { continue };
            let kind = target.extension().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
            let opened = std::fs::OpenOptions::new().read(true).write(true).open(&link);
            match &*kind {
                "lane" => lanes += 1,
                "words" => words += 1,
                _ => continue,
            }
            assert!(opened.is_err(), "{}", target.display());
        }
        child::say(&format!("{lanes} {words}"));
        child::wait_for_the_end();
    }
    let served = Served::new();
    served.owned.create_file("/f").unwrap();
    served.owned.set_permissions("/f", 0o666).unwrap();
    let mut other = Running::start(child::command(NAME, &served.dir));
    assert_eq!(other.hear(), "1 0", "a lane, and words that are mapped to be loaded");
    assert!(in_lanes(&served.dir) > 0);
    drop(other);
    served.wait_for_sessions(0);
    served.finish();
}
