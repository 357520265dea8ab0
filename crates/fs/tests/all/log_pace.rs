//! A log that fills faster than checkpoints fold it.

use fs::{Creation, FileSystem, Ino, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec};

const MIB: u64 = 1 << 20;

/// Changes are slowed down before the log is full, so that hardly any waits for a whole checkpoint.
#[test]
fn hardly_any_change_waits_for_a_checkpoint() {
    // On a busy machine the checkpoint may wait for a CPU, so one round in five must hold. Without
    // the throttle one change in three waits, in every round.
    assert!((0..5).any(|_| hardly_any_waits()), "too many wait for a checkpoint");
}

fn hardly_any_waits() -> bool {
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = scratch.path().join("pool");
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 256 * MIB,
        log_bytes: Some(2 * MIB),
        process: true,
        ..FormatOptions::default()
    };
    fs::format(&dir, &options).unwrap();
    let fs = &FileSystem::open_pool(&dir, &OpenOptions::default()).unwrap();
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let attr = fs.create(Ino::ROOT, b"file", NewNode::File, by).unwrap();
    let file = &fs.open(attr.ino).unwrap();
    fs.write(file, 0, &vec![1; 64 * MIB as usize]).unwrap();
    fs.checkpoint().unwrap();
    let before = fs.stats();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..120_000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = (state >> 20) % (64 * MIB - 100);
                    fs.write(file, at, &state.to_ne_bytes().repeat(12)).unwrap();
                }
            });
        }
    });
    let after = fs.stats();
    let checkpoints = after.checkpoints - before.checkpoints;
    let waits = after.log_waits - before.log_waits;
    let delayed = after.log_delayed;
    println!("{checkpoints} checkpoints, {waits} waits, {delayed:?} delayed");
    assert!(checkpoints > 20, "the log was filled {checkpoints} times");
    assert!(delayed > before.log_delayed, "nobody was slowed down");
    waits * 5 < checkpoints
}
