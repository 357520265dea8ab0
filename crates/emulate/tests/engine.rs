//! The real engine on a machine that is played: it waits for what the machine would take, and no
//! byte is another.
#![allow(clippy::unwrap_used)]

use emulate::Emulation;
use fs::{Creation, FileSystem, Ino, Layout, NewNode, Place, Point};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use sim::{KNOWN, parse};
use std::sync::Arc;
use std::time::{Duration, Instant};

const OWNER: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
const MIB: usize = 1 << 20;
const STRETCH: f64 = 20.0;

/// A pool of so many slices on a machine of two nodes: 100 MiB/s for one thread and for all of a
/// node.
fn pool(slices: usize, stretch: f64) -> (FileSystem, Arc<Emulation>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let format = FormatOptions {
        slices: vec![SliceSpec::default(); slices],
        slice_bytes: 32 << 20,
        virtual_nodes: Some(2),
        process: true,
        ..FormatOptions::default()
    };
    fs::format(&path, &format).unwrap();
    let mut machine = parse(KNOWN[0].1).unwrap();
    let text = KNOWN[0].1;
    let curves: Vec<&str> = text.lines().filter(|line| line.starts_with("points")).collect();
    let slow = curves
        .iter()
        .fold(text.to_owned(), |text, line| text.replace(line, "points = [[1, 100], [28, 100]]"));
    machine.clone_from(&parse(&slow).unwrap());
    let emulation = Emulation::new(machine, stretch).unwrap();
    let open = OpenOptions {
        emulated: Some(emulation.clone()),
        policy: Some(emulation.policy()),
        ..OpenOptions::default()
    };
    (FileSystem::open_pool(&path, &open).unwrap(), emulation, dir)
}

#[test]
fn accesses_wait_for_as_long_as_the_machine_would_take() {
    let workers_are_alone = |slices: usize, bandwidth: u64| {
        // patience is stretched, too: a worker that comes late on a busy machine is waited for
        let (fs, emulation, _dir) = pool(slices, STRETCH);
        let ino = fs.create(Ino::ROOT, b"file", NewNode::File, OWNER).unwrap().ino;
        fs.set_layout(ino, Layout::Stripe).unwrap();
        let file = fs.open(ino).unwrap();
        topology::assume_cpu(0);
        let data: Vec<u8> = (0..2 * MIB).map(|at| (at >> 4) as u8 ^ at as u8).collect();
        let least = Duration::from_millis(2 * 1000 / bandwidth).mul_f64(STRETCH);
        // at once, as long as it is not started
        fs.write(&file, 0, &data).unwrap();
        emulation.start();
        let began = Instant::now();
        fs.write(&file, 0, &data).unwrap();
        assert!(began.elapsed() >= least, "{slices}: {:?}", began.elapsed());
        let mut read = vec![0; data.len()];
        let began = Instant::now();
        assert_eq!(fs.read(&file, 0, &mut read).unwrap(), data.len());
        assert!(began.elapsed() >= least, "{slices}: {:?}", began.elapsed());
        assert!(read == data);
        let workers = |of: fn(&fs::WorkerStats) -> u64| {
            fs.stats().slices.iter().map(|it| of(&it.workers)).collect::<Vec<_>>()
        };
        // what is on the other node is copied there, and by its workers alone
        let half = if slices == 2 { vec![0, MIB as u64] } else { vec![0] };
        let (written, read) = (workers(|it| it.written_bytes), workers(|it| it.read_bytes));
        let are_alone = written.last() == half.last().map(|half| half * 2).as_ref() && read == half;
        emulation.stop();
        fs.close().unwrap();
        are_alone
    };
    // A caller whose worker gets no CPU in time copies the data itself, so the exact count is asked
    // of one run in five.
    for (slices, bandwidth) in [(1, 100), (2, 200)] {
        let are_alone = (0..5).any(|_| workers_are_alone(slices, bandwidth));
        assert!(are_alone, "{slices}: others copy, too");
    }
}

/// Its nodes have the CPUs of the machine, and a stretched second is longer.
#[test]
fn a_machine_has_its_own_cpus_and_time() {
    let (fs, emulation, _dir) = pool(2, 50.0);
    assert_eq!(emulation.machine().nodes, 2);
    assert_eq!(emulation.machine_time(Duration::from_secs(5)), Duration::from_millis(100));
    let ino = fs.create(Ino::ROOT, b"file", NewNode::File, OWNER).unwrap().ino;
    let file = fs.open(ino).unwrap();
    // the second node's CPUs are those from 28 on
    topology::assume_cpu(30);
    fs.set_layout(ino, Layout::Near).unwrap();
    fs.write(&file, 0, &[7; 4096]).unwrap();
    let before = fs.stats().slices[1].copied;
    emulation.start();
    let began = Instant::now();
    fs.write(&file, 0, &[9; 4096]).unwrap();
    // 4 KiB at 100 MiB/s, fifty times as long
    assert!(began.elapsed() >= Duration::from_micros(39 * 50));
    emulation.stop();
    let after = fs.stats().slices[1].copied;
    assert_eq!(after.local_written - before.local_written, 4096);
    fs.close().unwrap();
}

/// No more than is described, and what follows from it.
#[test]
fn what_is_measured_of_a_machine_is_what_is_described() {
    let (fs, emulation, _dir) = pool(2, 4.0);
    emulation.start();
    let found = fs.calibrate(Duration::from_millis(500), &mut |_, _| true).unwrap().unwrap();
    let found = found.calibration;
    emulation.stop();
    assert_eq!((found.nodes, found.cpus), (2, 56));
    let machine = emulation.machine();
    let alone = |point: &&Point| point.threads == 1;
    for point in found.points.iter().filter(alone) {
        let access = machine.access(point.kind);
        let factor = if point.place == Place::Remote { access.remote_factor } else { 1.0 };
        let most = access.local.rate(1, point.bytes) * factor * 1.01;
        assert!(point.rate <= most, "{point:?}: {most}");
    }
    // three places, two kinds, three sizes
    assert_eq!(found.points.iter().filter(alone).count(), 18);
    assert!(found.policy().is_some());
    fs.close().unwrap();
}
