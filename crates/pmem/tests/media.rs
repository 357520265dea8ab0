//! Memory that fails while it is mapped: an error of the range, no end of the process.
#![cfg(feature = "recorder")]
#![allow(clippy::unwrap_used)]

use pmem::{Error, MapOptions, Mapping, fence};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

const PAGES: usize = 16;
const BYTES: usize = PAGES * 4096;

/// A mapped file in shared memory, each byte the number of its page.
fn mapped() -> (TempDir, File, Mapping) {
    let directory = TempDir::new_in("/dev/shm").unwrap();
    let path = directory.path().join("slice");
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 4096) as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mapping = Mapping::open(&path, &MapOptions { process: true, ..MapOptions::default() });
    (directory, file, mapping.unwrap())
}

/// Every way to read `len` bytes at `offset`.
fn reads(mapping: &Mapping, offset: u64, len: usize) -> Vec<Result<(), Error>> {
    let mut buffer = vec![0; len];
    vec![
        mapping.read(offset, &mut buffer),
        mapping.read_crc(offset, &mut buffer).map(drop),
        mapping.crc(offset, len).map(drop),
        mapping.crc_difference(offset, &buffer, 0).map(drop),
        mapping.read_u64(offset / 8 * 8).map(drop),
    ]
}

#[test]
fn a_load_that_fails_is_an_error_of_its_range_until_it_is_written() {
    let (_directory, file, mapping) = mapped();
    mapping.poison(5 * 4096, 4096).unwrap();
    mapping.poison(9 * 4096, 2 * 4096).unwrap();
    assert_eq!(mapping.bad_ranges(), [], "nobody has met them");
    for at in [5 * 4096, 5 * 4096 + 4000] {
        for read in reads(&mapping, at, 96) {
            assert!(matches!(read, Err(Error::Media { offset: 20_480, len: 4096 })), "{read:?}");
        }
    }
    assert_eq!(mapping.bad_ranges(), [(20_480, 4096)]);
    let mut across = vec![0; 3 * 4096];
    assert!(mapping.read(8 * 4096, &mut across).is_err());
    assert_eq!(across[..4096], vec![8; 4096], "what could be read");
    assert_eq!(mapping.bad_ranges(), [(20_480, 4096), (36_864, 8192)]);
    for page in [0, 4, 6, 8, 11] {
        assert!(reads(&mapping, page * 4096, 4096).iter().all(Result::is_ok), "page {page}");
    }
    // a page that is written is whole again, and what is stored lies in the file
    fence(mapping.write(5 * 4096 + 100, &[7; 200]));
    assert!(reads(&mapping, 5 * 4096, 4096).iter().all(Result::is_ok));
    let mut found = vec![1; 4096];
    file.read_exact_at(&mut found, 5 * 4096).unwrap();
    let mut expected = vec![0; 4096];
    expected[100..300].fill(7);
    assert_eq!(found, expected);
    assert_eq!(mapping.bad_ranges(), [(36_864, 8192)]);
    assert!(!mapping.broken());
    drop(mapping);
    let (_directory, _file, next) = mapped();
    assert_eq!(next.bad_ranges(), [], "where it was mapped something else may be");
}

#[test]
fn threads_that_meet_the_same_failure_all_see_it() {
    let (_directory, _file, mapping) = mapped();
    for round in 0..PAGES as u64 {
        mapping.poison(round * 4096, 4096).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let read = mapping.read(round * 4096 + 8, &mut [0; 64]);
                    assert!(matches!(read, Err(Error::Media { .. })), "{read:?}");
                });
            }
        });
    }
    assert_eq!(mapping.bad_ranges(), [(0, BYTES as u64)]);
}

#[test]
fn a_file_that_is_cut_short_under_its_mapping_is_an_error_behind_its_end() {
    let (_directory, file, mapping) = mapped();
    file.set_len(3 * 4096).unwrap();
    let mut all = vec![0xEE; BYTES];
    assert!(matches!(mapping.read(0, &mut all), Err(Error::Media { offset: 12_288, .. })));
    assert!(mapping.read(0, &mut all[..3 * 4096]).is_ok());
    assert_eq!(all[2 * 4096..3 * 4096], vec![2; 4096]);
}

/// A plain file in the domain `sync` is written through its descriptor.
#[test]
fn what_is_written_through_the_file_is_seen_again() {
    let directory = TempDir::new_in("/dev/shm").unwrap();
    let path = directory.path().join("slice");
    std::fs::write(&path, [3; 8192]).unwrap();
    let mapping = Mapping::open(&path, &MapOptions::default()).unwrap();
    mapping.poison(4096, 4096).unwrap();
    assert!(mapping.read(5000, &mut [0; 8]).is_err());
    fence(mapping.write(5000, &[9; 8]));
    let mut found = [0; 16];
    mapping.read(4996, &mut found).unwrap();
    assert_eq!(found, [3, 3, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 3, 3, 3, 3]);
    assert_eq!(mapping.bad_ranges(), []);
}

/// Where the signal was handled by somebody before, what is not about a mapping goes there; and
/// where nobody did, the process ends by it.
#[test]
fn what_is_about_other_memory_ends_the_process_as_before() {
    const VARIABLE: &str = "NEARSIDE_TEST_SIGBUS";
    if std::env::var_os(VARIABLE).is_some() {
        let (_directory, _file, mapping) = mapped();
        mapping.poison(0, 4096).unwrap();
        assert!(mapping.read(0, &mut [0; 8]).is_err());
        let empty = tempfile::tempfile().unwrap();
        // SAFETY: the kernel picks unused addresses; the load ends this process, which is there for
        // that.
        unsafe {
            let (shared, descriptor) = (libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&empty));
            let none = std::ptr::null_mut();
            let page = libc::mmap(none, 4096, libc::PROT_READ, shared, descriptor, 0);
            assert_ne!(page, libc::MAP_FAILED);
            page.cast::<u8>().read_volatile();
        }
        unreachable!("the signal was swallowed");
    }
    let test = "what_is_about_other_memory_ends_the_process_as_before";
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(VARIABLE, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
}
