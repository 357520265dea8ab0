//! Pools with a capacity tier, crashed at every point: what is on it, and what moves there.

use crate::common::none;
use crash::arena::Arena;
use crash::catalog::{Op, SYNC, catalog, find};
use crash::events::{Kind as Happened, apply_all};
use crash::explore::{Settings, explore};
use crash::images::Images;
use crash::model::Model;
use crash::moves::moves;
use crash::plan::{Job, Kind, job};
use crash::points::{Under, points};
use crash::recording::{Recording, Start, Workload, record};
use crash::report::Report;
use crash::snapshot::Snapshot;
use crash::verify::compare;
use crash::world::World;
use pmem::Domain;

fn recorded(start: Start, domain: Domain, op: Op) -> Recording {
    let mut workload = Workload { domain, ..Workload::single(start, op) };
    workload.ops.extend((domain == Domain::Sync).then(|| find(SYNC).unwrap()));
    record(&workload).unwrap()
}

fn operations(start: Start, domain: Domain, ops: impl Iterator<Item = Op>) {
    let mut report = Report::default();
    for op in ops {
        report.add(explore(&recorded(start, domain, op), &Settings::quick(1)));
    }
    let (start, workloads) = (start.name(), report.workloads);
    eprintln!("{start}, {domain}: {} states in {workloads} workloads", report.states);
    none(&report);
}

/// Which of the devices hold anything of what was stored.
fn devices_of(recording: &Recording, from: usize) -> Vec<bool> {
    let slices = Start::Tiered.shape().slices;
    let mut written = vec![false; recording.base.len() - slices];
    for event in &recording.events[from..] {
        if let Happened::Store { slice, .. } = event.kind
            && let Some(device) = (slice as usize).checked_sub(slices)
        {
            written[device] = true;
        }
    }
    written
}

#[test]
fn every_operation_on_blocks_of_the_tier() {
    operations(Start::Tiered, Domain::CpuFlush, catalog().into_iter());
}

#[test]
fn blocks_that_move_to_the_tier() {
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        operations(Start::Tiered, domain, moves().into_iter());
    }
}

#[test]
fn operations_in_the_other_domains() {
    for domain in [Domain::Sync, Domain::CpuCache] {
        operations(Start::Tiered, domain, catalog().into_iter().step_by(3));
    }
}

#[test]
fn operations_on_two_devices() {
    operations(Start::TwoDevices, Domain::CpuFlush, catalog().into_iter().step_by(3));
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        operations(Start::TwoDevices, domain, moves().into_iter().step_by(2));
    }
}

/// Blocks lie on both when the workload begins, and one move goes to both.
#[test]
fn what_lies_on_two_devices() {
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        let recording = recorded(Start::TwoDevices, domain, find("move-across").unwrap());
        let sizes: Vec<usize> = recording.base[2..].iter().map(Vec::len).collect();
        assert_eq!(sizes, [1 << 20, 3 << 19]);
        // behind their headers
        let is_used = |device: &Vec<u8>| device[4096..].iter().any(|byte| *byte != 0);
        assert!(recording.base[2..].iter().all(is_used));
        assert_eq!(devices_of(&recording, recording.first), [true, true], "{domain}");
    }
}

/// A canary: blocks move to two devices, of which one is never synced.
#[test]
fn one_device_of_two_that_is_not_synced_is_noticed() {
    for (domain, device) in [Domain::CpuFlush, Domain::Sync].map(|d| [(d, 2), (d, 3)]).concat() {
        let mut recording = recorded(Start::TwoDevices, domain, find("move-across").unwrap());
        none(&explore(&recording, &Settings::quick(1)));
        recording.events.retain_mut(|event| match &mut event.kind {
            Happened::Store { slice, streamed, .. } if *slice == device => {
                *streamed = false;
                true
            }
            Happened::Flush { slice, .. } | Happened::Sync { slice } => *slice != device,
            _ => true,
        });
        let violations = explore(&recording, &Settings::quick(1)).violations;
        assert!(!violations.is_empty(), "{domain}, {device}");
    }
}

/// Every crash may take a device with it: then the pool is refused, by the name of what is missing,
/// and is as it was once that is back. (So is each image that is recovered twice.)
#[test]
fn a_device_that_a_crash_took_is_missed_by_name() {
    for (start, devices) in [(Start::Tiered, 1), (Start::TwoDevices, 2)] {
        let recording = recorded(start, Domain::CpuFlush, find("move-across").unwrap());
        let mut refused = 0;
        let each = &mut |model: &Model, _: usize, under: Under| {
            let nothing_kept = vec![0; model.in_flight().len()];
            model.with(&model.changed(&nothing_kept), |arena| {
                assert_eq!(arena.devices(), devices);
                (0..devices).for_each(|device| arena.refused_without(device).unwrap());
                let found = Snapshot::of(&arena.open(None).unwrap()).unwrap();
                compare(&found, &under.legal(&recording)).unwrap();
            });
            refused += 1;
            true
        };
        points(&recording, each).unwrap();
        assert!(refused >= 3, "{refused}");
        // one that misses nothing is not taken for one that does
        let arena = Arena::new(recording.domain, &recording.base).unwrap();
        let message = arena.refused_without(devices).unwrap_err();
        assert!(message.contains("it can be opened"), "{message}");
    }
}

/// After a crash a device is as it was before blocks moved to it, and to places that others had
/// before: it said that it had synced, and had not. What is lost is damage, and nothing else is
/// read for it.
#[test]
fn a_device_that_a_crash_took_back_shows_nothing_old() {
    for op in ["move", "move-twice", "move-across", "move-shared"] {
        let recording = recorded(Start::TwoDevices, Domain::CpuFlush, find(op).unwrap());
        let mut images = recording.base.clone();
        apply_all(&recording.events, &mut images);
        for device in [2, 3] {
            let mut older = images.clone();
            older[device] = recording.base[device].clone();
            let read = |images: &Images| {
                let fs = Arena::new(recording.domain, images).unwrap().open(None).unwrap();
                let world = World::new(fs, 0, 0);
                let files = ["/file", "/fardir/far", "/copy", "/over", "/dir/inner"];
                files.map(|path| blocks(&world, path))
            };
            let (right, found) = (read(&images).concat(), read(&older).concat());
            assert!(right.len() == found.len() && right.iter().all(Result::is_ok));
            let is_right = |(right, found): (&Block, &Block)| found == right || found.is_err();
            assert!(right.iter().zip(&found).all(is_right), "{op}, {device}");
            let is_moved = devices_of(&recording, recording.first)[device - 2];
            assert_eq!(found.iter().any(Result::is_err), is_moved, "{op}, {device}");
        }
    }
}

type Block = Result<Vec<u8>, i32>;

/// Each block of a file, or the number of the error that it gives; none if there is no such file.
fn blocks(world: &World, path: &str) -> Vec<Block> {
    let Ok(file) = world.open(path) else { return Vec::new() };
    let size = world.fs.getattr(file.ino()).unwrap().size;
    let block = |at: u64| {
        let mut bytes = vec![0; 4096];
        let read = world.fs.read(&file, at, &mut bytes);
        read.map(|_| bytes).map_err(|error| error.errno())
    };
    (0..size).step_by(4096).map(block).collect()
}

/// By the plan's numbers, of which two of four are such.
#[test]
fn sequences_of_two() {
    let (mut report, mut with_moves) = (Report::default(), 0);
    let moves: Vec<&str> = moves().iter().map(|op| op.name).collect();
    for number in (0..SEQUENCES / 2).flat_map(|round| [4 * round + 1, 4 * round + 2]) {
        let Job::Workload(workload, settings) = job(Kind::Tiers, 1, number) else { continue };
        with_moves += u64::from(workload.ops.iter().any(|op| moves.contains(&op.name)));
        report.add(explore(&record(&workload).unwrap(), &settings));
    }
    let (states, workloads) = (report.states, report.workloads);
    eprintln!("{workloads} sequences, {with_moves} of them with moves: {states} states");
    none(&report);
    assert!(workloads == SEQUENCES && with_moves > SEQUENCES / 5, "{with_moves} of {workloads}");
}

const SEQUENCES: u64 = 80;

/// Every fourth workload of the kind, but for chains.
#[test]
fn blocks_that_move_while_others_change() {
    let (mut report, mut pairs, mut moved) = (Report::default(), 0, 0);
    for number in (0..48).map(|round| 4 * round + 3) {
        let Job::Pair(pair, settings) = job(Kind::Tiers, 1, number) else { continue };
        let recording = pair.record().unwrap();
        pairs += 1;
        moved += u32::from(devices_of(&recording, recording.first).contains(&true));
        report.add(explore(&recording, &settings));
    }
    eprintln!("{pairs} pairs, {moved} of them with moves: {} states", report.states);
    none(&report);
    // a few find nothing to be moved
    assert!(pairs > 30 && moved > pairs * 2 / 3, "{moved} of {pairs}");
}
