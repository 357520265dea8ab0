//! Copies that are damaged, and what mends them.

use super::{BLOCK, World, close};
use crate::common::{find, make, pattern};
use fs::FileSystem;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Blocks of a file's data, as places in the files of the pool: the first copy and the mirror.
fn places(world: &World, data: &[u8]) -> [(usize, u64); 2] {
    let mut found = Vec::new();
    for slice in 0..2 {
        let bytes = std::fs::read(world.path(slice)).unwrap();
        let at = (0..bytes.len()).step_by(BLOCK).find(|at| bytes[*at..at + BLOCK] == *data);
        found.extend(at.map(|at| (slice, at as u64)));
    }
    found.sort_by_key(|(_, at)| *at);
    found.try_into().unwrap()
}

fn flip(world: &World, (slice, at): (usize, u64)) {
    let file = File::options().read(true).write(true).open(world.path(slice)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at + 77).unwrap();
    file.write_all_at(&[byte[0] ^ 16], at + 77).unwrap();
}

#[test]
fn a_damaged_block_is_read_from_the_other_copy_and_scrub_writes_it_again() {
    for damaged in 0..2 {
        let (mut world, places) = with_data();
        flip(&world, places[damaged]);
        let report = world.pool.check();
        let which = ["the first copy is damaged", "its mirror is damaged"][damaged];
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        assert!(report.findings[0].what.contains(which), "{:?}", report.findings);
        let fs = world.pool.start_alone();
        world.verify(&fs);
        world.verify(&fs);
        let told = fs.info().notes.iter().any(|note| note.contains("read from its mirror"));
        assert_eq!(told, damaged == 0, "{:?}", fs.info().notes);
        // stores into the block go to both, damaged or not
        fs.write(&find(&fs, "data"), 9, b"in place").unwrap();
        world.files.get_mut("data").unwrap()[9..17].copy_from_slice(b"in place");
        world.verify(&fs);
        let scrubbed = fs.scrub(None, &mut |_, _| true).unwrap().unwrap();
        assert!(scrubbed.findings.is_empty(), "{:?}", scrubbed.findings);
        assert_eq!(scrubbed.repaired.len(), 1, "{:?}", scrubbed.repaired);
        assert!(scrubbed.repaired[0].contains(which));
        let again = fs.scrub(None, &mut |_, _| true).unwrap().unwrap();
        assert!(again.repaired.is_empty() && again.findings.is_empty());
        close(fs);
        world.pool.assert_clean();
        assert!(world.halves(0)[0] == world.halves(1)[1]);
        assert!(world.halves(1)[0] == world.halves(0)[1]);
        for place in places {
            flip(&world, place);
        }
        let fs = world.pool.start_alone();
        let error = fs.read(&find(&fs, "data"), 0, &mut [0; BLOCK]).unwrap_err();
        assert_eq!(error.errno(), libc::EIO);
    }
}

/// Flips a bit in every page of the trees that is there, in the first copies or in the mirrors.
fn flip_pages(world: &World, mirrors: bool) -> usize {
    let mut flipped = 0;
    for slice in 0..2 {
        for (at, block) in world.halves(slice)[usize::from(mirrors)].chunks(BLOCK).enumerate() {
            if block.starts_with(b"NSTP") {
                let from = if mirrors { super::SLICE_BYTES } else { 0 };
                flip(world, (slice, (from + at * BLOCK) as u64));
                flipped += 1;
            }
        }
    }
    flipped
}

#[test]
fn every_page_of_the_trees_may_be_damaged_in_one_copy() {
    for mirrors in [false, true] {
        let world = World::new(2);
        assert!(flip_pages(&world, mirrors) >= 4);
        let fs = world.pool.start_alone();
        world.verify(&fs);
        let scrubbed = fs.scrub(None, &mut |_, _| true).unwrap().unwrap();
        assert!(scrubbed.findings.is_empty(), "{:?}", scrubbed.findings);
        close(fs);
        world.pool.assert_clean();
        let fs = world.pool.start_alone();
        world.verify(&fs);
        assert!(fs.info().notes.is_empty(), "{:?}", fs.info().notes);
    }
}

#[test]
fn a_repair_takes_what_either_copy_has_and_can_be_undone() {
    for away in [None, Some(0), Some(1)] {
        let mut world = World::new(2);
        let (data, other) = (pattern(99, BLOCK), pattern(98, BLOCK));
        let fs = world.pool.start_alone();
        fs.write(&make(&fs, "data"), 0, &data).unwrap();
        fs.write(&make(&fs, "other"), 0, &other).unwrap();
        close(fs);
        world.files.insert("data".into(), data.clone());
        world.files.insert("other".into(), other.clone());
        if away.is_none() {
            flip(&world, places(&world, &data)[0]);
            flip(&world, places(&world, &other)[1]);
        }
        // roots and states of no use, in one copy
        for block in [1, 2, 3] {
            flip(&world, (away.map_or(0, |away| 1 - away), block * BLOCK as u64));
        }
        away.into_iter().for_each(|away| world.take(away));
        let images = || {
            let files = (0..2).filter(|file| Some(*file) != away);
            files.map(|file| std::fs::read(world.path(file)).unwrap()).collect::<Vec<_>>()
        };
        let before = images();
        let repair = fs::repair(&world.pool.dir(), &mut |_, _| ()).unwrap().expect("damage");
        let report = repair.report().clone();
        let again = report.done.iter().filter(|done| done.what.contains("written again")).count();
        assert!(away.is_some() || again >= 2, "{report:?}");
        assert!(report.left.is_empty(), "{:?}", report.left);
        assert!(images() == before, "so far in memory only");
        let undo = world.pool.dir().join("undo");
        repair.write(&undo).unwrap();
        let missing = |finding: &fs::Finding| finding.what.contains("is missing");
        let findings = world.pool.check().findings;
        assert!(findings.iter().all(|it| away.is_some() && missing(it)), "{findings:?}");
        assert!(fs::undo(&world.pool.dir(), &undo).unwrap() > 0);
        assert!(images() == before, "undone");
        let repair = fs::repair(&world.pool.dir(), &mut |_, _| ()).unwrap().expect("damage");
        std::fs::remove_file(&undo).unwrap();
        repair.write(&undo).unwrap();
        let fs = world.pool.start_alone();
        world.verify(&fs);
        close(fs);
        if away.is_none() {
            world.pool.assert_clean();
        }
    }
}

/// Writes of all kinds into a block whose first copy cannot be read; what is seen after each.
fn write_around(world: &mut World, fs: &FileSystem) {
    let file = find(fs, "data");
    for (at, len) in [(9, 8), (2000, 60), (700, 2000), (0, 3), (BLOCK - 5, 5), (100, 900)] {
        let data = pattern(at as u64 + 1, len);
        fs.write(&file, at as u64, &data).unwrap();
        world.files.get_mut("data").unwrap()[at..at + len].copy_from_slice(&data);
        let seen = crate::common::content(fs, &file);
        let differs = (0..BLOCK).find(|at| seen[*at] != world.files["data"][*at]);
        assert_eq!(differs, None, "after a write of {len} bytes at {at}");
        world.verify(fs);
    }
}

fn with_data() -> (World, [(usize, u64); 2]) {
    let mut world = World::new(2);
    let data = pattern(99, BLOCK);
    let fs = world.pool.start_alone();
    fs.write(&make(&fs, "data"), 0, &data).unwrap();
    close(fs);
    world.files.insert("data".into(), data.clone());
    let places = places(&world, &data);
    (world, places)
}

/// A load from that page is an uncorrectable memory error.
#[test]
fn a_block_whose_memory_fails_is_read_from_its_mirror_and_written_elsewhere() {
    for failed in 0..2 {
        let (mut world, places) = with_data();
        let (file, at) = places[failed];
        let candidates = crate::common::candidates(&world.pool.dir(), false).unwrap();
        let mapping = &candidates[file].mapping;
        if mapping.poison(at, BLOCK).is_err() {
            println!("skipped: this kernel makes no memory errors");
            return;
        }
        let fs = FileSystem::open_candidates(candidates, &world.pool.open, false).unwrap();
        world.verify(&fs);
        write_around(&mut world, &fs);
        close(fs);
        world.pool.assert_clean();
        for slice in 0..2 {
            world.take(slice);
            let options = pool::OpenOptions { read_only: true, ..world.pool.open.clone() };
            let fs = FileSystem::open_pool(&world.pool.dir(), &options).unwrap();
            world.verify(&fs);
            drop(fs);
            world.put_back(slice);
        }
    }
}

/// The same of a block that was read and verified before it failed: nobody looks at its checksum.
#[test]
fn a_block_that_fails_after_it_was_verified_is_never_read_as_zeros() {
    let (mut world, [(file, at), _]) = with_data();
    let fs = world.pool.start_alone();
    world.verify(&fs);
    world.verify(&fs);
    let path = world.path(file);
    File::options().write(true).open(path).unwrap().set_len(at).unwrap();
    world.verify(&fs);
    write_around(&mut world, &fs);
    let mut part = [0; 100];
    fs.read(&find(&fs, "data"), 1234, &mut part).unwrap();
    assert_eq!(part, world.files["data"][1234..1334]);
}

/// An older copy of a file, put back in its place, is not taken for what it was.
#[test]
fn a_file_from_a_backup_is_stale() {
    for slice in 0..2 {
        let mut world = World::new(2);
        let backup = std::fs::read(world.path(slice)).unwrap();
        for round in 0..3 {
            let fs = world.pool.start_alone();
            world.write(&fs, &format!("round-{round}"), 3);
            close(fs);
        }
        std::fs::write(world.path(slice), backup).unwrap();
        world.assert_only("is stale");
        world.resilver();
        world.take(1 - slice);
        world.verify(&world.pool.start_alone());
    }
}

/// A record that only one copy of the log has, as the other lost it, counts.
#[test]
fn a_record_that_one_log_lost_is_taken_from_the_other() {
    for from in 0..2usize {
        let mut world = World::new(2);
        let fs = world.pool.start_alone();
        world.write(&fs, "logged", 5);
        drop(fs);
        // the last record of each lane of each slice, in its first copy or in its mirror
        for slice in 0..2 {
            let file = if from == 0 { slice } else { (slice + 1) % 2 };
            let half = if from == 0 { 0 } else { super::SLICE_BYTES };
            let bytes = std::fs::read(world.path(file)).unwrap();
            let log = &bytes[half + 16 * BLOCK..half + 48 * BLOCK];
            let Some(last) = log.chunks(64).rposition(|line| line.iter().any(|byte| *byte != 0))
            else {
                continue;
            };
            flip(&world, (file, (half + 16 * BLOCK + last * 64 - 64) as u64));
        }
        let fs = world.pool.start_alone();
        world.verify(&fs);
        close(fs);
        world.pool.assert_clean();
    }
}
