//! Pools with two copies of everything, crashed at every point, also with a file lost in the crash.

use crate::common::none;
use crash::arena::Files;
use crash::catalog::{SYNC, catalog, find};
use crash::explore::{Settings, explore};
use crash::mended;
use crash::recording::{Recording, Start, Workload, record};
use crash::report::Report;
use crash::world::pattern;
use pmem::Domain;

fn operations(start: Start, domain: Domain, every: usize) {
    let mut report = Report::default();
    for op in catalog().into_iter().step_by(every) {
        let mut workload = Workload { domain, ..Workload::single(start, op) };
        workload.ops.extend((domain == Domain::Sync).then(|| find(SYNC).unwrap()));
        let recording = record(&workload).unwrap();
        report.add(explore(&recording, &Settings::quick(1)));
    }
    eprintln!("{}: {} states in {} workloads", start.name(), report.states, report.workloads);
    none(&report);
}

#[test]
fn every_operation_on_a_mirrored_pool() {
    operations(Start::Mirrored, Domain::CpuFlush, 1);
}

#[test]
fn every_operation_and_the_first_file_lost() {
    operations(Start::LosesFirst, Domain::CpuFlush, 1);
}

#[test]
fn every_operation_and_the_second_file_lost() {
    operations(Start::LosesSecond, Domain::CpuFlush, 1);
}

#[test]
fn operations_in_the_other_domains() {
    for domain in [Domain::Sync, Domain::CpuCache] {
        for start in [Start::Mirrored, Start::LosesFirst, Start::LosesSecond] {
            operations(start, domain, 3);
        }
    }
}

fn nothing_is_lost(recording: &Recording, files: Files) {
    let recording = Recording { files, ..recording.clone() };
    none(&explore(&recording, &Settings::quick(3)));
}

/// A crash leaves the file stale, or current; whichever it is, nothing is lost.
#[test]
fn bringing_a_file_up_to_date() {
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        let mut recorder = mended::stale(domain).unwrap();
        recorder.begin().unwrap();
        let resilver = |w: &mut crash::world::World| {
            let done = w.fs.resilver(&mut |_, _| true).unwrap();
            assert_eq!((done.ended, done.done), (Some(Ok(())), done.of));
            Ok(())
        };
        recorder.operation("resilver", resilver).unwrap().unwrap();
        let write = |w: &mut crash::world::World| w.write("/made", 9000, &pattern(8, 5000));
        recorder.operation("write", write).unwrap().unwrap();
        recorder.operation("sync", |w| w.fs.sync()).unwrap().unwrap();
        let recording = recorder.finish("resilver".to_owned());
        nothing_is_lost(&recording, Files::Stale);
        // the stale one is no loss
        nothing_is_lost(&recording, Files::Without(0));
    }
}

/// Then the other one may be lost.
#[test]
fn a_file_that_was_brought_up_to_date_or_scrubbed_has_everything() {
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        for recording in [mended::resilvered(domain).unwrap(), mended::scrubbed(domain).unwrap()] {
            for files in [Files::All, Files::Without(0), Files::Without(1)] {
                nothing_is_lost(&recording, files);
            }
        }
    }
}
