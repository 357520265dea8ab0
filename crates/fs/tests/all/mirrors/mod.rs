//! Pools with two copies of everything: any file of theirs may be away, stale or damaged.

mod damage;
mod resilver;

use crate::common::{TestPool, content, find, make, options, pattern};
use fs::FileSystem;
use pool::FormatOptions;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const FILE_BYTES: u64 = 8 << 20;
const SLICE_BYTES: usize = FILE_BYTES as usize / 2;
const BLOCK: usize = 4096;

/// A mirrored pool, and what its files hold.
struct World {
    pool: TestPool,
    files: BTreeMap<String, Vec<u8>>,
}

impl World {
    fn new(slices: usize) -> World {
        World::with(FormatOptions { data_copies: 2, ..options(slices, FILE_BYTES) })
    }

    fn with(options: FormatOptions) -> World {
        let mut world = World { pool: TestPool::with(&options), files: BTreeMap::new() };
        let fs = world.pool.start_alone();
        world.write(&fs, "first", 12);
        close(fs);
        world
    }

    /// Makes files of all sizes, removes one of those that are there, and changes the others.
    fn write(&mut self, fs: &FileSystem, prefix: &str, count: usize) {
        if let Some((name, _)) = self.files.pop_first() {
            fs.unlink(fs::Ino::ROOT, name.as_bytes()).unwrap();
        }
        for (name, bytes) in &mut self.files {
            let at = bytes.len() / 3;
            let data = pattern(prefix.len() as u64 + at as u64, bytes.len().min(700));
            fs.write(&find(fs, name), at as u64, &data).unwrap();
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(&data);
        }
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let bytes = pattern(number as u64 + 7, 1 + number * number * 900);
            fs.write(&make(fs, &name), 0, &bytes).unwrap();
            self.files.insert(name, bytes);
        }
    }

    /// All that was written is there, and nothing is wrong.
    #[track_caller]
    fn verify(&self, fs: &FileSystem) {
        for (name, bytes) in &self.files {
            assert!(content(fs, &find(fs, name)) == *bytes, "{name}");
        }
    }

    fn path(&self, slice: usize) -> PathBuf {
        self.pool.dir().join(format!("slice.{slice}"))
    }

    fn away(&self, slice: usize) -> PathBuf {
        self.pool.dir().join(format!("away.{slice}"))
    }

    fn take(&self, slice: usize) {
        std::fs::rename(self.path(slice), self.away(slice)).unwrap();
    }

    fn put_back(&self, slice: usize) {
        std::fs::rename(self.away(slice), self.path(slice)).unwrap();
    }

    fn halves(&self, slice: usize) -> [Vec<u8>; 2] {
        let mut bytes = std::fs::read(self.path(slice)).unwrap();
        let mirror = bytes.split_off(SLICE_BYTES);
        [bytes, mirror]
    }

    #[track_caller]
    fn refused(&self) -> String {
        FileSystem::open_pool(&self.pool.dir(), &self.pool.open).unwrap_err().to_string()
    }

    /// A check finds one thing.
    #[track_caller]
    fn assert_only(&self, what: &str) {
        let findings = self.pool.check().findings;
        assert!(findings.len() == 1 && findings[0].what.contains(what), "{findings:#?}");
    }

    /// Opens the pool, brings stale copies up to date, and closes it.
    fn resilver(&self) -> fs::Resilvered {
        let fs = self.pool.start_alone();
        let done = fs.resilver(&mut |_, _| true).expect("something was stale");
        assert_eq!((done.ended.clone(), done.done), (Some(Ok(())), done.of), "{done:?}");
        self.verify(&fs);
        close(fs);
        done
    }
}

fn close(fs: FileSystem) {
    fs.close().unwrap();
}

fn degraded(fs: &FileSystem) -> Vec<String> {
    let notes = fs.info().notes;
    notes.into_iter().filter(|note| note.contains("degraded") || note.contains("stale")).collect()
}

#[test]
fn each_slice_is_there_twice_byte_by_byte() {
    for process in [true, false] {
        let options = FormatOptions { process, data_copies: 2, ..options(3, FILE_BYTES) };
        let mut world = World::with(options);
        let fs = world.pool.start_alone();
        world.write(&fs, "more", 9);
        fs.checkpoint().unwrap();
        world.write(&fs, "and-more", 3);
        close(fs);
        let files: Vec<_> = (0..3).map(|slice| world.halves(slice)).collect();
        for slice in 0..3 {
            assert!(files[slice][0] == files[(slice + 1) % 3][1], "slice {slice}");
        }
    }
}

#[test]
fn any_file_may_be_away_and_comes_back() {
    for process in [true, false] {
        let options = FormatOptions { process, data_copies: 2, ..options(3, FILE_BYTES) };
        let mut world = World::with(options);
        for slice in 0..3 {
            world.take(slice);
            world.assert_only("is missing");
            let fs = world.pool.start_alone();
            assert_eq!(degraded(&fs).len(), 1, "{:?}", fs.info().notes);
            assert!(degraded(&fs)[0].contains(&format!("slice {slice} is missing")));
            world.verify(&fs);
            world.write(&fs, &format!("without-{slice}"), 5);
            drop(fs);
            // it was killed: the log is in one copy only, too
            let fs = world.pool.start_alone();
            world.verify(&fs);
            close(fs);
            world.put_back(slice);
            world.assert_only("is stale");
            assert!(world.resilver().copied > 0);
            let fs = world.pool.start_alone();
            assert!(degraded(&fs).is_empty(), "{:?}", fs.info().notes);
            assert!(fs.resilver(&mut |_, _| true).is_none(), "nothing is stale any more");
            world.verify(&fs);
            close(fs);
        }
        world.pool.assert_clean();
    }
}

#[test]
fn without_both_copies_of_a_slice_a_pool_is_refused() {
    let world = World::new(4);
    world.take(1);
    world.take(2);
    let why = world.refused();
    assert!(why.contains("slice 1 is lost"), "{why}");
    world.put_back(2);
    world.take(3);
    // 1 is in 2, 3 is in 0
    let fs = world.pool.start_alone();
    assert_eq!(degraded(&fs).len(), 2);
    world.verify(&fs);
    close(fs);
    // all that is back is stale
    world.put_back(1);
    world.take(2);
    let why = world.refused();
    assert!(why.contains("slice 1 is lost"), "{why}");
    world.put_back(2);
    world.put_back(3);
    world.resilver();
    world.take(2);
    world.take(0);
    world.verify(&world.pool.start_alone());
}

#[test]
fn a_file_that_is_no_slice_any_more_is_away() {
    type Spoil = fn(&File);
    let spoilers: [Spoil; 3] = [
        |file| file.write_all_at(&vec![0x5A; 2 * SLICE_BYTES], 0).unwrap(),
        |file| file.set_len(0).unwrap(),
        |file| {
            for at in [0, SLICE_BYTES - BLOCK, 2 * SLICE_BYTES - BLOCK] {
                file.write_all_at(&[0; 512], at as u64).unwrap();
            }
        },
    ];
    for spoil in spoilers {
        let mut world = World::new(2);
        spoil(&File::options().write(true).open(world.path(1)).unwrap());
        let fs = world.pool.start_alone();
        assert_eq!(degraded(&fs).len(), 1, "{:?}", fs.info().notes);
        world.verify(&fs);
        world.write(&fs, "more", 3);
        close(fs);
        world.verify(&world.pool.start_alone());
    }
}

#[test]
fn either_superblock_of_a_file_will_do() {
    for place in [0, SLICE_BYTES - BLOCK] {
        let world = World::new(2);
        let file = File::options().write(true).open(world.path(1)).unwrap();
        file.write_all_at(&[0; 512], place as u64).unwrap();
        let fs = world.pool.start_alone();
        assert!(degraded(&fs).is_empty());
        world.verify(&fs);
        close(fs);
        assert_eq!(world.halves(1)[0], world.halves(0)[1], "it is written again");
    }
}

#[test]
fn files_that_were_changed_without_each_other_are_not_mixed() {
    let mut world = World::new(2);
    world.take(0);
    let fs = world.pool.start_alone();
    world.write(&fs, "one-way", 3);
    close(fs);
    world.take(1);
    world.put_back(0);
    let fs = world.pool.start_alone();
    fs.write(&make(&fs, "other-way"), 0, b"here only").unwrap();
    close(fs);
    world.put_back(1);
    let why = world.refused();
    assert!(why.contains("was changed without the others"), "{why}");
    // one of them has to go
    world.take(0);
    world.verify(&world.pool.start_alone());
}

/// Opened only to be read, nothing is changed, and nobody becomes stale.
#[test]
fn who_only_reads_changes_no_members() {
    let world = World::new(2);
    world.take(1);
    let before = world.halves(0);
    let read_only = pool::OpenOptions { read_only: true, ..world.pool.open.clone() };
    let fs = FileSystem::open_pool(&world.pool.dir(), &read_only).unwrap();
    world.verify(&fs);
    drop(fs);
    assert!(world.halves(0) == before);
    world.put_back(1);
    assert!(degraded(&world.pool.start_alone()).is_empty());
}
