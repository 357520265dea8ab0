//! Work of which it shows when a call was made twice, or not.

use std::sync::atomic::{AtomicBool, Ordering};

use client::Session;
use nearside::{OpenFlags, Pool};
use wire::{Flags, Piece, Reply, Request};

use crate::child;

/// Bytes of a line of the log.
const LINE: usize = 32;

fn line(worker: &str, count: u64) -> Vec<u8> {
    let mut line = format!("{worker:>15} {count:>15}").into_bytes();
    line.push(b'\n');
    assert_eq!(line.len(), LINE);
    line
}

/// Appends numbered lines to a file that all share; each lies where the answer says.
fn append(pool: &Pool, worker: &str, is_over: &AtomicBool) -> u64 {
    let flags = OpenFlags::new().read(true).append(true).create(true);
    let file = pool.open_file("/log", &flags).unwrap();
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) || count == 0 {
        let line = line(worker, count);
        let at = file.append(&line).unwrap();
        let mut seen = [0; LINE];
        file.read_exact_at(&mut seen, at).unwrap();
        assert_eq!(seen, line[..], "line {count} at {at}");
        count += 1;
    }
    count
}

/// Makes, links, renames and removes names: each of that fails if it is done twice.
fn names(pool: &Pool, worker: &str, is_over: &AtomicBool) -> u64 {
    let (mut count, name) = (0, |kind: &str, count: u64| format!("/{kind}-{worker}-{count}"));
    let flags = OpenFlags::new().read(true).write(true).create_new(true);
    while !is_over.load(Ordering::Relaxed) || count == 0 {
        let (made, linked, moved) = (name("m", count), name("l", count), name("r", count));
        let file = pool.open_file(&made, &flags).unwrap();
        file.write_all_at(made.as_bytes(), 0).unwrap();
        pool.hard_link(&made, &linked).unwrap();
        pool.rename(&made, &moved).unwrap();
        pool.remove_file(&linked).unwrap();
        pool.create_dir(name("d", count)).unwrap();
        pool.remove_dir(name("d", count)).unwrap();
        assert_eq!(pool.read(&moved).unwrap(), made.as_bytes());
        if count > 0 {
            pool.remove_file(name("r", count - 1)).unwrap();
        }
        count += 1;
    }
    count
}

/// Counts by transactions, each of which expects the number before: one that is made twice finds
/// another number.
fn commits(session: &Session, worker: &str, is_over: &AtomicBool) -> u64 {
    let flags = Flags { read: true, write: true, create: true, mode: 0o644, ..Flags::default() };
    let path = format!("/c-{worker}");
    let opened = session.ask(&Request::Open(path.as_bytes(), flags), &[], &mut []).unwrap();
    let (Reply::Opened(file, ..), _) = opened else { panic!("{opened:?}") };
    let first = session.ask(&Request::Write { file, offset: 0 }, &[0; 8], &mut []).unwrap();
    assert_eq!(first.0, Reply::Number(8));
    let mut count = 0u64;
    while !is_over.load(Ordering::Relaxed) || count == 0 {
        let piece = || vec![Piece { file, offset: 0, len: 8 }];
        let request = Request::Commit { staged: 0, pieces: 0, writes: piece(), expected: piece() };
        let data = [(count + 1).to_le_bytes(), count.to_le_bytes()].concat();
        let said = session.ask(&request, &data, &mut []).unwrap();
        assert_eq!(said.0, Reply::Done, "commit {count}");
        count += 1;
    }
    count
}

/// Works until it is told to stop, and says what it did.
pub fn work_if_told() {
    let role = child::role();
    let Some(worker) = role.strip_prefix("works ") else { return };
    let dir = child::pool().unwrap();
    let (pool, session) = (Pool::attach(&dir).unwrap(), Session::attach(&dir).unwrap());
    let is_over = AtomicBool::new(false);
    let counts: [u64; 3] = std::thread::scope(|threads| {
        let all = [
            threads.spawn(|| append(&pool, worker, &is_over)),
            threads.spawn(|| names(&pool, worker, &is_over)),
            threads.spawn(|| commits(&session, worker, &is_over)),
        ];
        child::say("works");
        child::wait_to_be_told();
        is_over.store(true, Ordering::Relaxed);
        all.map(|thread| thread.join().unwrap())
    });
    child::say(&counts.map(|count| count.to_string()).join(" "));
    child::wait_for_the_end();
}

/// Looks whether all that is there which a worker says that it did, and once.
pub fn verify(pool: &Pool, worker: &str, said: &str) -> u64 {
    let counts: Vec<u64> = said.split(' ').map(|word| word.parse().unwrap()).collect();
    let [lines, names, commits] = counts[..] else { panic!("{said}") };
    let log = pool.read("/log").unwrap();
    let own = |line: &&[u8]| line.starts_with(format!("{worker:>15} ").as_bytes());
    let mut next = 0;
    for seen in log.chunks(LINE).filter(own) {
        assert_eq!(seen, line(worker, next), "each is there once, in order");
        next += 1;
    }
    assert_eq!(next, lines);
    let made: Vec<String> = pool
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let mut own: Vec<&String> =
        made.iter().filter(|name| name.contains(&format!("-{worker}"))).collect();
    own.sort();
    let last = format!("r-{worker}-{}", names - 1);
    assert_eq!(own, [&format!("c-{worker}"), &last]);
    let number = pool.read(format!("/c-{worker}")).unwrap();
    assert_eq!(number, commits.to_le_bytes());
    lines + 8 * names + commits
}
