//! Measuring what a pool's memory can do: it leaves nothing behind, and what is kept counts.

use crate::common::{TestPool, content, make, pattern};
use fs::{Calibration, FileSystem, Kind, Layout, Place, Point};
use pool::OpenOptions;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn free(fs: &FileSystem) -> Vec<u64> {
    fs.stats().slices.iter().map(|slice| slice.blocks_free).collect()
}

#[test]
fn all_kinds_are_measured_and_nothing_stays() {
    let pool = TestPool::new(2, 64 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.set_layout(file.ino(), Layout::Stripe).unwrap();
    let data = pattern(3, 3 * MIB);
    fs.write(&file, 0, &data).unwrap();
    fs.checkpoint().unwrap();
    let before = free(&fs);
    let mut told = Vec::new();
    let mut each = |done, of| {
        told.push((done, of));
        true
    };
    let measured = fs.calibrate(Duration::from_millis(100), &mut each).unwrap().unwrap();
    let found = measured.calibration;
    assert!(measured.bytes >= 2 << 20, "{}", measured.bytes);
    assert_eq!(free(&fs), before);
    assert!(content(&fs, &file) == data);
    let count = found.points.len() as u64;
    assert_eq!(told, (0..=count).map(|done| (done, count)).collect::<Vec<_>>());
    let cpus = topology::allowed_cpus().unwrap().len() as u32;
    assert_eq!((found.nodes, found.cpus), (2, cpus));
    assert!(found.points.iter().all(|point| point.rate.is_finite() && point.rate > 0.0));
    // with one CPU there is no other node to copy from
    let places = [Place::Local, Place::Remote, Place::Delegated].into_iter();
    for place in places.filter(|place| cpus > 1 || *place != Place::Remote) {
        for kind in [Kind::Read, Kind::Write] {
            let of = |it: &&Point| it.kind == kind && it.place == place && it.threads == 1;
            let sizes: Vec<u64> = found.points.iter().filter(of).map(|it| it.bytes).collect();
            assert_eq!(sizes, [4 << 10, 32 << 10, 256 << 10], "{kind:?} {place:?}");
        }
    }
    assert!(found.policy().is_some());
    // nothing is kept that was not asked for
    assert_eq!(fs.calibration(), None);
    // stopped in the middle, it gives its blocks back
    let mut each = |done, _| done < 3;
    assert_eq!(fs.calibrate(Duration::from_millis(100), &mut each).unwrap(), None);
    assert_eq!(free(&fs), before);
    fs.close().unwrap();
    drop((file, fs));
    pool.assert_clean();
}

#[test]
fn too_little_space_is_an_error() {
    let pool = TestPool::new(1, 8 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    let mut at = 0;
    while fs.write(&file, at, &[7; 64 << 10]).is_ok() {
        at += 64 << 10;
    }
    let error = fs.calibrate(Duration::from_millis(10), &mut |_, _| true).unwrap_err();
    assert_eq!(error.errno(), libc::ENOSPC);
}

#[test]
fn of_a_pool_that_must_not_change_nothing_is_measured_or_kept() {
    let mut pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    fs.keep_calibration(&measured(1, 1, 1)).unwrap();
    fs.forget_calibration().unwrap();
    assert_eq!(fs.calibration(), None);
    fs.close().unwrap();
    drop(fs);
    pool.open = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = pool.start();
    let refused = fs.calibrate(Duration::from_millis(10), &mut |_, _| true).unwrap_err();
    assert_eq!(refused.errno(), libc::EROFS);
    assert_eq!(fs.keep_calibration(&measured(1, 1, 1)).unwrap_err().errno(), libc::EROFS);
    assert_eq!(fs.forget_calibration().unwrap_err().errno(), libc::EROFS);
}

/// Writes have their peak at two threads; reads none.
fn measured(nodes: u32, cpus: u32, taken: u64) -> Calibration {
    let point = |kind, threads, rate| {
        let bytes = 256 << 10;
        Point { kind, place: Place::Local, bytes, threads, rate }
    };
    let points = vec![
        point(Kind::Read, 1, 1000.0),
        point(Kind::Write, 1, 1000.0),
        point(Kind::Write, 2, 2000.0),
        point(Kind::Write, 8, 500.0),
    ];
    Calibration { nodes, cpus, taken, points }
}

#[test]
fn what_is_kept_counts_on_a_machine_like_that() {
    let cpus = topology::allowed_cpus().unwrap().len() as u32;
    let mut pool = TestPool::new(2, 32 << 20);
    let mut files = 0;
    let mut limits = |fs: &FileSystem| {
        // workers are made when a large piece is thought about first
        files += 1;
        let file = make(fs, &format!("large {files}"));
        fs.write(&file, 0, &pattern(1, MIB)).unwrap();
        fs.stats().slices.iter().map(|slice| slice.workers.limits).collect::<Vec<_>>()
    };
    let fs = pool.start();
    fs.keep_calibration(&measured(2, cpus, 5)).unwrap();
    // it counts from the next time on
    assert_eq!(fs.calibration(), Some(measured(2, cpus, 5)));
    let none = [placement::NO_LIMIT; 2];
    if cpus > 1 {
        assert_eq!(limits(&fs), [none, none]);
    }
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start();
    assert_eq!(limits(&fs), [[placement::NO_LIMIT, 2]; 2]);
    // the newest counts, and that of another machine is said not to
    fs.keep_calibration(&measured(3, cpus, 6)).unwrap();
    fs.keep_calibration(&measured(2, cpus + 1, 7)).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start();
    assert_eq!(fs.calibration(), None);
    let said = format!("of 2 nodes and {} CPUs: not used here", cpus + 1);
    assert!(fs.info().remark.unwrap().contains(&said));
    // and that is no damage
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
    let fs = pool.start();
    // what the opener says comes first
    fs.keep_calibration(&measured(2, cpus, 8)).unwrap();
    fs.close().unwrap();
    drop(fs);
    pool.open = OpenOptions { policy: Some(crate::common::delegated(7)), ..OpenOptions::default() };
    let fs = pool.start();
    assert_eq!(limits(&fs), [[7, 7]; 2]);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}
