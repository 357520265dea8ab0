//! Damaged and hostile images for a while: `NEARSIDE_FUZZ_SECONDS` of them (20; 60 where
//! `NEARSIDE_TESTS` is `long`), from case `NEARSIDE_FUZZ_SEED` (1) on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use fuzz::case::Corpus;
use fuzz::corpus::{Seed, requests};
use fuzz::exercise::{Stage, Terms, exercise};
use fuzz::image::{BLOCK, DEVICE_FIRST, Kind, Part, number};
use fuzz::mutate::is_map;
use fuzz::page;
use fuzz::place::{Files, Place};
use fuzz::runner::{Settings, run, scratch};
use fuzz::seal::seal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nearside-fuzz");

#[test]
fn no_image_makes_the_engine_panic_hang_or_show_what_never_was() {
    let is_long = std::env::var_os("NEARSIDE_TESTS").is_some_and(|length| length == "long");
    let settings = Settings::from_environment(PROGRAM, 1, if is_long { 60 } else { 20 }).unwrap();
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
        let terms = Terms { legal: Some(last), sound: true, kill: false, moves: true };
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
        ("exit 3".to_owned(), "died, exit status: 3", 60),
        (format!("{begin}; kill -9 $$"), "a story: the process died, signal: 9", 60),
        (
            format!("{begin}; echo fail 7 in a place; exec sleep 600"),
            "a story: fail 7 in a place",
            60,
        ),
        // Long enough for the worker to print its story first, on a busy machine too.
        (format!("{begin}; exec sleep 600"), "a story: no end after 4s", 4),
    ];
    for (script, message, case_seconds) in workers {
        // it fails in its first case, and cannot begin another
        let once = format!("#!/bin/sh\n[ $3 = 7 ] || exit 4\n{script}\n");
        std::fs::write(&program, once).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let settings = Settings {
            program: program.clone(),
            seed: 7,
            time: seconds(50),
            case_time: seconds(case_seconds),
            workers: 1,
        };
        let report = run(&settings).unwrap();
        assert_eq!(report.failures[0].0, 7, "{report}");
        assert!(report.failures[0].1.contains(message), "{report}");
    }
}

/// What the leaves of an image name: blocks on devices, blocks there that are reserved, and blocks
/// in slices; and the records that move blocks.
fn named(seed: &Seed) -> [usize; 5] {
    let image = &seed.image;
    let (mut below, mut shared, mut reserved, mut near, mut moves) = (0, 0, 0, 0, 0);
    for part in image.parts() {
        if part.kind == Kind::Record && image.number(part.slice, part.at + 24, 1) == 14 {
            moves += 1;
        }
        let entries = match part.kind {
            Kind::Leaf => page::entries(image, part.slice, part.at),
            _ => Vec::new(),
        };
        for (_, value) in entries.iter().filter(|entry| is_map(entry)) {
            for run in value[1..].chunks(8).take(usize::from(value[0])) {
                let blocks = usize::from(run[1] & 0x7F) + 1;
                match (run[7] >= 192, run[0] & 0x80 != 0, run[1] & 0x80 != 0) {
                    (false, ..) => near += blocks,
                    (true, true, _) => reserved += blocks,
                    (true, false, true) => shared += blocks,
                    (true, false, false) => below += blocks,
                }
            }
        }
    }
    [below, shared, reserved, near, moves]
}

/// The images with a capacity tier have blocks of each kind on devices, beside others in slices, in
/// the trees and in the log.
#[test]
fn canary_the_corpus_has_blocks_on_devices() {
    let scratch = scratch().unwrap();
    fuzz::worker::prepare();
    let corpus = Corpus::make(scratch.path());
    let mut sum = [0; 5];
    for seed in corpus.seeds().filter(|seed| !seed.image.devices.is_empty()) {
        let named = named(seed);
        println!("{}: {named:?}", seed.name);
        (0..5).for_each(|at| sum[at] += named[at]);
    }
    assert!(sum.iter().all(|count| *count > 10), "{sum:?}");
}

/// A number is one case: each process makes the same images.
#[test]
fn canary_the_corpus_is_the_same_in_each_process() {
    let made = || std::process::Command::new(PROGRAM).arg("corpus").output().unwrap();
    let (one, other) = (made(), made());
    assert!(one.status.success() && one.stdout.len() > 100, "{one:?}");
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text(&one), text(&other));
}

/// Each block on a device that a leaf of the image names: where its address is in its leaf's value,
/// which entry of which page that is, and where the checksum.
fn blocks_below(seed: &Seed) -> Vec<(Part, usize, usize, usize)> {
    let mut blocks = Vec::new();
    for part in seed.image.parts().into_iter().filter(|part| part.kind == Kind::Leaf) {
        let entries = page::entries(&seed.image, part.slice, part.at);
        for (at, (_, value)) in entries.iter().enumerate().filter(|(_, entry)| is_map(entry)) {
            let runs = usize::from(value[0]);
            let mut crc = 1 + 8 * runs;
            for run in value[1..].chunks(8).take(runs).filter(|run| run[0] & 0x80 == 0) {
                let addr = number(&run[2..]);
                for block in 0..=usize::from(run[1] & 0x7F) {
                    if addr >> 40 >= DEVICE_FIRST as u64 {
                        let byte = (addr as usize + block) % (1 << 40) * BLOCK;
                        blocks.push((part, at, crc, byte));
                    }
                    crc += 4;
                }
            }
        }
    }
    blocks
}

/// A bit that flipped in a block on a device is an error to who reads it; one whose checksum was
/// made to fit shows what never was, and that is noticed.
#[test]
fn canary_wrong_data_on_a_device_is_noticed() {
    let scratch = scratch().unwrap();
    fuzz::worker::prepare();
    let corpus = Corpus::make(scratch.path());
    let seed = corpus.seeds().find(|seed| seed.name == "below, all of it, closed").unwrap();
    let mut files = Files::new(&scratch.path().join("image"), 0);
    let terms = Terms { legal: Some(&seed.legal), sound: true, kill: false, moves: true };
    let (mut errors, mut lies) = (0, 0);
    for (part, entry, crc_at, byte) in blocks_below(seed) {
        let mut image = seed.image.clone();
        image.devices[0][byte + 77] ^= 4;
        files.hold(&image);
        errors += usize::from(exercise(&files, terms) == Stage::Read);
        let crc = pmem::crc32c(0, &image.devices[0][byte..byte + BLOCK]);
        let mut entries = page::entries(&image, part.slice, part.at);
        entries[entry].1[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        page::replace(&mut image, part.slice, part.at, &entries);
        seal(&mut image, &seed.image.parts());
        files.hold(&image);
        let used = std::panic::AssertUnwindSafe(|| exercise(&files, terms));
        lies += usize::from(std::panic::catch_unwind(used).is_err());
    }
    // some are those of the checkpoint before
    assert!(errors > 3 && lies > 3, "{errors} errors, {lies} lies noticed");
}
