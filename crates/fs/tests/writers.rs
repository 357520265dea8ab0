//! The threads that write back: one for each slice, on its node.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "all/common/mod.rs"]
mod common;

use common::{TestPool, content, make, options, pattern};
use fs::{ExtentOn, FileSystem, Handle, Ino, Layout};
use parking_lot::{Condvar, Mutex, MutexGuard};
use pool::{BLOCK_BYTES, Device, FormatOptions, OpenOptions, PlainDevice, SliceSpec, Transfer};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SLICE_BYTES: u64 = 32 * MIB;
/// More than three tenths of a slice, and less than what anybody is slowed down for.
const MUCH: usize = 16 << 20;

/// They look at the threads of their process: one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Writes that wait at a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    None,
    /// The next one that comes.
    Next,
    All,
}

#[derive(Debug)]
struct State {
    holds: Holds,
    /// Writes that wait.
    held: usize,
}

/// A device on a node, which can hold writes.
#[derive(Debug)]
struct Gate {
    plain: PlainDevice,
    node: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, holds: Holds) {
        self.state.lock().holds = holds;
        self.changed.notify_all();
    }

    /// Waits until a write waits.
    fn wait(&self) {
        let mut state = self.state.lock();
        while state.held == 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Lets all go on that wait.
    fn open(&self) {
        let mut state = self.state.lock();
        (state.holds, state.held) = (Holds::None, 0);
        self.changed.notify_all();
    }
}

impl Device for Gate {
    fn bytes(&self) -> u64 {
        self.plain.bytes()
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        let mut state = self.state.lock();
        let writes = transfers.iter().any(|it| matches!(it, Transfer::Write(..)));
        if writes && state.holds != Holds::None {
            state.held += 1;
            self.changed.notify_all();
            if state.holds == Holds::Next {
                state.holds = Holds::None;
            }
            while state.held > 0 {
                self.changed.wait(&mut state);
            }
        }
        drop(state);
        self.plain.transfer(transfers)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync()
    }

    fn node(&self) -> Option<u32> {
        Some(self.node)
    }

    fn path(&self) -> String {
        format!("gate {}", self.node)
    }
}

/// A pool on so many nodes, each with a slice and a device.
fn made(nodes: usize, process: bool) -> TestPool {
    let device = SliceSpec { path: None, bytes: Some(2 * SLICE_BYTES) };
    let capacity = vec![device; nodes];
    TestPool::with(&FormatOptions { capacity, process, ..options(nodes, SLICE_BYTES) })
}

/// The devices of a pool; where a test fails, nothing waits there for ever.
struct Gates(Vec<Arc<Gate>>);

impl Drop for Gates {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| gate.open());
    }
}

fn opened(dir: &Path, nodes: usize) -> (Arc<FileSystem>, Gates) {
    let gate = |node: usize| {
        let plain = PlainDevice::open(&dir.join(format!("capacity.{node}")), false).unwrap();
        let state = Mutex::new(State { holds: Holds::None, held: 0 });
        Arc::new(Gate { plain, node: node as u32, state, changed: Condvar::new() })
    };
    let gates: Vec<Arc<Gate>> = (0..nodes).map(gate).collect();
    let devices = gates.iter().map(|gate| gate.clone() as Arc<dyn Device>).collect();
    let options = OpenOptions { devices, ..OpenOptions::default() };
    (Arc::new(FileSystem::open_pool(dir, &options).unwrap()), Gates(gates))
}

fn written(fs: &FileSystem, name: &str, layout: Layout, bytes: usize) -> (Arc<Handle>, Vec<u8>) {
    let file = make(fs, name);
    fs.set_layout(file.ino(), layout).unwrap();
    let data = pattern(bytes as u64, bytes);
    assert_eq!(fs.write(&file, 0, &data).unwrap(), bytes);
    (file, data)
}

/// Bytes of a file on each slice, and on each device.
fn lies(fs: &FileSystem, ino: Ino) -> ([u64; 4], [u64; 4]) {
    let (extents, next) = fs.extents(ino, 0, usize::MAX).unwrap();
    assert_eq!(next, None);
    let mut found = ([0; 4], [0; 4]);
    for extent in extents {
        match extent.on {
            ExtentOn::Slice(slice) => found.0[usize::from(slice)] += extent.bytes,
            ExtentOn::Device(device) => found.1[usize::from(device)] += extent.bytes,
        }
    }
    found
}

/// Waits until a file has no more than three tenths of a slice there.
fn wait_for(fs: &FileSystem, file: &Handle, slice: usize) {
    while lies(fs, file.ino()).0[slice] > SLICE_BYTES / 10 * 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The CPUs on which the threads may run that write back, by slice.
fn writers() -> Vec<(usize, Vec<u32>)> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let read = |name| std::fs::read_to_string(task.as_ref().unwrap().path().join(name));
        // threads end meanwhile
        let (Ok(name), Ok(status)) = (read("comm"), read("status")) else { continue };
        let Some(slice) = name.trim().strip_prefix("ns-writer ") else { continue };
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let parts = list.unwrap().trim().split(',').map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        });
        found.push((slice.parse().unwrap(), parts.flatten().collect()));
    }
    found.sort();
    found
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

#[test]
fn a_full_slice_is_relieved_where_the_others_are_empty() {
    let _alone = alone();
    let pool = made(4, true);
    let (fs, _gates) = opened(&pool.dir(), 4);
    let (little, _) = written(&fs, "little", Layout::Node(1), 4 * MIB as usize);
    // an eighth of the pool, and half of the slice
    let (file, data) = written(&fs, "file", Layout::Node(2), MUCH);
    wait_for(&fs, &file, 2);
    let (slices, devices) = lies(&fs, file.ino());
    let below = MUCH as u64 - slices[2];
    assert_eq!((slices, devices), ([0, 0, slices[2], 0], [0, 0, below, 0]), "to its own device");
    assert_eq!(lies(&fs, little.ino()).0, [0, 4 * MIB, 0, 0], "what has room stays");
    assert!(content(&fs, &file) == data);
}

/// Each leaf of the file has blocks of two slices, and one of their devices is stuck.
#[test]
fn a_device_that_hangs_holds_up_the_writer_of_its_slice_only() {
    let _alone = alone();
    let pool = made(2, true);
    let (fs, gates) = opened(&pool.dir(), 2);
    gates.0[0].set(Holds::All);
    let (file, data) = written(&fs, "file", Layout::Stripe, 2 * MUCH);
    gates.0[0].wait();
    wait_for(&fs, &file, 1);
    let (slices, devices) = lies(&fs, file.ino());
    assert_eq!((slices[0], devices[0]), (MUCH as u64, 0));
    gates.0[0].open();
    wait_for(&fs, &file, 0);
    assert!(content(&fs, &file) == data);
    fs.close().unwrap();
    drop((file, fs, gates));
    pool.assert_clean();
}

#[test]
fn writers_run_on_the_nodes_of_their_slices_until_the_pool_is_closed() {
    let _alone = alone();
    // the kernel forgets a thread a moment after it was joined
    let all_end = || {
        while !writers().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    all_end();
    let pool = made(3, true);
    let (fs, _gates) = opened(&pool.dir(), 3);
    let near: Vec<(usize, Vec<u32>)> =
        fs.near_slices().into_iter().map(|it| (it.slice.into(), it.cpus)).collect();
    assert_eq!(near.len(), 3);
    // they move there when they begin
    while writers() != near {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs.close().unwrap();
    all_end();
}

/// What a writer has in its hands is not in the line when a flush comes.
#[test]
fn a_flush_waits_for_what_a_writer_has_in_its_hands() {
    let _alone = alone();
    let pool = made(1, true);
    let (fs, gates) = opened(&pool.dir(), 1);
    gates.0[0].set(Holds::Next);
    let (file, _) = written(&fs, "file", Layout::Near, MUCH);
    gates.0[0].wait();
    let flush = {
        let (fs, ino) = (fs.clone(), file.ino());
        std::thread::spawn(move || {
            fs.write_back_all().unwrap();
            lies(&fs, ino)
        })
    };
    // time for one that does not wait
    std::thread::sleep(Duration::from_millis(200));
    gates.0[0].open();
    let (slices, devices) = flush.join().unwrap();
    assert_eq!((slices[0], devices[0]), (0, MUCH as u64));
}

/// Or clean copies would be left of it.
#[test]
fn who_empties_the_caches_waits_for_what_a_writer_has_in_its_hands() {
    let _alone = alone();
    let pool = made(1, true);
    let (fs, gates) = opened(&pool.dir(), 1);
    gates.0[0].set(Holds::Next);
    let (_file, _) = written(&fs, "file", Layout::Near, MUCH);
    gates.0[0].wait();
    let evict = {
        let fs = fs.clone();
        std::thread::spawn(move || fs.evict_caches())
    };
    // time for one that does not wait
    std::thread::sleep(Duration::from_millis(200));
    assert!(!evict.is_finished());
    gates.0[0].open();
    assert!(evict.join().unwrap().is_some());
}

/// Whoever reads and writes meanwhile, and whatever the writers do.
#[test]
fn what_was_written_before_a_flush_is_below_when_it_ends() {
    let _alone = alone();
    for process in [true, false] {
        let pool = made(2, process);
        let (fs, gates) = opened(&pool.dir(), 2);
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // enough to keep the writers at work
                let (file, data) = written(&fs, "busy", Layout::Stripe, MUCH + MUCH / 2);
                for round in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = (round * 37 % 96) * (MUCH / 64);
                    fs.write(&file, at as u64, &data[at..][..MUCH / 64]).unwrap();
                }
            });
            for round in 0..12 {
                let name = format!("file{round}");
                let (file, data) = written(&fs, &name, Layout::Stripe, 3 * MIB as usize);
                fs.write(&file, 5000, &data[5000..5100]).unwrap();
                std::thread::scope(|threads| {
                    let flush = threads.spawn(|| fs.write_back_all().unwrap());
                    while !flush.is_finished() {
                        // what is read is in use
                        fs.read(&file, 0, &mut [0; 64 * BLOCK_BYTES as usize]).unwrap();
                    }
                });
                let (slices, _) = lies(&fs, file.ino());
                assert_eq!(slices, [0; 4], "round {round}, process {process}");
                assert!(content(&fs, &file) == data);
                drop(file);
                fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            }
            ends.store(true, Ordering::Relaxed);
        });
        fs.close().unwrap();
        drop((fs, gates));
        pool.assert_clean();
    }
}
