//! How much of what a reader reads comes from another node, before and after each lever: by where
//! the pages lie and on which CPUs it was read, not by what the pool counts alone.
//!
//! Here nodes are virtual, and a page lies where its slice does. In guests of several nodes
//! (`scripts/guest numa`) NEARSIDE_LEVER_SLICES names a file on the memory of each: there the
//! kernel says where a page lies, and what is read at that place is what the file holds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../all/common/mod.rs"]
mod common;
mod memory;

use common::costs::costs;
use common::{TestPool, delegated, make, options, pattern};
use fs::{ExtentOn, FileSystem, Handle, Layout, NearSlice};
use memory::Memory;
use placement::{Lever, Levers, ThreadRule};
use pool::{BLOCK_BYTES, FormatOptions, OpenOptions, SliceSpec};
use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const FILE: usize = 2 << 20;
const SLICE: u64 = 32 << 20;
const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const PAGE: u64 = 4096;

/// One at a time: in a guest they have the same slices.
static ALONE: Mutex<()> = Mutex::new(());

/// The slices' files on nodes that are there, if any.
fn real_slices() -> Vec<PathBuf> {
    let named = std::env::var("NEARSIDE_LEVER_SLICES").unwrap_or_default();
    named.split_whitespace().map(PathBuf::from).collect()
}

fn pool(open: OpenOptions) -> TestPool {
    let real = real_slices();
    let slice = |path: &PathBuf| SliceSpec { path: Some(path.clone()), bytes: Some(SLICE) };
    let asked = match real.is_empty() {
        true => options(2, SLICE),
        false => FormatOptions {
            slices: real.iter().map(slice).collect(),
            force: true,
            ..FormatOptions::default()
        },
    };
    let mut pool = TestPool::with(&asked);
    pool.open = OpenOptions {
        costs: Some(costs()),
        // others keep the CPUs busy
        thread_rule: Some(ThreadRule { crowd: f32::INFINITY, ..ThreadRule::weighs(7500.0) }),
        ..open
    };
    pool
}

/// Nothing moves, and callers copy.
fn none() -> OpenOptions {
    let levers = Levers { threads: Lever::Off, data: Lever::Off };
    OpenOptions { workers: Some(0), levers, ..OpenOptions::default() }
}

/// A reader on a CPU, and a file on a slice that is not near it.
struct Far {
    cpu: u32,
    slice: NearSlice,
    file: Arc<Handle>,
    content: Vec<u8>,
}

/// All of them.
fn all_far(fs: &FileSystem, layout: Layout) -> Vec<Far> {
    let (mut all, mut nodes) = (Vec::new(), Vec::new());
    for cpu in topology::allowed_cpus().unwrap() {
        // one of each node is enough
        let near: Vec<u8> = near_slices(fs, cpu);
        if nodes.contains(&near) {
            continue;
        }
        nodes.push(near);
        for slice in fs.near_slices() {
            if slice.cpus.contains(&cpu) {
                continue;
            }
            let file = make(fs, &format!("by{cpu}-on{}", slice.slice));
            fs.set_layout(file.ino(), Layout::Node(slice.node as u16)).unwrap();
            let content = pattern(all.len() as u64, FILE);
            fs.write(&file, 0, &content).unwrap();
            fs.set_layout(file.ino(), layout).unwrap();
            all.push(Far { cpu, slice, file, content });
        }
    }
    assert!(!all.is_empty(), "one node is no machine for this");
    all
}

/// The slices near a CPU.
fn near_slices(fs: &FileSystem, cpu: u32) -> Vec<u8> {
    let its = fs.near_slices().into_iter().filter(|slice| slice.cpus.contains(&cpu));
    its.map(|slice| slice.slice).collect()
}

/// Whether a CPU is on this node, or on the nearest one that has any.
fn serves(fs: &FileSystem, node: u32, cpu: u32) -> bool {
    fs.near_slices().iter().any(|slice| slice.node == node && slice.cpus.contains(&cpu))
}

/// The node of each page of a file.
fn pages(fs: &FileSystem, far: &Far) -> Vec<u32> {
    let real = real_slices();
    let (extents, next) = fs.extents(far.file.ino(), 0, 10_000).unwrap();
    assert_eq!(next, None);
    let memory = (!real.is_empty()).then(Memory::look);
    let mut nodes = Vec::new();
    for extent in extents {
        let ExtentOn::Slice(slice) = extent.on else { panic!("{extent:?}") };
        for at in (0..extent.bytes).step_by(PAGE as usize) {
            let offset = (extent.offset + at) as usize;
            nodes.push(match &memory {
                Some(memory) => {
                    let bytes = &far.content[offset..offset + PAGE as usize];
                    let place = memory.mapped_at(&real[usize::from(slice)], extent.at + at);
                    memory.node_of(place, bytes)
                }
                None => fs.near_slices()[usize::from(slice)].node,
            });
        }
    }
    assert_eq!(nodes.len() as u64 * BLOCK_BYTES, FILE as u64);
    nodes
}

/// Reads all of a file, so many bytes in a call: the part of it that came from another node than
/// that of the CPU, before or after the call. None: it moved meanwhile.
fn read_remote(fs: &FileSystem, far: &Far, call: usize) -> Option<f64> {
    let before = pages(fs, far);
    let mut remote = 0;
    for at in (0..FILE).step_by(call) {
        let mut bytes = vec![0; call];
        let cpus = [topology::current_cpu(), {
            fs.read(&far.file, at as u64, &mut bytes).unwrap();
            topology::current_cpu()
        }];
        assert!(bytes == far.content[at..at + call]);
        let its = &before[at / PAGE as usize..][..call / PAGE as usize];
        let is_far = |node: &&u32| !cpus.iter().all(|cpu| serves(fs, **node, *cpu));
        remote += its.iter().filter(is_far).count();
    }
    (pages(fs, far) == before).then(|| remote as f64 / before.len() as f64)
}

/// Reads it again and again, until less than a twentieth comes from another node, for a whole file.
fn read_until_near(fs: &FileSystem, share: impl Fn() -> Option<f64>) -> f64 {
    let until = Instant::now() + LIMIT;
    loop {
        match share() {
            Some(share) if share < 0.05 => return share,
            share => assert!(Instant::now() < until, "{share:?}: {:?}", fs.decisions(None)),
        }
    }
}

fn say(lever: &str, far: &Far, before: f64, after: f64) {
    let (cpu, node) = (far.cpu, far.slice.node);
    println!("levers: {lever}: CPU {cpu}, node {node}: remote {before:.2}, then {after:.2}");
}

/// Without a lever, what is far stays far.
fn shares_without(layout: Layout, call: usize) -> Vec<f64> {
    let pool = pool(none());
    let fs = pool.start();
    let share = |far: &Far| {
        let _pinned = topology::Pinned::to(&[far.cpu]);
        let mut bytes = vec![0; call];
        for at in (0..20).flat_map(|_| (0..FILE).step_by(call)) {
            fs.read(&far.file, at as u64, &mut bytes).unwrap();
        }
        read_remote(&fs, far, call).unwrap()
    };
    let shares: Vec<f64> = all_far(&fs, layout).iter().map(share).collect();
    assert!(shares.iter().all(|share| *share > 0.9), "{shares:?}");
    shares
}

#[test]
fn data_goes_to_a_reader_who_stays() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = shares_without(Layout::Auto, 4096);
    let levers = Levers { threads: Lever::Off, data: Lever::On };
    let pool = pool(OpenOptions { levers, ..none() });
    let fs = pool.start();
    for (far, before) in all_far(&fs, Layout::Auto).iter().zip(before) {
        let _pinned = topology::Pinned::to(&[far.cpu]);
        let after = read_until_near(&fs, || read_remote(&fs, far, 4096));
        say("data", far, before, after);
    }
}

#[test]
fn a_thread_goes_to_data_that_stays() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = shares_without(Layout::Auto, 4096);
    let levers = Levers { threads: Lever::On, data: Lever::Off };
    let pool = pool(OpenOptions { levers, ..none() });
    let fs = pool.start();
    let all = topology::allowed_cpus().unwrap();
    for (far, before) in all_far(&fs, Layout::Auto).into_iter().zip(before) {
        topology::pin_current_thread(&[far.cpu]).unwrap();
        topology::refresh_cpu();
        topology::pin_current_thread(&all).unwrap();
        let was = pages(&fs, &far);
        let after = read_until_near(&fs, || read_remote(&fs, &far, 4096));
        assert_eq!(pages(&fs, &far), was);
        say("threads", &far, before, after);
        drop(far);
        assert_eq!(topology::allowed_cpus().unwrap(), all);
    }
}

/// The CPUs on which threads were last whose names begin so.
fn ran_on(name: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for thread in read_dir("/proc/self/task").unwrap() {
        // it may have ended meanwhile
        let Ok(stat) = read_to_string(thread.unwrap().path().join("stat")) else { continue };
        // the 39th field, of which the second may have blanks
        let (named, rest) = stat.rsplit_once(") ").unwrap();
        if named.split_once(" (").unwrap().1.starts_with(name) {
            cpus.push(rest.split(' ').nth(36).unwrap().parse().unwrap());
        }
    }
    cpus
}

#[test]
fn workers_read_for_a_reader_who_stays() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = shares_without(Layout::Auto, FILE);
    let policy = Some(delegated(placement::NO_LIMIT));
    let pool = pool(OpenOptions { workers: Some(1), policy, ..none() });
    let fs = pool.start();
    for (far, before) in all_far(&fs, Layout::Auto).iter().zip(before) {
        let _pinned = topology::Pinned::to(&[far.cpu]);
        let read = || fs.stats().slices[usize::from(far.slice.slice)].workers.read_bytes;
        // what the worker did not read the caller did
        let share = || {
            let (was, remote) = (read(), read_remote(&fs, far, FILE)?);
            let near = (read() - was) as f64 / FILE as f64;
            let ran_on = ran_on(&format!("worker {}.", far.slice.slice));
            let is_near = |cpu: &u32| serves(&fs, far.slice.node, *cpu);
            // A worker that has read nothing may not have moved to its CPU yet.
            let has_moved = near == 0.0 || ran_on.iter().all(is_near);
            assert!(ran_on.len() == 1 && has_moved, "{ran_on:?}");
            Some(remote - near)
        };
        let after = read_until_near(&fs, share);
        say("workers", far, before, after);
    }
}

/// All CPUs but the first are gone as long as this is there: in a guest they are offline, here no
/// thread of this process may run on them, as where its cpuset shrinks.
struct OneCpu(Vec<u32>);

impl OneCpu {
    fn begin() -> OneCpu {
        let all = topology::allowed_cpus().unwrap();
        let one = OneCpu(all);
        one.set(false);
        one
    }

    fn set(&self, is_there: bool) {
        if !real_slices().is_empty() {
            for cpu in &self.0[1..] {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                std::fs::write(path, if is_there { "1" } else { "0" }).unwrap();
            }
            return;
        }
        for thread in read_dir("/proc/self/task").unwrap() {
            let number = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
            let cpus = if is_there { &self.0[..] } else { &self.0[..1] };
            // it may have ended meanwhile
            let _ = topology::pin_thread(number, cpus);
        }
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// Who works until then.
type End = AtomicBool;

/// Says so when it goes.
struct EndAtLast<'e>(&'e End);

impl Drop for EndAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Readers, writers, workers, who moves threads and who moves data go on when CPUs go, and when
/// they come back.
#[test]
fn all_go_on_when_cpus_go_and_come_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let levers = Levers { threads: Lever::On, data: Lever::On };
    let policy = Some(delegated(placement::NO_LIMIT));
    let pool = pool(OpenOptions { workers: Some(1), policy, levers, ..OpenOptions::default() });
    let fs = pool.start();
    let files = all_far(&fs, Layout::Auto);
    let ends = End::default();
    let rounds: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    let go_on = |what: &str| {
        let seen: Vec<u64> = rounds.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        let until = Instant::now() + LIMIT;
        let is_behind = |(now, seen): (&AtomicU64, &u64)| now.load(Ordering::Relaxed) < seen + 5;
        while rounds.iter().zip(&seen).any(is_behind) {
            assert!(Instant::now() < until, "{what}: {rounds:?} after {seen:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|threads| {
        // also where something fails here
        let end = EndAtLast(&ends);
        let mut readers = Vec::new();
        for (far, rounds) in files.iter().zip(&rounds) {
            let (fs, ends) = (&fs, &ends);
            let reader = std::thread::Builder::new().name("reader".to_owned());
            let read = move || {
                let mut bytes = vec![0; FILE];
                while !ends.load(Ordering::Relaxed) {
                    for at in (0..FILE / 2).step_by(4096) {
                        let read = &mut bytes[at..at + 4096];
                        fs.read(&far.file, at as u64, read).unwrap();
                    }
                    fs.read(&far.file, (FILE / 2) as u64, &mut bytes[FILE / 2..]).unwrap();
                    assert!(bytes == far.content);
                    fs.write(&far.file, 0, &far.content[..FILE / 4]).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            };
            readers.push(reader.spawn_scoped(threads, read).unwrap());
        }
        go_on("with all CPUs");
        let one = OneCpu::begin();
        go_on("with one CPU");
        let cpus = [ran_on("reader"), ran_on("worker ")].concat();
        assert!(cpus.len() > files.len(), "{cpus:?}");
        // a mask, unlike a CPU that is not there, is set anew by a thread that moves just then, or
        // that has moved to this very CPU: it cannot tell that somebody else said so
        let is_told = real_slices().is_empty();
        assert!(is_told || cpus.iter().all(|cpu| *cpu == one.0[0]), "{cpus:?}");
        drop(one);
        go_on("with all CPUs again");
        drop(end);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(fs.moves().unwrap().threads_held, 0, "threads that have ended");
    println!("levers: cpus: {} files, rounds {rounds:?}", files.len());
    drop((files, fs));
    pool.assert_clean();
}
