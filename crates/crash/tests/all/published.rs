//! The crash bugs that were found in NOVA, NOVA-Fortis, PMFS and WineFS by Chipmunk (LeBlanc et
//! al., EuroSys '23), pattern by pattern: none of them is here.

use crate::common::{clean, none};
use crash::arena::Arena;
use crash::catalog::find;
use crash::events::{Event, Kind, Trace, apply_all};
use crash::explore::{Settings, explore};
use crash::flips::Closed;
use crash::images::{Shape, format};
use crash::model::Model;
use crash::points::points;
use crash::recording::{Recorder, Start, Workload, record};
use crash::report::Report;
use crash::requests::Asked;
use crash::rng::Rng;
use crash::select::{Budget, telling};
use crash::snapshot::Snapshot;
use crash::verify::{Depth, verify};
use crash::world::{World, pattern};
use fs::{Fallocate, NewNode, RenameMode};
use pmem::Domain;
use std::sync::Arc;
use topology::Topology;

const ONE: Shape = Shape { slices: 1, ..Shape::SMALL };

/// Each image is opened and looked at. Where `NEARSIDE_TESTS` is `long`, as `./test --all` has it,
/// each is also recovered again, used and emptied, else one of three.
fn settings(seed: u64) -> Settings {
    let is_long = std::env::var_os("NEARSIDE_TESTS").is_some_and(|length| length == "long");
    let every = if is_long { 1 } else { 3 };
    let budget = Budget { exhaustive: 4096, samples: 256 };
    let quick = Settings::quick(seed);
    Settings { budget, inner_every: 8 * every, again_every: every, use_every: every, ..quick }
}

/// Explores operations of the catalog, one after the other, from starts of all kinds.
fn sequence(names: &[&str]) -> Report {
    let mut report = Report::default();
    for start in Start::ALL {
        let ops = names.iter().map(|name| find(name).unwrap()).collect();
        let workload = Workload { start, domain: Domain::CpuFlush, ops, cpu: 0 };
        report.add(explore(&record(&workload).unwrap(), &settings(1)));
    }
    none(&report);
    report
}

/// Each of them alone.
fn each(names: &[&str]) {
    names.iter().for_each(|name| drop(sequence(&[name])));
}

/// A call and its name.
type Call = (&'static str, fn(&mut World) -> fs::Result<()>);

/// Explores calls made by hand on an empty pool of one slice.
fn by_hand(name: &str, calls: &[Call]) {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", &pattern(1, 3 * 4096 + 5))).unwrap();
    recorder.begin().unwrap();
    for (call, run) in calls {
        recorder.operation(call, *run).unwrap().unwrap();
    }
    clean(&recorder.finish(name.to_owned()), &settings(2));
}

#[test]
fn bug_1_recovery_on_a_machine_with_fewer_cpus_than_lanes() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.begin().unwrap();
    for round in 0..4u8 {
        let make = move |w: &World| w.make(&format!("/d{round}"), NewNode::Directory).map(drop);
        let run = move |w: &mut World| if round % 2 == 0 { w.on_thread(make) } else { make(w) };
        recorder.operation("mkdir", run).unwrap().unwrap();
    }
    let recording = recorder.finish("fewer cpus".to_owned());
    let mut images = 0;
    points(&recording, &mut |model, _, under| {
        for kept in telling(&model.in_flight(), 16, &mut Rng::new(1)) {
            let cpus = topology::allowed_cpus().unwrap();
            let machine = Topology::system().unwrap().restricted_to(&cpus[..1]).unwrap();
            let crashed = model.images_with(&model.changed(&kept));
            let arena = Arena::new(Domain::CpuFlush, &crashed).unwrap().in_machine(machine);
            let depth = Depth { again: true, used: true, inside: false };
            let (legal, asked) = (under.legal(&recording), Asked::default());
            verify(&arena, &legal, &asked, recording.blocks_free, depth).unwrap();
            images += 1;
        }
        true
    })
    .unwrap();
    assert!(images > 20, "{images}");
}

#[test]
fn bug_2_an_inode_whose_flush_is_missing_cannot_be_reached() {
    each(&["create", "mkdir", "symlink", "mknod", "create-unnamed", "link-unnamed"]);
}

#[test]
fn bug_3_a_log_pointer_at_a_chunks_edge() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", b"")).unwrap();
    recorder.begin().unwrap();
    // records of many lengths, so that chunks end in each way
    for round in 0..20u8 {
        let value = move |w: &mut World| {
            let name = ["user.a", "user.b"][usize::from(round % 2)];
            w.setxattr("/f", name, &pattern(round, 1100 + 64 * usize::from(round)))
        };
        recorder.operation("setxattr", value).unwrap().unwrap();
    }
    let chunks = |event: &&Event| match &event.kind {
        Kind::Store { offset, data, .. } => {
            (65536..131_072).contains(offset) && offset % 4096 == 0 && data.len() <= 64
        }
        _ => false,
    };
    let recording = recorder.finish("chunks' edges".to_owned());
    let begun = recording.events[recording.first..].iter().filter(chunks).count();
    assert!(begun >= 2, "{begun} chunks begin");
    clean(&recording, &Settings { inner_every: 32, ..settings(3) });
}

#[test]
fn bug_4_rename_never_loses_the_file() {
    each(&["rename", "rename-across", "rename-replace", "rename-replace-across", "exchange"]);
}

#[test]
fn bug_5_rename_into_another_directory_leaves_the_old_one_removable() {
    sequence(&["rename-dir-across", "rmdir"]);
    by_hand(
        "a moved directory",
        &[
            ("mkdir", |w| w.make("/a", NewNode::Directory).map(drop)),
            ("mkdir", |w| w.make("/a/b", NewNode::Directory).map(drop)),
            ("rename", |w| w.rename("/a/b", "/b", RenameMode::Replace)),
            ("rmdir", |w| w.rmdir("/a")),
        ],
    );
}

#[test]
fn bug_6_a_link_count_is_never_wrong() {
    sequence(&["link", "unlink-not-last"]);
    sequence(&["unlink-not-last", "rename-replace-linked"]);
}

/// Two handles of one file, on two lanes.
#[test]
fn bug_7_writes_through_several_handles_stay_in_order() {
    by_hand(
        "several handles",
        &[
            ("write", |w| w.write("/f", 100, &pattern(2, 5000))),
            ("write", |w| w.on_thread(|w| w.write("/f", 4000, &pattern(3, 5000)))),
            ("append", |w| w.fs.append(&*w.open("/f")?, &pattern(4, 3000)).map(drop)),
            ("append", |w| {
                w.on_thread(|w| w.fs.append(&*w.open("/f")?, &pattern(5, 100)).map(drop))
            }),
            ("write", |w| w.write("/f", 0, b"first")),
        ],
    );
}

#[test]
fn bug_8_truncation_and_reservation_through_several_handles() {
    const KEEP: Fallocate = Fallocate::Allocate { keep_size: true };
    by_hand(
        "truncation and reservation",
        &[
            ("fallocate", |w| w.fallocate("/f", KEEP, 0, 9 * 4096)),
            ("truncate", |w| w.on_thread(|w| w.truncate("/f", 4096 + 7))),
            ("write", |w| w.write("/f", 5 * 4096, &pattern(6, 6000))),
            ("fallocate", |w| w.on_thread(|w| w.fallocate("/f", KEEP, 4096, 4 * 4096))),
            ("truncate", |w| w.truncate("/f", 3 * 4096)),
            ("write", |w| w.on_thread(|w| w.write("/f", 2 * 4096, &pattern(7, 100)))),
        ],
    );
}

#[test]
fn bug_9_what_is_kept_twice_never_swaps_its_order() {
    sequence(&["unlink-last", "checkpoint"]);
    sequence(&["rmdir", "checkpoint"]);
}

/// A format that is interrupted leaves no pool, or all of it; and one superblock that is lost is
/// written again from the other, whatever a crash does to that.
#[test]
fn bug_10_what_is_kept_twice_begins_as_one() {
    let mut images = format(&ONE).unwrap();
    images[0][..512].fill(0);
    let arena = Arena::new(Domain::CpuFlush, &images).unwrap();
    let trace = Arc::new(Trace::default());
    let shown = Snapshot::of(&arena.open(Some(&trace)).unwrap()).unwrap();
    let mut model = Model::new(Domain::CpuFlush, images.clone()).unwrap();
    let mut repaired = 0;
    for (index, event) in trace.events().iter().enumerate() {
        if Model::settles(Domain::CpuFlush, &event.kind) {
            for kept in telling(&model.in_flight(), 64, &mut Rng::new(2)) {
                let open = |arena: &Arena| Snapshot::of(&arena.open(None)?);
                assert_eq!(model.with(&model.changed(&kept), open).unwrap(), shown);
                repaired += 1;
            }
        }
        model.event(index, event);
    }
    assert!(repaired > 20, "{repaired}");
    apply_all(&trace.events(), &mut images);
    assert_eq!(images[0][..512], images[0][(1 << 20) - 4096..][..512], "both are there again");
}

#[test]
fn bug_11_no_block_is_freed_twice_at_recovery() {
    let settings = Settings { inner_every: 1, ..settings(4) };
    for names in [["truncate-all", "overwrite"], ["unlink-last", "create"]] {
        for start in [Start::Logged, Start::Folded] {
            let ops = names.iter().map(|name| find(name).unwrap()).collect();
            let workload = Workload { start, domain: Domain::CpuFlush, ops, cpu: 0 };
            clean(&record(&workload).unwrap(), &settings);
        }
    }
}

#[test]
fn bug_12_what_is_kept_twice_repairs_each_damage_of_one() {
    let closed = Closed::new(&ONE).unwrap();
    let flips = closed.flip(0..512 * 8, None);
    assert_eq!(flips.violations, Vec::<String>::new());
    assert_eq!((flips.bits, flips.harmless + flips.seen), (4096, 4096));
    assert!(closed.opens_with_each_bit(0..512 * 8, None), "of the first superblock");
}

/// Its name and its inode are in the log behind no tree, and so is the truncation.
#[test]
fn bug_13_a_file_under_truncation_whose_name_is_in_the_log() {
    sequence(&["unlink-open", "close-orphan"]);
    by_hand(
        "a truncation of what is new",
        &[
            ("create", |w| w.make("/new", NewNode::File).map(drop)),
            ("write", |w| w.write("/new", 0, &pattern(8, 9000))),
            ("truncate", |w| w.truncate("/new", 4000)),
            ("rename", |w| w.rename("/new", "/f", RenameMode::Replace)),
            ("truncate", |w| w.truncate("/f", 0)),
        ],
    );
}

#[test]
fn bugs_14_and_17_a_write_that_returned_is_durable() {
    each(&["overwrite", "append", "write-inside", "write-past-end"]);
    sequence(&["overwrite-many", "append"]);
}

/// The engine has no `unsafe` of its own; what is left of a wrong length or index is a panic, which
/// each exploration would report.
#[test]
fn bug_15_remounts_after_a_crash_find_memory_in_order() {
    let recording = record(&Workload::single(Start::Logged, find("checkpoint").unwrap())).unwrap();
    let arena = Arena::new(Domain::CpuFlush, &recording.base).unwrap();
    let mut shown: Option<Snapshot> = None;
    for _ in 0..40 {
        // never closed: each open finds what the one before left open
        let state = Snapshot::of(&arena.open(None).unwrap()).unwrap();
        assert!(shown.as_ref().is_none_or(|before| *before == state));
        shown = Some(state);
    }
}

#[test]
fn bugs_16_and_18_a_write_of_any_length_keeps_its_first_and_last_line() {
    for (offset, len) in [(0, 1), (1, 7), (7, 9), (63, 2), (60, 129), (61, 64), (4090, 13)] {
        let mut recorder = Recorder::new(&ONE, 0).unwrap();
        recorder.world.at_home(|w| w.file("/f", &pattern(1, 9000))).unwrap();
        recorder.world.fs.checkpoint().unwrap();
        recorder.begin().unwrap();
        let write = move |w: &mut World| w.write("/f", offset, &pattern(9, len));
        recorder.operation("write", write).unwrap().unwrap();
        let append =
            move |w: &mut World| w.fs.append(&*w.open("/f")?, &pattern(10, len + 4096)).map(drop);
        recorder.operation("append", append).unwrap().unwrap();
        clean(&recorder.finish(format!("{len} bytes at {offset}")), &settings(5));
    }
}

#[test]
fn bug_19_directories_and_links_after_a_log_of_them() {
    sequence(&["rename-dir-across", "link", "rmdir"]);
    sequence(&["mkdir", "exchange-dirs", "unlink-not-last"]);
}

#[test]
fn bug_20_a_write_is_there_whole_or_not_at_all() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", &pattern(1, 40 * 4096))).unwrap();
    recorder.begin().unwrap();
    let write = |w: &mut World| w.write("/f", 4096 + 100, &pattern(2, 30 * 4096));
    recorder.operation("write", write).unwrap().unwrap();
    clean(&recorder.finish("a large write".to_owned()), &settings(6));
}
