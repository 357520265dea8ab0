//! Damaged and hostile images for a while: `NEARSIDE_FUZZ_SECONDS` of them (60), from case
//! `NEARSIDE_FUZZ_SEED` (1) on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use fuzz::case::Corpus;
use fuzz::corpus::requests;
use fuzz::exercise::{Stage, Terms, exercise};
use fuzz::place::{Files, Place};
use fuzz::runner::{Settings, run, scratch};
use fuzz::seal::seal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nearside-fuzz");

#[test]
fn no_image_makes_the_engine_panic_hang_or_show_what_never_was() {
    let settings = Settings::from_environment(PROGRAM, 1, 60).unwrap();
    let report = run(&settings).unwrap();
    print!("seed={} {report}", settings.seed);
    assert!(report.failures.is_empty(), "{} cases failed", report.failures.len());
    assert!(report.cases() > 0);
}

/// The tools see what there is: all structures of all images are found, so that sealing a whole
/// image changes nothing, and each image passes as it is.
#[test]
fn canary_an_image_that_nobody_changed_is_sealed_as_it_is_and_shows_its_last_state() {
    let scratch = scratch().unwrap();
    fuzz::worker::prepare();
    let corpus = Corpus::make(scratch.path());
    for seed in corpus.seeds() {
        let parts = seed.image.parts();
        let mut sealed = seed.image.clone();
        seal(&mut sealed, &parts);
        assert!(sealed == seed.image, "{}", seed.name);
        // a byte of any structure that is changed and sealed is another image, whole again
        for part in parts.iter().filter(|part| !seed.image.is_in_mirror(part)) {
            let mut changed = seed.image.clone();
            let byte = changed.number(part.slice, part.at + 10, 1) as u8;
            changed.put(part.slice, part.at + 10, &[byte ^ 1]);
            seal(&mut changed, &parts);
            let again = changed.clone();
            seal(&mut changed, &parts);
            assert!(changed == again && changed != seed.image, "{}: {part:?}", seed.name);
        }
        let last = &seed.legal[seed.legal.len() - 1..];
        let terms = Terms { legal: Some(last), sound: true, kill: false };
        let mut files = Files::new(&scratch.path().join("image"), 0);
        files.hold(&seed.image);
        assert_eq!(exercise(&files, terms), Stage::Whole, "{}", seed.name);
    }
}

/// Some images hold requests, in the log and in the trees, and inodes without a name.
#[test]
fn canary_the_corpus_has_requests_and_orphans() {
    let scratch = scratch().unwrap();
    let corpus = Corpus::make(scratch.path());
    let seed = corpus.seeds().find(|seed| seed.name == "requests").unwrap();
    let mut files = Files::new(&scratch.path().join("image"), 0);
    files.hold(&seed.image);
    let in_trees = files.check().unwrap().requests;
    let fs = files.take_over().unwrap();
    let done = requests().filter(|id| fs.was_done(*id)).count() as u64;
    assert!(in_trees > 10 && done > in_trees, "{done} done, {in_trees} in the trees");
    assert!(!fs.kept_orphans().is_empty());
}

/// The runner sees a worker that dies before a case or in it, one that says what failed, and one
/// that never ends.
#[test]
fn canary_a_worker_that_fails_is_a_failure_with_its_number() {
    let scratch = scratch().unwrap();
    let program = scratch.path().join("worker");
    let seconds = std::time::Duration::from_secs;
    let begin = "echo begin 7 a story";
    let workers = [
        ("exit 3".to_owned(), "died, exit status: 3"),
        (format!("{begin}; kill -9 $$"), "a story: the process died, signal: 9"),
        (format!("{begin}; echo fail 7 in a place; exec sleep 600"), "a story: fail 7 in a place"),
        (format!("{begin}; exec sleep 600"), "a story: no end after 1s"),
    ];
    for (script, message) in workers {
        // it fails in its first case, and cannot begin another
        let once = format!("#!/bin/sh\n[ $3 = 7 ] || exit 4\n{script}\n");
        std::fs::write(&program, once).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let settings = Settings {
            program: program.clone(),
            seed: 7,
            time: seconds(50),
            case_time: seconds(1),
            workers: 1,
        };
        let report = run(&settings).unwrap();
        assert_eq!(report.failures[0].0, 7, "{report}");
        assert!(report.failures[0].1.contains(message), "{report}");
    }
}
