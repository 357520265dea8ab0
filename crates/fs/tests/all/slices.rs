//! Slices that are damaged, missing, strange or in use: an error that says what and what to do, or
//! a repair that is told of; and nothing is lost.

use fs::{Creation, FileSystem, Ino, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec, Superblock};
use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

const BYTES: u64 = 4 << 20;
const LAST: u64 = BYTES - 4096;

fn options(slices: usize) -> FormatOptions {
    FormatOptions {
        slices: vec![SliceSpec::default(); slices],
        slice_bytes: BYTES,
        process: true,
        ..FormatOptions::default()
    }
}

/// A pool of `slices` with one file in it, closed.
fn made(slices: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::format(dir.path(), &options(slices)).unwrap();
    let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
    let by = Creation { mode: 0o600, umask: 0, uid: 0, gid: 0 };
    fs.create(Ino::ROOT, b"kept", NewNode::File, by).unwrap();
    fs.close().unwrap();
    dir
}

fn slice(dir: &Path, index: u32) -> PathBuf {
    dir.join(format!("slice.{index}"))
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    FileOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn open(dir: &Path) -> fs::Result<FileSystem> {
    FileSystem::open_pool(dir, &OpenOptions::default())
}

/// Opening fails, and says all of `words`.
fn refused(dir: &Path, words: &[&str]) {
    let text = open(dir).map(|_| ()).unwrap_err().to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

/// A superblock whose checksum fits.
fn superblock(dir: &Path, index: u32) -> Superblock {
    let bytes = std::fs::read(slice(dir, index)).unwrap();
    Superblock::decode(&bytes[..512], BYTES).unwrap()
}

/// Puts it into both places.
fn put_superblock(dir: &Path, index: u32, superblock: Superblock) {
    for offset in [0, LAST] {
        put(&slice(dir, index), offset, superblock.seal().as_bytes());
    }
}

#[test]
fn a_slice_that_counts_more_slices_than_the_others_is_refused() {
    let dir = made(2);
    std::fs::copy(slice(dir.path(), 1), slice(dir.path(), 2)).unwrap();
    let (slices, index) = (U32::new(3), U32::new(2));
    let more = Superblock { slices, index, ..superblock(dir.path(), 1) };
    put_superblock(dir.path(), 2, more);
    refused(dir.path(), &["more slices than the pool has"]);
    std::fs::remove_file(slice(dir.path(), 2)).unwrap();
    assert!(open(dir.path()).is_ok());
}

#[test]
fn no_slices_are_no_pool() {
    let opened = FileSystem::open_candidates(Vec::new(), &OpenOptions::default(), false);
    assert!(opened.unwrap_err().to_string().contains("there are none"));
}

/// A chunk of the log with a number that no pool comes to: nobody goes on counting from there.
#[test]
fn a_chunk_with_an_absurd_number_is_passed_over() {
    let dir = made(1);
    let uuid = superblock(dir.path(), 0).slice_uuid;
    let mut header = [0; 64];
    header[..4].copy_from_slice(b"NSCH");
    header[8..16].copy_from_slice(&(1u64 << 62).to_le_bytes());
    let crc = pmem::crc32c(pmem::crc32c(0, &uuid), &header[8..]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    put(&slice(dir.path(), 0), 16 * 4096, &header);
    let fs = open(dir.path()).unwrap();
    assert!(fs.lookup(Ino::ROOT, b"kept").is_ok());
    fs.close().unwrap();
    drop(fs);
    assert!(fs::check(dir.path()).unwrap().findings.is_empty());
}

#[test]
fn one_damaged_superblock_is_repaired_from_the_other_and_told_of() {
    for (offset, which) in [(0, "first"), (LAST, "second")] {
        let dir = made(2);
        put(&slice(dir.path(), 1), offset + 20, &[0xFF; 8]);
        let fs = open(dir.path()).unwrap();
        let notes = fs.info().notes.join("\n");
        assert!(notes.contains(which) && notes.contains("repaired"), "{notes:?}");
        assert!(fs.lookup(Ino::ROOT, b"kept").is_ok());
        fs.close().unwrap();
        drop(fs);
        let fs = open(dir.path()).unwrap();
        assert_eq!(fs.info().notes, Vec::<String>::new(), "it is whole again");
    }
}

#[test]
fn check_tells_of_a_damaged_superblock_and_changes_nothing() {
    let dir = made(1);
    put(&slice(dir.path(), 0), 20, &[0xFF; 8]);
    let before = std::fs::read(slice(dir.path(), 0)).unwrap();
    let report = fs::check(dir.path()).unwrap();
    assert!(report.findings.iter().any(|f| f.what.contains("superblock")), "{report:?}");
    assert!(std::fs::read(slice(dir.path(), 0)).unwrap() == before);
}

#[test]
fn two_damaged_superblocks_and_foreign_files_are_refused() {
    let dir = made(1);
    put(&slice(dir.path(), 0), 20, &[0xFF; 8]);
    put(&slice(dir.path(), 0), LAST + 20, &[0xFF; 8]);
    refused(dir.path(), &["slice.0", "superblocks are damaged"]);
    std::fs::write(slice(dir.path(), 0), vec![7; BYTES as usize]).unwrap();
    refused(dir.path(), &["slice.0", "no Nearside superblock"]);
}

#[test]
fn a_newer_version_is_named() {
    let dir = made(1);
    let path = slice(dir.path(), 0);
    let bytes = std::fs::read(&path).unwrap();
    let mut newer = Superblock::decode(&bytes, BYTES).unwrap();
    newer.version = U32::new(7);
    let newer = newer.seal();
    put(&path, 0, newer.as_bytes());
    put(&path, LAST, newer.as_bytes());
    refused(dir.path(), &["version 7", "use a newer Nearside"]);
}

#[test]
fn slices_that_are_missing_doubled_or_of_another_pool_are_named() {
    let (dir, other) = (made(2), made(2));
    let (first, second) = (slice(dir.path(), 0), slice(dir.path(), 1));
    let away = dir.path().join("away");
    std::fs::rename(&second, &away).unwrap();
    refused(dir.path(), &["slice 1 of 2 is missing"]);
    std::fs::copy(&first, &second).unwrap();
    refused(dir.path(), &["slice 0 is there twice"]);
    std::fs::copy(slice(other.path(), 1), &second).unwrap();
    refused(dir.path(), &["different pools", "slice.1"]);
    std::fs::rename(&away, &second).unwrap();
    assert!(open(dir.path()).unwrap().lookup(Ino::ROOT, b"kept").is_ok());
}

#[test]
fn a_shrunk_slice_is_refused_and_comes_back_with_its_bytes() {
    let dir = made(1);
    let path = slice(dir.path(), 0);
    let bytes = std::fs::read(&path).unwrap();
    FileOptions::new().write(true).open(&path).unwrap().set_len(BYTES / 2).unwrap();
    refused(dir.path(), &["slice.0"]);
    FileOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    refused(dir.path(), &["slice.0"]);
    std::fs::write(&path, bytes).unwrap();
    assert!(open(dir.path()).unwrap().lookup(Ino::ROOT, b"kept").is_ok());
}

#[test]
fn no_pool_a_second_format_and_sizes_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &["no pool here", "nearside format"]);
    let small = FormatOptions { slice_bytes: 4096, ..options(1) };
    let text = fs::format(dir.path(), &small).unwrap_err().to_string();
    assert!(text.contains("too small"), "{text}");
    assert!(fs::format(dir.path(), &options(0)).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a failed format leaves nothing");
    fs::format(dir.path(), &options(1)).unwrap();
    let text = fs::format(dir.path(), &options(1)).unwrap_err().to_string();
    assert!(text.contains("a pool is there, and format replaces none"), "{text}");
    assert!(open(dir.path()).is_ok());
}

#[test]
fn a_pool_in_use_is_refused_and_its_holder_named() {
    let dir = made(1);
    let holder = open(dir.path()).unwrap();
    refused(dir.path(), &[&std::process::id().to_string()]);
    drop(holder);
    assert!(open(dir.path()).is_ok());
}

#[test]
fn a_format_that_is_ended_leaves_nothing_and_then_works() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool");
    // Two steps a slice, the last one with all done.
    for stop in 0..4 {
        let mut told = Vec::new();
        let ended = fs::format_watched(&pool, &options(2), &mut |done, of| {
            told.push((done, of));
            told.len() <= stop
        });
        assert_eq!(ended.unwrap_err().errno(), libc::EINTR);
        assert_eq!(told[stop], ([0, BYTES, BYTES, 2 * BYTES][stop], 2 * BYTES));
        assert!(!pool.exists(), "{stop}: {told:?}");
    }
    fs::format(&pool, &options(2)).unwrap();
    open(&pool).unwrap().close().unwrap();
}
