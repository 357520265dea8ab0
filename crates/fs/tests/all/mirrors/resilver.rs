//! Files that were away, brought up to date.

use super::{BLOCK, FILE_BYTES, World, close, degraded};
use crate::common::{SOON, make, options, pattern};
use pool::FormatOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The copies are made the same while others write; then the one that was stale has everything.
#[test]
fn a_stale_file_is_brought_up_to_date_under_writers() {
    for process in [true, false] {
        let options = FormatOptions { process, data_copies: 2, ..options(2, 4 * FILE_BYTES) };
        let mut world = World::with(options);
        world.take(0);
        let fs = world.pool.start_alone();
        world.write(&fs, "without-0", 16);
        close(fs);
        world.put_back(0);
        let fs = world.pool.start();
        let stop = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    let (fs, stop) = (&fs, &stop);
                    scope.spawn(move || {
                        let file = make(fs, &format!("writer-{writer}"));
                        let mut bytes = vec![0; 60 * BLOCK];
                        let mut turn = 0;
                        while turn < 300 || !stop.load(Ordering::Relaxed) {
                            turn += 1;
                            let at = (turn * 7919 + writer * 77) as usize % (50 * BLOCK);
                            let len = [5, 800, BLOCK, 3 * BLOCK][turn as usize % 4];
                            let data = pattern(turn, len);
                            fs.write(&file, at as u64, &data).unwrap();
                            bytes[at..at + len].copy_from_slice(&data);
                        }
                        let size = fs.getattr(file.ino()).unwrap().size as usize;
                        bytes.truncate(size);
                        (format!("writer-{writer}"), bytes)
                    })
                })
                .collect();
            let began = Instant::now();
            while fs.resilvered().is_none_or(|so_far| so_far.ended.is_none()) {
                assert!(began.elapsed() < SOON, "{:?}", fs.resilvered());
                std::thread::sleep(Duration::from_millis(2));
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(fs.resilvered().unwrap().ended, Some(Ok(())));
        world.files.extend(written);
        world.verify(&fs);
        drop(fs);
        world.take(1);
        let fs = world.pool.start_alone();
        world.verify(&fs);
        close(fs);
        world.assert_only("is missing");
    }
}

/// The other file has what was not synced, too: it is the one that was open.
#[test]
fn a_file_on_another_medium_is_brought_up_to_date() {
    for moved in 0..2 {
        let options = FormatOptions { process: false, data_copies: 2, ..options(2, FILE_BYTES) };
        let mut world = World::with(options);
        let fs = world.pool.start_alone();
        world.write(&fs, "not-synced", 9);
        drop(fs);
        std::fs::copy(world.path(moved), world.away(moved)).unwrap();
        world.put_back(moved);
        let fs = world.pool.start_alone();
        assert_eq!(degraded(&fs).len(), 1, "{:?}", fs.info().notes);
        world.verify(&fs);
        close(fs);
        world.resilver();
        world.take(1 - moved);
        world.verify(&world.pool.start_alone());
    }
}

#[test]
fn who_was_not_done_when_the_pool_was_closed_is_still_stale() {
    let mut world = World::new(2);
    world.take(0);
    let fs = world.pool.start_alone();
    world.write(&fs, "without-0", 9);
    close(fs);
    world.put_back(0);
    let fs = world.pool.start_alone();
    assert_eq!(degraded(&fs).len(), 1);
    world.write(&fs, "meanwhile", 4);
    close(fs);
    world.take(1);
    let why = world.refused();
    assert!(why.contains("slice 1 is lost") || why.contains("slice 0 is lost"), "{why}");
    world.put_back(1);
    world.resilver();
    world.take(1);
    world.verify(&world.pool.start_alone());
}
