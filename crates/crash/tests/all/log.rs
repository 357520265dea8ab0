//! The log when it is small: full, wrapped many times, with stale records of earlier laps in it;
//! and the switch of the roots that frees it.

use crate::common::{clean, none};
use crash::catalog::find;
use crash::chain::Chain;
use crash::events::{Event, Kind};
use crash::explore::Settings;
use crash::images::Shape;
use crash::recording::{Recorder, Start, Workload, record};
use crash::select::Budget;
use crash::unfinished::unfinished;
use crash::world::{World, pattern};
use fs::NewNode;
use pmem::Domain;

const ONE: Shape = Shape { slices: 1, ..Shape::SMALL };

/// Settings for long recordings: few points, few images of each.
fn sparse(point_every: usize, seed: u64) -> Settings {
    Settings { budget: Budget::SPARSE, point_every, inner_every: 50, ..Settings::quick(seed) }
}

#[test]
fn a_checkpoint_killed_between_two_slices_roots_leaves_the_generation_before() {
    let checkpoint = find("checkpoint").unwrap();
    let recording = record(&Workload::single(Start::Logged, checkpoint)).unwrap();
    let is_root = |event: &&Event| match &event.kind {
        Kind::Store { offset: 4096 | 8192, data, .. } => data.len() == 256,
        _ => false,
    };
    let switched = recording.events[recording.first..].iter().filter(is_root).count();
    assert_eq!(switched, 2, "each slice's root is stored once, whole");
    let budget = Budget { exhaustive: 0, samples: 400 };
    let report = clean(&recording, &Settings { budget, ..Settings::quick(6) });
    assert!(report.states >= 400 + 64, "{}", report.states);
}

/// Small changes of two lanes, until the log has wrapped some times.
fn wrap(shape: Shape, records: u32) {
    let mut recorder = Recorder::new(&shape, 0).unwrap();
    recorder.begin().unwrap();
    recorder.operation("create", |w| w.file("/a", b"")).unwrap().unwrap();
    recorder.begin().unwrap();
    let before = recorder.world.fs.log_bytes_written();
    for round in 0..records {
        let offset = u64::from(round * 37 % 9000);
        let write = move |w: &World| match round % 5 {
            0 => w.write("/a", offset / 4096 * 4096, &pattern(round as u8, 4096)),
            1 => w.setxattr("/a", "user.filler", &pattern(round as u8, 3000)),
            2 => w.truncate("/a", offset),
            _ => w.write("/a", offset, &round.to_le_bytes()),
        };
        let run = move |w: &mut World| if round % 3 == 0 { w.on_thread(write) } else { write(w) };
        recorder.operation("change", run).unwrap().unwrap();
    }
    let written = recorder.world.fs.log_bytes_written() - before;
    assert!(written > 3 * shape.log_bytes * shape.slices as u64, "{written} bytes");
    clean(&recorder.finish("wrap".to_owned()), &sparse(8, 7));
}

#[test]
fn a_log_of_one_slice_that_wraps_many_times_never_takes_a_stale_record() {
    wrap(ONE, 400);
}

#[test]
fn a_log_of_two_slices_that_wraps_many_times_never_takes_a_stale_record() {
    wrap(Shape::SMALL, 700);
}

#[test]
fn a_log_of_long_lines_that_wraps_many_times_never_takes_a_stale_record() {
    wrap(Shape { slices: 1, ..Shape::LONG_LINES }, 260);
}

#[test]
fn a_full_log_makes_room_inside_a_call() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/a", b"")).unwrap();
    recorder.begin().unwrap();
    let generation = recorder.world.fs.info().generation;
    for round in 0..12u8 {
        let run = move |w: &mut World| w.setxattr("/a", "user.large", &pattern(round, 9000));
        recorder.operation("setxattr", run).unwrap().unwrap();
    }
    assert!(recorder.world.fs.info().generation > generation + 1, "checkpoints inside calls");
    clean(&recorder.finish("full log".to_owned()), &sparse(2, 8));
}

#[test]
fn a_full_pool_takes_an_unlink_and_then_a_write() {
    for shape in [ONE, Shape::SMALL] {
        let mut recorder = Recorder::new(&shape, 0).unwrap();
        let fill = |w: &mut World| {
            w.file("/keep", &pattern(1, 9000))?;
            w.file("/victim", &pattern(2, 40 * 4096))?;
            w.make("/filler", NewNode::File)?;
            (0..).try_for_each(|block| w.write("/filler", block * 4096, &pattern(3, 4096)))
        };
        let full = recorder.world.at_home(fill);
        assert!(matches!(full, Err(fs::Error::NoSpace)), "{full:?}");
        recorder.begin().unwrap();
        let append = |w: &mut World| w.write("/keep", 3 * 4096, &pattern(4, 9000));
        let result = recorder.operation("append", append).unwrap();
        assert!(matches!(result, Err(fs::Error::NoSpace)), "{result:?}");
        let overwrite = |w: &mut World| w.write("/keep", 4096, &pattern(5, 8192));
        recorder.operation("overwrite", overwrite).unwrap().unwrap();
        recorder.operation("truncate", |w| w.truncate("/keep", 5000)).unwrap().unwrap();
        recorder.operation("unlink", |w| w.unlink("/victim")).unwrap().unwrap();
        recorder.operation("checkpoint", |w| w.fs.checkpoint()).unwrap().unwrap();
        recorder.operation("write", append).unwrap().unwrap();
        recorder.operation("unlink", |w| w.unlink("/filler")).unwrap().unwrap();
        clean(&recorder.finish(format!("full pool, {} slices", shape.slices)), &sparse(1, 9));
    }
}

#[test]
fn crash_after_crash() {
    let shapes = [Shape::SMALL, ONE, Shape { slices: 3, ..ONE }, Shape::LONG_LINES];
    for (seed, shape) in (1..).zip(shapes) {
        let chain = Chain { shape, crashes: 8, ops: 5, seed };
        none(&chain.run(&chain.settings()));
    }
}

/// A copy onto a file that has some of the bytes already: a crash may leave a part of it that
/// changes something behind one that changes nothing.
#[test]
fn a_part_of_a_copy_may_change_nothing() {
    let shape = Shape { slices: 3, ..ONE };
    let chain = Chain { shape, crashes: 6, ops: 6, seed: 1_049_088_536 };
    none(&chain.run(&chain.settings()));
}

#[test]
fn what_a_killed_checkpoint_left_of_its_root_never_counts_later() {
    for domain in [Domain::CpuFlush, Domain::CpuCache, Domain::Sync] {
        let recording = unfinished(domain).unwrap();
        let report = clean(&recording, &Settings::quick(9));
        assert!(report.states >= 60, "{domain}: {}", report.states);
    }
}
