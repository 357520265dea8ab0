//! Who waits while a change is to be let in.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Creation, FileSystem, Ino, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec};

const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// While a long change is in line others begin only below half of what a checkpoint folds; it is
/// let in where there is room for all of it.
#[test]
fn others_leave_room_for_a_change_that_is_in_line() {
    let dir = tempfile::tempdir().unwrap();
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 16 << 20,
        virtual_nodes: Some(1),
        process: true,
        ..FormatOptions::default()
    };
    crate::format(dir.path(), &options).unwrap();
    let (found, _) =
        pool::candidates(dir.path(), &|path| pool::Candidate::open(path, false)).unwrap();
    let fs = FileSystem::open_candidates(found, &OpenOptions::default(), false).unwrap();
    let (core, number) = (&fs.core, std::cell::Cell::new(0));
    let checkpoints_of_a_change = |full: u64| {
        let before = core.checkpoints.load(Ordering::Relaxed);
        let units = core.dirty_max.load(Ordering::Relaxed) * full / 100;
        core.dirty_units.store(units, Ordering::Relaxed);
        number.set(number.get() + 1);
        let name = number.get().to_string();
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
        core.checkpoints.load(Ordering::Relaxed) - before
    };
    assert_eq!([30, 70, 110].map(checkpoints_of_a_change), [0, 0, 1]);
    let line = core.wait_in_line();
    assert_eq!([30, 70, 110].map(checkpoints_of_a_change), [0, 1, 1]);
    let most = core.units_max();
    core.dirty_units.store(most, Ordering::Relaxed);
    drop(core.admit(most).unwrap());
    assert_eq!(core.dirty_units.load(Ordering::Relaxed), most, "given back");
    core.dirty_units.store(most + 2, Ordering::Relaxed);
    let refused = core.admit(most).unwrap_err();
    assert!(matches!(refused, Error::Pool(ref it) if matches!(**it, pool::Error::LogFull)));
    assert!(matches!(core.admit(most + 1), Err(Error::TooLong)));
    core.dirty_units.store(0, Ordering::Relaxed);
    drop(line);
    assert_eq!(checkpoints_of_a_change(70), 0, "nobody is in line");
    core.dirty_units.store(0, Ordering::Relaxed);
}
