//! What two lanes do to each other: records that depend on records of another lane, and blocks that
//! are used again while the record that wrote them is still the last of its lane.

use crate::common::clean;
use crash::events::{Event, Kind};
use crash::explore::Settings;
use crash::images::Shape;
use crash::recording::Recorder;
use crash::world::{World, pattern};
use fs::{Fallocate, NewNode, RenameMode};

const ONE: Shape = Shape { slices: 1, ..Shape::SMALL };

/// Each change builds on the one before, which another lane holds.
fn dependent_records(shape: Shape) {
    let mut recorder = Recorder::new(&shape, 0).unwrap();
    recorder.begin().unwrap();
    let mut op = |name, run: fn(&mut World) -> fs::Result<()>| {
        recorder.operation(name, run).unwrap().unwrap();
    };
    op("create", |w| w.make("/a", NewNode::File).map(|_| ()));
    op("write", |w| w.on_thread(|w| w.write("/a", 0, &pattern(1, 8192))));
    op("patch", |w| w.write("/a", 100, b"patched"));
    op("rename", |w| w.on_thread(|w| w.rename("/a", "/b", RenameMode::Replace)));
    op("overwrite", |w| w.write("/b", 0, &pattern(2, 4096)));
    op("mkdir", |w| w.on_thread(|w| w.make("/d", NewNode::Directory).map(|_| ())));
    op("move", |w| w.rename("/b", "/d/b", RenameMode::Replace));
    op("link", |w| w.on_thread(|w| w.link("/d/b", "/c")));
    op("truncate", |w| w.truncate("/c", 5000));
    op("patch", |w| w.on_thread(|w| w.write("/d/b", 4500, b"again")));
    op("unlink", |w| w.unlink("/d/b"));
    op("rmdir", |w| w.on_thread(|w| w.rmdir("/d")));
    op("unlink", |w| w.unlink("/c"));
    clean(&recorder.finish("dependent records".to_owned()), &Settings::quick(3));
}

#[test]
fn dependent_records_in_two_lanes_of_one_slice() {
    dependent_records(ONE);
}

#[test]
fn dependent_records_in_lanes_of_two_slices() {
    dependent_records(Shape::SMALL);
}

/// The blocks that were stored whole: slice and byte.
fn blocks(events: &[Event]) -> Vec<(u32, u64)> {
    let block = |event: &Event| match &event.kind {
        Kind::Store { slice, offset, data, .. } if data.len() == 4096 => Some((*slice, *offset)),
        _ => None,
    };
    events.iter().filter_map(block).collect()
}

/// Lane A writes two blocks of a file and stays idle: nothing seals its record. Lane B takes one of
/// the two away, and the freed block is used again. The other block's update must survive.
fn reuse(what: &str, take: fn(&World) -> fs::Result<()>) {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", &pattern(1, 3 * 4096))).unwrap();
    recorder.world.at_home(|w| w.file("/g", &pattern(2, 4096))).unwrap();
    recorder.world.fs.checkpoint().unwrap();
    let before = recorder.events().len();
    recorder.world.at_home(|w| w.write("/f", 0, &pattern(3, 8192))).unwrap();
    let written = blocks(&recorder.events()[before..]);
    assert_eq!(written.len(), 2, "two blocks, one store each");
    let before = recorder.events().len();
    let generation = recorder.world.fs.info().generation;
    recorder.world.on_thread(take).unwrap();
    let mut rounds = 0;
    while !blocks(&recorder.events()[before..]).iter().any(|block| written.contains(block)) {
        rounds += 1;
        assert!(rounds < 40, "{what}: no block of the first record is used again");
        let overwrite = |w: &World| w.write("/g", 0, &pattern(rounds, 4096));
        (0..10).for_each(|_| recorder.world.on_thread(overwrite).unwrap());
    }
    assert_eq!(recorder.world.fs.info().generation, generation, "the record is still in the log");
    recorder.begin().unwrap();
    let last = |w: &mut World| w.on_thread(|w| w.write("/g", 4096, b"the end"));
    recorder.operation("write", last).unwrap().unwrap();
    clean(&recorder.finish(format!("reuse after {what}")), &Settings::quick(4));
}

#[test]
fn a_block_is_used_again_after_an_overwrite_under_an_unsealed_tail() {
    reuse("overwrite", |w| w.write("/f", 0, &pattern(5, 4096)));
    reuse("overwrite", |w| w.write("/f", 4096, &pattern(5, 4096)));
}

#[test]
fn a_block_is_used_again_after_a_truncation_under_an_unsealed_tail() {
    reuse("truncate", |w| w.truncate("/f", 4096));
    reuse("truncate inside", |w| w.truncate("/f", 4096 + 100));
}

#[test]
fn a_block_is_used_again_after_a_punch_under_an_unsealed_tail() {
    reuse("punch", |w| w.fallocate("/f", Fallocate::PunchHole, 0, 4096));
    reuse("punch inside", |w| w.fallocate("/f", Fallocate::PunchHole, 10, 100));
}

#[test]
fn a_block_is_used_again_after_its_file_is_gone_under_an_unsealed_tail() {
    reuse("unlink", |w| w.unlink("/f"));
    reuse("merged bytes", |w| w.write("/f", 10, &pattern(6, 1900)));
}

/// Lane A writes two blocks and stays idle: nothing seals its record. Lane B changes bytes of one
/// of them in place, so that it no longer fits lane A's checksum. Neither may be taken for torn.
#[test]
fn a_block_changes_in_place_under_an_unsealed_tail() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", &pattern(1, 8192))).unwrap();
    recorder.world.fs.checkpoint().unwrap();
    recorder.begin().unwrap();
    let mut op = |name, run: fn(&mut World) -> fs::Result<()>| {
        recorder.operation(name, run).unwrap().unwrap();
    };
    op("write", |w| w.at_home(|w| w.write("/f", 0, &pattern(2, 8192))));
    op("patch", |w| w.on_thread(|w| w.write("/f", 100, b"in place")));
    op("patch", |w| w.on_thread(|w| w.write("/f", 4090, b"in both blocks")));
    clean(&recorder.finish("in place under an unsealed tail".to_owned()), &Settings::quick(4));
}

/// The same bytes again and again, before and after a checkpoint flushed them, and the block's
/// whole content between.
#[test]
fn bytes_in_place_across_checkpoints() {
    let mut recorder = Recorder::new(&ONE, 0).unwrap();
    recorder.world.at_home(|w| w.file("/f", &pattern(1, 8192))).unwrap();
    recorder.begin().unwrap();
    let mut op = |name, run: fn(&mut World) -> fs::Result<()>| {
        recorder.operation(name, run).unwrap().unwrap();
    };
    op("patch", |w| w.write("/f", 60, b"across two lines"));
    op("patch", |w| w.write("/f", 64, b"over"));
    op("checkpoint", |w| w.fs.checkpoint());
    op("patch", |w| w.write("/f", 60, b"once more"));
    op("overwrite", |w| w.write("/f", 0, &pattern(2, 4096)));
    op("patch", |w| w.write("/f", 61, b"in a new block"));
    op("checkpoint", |w| w.fs.checkpoint());
    op("punch", |w| w.fallocate("/f", Fallocate::PunchHole, 0, 4096));
    op("patch", |w| w.write("/f", 61, b"in a hole"));
    clean(&recorder.finish("in place across checkpoints".to_owned()), &Settings::quick(4));
}
