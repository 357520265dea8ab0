//! Writes that workers make for their callers, crashed at every point: what a call acknowledged is
//! there, and what it did not is there wholly or not at all.

use crate::common::clean;
use crash::arena::Arena;
use crash::explore::Settings;
use crash::images::Shape;
use crash::recording::Recorder;
use crash::select::Budget;
use crash::world::pattern;
use fs::Layout;
use pmem::Domain;

/// Blocks of a write: long enough for a worker.
const BLOCKS: usize = 17;
const BLOCK: u64 = 4096;

#[test]
fn what_workers_wrote_is_there_after_a_crash() {
    if topology::allowed_cpus().unwrap().len() < 2 {
        println!("skipped: takes two CPUs");
        return;
    }
    for (domain, layout) in [
        (Domain::CpuFlush, Layout::Node(1)),
        (Domain::CpuFlush, Layout::Stripe),
        (Domain::CpuCache, Layout::Node(1)),
    ] {
        let shape = Shape { domain, slices: 2, ..Shape::SMALL };
        let mut recorder = Recorder::new(&shape, 0).unwrap();
        let file = |world: &mut crash::world::World| {
            world.file("/f", &pattern(1, 20 * BLOCK as usize))?;
            world.fs.set_layout(world.ino("/f")?, layout)
        };
        recorder.world.at_home(file).unwrap();
        recorder.reopen_in(Arena::delegating).unwrap();
        recorder.begin().unwrap();
        for round in 0..3u64 {
            let write = move |world: &mut crash::world::World| {
                let data = pattern(2 + round as u8, BLOCKS * BLOCK as usize);
                world.write("/f", round * BLOCK, &data)
            };
            recorder.operation("write", write).unwrap().unwrap();
        }
        let slices = recorder.world.fs.stats().slices;
        let written: u64 = slices.iter().map(|slice| slice.workers.written_bytes).sum();
        let recording = recorder.finish(format!("delegated {domain:?} {layout:?}"));
        // a stripe is longer than the file: the one of this file may lie at home
        if layout == Layout::Node(1) {
            assert_eq!(written, 3 * BLOCKS as u64 * BLOCK, "{domain:?}");
        }
        let budget = Budget { exhaustive: 4096, samples: 256 };
        let report = clean(&recording, &Settings { budget, ..Settings::quick(7) });
        assert!(report.states > 300, "{domain:?} {layout:?}: {} states", report.states);
    }
}
