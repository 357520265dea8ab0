//! Threads that go to their data, and data that goes to its readers, by what accesses take.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "all/common/mod.rs"]
mod common;

use common::costs::costs;
use common::{TestPool, content, find, make, pattern};
use fs::{ExtentOn, FileSystem, Handle, Ino, Layout, Moving, NewNode, Outcome};
use placement::{Lever, Levers, ThreadRule};
use pool::{BLOCK_BYTES, OpenOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(120);

/// A pool on two virtual nodes, with what they say of its levers.
fn pool(threads: Lever, data: Lever) -> TestPool {
    let mut pool = TestPool::new(2, 64 << 20);
    pool.open = OpenOptions {
        workers: Some(0),
        costs: Some(costs()),
        // other tests keep the CPUs busy
        thread_rule: Some(ThreadRule { crowd: f32::INFINITY, ..ThreadRule::weighs(7500.0) }),
        levers: Levers { threads, data },
        ..OpenOptions::default()
    };
    pool
}

/// A file on the slice that is not near these CPUs.
fn far(fs: &FileSystem, cpus: &[u32], name: &str) -> (Arc<Handle>, u8) {
    let near = fs.near_slices();
    let is_far = |slice: &&fs::NearSlice| !slice.cpus.iter().any(|cpu| cpus.contains(cpu));
    let slice = near.iter().find(is_far).unwrap().slice;
    let file = make(fs, name);
    fs.set_layout(file.ino(), Layout::Node(u16::from(slice))).unwrap();
    fs.write(&file, 0, &pattern(1, 4 * MIB)).unwrap();
    (file, slice)
}

fn bytes_on(fs: &FileSystem, file: &Handle, slice: u8) -> u64 {
    let (extents, next) = fs.extents(file.ino(), 0, 10_000).unwrap();
    assert_eq!(next, None);
    let on = extents.iter().filter(|it| it.on == ExtentOn::Slice(slice));
    on.map(|it| it.bytes).sum()
}

/// Reads all of a file in blocks, one after the other, until it is enough.
fn read_until(fs: &FileSystem, file: &Handle, what: &str, is_enough: impl Fn() -> bool) {
    let (until, mut block) = (Instant::now() + LIMIT, [0; 4096]);
    while !is_enough() {
        for at in (0..4 * MIB as u64).step_by(4096) {
            fs.read(file, at, &mut block).unwrap();
        }
        assert!(Instant::now() < until, "{what}: {:?} {:?}", fs.moves(), fs.decisions(None));
    }
}

/// Reads it so often.
fn read_times(fs: &FileSystem, file: &Handle, times: u32) {
    let rounds = std::cell::Cell::new(0);
    read_until(fs, file, "a few times", || {
        rounds.set(rounds.get() + 1);
        rounds.get() > times
    });
}

#[test]
fn data_goes_to_who_reads_it_and_stays_there_when_it_is_written_anew() {
    let cpu = topology::allowed_cpus().unwrap()[0];
    let mut pool = pool(Lever::Off, Lever::On);
    let fs = pool.start();
    let _pinned = topology::Pinned::to(&[cpu]);
    let (file, slice) = far(&fs, &[cpu], "file");
    // where somebody said where it is to be, it stays
    read_times(&fs, &file, 100);
    assert_eq!(bytes_on(&fs, &file, slice), 4 * MIB as u64);
    assert_eq!(fs.decisions(None), []);
    fs.set_layout(file.ino(), Layout::Auto).unwrap();
    read_until(&fs, &file, "it moves", || bytes_on(&fs, &file, slice) == 0);
    assert_eq!(fs.moves().unwrap().data, 8, "leaves of 512 KiB");
    let arrived = fs.stats().slices[usize::from(1 - slice)].arrived_bytes;
    assert_eq!(arrived, 4 * MIB as u64);
    for decided in fs.decisions(Some(file.ino())) {
        assert_eq!((decided.from, decided.to, decided.outcome), (slice, 1 - slice, Outcome::Moved));
        assert!(matches!(decided.moving, Moving::Data { bytes: 524_288, .. }), "{decided:?}");
        assert!(decided.gain_ns >= 0.0 && decided.costs_ns > 1e4, "{decided:?}");
    }
    assert_eq!(fs.decisions(Some(fs::Ino::ROOT)), []);
    fs.write(&file, MIB as u64, &pattern(2, MIB)).unwrap();
    assert_eq!(bytes_on(&fs, &file, slice), 0);
    drop(file);
    let fs = pool.killed(fs);
    let file = find(&fs, "file");
    let bytes = content(&fs, &file);
    assert!(bytes[..MIB] == pattern(1, 4 * MIB)[..MIB] && bytes[MIB..2 * MIB] == pattern(2, MIB));
    assert_eq!(bytes_on(&fs, &file, slice), 0);
}

#[test]
fn a_lever_that_only_reports_moves_nothing_and_one_that_is_off_says_nothing() {
    let cpu = topology::allowed_cpus().unwrap()[0];
    for lever in [Lever::Report, Lever::Off] {
        let pool = pool(lever, lever);
        let fs = pool.start();
        let _pinned = topology::Pinned::to(&[cpu]);
        let (file, slice) = far(&fs, &[cpu], "file");
        fs.set_layout(file.ino(), Layout::Auto).unwrap();
        if lever == Lever::Report {
            let all = || fs.decisions(Some(file.ino()));
            let is_data = |it: &fs::Decided| it.moving != Moving::Thread;
            read_until(&fs, &file, "it is told", || {
                all().iter().any(is_data) && !all().iter().all(is_data)
            });
            for it in all() {
                let from = if is_data(&it) { slice } else { 1 - slice };
                assert_eq!((it.outcome, it.from), (Outcome::Reported, from), "{it:?}");
            }
            let moves = fs.moves().unwrap();
            assert_eq!((moves.threads, moves.data, moves.threads_held), (0, 0, 0));
        } else {
            read_times(&fs, &file, 100);
            assert_eq!((fs.moves(), fs.decisions(None)), (None, Vec::new()));
        }
        assert_eq!(bytes_on(&fs, &file, slice), 4 * MIB as u64);
    }
}

#[test]
fn who_writes_makes_all_forgotten() {
    let cpu = topology::allowed_cpus().unwrap()[0];
    let pool = pool(Lever::Off, Lever::Report);
    let fs = pool.start();
    let _pinned = topology::Pinned::to(&[cpu]);
    let (file, slice) = far(&fs, &[cpu], "file");
    fs.set_layout(file.ino(), Layout::Auto).unwrap();
    let heat = || fs.heat(file.ino(), 0).unwrap().0;
    read_until(&fs, &file, "it is hot", || heat().len() == 8);
    assert!(heat().iter().all(|it| it.slice == 1 - slice && it.lost_ns > 0.0), "{:?}", heat());
    fs.write(&file, 0, &pattern(2, 4096)).unwrap();
    fs.write(&file, 600 << 10, &pattern(2, 1000)).unwrap();
    let offsets: Vec<u64> = heat().iter().map(|it| it.offset / 524_288).collect();
    assert_eq!(offsets, [2, 3, 4, 5, 6, 7]);
    assert_eq!(fs.heat(file.ino(), 7 * 524_288 + 1).unwrap().0.len(), 1);
}

#[test]
fn a_thread_goes_to_its_data_and_is_let_go_when_it_closes_it() {
    let all = topology::allowed_cpus().unwrap();
    let pool = pool(Lever::On, Lever::Off);
    let fs = pool.start();
    let cpus = |slice: u8| fs.near_slices()[usize::from(slice)].cpus.clone();
    let allowed = || topology::allowed_cpus().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // it begins on the first CPU, and may run on all
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, slice) = far(&fs, &all[..1], "file");
            topology::pin_current_thread(&all).unwrap();
            read_until(&fs, &file, "it goes", || allowed() == cpus(slice));
            let moves = fs.moves().unwrap();
            assert_eq!((moves.threads, moves.threads_held, moves.data), (1, 1, 0));
            let decided = fs.decisions(None)[0];
            assert_eq!((decided.to, decided.moving), (slice, Moving::Thread));
            let (other, _) = far(&fs, &all[..1], "other");
            drop(other);
            assert_eq!(allowed(), cpus(slice), "it went for another file");
            drop(file);
            assert_eq!((allowed(), fs.moves().unwrap().threads_held), (all.clone(), 0));
        });
    });
    assert_eq!(bytes_on(&fs, &find(&fs, "file"), 0) % BLOCK_BYTES, 0);
}

/// Nobody goes where its program does not let it, and what the program says later stays.
#[test]
fn a_thread_stays_within_what_its_program_lets_it() {
    let all = topology::allowed_cpus().unwrap();
    let pool = pool(Lever::On, Lever::Off);
    let fs = pool.start();
    let allowed = || topology::allowed_cpus().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, _) = far(&fs, &all[..1], "file");
            read_until(&fs, &file, "it cannot go", || !fs.decisions(None).is_empty());
            assert!(fs.decisions(None).iter().all(|it| it.outcome == Outcome::Refused));
            assert_eq!((allowed(), fs.moves().unwrap().threads), (all[..1].to_vec(), 0));
            topology::pin_current_thread(&all).unwrap();
            read_until(&fs, &file, "it goes", || fs.moves().unwrap().threads_held == 1);
            topology::pin_current_thread(&all[..1]).unwrap();
            drop(file);
            assert_eq!((allowed(), fs.moves().unwrap().threads_held), (all[..1].to_vec(), 0));
        });
    });
}

#[test]
fn who_closes_the_pool_lets_all_threads_go() {
    let all = topology::allowed_cpus().unwrap();
    let pool = pool(Lever::On, Lever::Off);
    let fs = pool.start();
    let (held, ends) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, _) = far(&fs, &all[..1], "file");
            topology::pin_current_thread(&all).unwrap();
            read_until(&fs, &file, "it goes", || fs.moves().unwrap().threads_held == 1);
            held.wait();
            ends.wait();
            assert_eq!(topology::allowed_cpus().unwrap(), all);
        });
        held.wait();
        fs.close().unwrap();
        ends.wait();
    });
}

/// Where CPUs have enough to do nobody goes.
#[test]
fn nobody_goes_where_there_is_no_room() {
    let all = topology::allowed_cpus().unwrap();
    let mut pool = pool(Lever::On, Lever::Off);
    pool.open.thread_rule = Some(ThreadRule { crowd: 0.5, ..ThreadRule::weighs(7500.0) });
    let fs = pool.start();
    let near = topology::Pinned::to(&all[..1]);
    let (file, _) = far(&fs, &all[..1], "file");
    drop(near);
    read_times(&fs, &file, 50);
    assert_eq!(fs.moves().unwrap().threads, 0);
    assert_eq!(topology::allowed_cpus().unwrap(), all);
}

thread_local! {
    static KEPT: std::cell::RefCell<Option<Arc<Handle>>> = const { std::cell::RefCell::new(None) };
}

/// A thread that ends with a file of its own still open, which is closed when nothing of the thread
/// is there any more; and files that others close.
#[test]
fn files_that_are_closed_late_or_by_others_let_threads_go() {
    let all = topology::allowed_cpus().unwrap();
    let pool = pool(Lever::On, Lever::Off);
    let fs = pool.start();
    std::thread::scope(|threads| {
        let ended = threads.spawn(|| {
            KEPT.with_borrow(|kept| assert!(kept.is_none()));
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, _) = far(&fs, &all[..1], "kept");
            topology::pin_current_thread(&all).unwrap();
            KEPT.set(Some(file.clone()));
            read_until(&fs, &file, "it goes", || fs.moves().unwrap().threads_held == 1);
        });
        ended.join().unwrap();
    });
    assert_eq!(fs.moves().unwrap().threads_held, 0);
    let (held, closed) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    std::thread::scope(|threads| {
        let (fs, all) = (&fs, &all);
        let (give, until) = (held.0, closed.1);
        threads.spawn(move || {
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, _) = far(fs, &all[..1], "given");
            topology::pin_current_thread(all).unwrap();
            read_until(fs, &file, "it goes", || fs.moves().unwrap().threads_held == 1);
            give.send(file).unwrap();
            until.recv_timeout(LIMIT).unwrap();
            assert_eq!(&topology::allowed_cpus().unwrap(), all);
        });
        drop(held.1.recv_timeout(LIMIT).unwrap());
        assert_eq!(fs.moves().unwrap().threads_held, 0);
        closed.0.send(()).unwrap();
    });
}

/// What is said of a file, and at the root of the whole pool, is there after a kill, and nothing
/// moves further than both let it.
#[test]
fn a_file_and_the_pool_withhold_levers() {
    let cpu = topology::allowed_cpus().unwrap()[0];
    let mut pool = pool(Lever::Off, Lever::On);
    let data = |data| Levers { data, ..Levers::ALL };
    let fs = pool.start();
    let pinned = topology::Pinned::to(&[cpu]);
    let (file, slice) = far(&fs, &[cpu], "file");
    fs.set_layout(file.ino(), Layout::Auto).unwrap();
    let stays = |fs: &FileSystem, file: &Handle| {
        read_times(fs, file, 100);
        assert_eq!(bytes_on(fs, file, slice), 4 * MIB as u64);
        fs.decisions(Some(file.ino()))
    };
    fs.set_levers(file.ino(), data(Lever::Off)).unwrap();
    assert_eq!(stays(&fs, &file), []);
    assert_eq!(fs.heat(file.ino(), 0).unwrap().0, []);
    fs.set_levers(Ino::ROOT, data(Lever::Off)).unwrap();
    fs.set_levers(file.ino(), Levers::ALL).unwrap();
    assert_eq!(stays(&fs, &file), []);
    drop((file, pinned));
    let fs = pool.killed(fs);
    let _pinned = topology::Pinned::to(&[cpu]);
    let file = find(&fs, "file");
    assert_eq!(fs.levers(Ino::ROOT).unwrap(), data(Lever::Off));
    assert_eq!(stays(&fs, &file), []);
    fs.set_levers(Ino::ROOT, data(Lever::Report)).unwrap();
    read_until(&fs, &file, "it is told", || !fs.decisions(Some(file.ino())).is_empty());
    assert!(stays(&fs, &file).iter().all(|it| it.outcome == Outcome::Reported));
    fs.set_levers(Ino::ROOT, Levers::ALL).unwrap();
    read_until(&fs, &file, "it moves", || bytes_on(&fs, &file, slice) == 0);
}

#[test]
fn what_a_directory_withholds_what_is_made_in_it_begins_with() {
    let pool = pool(Lever::Off, Lever::Off);
    let fs = pool.start();
    let off = Levers { threads: Lever::Report, data: Lever::Off };
    let made = |parent, name: &[u8], node| fs.create(parent, name, node, common::BY).unwrap().ino;
    let dir = made(Ino::ROOT, b"dir", NewNode::Directory);
    fs.set_levers(dir, off).unwrap();
    fs.set_layout(dir, Layout::Near).unwrap();
    let below = made(dir, b"below", NewNode::Directory);
    let file = made(below, b"file", NewNode::File);
    assert_eq!((fs.levers(file).unwrap(), fs.layout(file).unwrap()), (off, Layout::Near));
    // the whole pool's are no file's
    fs.set_levers(Ino::ROOT, off).unwrap();
    let file = made(Ino::ROOT, b"file", NewNode::File);
    assert_eq!(fs.levers(file).unwrap(), Levers::ALL);
    let link = made(Ino::ROOT, b"link", NewNode::Symlink(b"file"));
    assert!(fs.set_levers(link, off).is_err(), "it has no data");
}

/// A thread stays where a file withholds that, and goes when it no longer does.
#[test]
fn a_thread_goes_only_where_the_file_lets_it() {
    let all = topology::allowed_cpus().unwrap();
    let pool = pool(Lever::On, Lever::Off);
    let fs = pool.start();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            topology::pin_current_thread(&all[..1]).unwrap();
            let (file, _) = far(&fs, &all[..1], "file");
            let threads = |threads| Levers { threads, ..Levers::ALL };
            fs.set_levers(file.ino(), threads(Lever::Off)).unwrap();
            read_times(&fs, &file, 50);
            topology::pin_current_thread(&all).unwrap();
            assert_eq!((fs.moves().unwrap().threads, fs.decisions(None)), (0, Vec::new()));
            fs.set_levers(file.ino(), threads(Lever::On)).unwrap();
            topology::pin_current_thread(&all[..1]).unwrap();
            topology::pin_current_thread(&all).unwrap();
            read_until(&fs, &file, "it goes", || fs.moves().unwrap().threads_held == 1);
        });
    });
}
